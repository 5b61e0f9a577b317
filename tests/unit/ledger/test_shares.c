/*
 * test_shares.c: memory with a name. All orders in which an owner and two importers open, free, close
 * and die are played, and after every event the total must be what really lives on: the bytes, as
 * long as the owner has not freed them or anybody has them open, and exactly 0 at the end.
 */
#include <stdio.h>
#include <string.h>

#include "support.h"

enum { BYTES = 60, KEY = 7 };

enum event {
    OWNER_FREES,
    OWNER_DIES,
    FIRST_OPENS,
    FIRST_CLOSES,
    FIRST_DIES,
    SECOND_OPENS,
    SECOND_CLOSES,
    SECOND_DIES,
    EVENTS
};

static const char *const event_names[] = {"owner frees",   "owner dies", "first opens",
                                          "first closes",  "first dies", "second opens",
                                          "second closes", "second dies"};

struct play {
    struct ull__ledger *ledger;
    uint64_t key;
    struct ull__member *owner, *importers[2];
    bool owner_lives, owned, importer_lives[2], open[2];
};

static struct ull__member *join(struct ull__ledger *ledger)
{
    struct ull__member *m = test_join(ull__ledger_path(ledger));
    assert_non_null(m);
    ull__member_set_driver_pid(m, 42);
    return m;
}

static void begin(struct play *play, struct ull__ledger *ledger, uint64_t key)
{
    *play = (struct play){.ledger = ledger, .key = key};
    play->owner = join(ledger);
    play->importers[0] = join(ledger);
    play->importers[1] = join(ledger);
    play->owner_lives = play->owned = play->importer_lives[0] = play->importer_lives[1] = true;
    assert_int_equal(ull__member_reserve(play->owner, 0, ULL_CLASS_DATA, BYTES), ULL_OK);
    assert_int_equal(ull__member_export(play->owner, 0, ULL_CLASS_DATA, key, BYTES), ULL_OK);
}

static void die(struct play *play, struct ull__member *m, bool *lives)
{
    test_die(m);
    *lives = false;
    ull__ledger_sweep(play->ledger, test_not_listed, NULL);
}

/* False if the event makes no sense now: memory that is gone cannot be opened, the dead do nothing. */
static bool act(struct play *play, enum event event)
{
    int i = event >= SECOND_OPENS;
    switch (event) {
    case OWNER_FREES:
        if (!play->owner_lives || !play->owned)
            return false;
        play->owned = false;
        ull__member_release_exported(play->owner, 0, ULL_CLASS_DATA, play->key, BYTES);
        return true;
    case OWNER_DIES:
        if (!play->owner_lives)
            return false;
        play->owned = false;
        die(play, play->owner, &play->owner_lives);
        return true;
    case FIRST_OPENS:
    case SECOND_OPENS:
        if (!play->importer_lives[i] || play->open[i] || !play->owned)
            return false;
        play->open[i] = true;
        assert_int_equal(ull__member_import(play->importers[i], 0, play->key, BYTES), ULL_OK);
        return true;
    case FIRST_CLOSES:
    case SECOND_CLOSES:
        if (!play->importer_lives[i] || !play->open[i])
            return false;
        play->open[i] = false;
        ull__member_import_closed(play->importers[i], 0, play->key, BYTES);
        return true;
    case FIRST_DIES:
    case SECOND_DIES:
        if (!play->importer_lives[i])
            return false;
        play->open[i] = false;
        die(play, play->importers[i], &play->importer_lives[i]);
        return true;
    case EVENTS:
        break;
    }
    return false;
}

static bool total_is_right(struct play *play)
{
    uint64_t lives = play->owned || play->open[0] || play->open[1] ? BYTES : 0;
    return test_total(play->ledger, 0, 0) == lives && test_sum(play->ledger, 0) == lives;
}

static void finish(struct play *play)
{
    act(play, OWNER_FREES);
    for (int i = 0; i < 2; i++)
        act(play, i ? SECOND_CLOSES : FIRST_CLOSES);
    assert_int_equal(test_total(play->ledger, 0, 0), 0);
    assert_int_equal(test_shares_in_use(play->ledger), 0);
    if (play->owner_lives)
        die(play, play->owner, &play->owner_lives);
    for (int i = 0; i < 2; i++)
        if (play->importer_lives[i])
            die(play, play->importers[i], &play->importer_lives[i]);
    test_forget(play->owner);
    test_forget(play->importers[0]);
    test_forget(play->importers[1]);
    assert_int_equal(test_slots_in_use(play->ledger), 0);
    test_assert_consistent(play->ledger);
}

static void play_all_orders(uint64_t key)
{
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    /* Every sequence of six events, written as a number to the base 8, of which each makes sense. */
    enum { LENGTH = TEST_SLOWNESS > 1 ? 4 : 6 };
    long sequences = 1, played = 0;
    for (int i = 0; i < LENGTH; i++)
        sequences *= EVENTS;
    for (long n = 0; n < sequences; n++) {
        struct play play;
        char told[256] = "";
        long rest = n, skip = sequences;
        begin(&play, ledger, key);
        int step = 0;
        for (; step < LENGTH; step++) {
            skip /= EVENTS;
            enum event event = (enum event)(rest / skip);
            rest %= skip;
            if (!act(&play, event))
                break;
            strcat(strcat(told, event_names[event]), ", ");
            if (!total_is_right(&play))
                fail_msg("after %stotal %llu, sum %llu", told,
                         (unsigned long long)test_total(ledger, 0, 0),
                         (unsigned long long)test_sum(ledger, 0));
        }
        finish(&play);
        if (step < LENGTH)
            n = n / skip * skip + skip - 1; /* nothing that begins like this makes sense */
        else
            played++;
    }
    print_message("%ld orders of %d events\n", played, LENGTH);
    assert_true(played > 100);
    test_destroy(ledger);
}

static void all_orders_by_key(void **state)
{
    (void)state;
    play_all_orders(KEY);
}

static void all_orders_by_size(void **state)
{
    (void)state;
    play_all_orders(0);
}

static void two_allocations_do_not_mix(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(2, 100);
    struct ull__ledger *ledger = test_create(&spec);
    struct ull__member *a = join(ledger), *b = join(ledger);
    ull__member_reserve(a, 0, ULL_CLASS_DATA, 20);
    ull__member_reserve(a, 0, ULL_CLASS_POOL, 30);
    ull__member_reserve(a, 1, ULL_CLASS_DATA, 20);
    ull__member_export(a, 0, ULL_CLASS_DATA, 1, 20);
    ull__member_export(a, 0, ULL_CLASS_POOL, 2, 30);
    ull__member_export(a, 1, ULL_CLASS_DATA, 1, 20);
    ull__member_export(a, 1, ULL_CLASS_DATA, 1, 20); /* named again: once only */
    assert_int_equal(test_shares_in_use(ledger), 3);
    ull__member_import(b, 0, 2, 30);
    ull__member_import(b, 0, 2, 30); /* opened twice by the same process */
    ull__member_release_exported(a, 0, ULL_CLASS_DATA, 1, 20);
    assert_int_equal(test_total(ledger, 0, 0), 30);
    ull__member_release_exported(a, 0, ULL_CLASS_POOL, 2, 30);
    struct ull__process_view view;
    assert_true(ull__ledger_process(ledger, test_slot(b, 0), &view));
    assert_int_equal(view.usage[0].by_class[ULL_CLASS_POOL], 30);
    ull__member_import_closed(b, 0, 2, 30);
    assert_int_equal(test_total(ledger, 0, 0), 30);
    ull__member_import_closed(b, 0, 2, 30);
    assert_int_equal(test_total(ledger, 0, 0), 0);
    assert_int_equal(test_total(ledger, 0, 1), 20);
    ull__member_import_closed(b, 0, 2, 30); /* once too often */
    assert_int_equal(test_total(ledger, 0, 0), 0);
    test_die(a);
    test_die(b);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 1), 0);
    assert_int_equal(test_shares_in_use(ledger), 0);
    test_forget(a);
    test_forget(b);
    test_destroy(ledger);
}

/* The owner is dead but still listed when the importer opens (its descriptor was under way). */
static void opened_after_the_owner_died(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    struct ull__member *a = join(ledger), *b = join(ledger);
    ull__member_reserve(a, 0, ULL_CLASS_DATA, 60);
    ull__member_export(a, 0, ULL_CLASS_DATA, KEY, 60);
    test_die(a);
    ull__ledger_sweep(ledger, test_listed, NULL);
    ull__member_import(b, 0, KEY, 60);
    ull__ledger_sweep(ledger, test_listed, NULL);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 60);
    ull__member_import_closed(b, 0, KEY, 60);
    assert_int_equal(test_total(ledger, 0, 0), 0);
    test_die(b);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_shares_in_use(ledger), 0);
    test_forget(a);
    test_forget(b);
    test_destroy(ledger);
}

static void a_full_table_is_harmless(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 10 * ULL_MAX_SHARES);
    struct ull__ledger *ledger = test_create(&spec);
    struct ull__member *a = join(ledger), *b = join(ledger);
    for (uint64_t i = 1; i <= ULL_MAX_SHARES + 10; i++) {
        assert_int_equal(ull__member_reserve(a, 0, ULL_CLASS_DATA, 2), ULL_OK);
        assert_int_equal(ull__member_export(a, 0, ULL_CLASS_DATA, i, 2),
                         i <= ULL_MAX_SHARES ? ULL_OK : ULL_E_FULL);
    }
    assert_int_equal(ull__member_import(b, 0, 1, 2), ULL_E_FULL);
    ull__member_import_closed(b, 0, 1, 2);
    for (uint64_t i = ULL_MAX_SHARES + 10; i >= 1; i--)
        ull__member_release_exported(a, 0, ULL_CLASS_DATA, i, 2);
    assert_int_equal(test_total(ledger, 0, 0), 0);
    assert_int_equal(test_shares_in_use(ledger), 0);
    test_die(a);
    test_die(b);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(a);
    test_forget(b);
    test_destroy(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_orders_by_key),          cmocka_unit_test(all_orders_by_size),
        cmocka_unit_test(two_allocations_do_not_mix), cmocka_unit_test(opened_after_the_owner_died),
        cmocka_unit_test(a_full_table_is_harmless),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
