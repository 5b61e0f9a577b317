/*
 * test_change.c: single changes, what they leave in the books and peaks; the race for the last MiB;
 * jobs inside jobs.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "member_private.h"
#include "support.h"

static void leave(struct ull__member *member)
{
    test_die(member);
    test_forget(member);
}

static void a_request_fits_or_changes_nothing(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(2, 100);
    struct ull__ledger *ledger = test_create(&spec);
    struct ull__member *m = test_join(ull__ledger_path(ledger));
    uint64_t budget, held;
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 100), ULL_OK);
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 1), ULL_E_NO_MEMORY);
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 0), ULL_OK);
    assert_int_equal(ull__member_reserve(m, 1, ULL_CLASS_DATA, 101), ULL_E_NO_MEMORY);
    assert_int_equal(ull__member_reserve(m, 1, ULL_CLASS_DATA, UINT64_MAX), ULL_E_NO_MEMORY);
    assert_int_equal(ull__member_reserve(m, 1, ULL_CLASS_DATA, INT64_MAX), ULL_E_NO_MEMORY);
    assert_int_equal(test_total(ledger, 0, 0), 100);
    assert_int_equal(test_total(ledger, 0, 1), 0);
    ull__member_charge(m, 0, ULL_CLASS_MODULE, 50); /* debt passes the budget and blocks what follows */
    ull__member_room(m, 0, &budget, &held);
    assert_int_equal(budget, 100);
    assert_int_equal(held, 150);
    ull__member_release(m, 0, ULL_CLASS_DATA, 20);
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 1), ULL_E_NO_MEMORY);
    ull__member_release(m, 0, ULL_CLASS_DATA, 80);
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 50), ULL_OK);
    assert_int_equal(ull__member_held(m, 0, ULL_CLASS_DATA), 50);
    test_assert_consistent(ledger);
    leave(m);
    test_destroy(ledger);
}

static void no_more_is_released_than_is_held(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    struct ull__member *m = test_join(ull__ledger_path(ledger));
    struct ull__member *other = test_join(ull__ledger_path(ledger));
    assert_int_equal(ull__member_reserve(other, 0, ULL_CLASS_DATA, 30), ULL_OK);
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 10), ULL_OK);
    ull__member_release(m, 0, ULL_CLASS_DATA, 11);
    assert_int_equal(test_total(ledger, 0, 0), 30);
    ull__member_release(m, 0, ULL_CLASS_DATA, UINT64_MAX / 2);
    ull__member_release(m, 0, ULL_CLASS_POOL, 5);
    ull__member_release_exported(m, 0, ULL_CLASS_DATA, 9, 5);
    assert_int_equal(test_total(ledger, 0, 0), 30);
    test_assert_consistent(ledger);
    leave(m);
    leave(other);
    test_destroy(ledger);
}

static void peaks_are_the_highest_that_was(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 1000);
    struct ull__ledger *ledger = test_create(&spec);
    struct ull__member *a = test_join(ull__ledger_path(ledger));
    struct ull__member *b = test_join(ull__ledger_path(ledger));
    struct ull__account_view view;
    ull__member_reserve(a, 0, ULL_CLASS_DATA, 300);
    ull__member_reserve(b, 0, ULL_CLASS_DATA, 450);
    assert_true(ull__ledger_account(ledger, 0, &view));
    assert_int_equal(view.usage[0].peak_bytes, 0); /* a worst case is no peak */
    ull__member_release(b, 0, ULL_CLASS_DATA, 250);
    ull__member_settled_to(a, 0, ULL_CLASS_DATA);
    ull__member_settled_to(b, 0, ULL_CLASS_DATA);
    ull__ledger_sample(ledger); /* the supervisor's part: sums over processes */
    ull__member_release(a, 0, ULL_CLASS_DATA, 300);
    ull__member_reserve(a, 0, ULL_CLASS_POOL, 250);
    ull__member_settled_to(a, 0, ULL_CLASS_POOL);
    struct ull__process_view process;
    assert_true(ull__ledger_account(ledger, 0, &view));
    assert_int_equal(view.usage[0].peak_bytes, 500);
    assert_int_equal(view.usage[0].peak_by_class[ULL_CLASS_DATA], 500);
    assert_int_equal(view.usage[0].peak_by_class[ULL_CLASS_POOL], 250);
    assert_int_equal(view.usage[0].held_bytes, 450);
    assert_int_equal(view.usage[0].by_class[ULL_CLASS_DATA], 200);
    assert_true(ull__ledger_process(ledger, test_slot(a, 0), &process));
    assert_int_equal(process.usage[0].peak_bytes, 300);
    leave(a);
    leave(b);
    test_destroy(ledger);
}

/* --- the last MiB ------------------------------------------------------------------------------- */

enum { RACERS = 64, PRIZES = 48 };

struct race {
    const char *path;
    struct shared {
        _Atomic int ready, go, won, done;
        _Atomic int64_t taken, highest; /* counted by the racers, not by the ledger */
    } * shared;
};

static void count_taken(struct shared *shared, int64_t bytes)
{
    int64_t now = atomic_fetch_add(&shared->taken, bytes) + bytes;
    int64_t highest = atomic_load(&shared->highest);
    while (highest < now && !atomic_compare_exchange_weak(&shared->highest, &highest, now))
        ;
}

/* Counts after it was granted and before it gives back: never more than the ledger may say. */
static int race(void *data)
{
    struct race *r = data;
    struct ull__member *m = test_join(r->path);
    const uint64_t unit = MIB / PRIZES;
    if (!m)
        return 1;
    ull__member_set_driver_pid(m, (uint32_t)getpid());
    atomic_fetch_add(&r->shared->ready, 1);
    while (!atomic_load(&r->shared->go))
        sched_yield();
    for (int i = 0; i < 2000 / TEST_SLOWNESS; i++) {
        if (ull__member_reserve(m, 0, ULL_CLASS_DATA, unit) != ULL_OK)
            continue;
        count_taken(r->shared, (int64_t)unit);
        if (i % 8 == 0)
            sched_yield();
        atomic_fetch_sub(&r->shared->taken, (int64_t)unit);
        ull__member_release(m, 0, ULL_CLASS_DATA, unit);
    }
    atomic_fetch_add(&r->shared->done, 1);
    while (atomic_load(&r->shared->done) < RACERS)
        sched_yield();
    /* All have given back: now everybody asks once and keeps it. */
    if (ull__member_reserve(m, 0, ULL_CLASS_DATA, unit) == ULL_OK) {
        atomic_fetch_add(&r->shared->won, 1);
        count_taken(r->shared, (int64_t)unit);
    }
    atomic_fetch_add(&r->shared->done, 1);
    while (atomic_load(&r->shared->done) < 2 * RACERS)
        sched_yield();
    return 0;
}

static void sixty_four_race_for_the_last_mib(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 8 * MIB);
    struct ull__ledger *ledger = test_create(&spec);
    struct ull__member *m = test_join(ull__ledger_path(ledger));
    const uint64_t rest = MIB / PRIZES * PRIZES;
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 8 * MIB - rest), ULL_OK);
    struct race r = {ull__ledger_path(ledger), test_shared(sizeof *r.shared)};
    pid_t pids[RACERS];
    for (int i = 0; i < RACERS; i++)
        pids[i] = test_fork(race, &r);
    while (atomic_load(&r.shared->ready) < RACERS)
        test_sleep_us(1000);
    atomic_store(&r.shared->go, 1);
    for (int i = 0; i < RACERS; i++)
        assert_int_equal(test_wait(pids[i]), 0);
    assert_int_equal(atomic_load(&r.shared->won), PRIZES);
    assert_true(atomic_load(&r.shared->highest) <= (int64_t)rest);
    assert_int_equal(test_total(ledger, 0, 0), 8 * MIB);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 8 * MIB - rest);
    test_assert_consistent(ledger);
    munmap(r.shared, sizeof *r.shared);
    leave(m);
    test_destroy(ledger);
}

/* --- threads of one process --------------------------------------------------------------------- */

static void *churn(void *data)
{
    for (int i = 0; i < 20000 / TEST_SLOWNESS; i++)
        if (ull__member_reserve(data, 0, ULL_CLASS_DATA, 30) == ULL_OK) {
            ull__member_granted(data, 0, 30);
            ull__member_release(data, 0, ULL_CLASS_DATA, 30);
        }
    return NULL;
}

static void threads_share_a_member(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    struct ull__member *members[2] = {test_join(ull__ledger_path(ledger)),
                                      test_join(ull__ledger_path(ledger))};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, churn, members[i % 2]);
    for (int i = 0; i < 200; i++) {
        ull__ledger_sweep(ledger, test_not_listed, NULL);
        assert_true(test_total(ledger, 0, 0) <= 100);
        test_sleep_us(100);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(test_total(ledger, 0, 0), 0);
    test_assert_consistent(ledger);
    leave(members[0]);
    leave(members[1]);
    test_destroy(ledger);
}

/* --- jobs inside jobs --------------------------------------------------------------------------- */

static struct ull__ledger *create_inside(struct ull__job_spec spec, struct ull__ledger *around)
{
    if (around)
        snprintf(spec.parent, sizeof spec.parent, "%s", ull__ledger_path(around));
    return test_create(&spec);
}

static void a_request_must_fit_everywhere(void **state)
{
    (void)state;
    /* The middle one has only the first device; the budgets are tight in different places. */
    struct ull__ledger *outer = create_inside(test_spec(2, 100), NULL);
    struct ull__ledger *middle = create_inside(test_spec(1, 60), outer);
    struct ull__ledger *inner = create_inside(test_spec(2, 80), middle);
    struct ull__member *m = test_join(ull__ledger_path(inner));
    struct ull__member *neighbour = test_join(ull__ledger_path(outer));
    struct ull__ledger *all[] = {inner, middle, outer};
    uint64_t budget, held;

    assert_int_equal(ull__member_device(m, "GPU-1"), 1);
    assert_int_equal(ull__member_device(m, "GPU-2"), -1);
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 61), ULL_E_NO_MEMORY);
    for (int k = 0; k < 3; k++) {
        struct ull__account_view view;
        assert_int_equal(test_total(all[k], 0, 0), 0);
        assert_true(ull__ledger_account(all[k], 0, &view));
        assert_int_equal(view.usage[0].peak_bytes, 0);
    }
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 40), ULL_OK);
    assert_int_equal(ull__member_reserve(neighbour, 0, ULL_CLASS_DATA, 55), ULL_OK);
    ull__member_room(m, 0, &budget, &held);
    assert_int_equal(budget - held, 5); /* the outermost is the tightest now */
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 6), ULL_E_NO_MEMORY);
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 5), ULL_OK);
    for (int k = 0; k < 2; k++)
        assert_int_equal(test_total(all[k], 0, 0), 45);
    assert_int_equal(test_total(outer, 0, 0), 100);

    /* A device that the middle job does not have: nothing is granted; a debt counts where it can. */
    assert_int_equal(ull__member_reserve(m, 1, ULL_CLASS_DATA, 1), ULL_E_NO_MEMORY);
    ull__member_charge(m, 1, ULL_CLASS_DATA, 7);
    assert_int_equal(ull__member_export(m, 1, ULL_CLASS_DATA, 3, 7), ULL_OK);
    assert_int_equal(ull__member_import(m, 1, 4, 7), ULL_OK);
    assert_int_equal(test_total(inner, 0, 1), 7);
    assert_int_equal(test_total(outer, 0, 1), 7);
    ull__member_import_closed(m, 1, 4, 7);
    ull__member_release_exported(m, 1, ULL_CLASS_DATA, 3, 7);
    ull__member_room(m, 1, &budget, &held);
    assert_int_equal(budget, 0);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(test_shares_in_use(all[k]), 0);
        assert_int_equal(test_total(all[k], 0, 1), 0);
        test_assert_consistent(all[k]);
    }

    /* A death counts everywhere. */
    test_die(m);
    for (int k = 0; k < 3; k++) {
        atomic_store(&all[k]->file->slots[test_slot(m, k)].driver_pid, 42);
        ull__ledger_sweep(all[k], test_not_listed, NULL);
    }
    assert_int_equal(test_total(inner, 0, 0), 0);
    assert_int_equal(test_total(outer, 0, 0), 55);
    test_forget(m);
    leave(neighbour);
    for (int k = 0; k < 3; k++)
        test_destroy(all[k]);
}

static void too_deep_a_chain_is_refused(void **state)
{
    (void)state;
    struct ull__ledger *chain[ULL_MAX_CHAIN + 1] = {NULL};
    for (int k = 0; k <= ULL_MAX_CHAIN; k++)
        chain[k] = create_inside(test_spec(1, 100), k ? chain[k - 1] : NULL);
    struct ull__member *m = test_join(ull__ledger_path(chain[ULL_MAX_CHAIN - 1]));
    assert_non_null(m);
    assert_int_equal(m->link_count, ULL_MAX_CHAIN);
    leave(m);
    assert_null(test_join(ull__ledger_path(chain[ULL_MAX_CHAIN])));
    for (int k = 0; k <= ULL_MAX_CHAIN; k++) {
        ull__ledger_sweep(chain[k], test_not_listed, NULL);
        assert_int_equal(test_slots_in_use(chain[k]), 0); /* places that were taken are given up */
        test_destroy(chain[k]);
    }
}

/* --- settling ----------------------------------------------------------------------------------- */

static void *wait_and_settle(void *data)
{
    ull__member_wait(data, 20000000000ull);
    ull__member_settled(data);
    return NULL;
}

static void who_asks_from_the_job_around_wakes_the_inner_one(void **state)
{
    (void)state;
    struct ull__ledger *outer = create_inside(test_spec(1, 100), NULL);
    struct ull__ledger *inner = create_inside(test_spec(1, 100), outer);
    struct ull__member *m = test_join(ull__ledger_path(inner));
    struct ull__member *neighbour = test_join(ull__ledger_path(outer));
    ull__member_charge(m, 0, ULL_CLASS_POOL, 10);
    pthread_t parked;
    pthread_create(&parked, NULL, wait_and_settle, m);
    test_sleep_us(50000); /* asleep by now */
    uint64_t start = ull__monotonic_ns();
    ull__member_ask_settle(neighbour, 5000000000ull);
    assert_true(ull__monotonic_ns() - start < 2000000000ull);
    pthread_join(parked, NULL);
    pthread_create(&parked, NULL, wait_and_settle, m);
    test_sleep_us(50000);
    ull__member_wake(m);
    pthread_join(parked, NULL);
    assert_true(ull__monotonic_ns() - start < 10000000000ull);
    leave(m);
    leave(neighbour);
    test_destroy(inner);
    test_destroy(outer);
}

static void *settle_late(void *data)
{
    ull__member_wait(data, 20000000000ull);
    test_sleep_us(60000);
    ull__member_settled(data);
    return NULL;
}

static uint64_t asked_for(struct ull__member *m, uint64_t timeout_ns)
{
    uint64_t start = ull__monotonic_ns();
    ull__member_ask_settle(m, timeout_ns);
    return ull__monotonic_ns() - start;
}

static bool has_answered(struct ull__member *m)
{
    const struct ull__slot *slot = &m->links[0].ledger->file->slots[m->links[0].slot];
    return atomic_load(&slot->settle_served) == atomic_load(&slot->settle_asked);
}

/* What it answers after a while on a busy machine counts; one that is stopped is waited for once. */
static void who_answers_late_is_waited_for_and_who_never_does_only_once(void **state)
{
    enum { MS = 1000000, TIMES = 25 };
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    struct ull__member *m = test_join(ull__ledger_path(ledger)),
                       *asks = test_join(ull__ledger_path(ledger));
    ull__member_charge(m, 0, ULL_CLASS_POOL, 10);
    for (int i = 0; i < 2; i++) { /* also after it was silent */
        pthread_t parked;
        pthread_create(&parked, NULL, settle_late, m);
        uint64_t took = asked_for(asks, 200 * MS);
        assert_true(i > 0 || (took >= 60 * MS && has_answered(m)));
        pthread_join(parked, NULL);
        ull__member_wait(m, 0); /* the second time it may have begun with what it was asked before */
        ull__member_settled(m);
        assert_true(has_answered(m));
        assert_true(asked_for(asks, 4 * MS) >= TIMES * 4 * MS);
        uint64_t least = UINT64_MAX;
        for (int k = 0; k < 5; k++) {
            took = asked_for(asks, 4 * MS);
            assert_true(took >= 4 * MS);
            least = took < least ? took : least;
        }
        assert_true(least < TIMES * 4 * MS);
    }
    leave(m);
    leave(asks);
    test_destroy(ledger);
}

struct busy {
    struct ull__member *answers, *others;
    _Atomic bool over;
};

/* Asked again whenever it has begun to look, so that what it was asked last is never answered. */
static void *settle_under_questions(void *data)
{
    struct busy *busy = data;
    while (!atomic_load(&busy->over)) {
        ull__member_wait(busy->answers, 10000000);
        ull__member_ask_settle(busy->others, 0);
        ull__member_settled(busy->answers);
    }
    return NULL;
}

static void what_others_ask_meanwhile_is_not_waited_for(void **state)
{
    enum { MS = 1000000 };
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    struct ull__member *asks = test_join(ull__ledger_path(ledger));
    struct busy busy = {.answers = test_join(ull__ledger_path(ledger)),
                        .others = test_join(ull__ledger_path(ledger))};
    pthread_t parked;
    ull__member_charge(busy.answers, 0, ULL_CLASS_POOL, 10);
    pthread_create(&parked, NULL, settle_under_questions, &busy);
    ull__member_ask_settle(asks, 200 * MS);
    assert_int_equal(atomic_load(&ledger->file->slots[busy.answers->links[0].slot].settle_missed),
                     0); /* not in vain */
    atomic_store(&busy.over, true);
    pthread_join(parked, NULL);
    leave(asks);
    leave(busy.others);
    leave(busy.answers);
    test_destroy(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_fits_or_changes_nothing),
        cmocka_unit_test(no_more_is_released_than_is_held),
        cmocka_unit_test(peaks_are_the_highest_that_was),
        cmocka_unit_test(sixty_four_race_for_the_last_mib),
        cmocka_unit_test(threads_share_a_member),
        cmocka_unit_test(a_request_must_fit_everywhere),
        cmocka_unit_test(too_deep_a_chain_is_refused),
        cmocka_unit_test(who_asks_from_the_job_around_wakes_the_inner_one),
        cmocka_unit_test(who_answers_late_is_waited_for_and_who_never_does_only_once),
        cmocka_unit_test(what_others_ask_meanwhile_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
