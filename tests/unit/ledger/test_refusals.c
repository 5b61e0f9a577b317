/* test_refusals.c: refusals as they are numbered, kept and told, and what else a report needs. */
#include <stdio.h>
#include <string.h>

#include "support.h"

static struct ull__ledger *ledger;
static struct ull__member *m;

static int set_up(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(2, 100);
    ledger = test_create(&spec);
    m = test_join(ull__ledger_path(ledger));
    return m ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    test_die(m);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(m);
    test_destroy(ledger);
    return 0;
}

static bool refuse(struct ull__member *who, uint64_t wanted, uint64_t *suppressed)
{
    struct ull__refusal refusal = {
        .wanted_bytes = wanted, .device = 0, .class = ULL_CLASS_DATA, .call = "cuMemAlloc_v2"};
    return ull__member_refused(who, &refusal, suppressed);
}

static void numbered_and_filled(void **state)
{
    (void)state;
    struct ull__refusal kept;
    uint64_t suppressed = 99;
    ull__member_reserve(m, 0, ULL_CLASS_POOL, 70);
    assert_true(refuse(m, 50, &suppressed));
    assert_int_equal(suppressed, 0);
    assert_true(ull__ledger_refusal(ledger, 1, &kept));
    assert_int_equal(kept.number, 1);
    assert_int_equal(kept.wanted_bytes, 50);
    assert_int_equal(kept.held_bytes, 70);
    assert_int_equal(kept.budget_bytes, 100);
    assert_int_equal(kept.by_class[ULL_CLASS_POOL], 70);
    assert_string_equal(kept.command, "test");
    assert_string_equal(kept.call, "cuMemAlloc_v2");
    assert_false(kept.survived);
    assert_false(ull__ledger_refusal(ledger, 2, &kept));
    assert_false(ull__ledger_refusal(ledger, 0, &kept));
    ull__member_release(m, 0, ULL_CLASS_POOL, 70);
}

static void one_line_a_second(void **state)
{
    (void)state;
    uint64_t suppressed;
    assert_true(refuse(m, 1, &suppressed));
    for (int i = 0; i < 5; i++) {
        assert_false(refuse(m, 1, &suppressed));
        assert_int_equal(suppressed, 0);
    }
    atomic_fetch_sub(&ledger->file->last_line_ns, 1000000001ull); /* a second later */
    assert_true(refuse(m, 1, &suppressed));
    assert_int_equal(suppressed, 5);
    assert_false(refuse(m, 1, &suppressed));
    /* A later refusal whose line came before this one's: none were kept back. */
    atomic_fetch_sub(&ledger->file->last_line_ns, 1000000001ull);
    atomic_store(&ledger->file->last_line_refusal, 1000);
    assert_true(refuse(m, 1, &suppressed));
    assert_int_equal(suppressed, 0);
}

static void quiet_prints_nothing(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    spec.quiet = true;
    struct ull__ledger *quiet = test_create(&spec);
    struct ull__member *other = test_join(ull__ledger_path(quiet));
    uint64_t suppressed;
    assert_false(refuse(other, 1, &suppressed));
    test_die(other);
    test_forget(other);
    test_destroy(quiet);
}

static void the_last_ones_are_kept(void **state)
{
    (void)state;
    uint64_t suppressed;
    struct ull__refusal kept;
    struct ull__job_view job;
    for (uint64_t i = 1; i <= ULL_MAX_REFUSALS + 10; i++)
        refuse(m, i, &suppressed);
    assert_false(ull__ledger_refusal(ledger, 10, &kept));
    for (uint64_t i = 11; i <= ULL_MAX_REFUSALS + 10; i++) {
        assert_true(ull__ledger_refusal(ledger, i, &kept));
        assert_int_equal(kept.wanted_bytes, i);
    }
    ull__ledger_job(ledger, &job);
    assert_int_equal(job.refusals, ULL_MAX_REFUSALS + 10);
    assert_int_equal(job.refusals_survived, 0);
}

static void survived_by_whoever_got_memory_later(void **state)
{
    (void)state;
    struct ull__member *other = test_join(ull__ledger_path(ledger)); /* has the same pid */
    struct ull__refusal kept;
    struct ull__job_view job;
    uint64_t suppressed;
    refuse(m, 1, &suppressed);
    refuse(other, 2, &suppressed);
    refuse(m, 3, &suppressed);
    ull__member_granted(m, 0, 1);
    ull__ledger_job(ledger, &job);
    assert_int_equal(job.refusals_survived, 2);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_true(ull__ledger_refusal(ledger, i, &kept));
        assert_int_equal(kept.survived, i != 2);
    }
    test_die(other);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(other);
    /* The next one in that place has survived nothing. */
    other = test_join(ull__ledger_path(ledger));
    ull__member_granted(other, 0, 1);
    assert_true(ull__ledger_refusal(ledger, 2, &kept));
    assert_false(kept.survived);
    test_die(other);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(other);
}

static void an_early_half_of_the_card_is_preallocation(void **state)
{
    (void)state;
    struct ull__job_view job;
    ull__member_granted(m, 1, 40);
    ull__ledger_job(ledger, &job);
    assert_false(job.preallocated[1]);
    assert_int_equal(job.first_allocation_bytes[1], 40);
    ull__member_granted(m, 1, 51);
    for (int i = 0; i < 40; i++)
        ull__member_granted(m, 0, 1);
    ull__member_granted(m, 0, 99); /* not an early one any more */
    ull__ledger_job(ledger, &job);
    assert_true(job.preallocated[1]);
    assert_false(job.preallocated[0]);
    assert_int_equal(job.first_allocation_bytes[0], 1);
    assert_int_equal(job.first_allocation_bytes[1], 51);
}

static void unknown_entry_points(void **state)
{
    (void)state;
    struct ull__job_view job;
    char name[100];
    ull__member_unknown_variant(m, "cuMemAlloc_v9");
    ull__member_unknown_variant(m, "cuMemAlloc_v9");
    ull__ledger_job(ledger, &job);
    assert_int_equal(job.variant_count, 1);
    assert_string_equal(job.variants[0], "cuMemAlloc_v9");
    memset(name, 'x', sizeof name);
    name[99] = '\0';
    ull__member_unknown_variant(m, name);
    ull__member_unknown_variant(m, name); /* is cut, and known all the same */
    for (int i = 0; i < 3 * ULL_MAX_VARIANTS; i++) {
        snprintf(name, sizeof name, "cuNew%d", i);
        ull__member_unknown_variant(m, name);
    }
    /* As after two that wrote the same at once, and one that died before it wrote. */
    strcpy(ledger->file->variants[5], "cuMemAlloc_v9");
    memset(ledger->file->variants[6], 0, ULL_NAME_TEXT);
    ull__ledger_job(ledger, &job);
    assert_int_equal(job.variant_count, ULL_MAX_VARIANTS - 2);
    for (int i = 0; i < job.variant_count; i++) {
        assert_true(job.variants[i][0] != '\0');
        for (int j = 0; j < i; j++)
            assert_string_not_equal(job.variants[i], job.variants[j]);
    }
    assert_true(atomic_load(&ledger->file->variant_count) <= ULL_MAX_VARIANTS);
}

static void the_average_counts_the_time_with_something_held(void **state)
{
    (void)state;
    struct ull__account_view view;
    ull__ledger_sample(ledger);
    test_sleep_us(20000);
    ull__ledger_sample(ledger); /* nothing held: does not count */
    ull__member_charge(m, 0, ULL_CLASS_DATA, 64 * 1024);
    for (int i = 0; i < 20; i++) {
        test_sleep_us(3000);
        ull__ledger_sample(ledger);
    }
    assert_true(ull__ledger_account(ledger, 0, &view));
    assert_in_range(view.average_bytes[0], 60 * 1024, 66 * 1024);
    ull__member_release(m, 0, ULL_CLASS_DATA, 64 * 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(numbered_and_filled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_line_a_second, set_up, tear_down),
        cmocka_unit_test_setup_teardown(quiet_prints_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_ones_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(survived_by_whoever_got_memory_later, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_early_half_of_the_card_is_preallocation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unknown_entry_points, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_average_counts_the_time_with_something_held, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
