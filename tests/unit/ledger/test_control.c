/* test_control.c: commands to a job, what its processes answer, and what the job is seen to be doing. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "layout.h"
#include "support.h"

enum { NOBODY = 65534 };

static struct ull__ledger *ledger;
static struct ull__member *m;

static int set_up(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(2, 100);
    spec.priority = 3;
    spec.spill_bytes = 40;
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

static struct ull__process_view process(int slot)
{
    struct ull__process_view view;
    assert_true(ull__ledger_process(ledger, slot, &view));
    return view;
}

static struct ull__job_view job(void)
{
    struct ull__job_view view;
    ull__ledger_job(ledger, &view);
    return view;
}

static void say(enum ull__residency residency, uint64_t evicted, bool done, const char *trouble)
{
    struct ull__residency_report report = {
        .residency = residency, .done = done, .trouble = trouble, .moved_bytes = evicted};
    report.evicted_bytes[1] = evicted;
    ull__member_report(m, &report);
}

static void numbered_and_answered(void **state)
{
    (void)state;
    enum ull__wanted wanted = ULL_WANT_MOVED_OUT;
    int slot = test_slot(m, 0);
    assert_int_equal(ull__ledger_commanded(ledger, &wanted), 0);
    assert_int_equal(wanted, ULL_WANT_RESIDENT);
    assert_false(ull__member_commanded(m));
    assert_int_equal(job().state, ULL_JOB_RUNNING);
    assert_int_equal(ull__ledger_command(ledger, ULL_WANT_MOVED_OUT), 1);
    assert_true(ull__member_commanded(m));
    assert_int_equal(ull__member_wanted(m), ULL_WANT_MOVED_OUT);
    say(ULL_MOVING_OUT, 10, false, NULL);
    assert_int_equal(job().state, ULL_JOB_SUSPENDING);
    assert_int_equal(process(slot).moved_bytes, 10);
    assert_true(ull__member_commanded(m)); /* not answered yet */
    say(ULL_MOVED_OUT, 40, true, NULL);
    assert_int_equal(job().state, ULL_JOB_SUSPENDED);
    assert_int_equal(job().evicted_bytes[1], 40);
    assert_int_equal(process(slot).done, 1);
    assert_int_equal(process(slot).evicted_bytes[1], 40);
    assert_false(ull__member_commanded(m));
    assert_int_equal(ull__ledger_command(ledger, ULL_WANT_RESIDENT), 2);
    assert_int_equal(job().state, ULL_JOB_RESUMING);
    assert_int_equal(ull__member_wanted(m), ULL_WANT_RESIDENT);
    say(ULL_RESIDENT, 0, true, NULL);
    assert_int_equal(job().state, ULL_JOB_RUNNING);
}

static void refused_with_a_reason(void **state)
{
    (void)state;
    int slot = test_slot(m, 0);
    char longer[400];
    ull__ledger_command(ledger, ULL_WANT_MOVED_OUT);
    ull__member_wanted(m);
    say(ULL_RESIDENT, 0, true, "a capture is open");
    assert_string_equal(process(slot).trouble, "a capture is open");
    assert_int_equal(process(slot).done, 1);
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    say(ULL_RESIDENT, 0, true, longer);
    assert_int_equal(strlen(process(slot).trouble), ULL_TROUBLE_TEXT - 1);
    say(ULL_RESIDENT, 0, true, NULL);
    assert_string_equal(process(slot).trouble, "");
}

/* A command that comes while an earlier one is carried out is not answered with it. */
static void overtaken(void **state)
{
    (void)state;
    ull__ledger_command(ledger, ULL_WANT_MOVED_OUT);
    ull__member_wanted(m);
    assert_int_equal(ull__ledger_command(ledger, ULL_WANT_RESIDENT), 2);
    say(ULL_MOVED_OUT, 10, true, NULL);
    assert_true(ull__member_commanded(m));
    assert_int_equal(process(test_slot(m, 0)).done, 1);
}

static void outer_jobs_command_too(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(2, 100);
    snprintf(spec.parent, sizeof spec.parent, "%s", ull__ledger_path(ledger));
    struct ull__ledger *inner = test_create(&spec);
    struct ull__member *own = m;
    m = test_join(ull__ledger_path(inner));
    ull__ledger_command(ledger, ULL_WANT_MOVED_OUT);
    assert_int_equal(ull__member_wanted(m), ULL_WANT_MOVED_OUT);
    ull__ledger_command(inner, ULL_WANT_RESIDENT);
    assert_int_equal(ull__member_wanted(m), ULL_WANT_MOVED_OUT); /* any of them holds it out */
    say(ULL_MOVED_OUT, 5, true, NULL);
    assert_int_equal(process(test_slot(m, 1)).evicted_bytes[1], 5);
    assert_int_equal(process(test_slot(m, 1)).moved_by, ULL_BY_JOB);
    struct ull__job_view seen;
    ull__ledger_job(inner, &seen);
    assert_int_equal(seen.state, ULL_JOB_SUSPENDED); /* as a part of the outer one */
    ull__ledger_command(ledger, ULL_WANT_RESIDENT);
    assert_int_equal(ull__member_wanted(m), ULL_WANT_RESIDENT);
    ull__ledger_command(inner, ULL_WANT_MOVED_OUT);
    assert_int_equal(ull__member_wanted(m), ULL_WANT_MOVED_OUT);
    say(ULL_MOVED_OUT, 5, true, NULL);
    assert_int_equal(process(test_slot(m, 1)).moved_by, ULL_BY_INNER);
    assert_int_equal(job().state, ULL_JOB_RUNNING); /* with a part of it suspended */
    ull__ledger_job(inner, &seen);
    assert_int_equal(seen.state, ULL_JOB_SUSPENDED);
    test_die(m);
    ull__ledger_sweep(inner, test_not_listed, NULL);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(m);
    m = own;
    test_destroy(inner);
}

/* For a process that is moved by another; a place that was given to somebody else is left alone. */
static void reported_by_another(void **state)
{
    (void)state;
    int slot = test_slot(m, 0);
    uint32_t pid = process(slot).pid;
    struct ull__residency_report report = {.residency = ULL_MOVED_OUT, .done = 4};
    report.evicted_bytes[0] = 12;
    assert_false(ull__ledger_report(ledger, slot, pid + 1, &report));
    assert_false(ull__ledger_report(ledger, -1, pid, &report));
    assert_false(ull__ledger_report(ledger, ULL_MAX_SLOTS, pid, &report));
    assert_true(ull__ledger_report(ledger, slot, pid, &report));
    assert_int_equal(process(slot).evicted_bytes[0], 12);
    assert_int_equal(ull__member_residency(m), ULL_MOVED_OUT);
    assert_int_equal(process(slot).done, 4);
}

/* Who takes a dead process's place starts resident, and finds the command that stands. */
static void places_are_given_clean(void **state)
{
    (void)state;
    ull__ledger_command(ledger, ULL_WANT_MOVED_OUT);
    ull__member_gated(m);
    assert_true(ull__member_spill(m, 0, 30));
    ull__member_wanted(m);
    say(ULL_MOVED_OUT, 40, true, "told");
    assert_true(process(test_slot(m, 0)).gated);
    assert_int_equal(job().spilled_bytes[0], 30);
    test_die(m);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(m);
    assert_int_equal(job().state, ULL_JOB_SUSPENDED); /* whoever comes next finds it so */
    m = test_join(ull__ledger_path(ledger));
    struct ull__process_view view = process(test_slot(m, 0));
    assert_false(view.gated);
    assert_int_equal(view.residency, ULL_RESIDENT);
    assert_int_equal(view.evicted_bytes[1] + view.spilled_bytes[0] + view.done, 0);
    assert_string_equal(view.trouble, "");
    assert_true(ull__member_commanded(m));
    assert_int_equal(ull__member_wanted(m), ULL_WANT_MOVED_OUT);
    assert_int_equal(job().state, ULL_JOB_SUSPENDED); /* it has nothing that could be moved */
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 1), ULL_OK);
    assert_int_equal(job().state, ULL_JOB_SUSPENDING);
    ull__member_release(m, 0, ULL_CLASS_DATA, 1);
}

static void budgets_and_priorities(void **state)
{
    (void)state;
    assert_int_equal(job().priority, 3);
    assert_true(ull__ledger_set_priority(ledger, -2));
    assert_int_equal(job().priority, -2);
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 80), ULL_OK);
    assert_true(ull__ledger_set_budget(ledger, 0, 50)); /* below what is held: a target */
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 1), ULL_E_NO_MEMORY);
    ull__member_release(m, 0, ULL_CLASS_DATA, 40);
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 10), ULL_OK);
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 1), ULL_E_NO_MEMORY);
    ull__member_release(m, 0, ULL_CLASS_DATA, 50);
    assert_false(ull__ledger_set_budget(ledger, 2, 50));
    assert_false(ull__ledger_set_budget(ledger, -1, 50));
    ull__ledger_set_waiting(ledger, true);
    assert_int_equal(job().state, ULL_JOB_WAITING);
    ull__ledger_set_waiting(ledger, false);
    assert_int_equal(job().state, ULL_JOB_RUNNING);
}

static void as_root(struct ull__ledger *copy, void *data)
{
    uint64_t *number = data;
    *number = ull__ledger_command(copy, ULL_WANT_MOVED_OUT);
    assert_true(ull__ledger_set_budget(copy, 1, 77));
    assert_true(ull__ledger_set_priority(copy, 9));
    struct ull__residency_report report = {.residency = ULL_MOVED_OUT};
    assert_false(ull__ledger_report(copy, 0, 1, &report)); /* no more than those words */
}

static uint32_t stands(uint64_t number)
{
    return ull__ledger_stands(ledger, test_slot(m, 0), number);
}

static void asked_to_stand_by(void **state)
{
    (void)state;
    ull__ledger_stand(ledger);
    uint64_t number = ull__ledger_command(ledger, ULL_WANT_STAND_BY);
    assert_int_equal(ull__member_wanted(m), ULL_WANT_STAND_BY);
    assert_int_equal(stands(number), 0);
    assert_false(ull__member_lets_in(m));
    ull__member_stands(m, ULL_STANDS_HERE | ULL_STANDS_STILL);
    assert_int_equal(stands(number), ULL_STANDS_HERE | ULL_STANDS_STILL);
    ull__ledger_let_in(ledger, test_slot(m, 0), number, ULL_LET_ANY);
    assert_int_equal(stands(number), ULL_STANDS_HERE | ULL_STANDS_STILL | ULL_STANDS_AT_IT);
    assert_int_equal(ull__member_lets_in(m), ULL_LET_ANY);
    assert_int_equal(ull__member_lets_in(m), ULL_LET_NOBODY); /* one */
    ull__member_stands(m, ULL_STANDS_HERE | ULL_STANDS_TOOK);
    assert_int_equal(stands(number), ULL_STANDS_HERE | ULL_STANDS_TOOK);
    ull__ledger_let_in(ledger, test_slot(m, 0), number, ULL_LET_BESIDE);
    assert_int_equal(stands(number), ULL_STANDS_HERE | ULL_STANDS_TOOK | ULL_STANDS_AT_IT);
    assert_int_equal(ull__member_lets_in(m), ULL_LET_BESIDE);
    ull__member_stands(m, ULL_STANDS_HERE);
    assert_int_equal(stands(number), ULL_STANDS_HERE);
    /* A later command knows nothing of the earlier one. */
    ull__ledger_let_in(ledger, test_slot(m, 0), number, ULL_LET_ANY);
    uint64_t later = ull__ledger_command(ledger, ULL_WANT_STAND_BY);
    assert_int_equal(stands(later), 0);
    assert_false(ull__member_lets_in(m));
    ull__member_stands(m, ULL_STANDS_HERE);
    assert_int_equal(stands(later), ULL_STANDS_HERE);
    assert_int_equal(stands(number), 0);
    /* What is to be out is not only to stand by. */
    ull__ledger_command(ledger, ULL_WANT_MOVED_OUT);
    assert_int_equal(ull__member_asked(m), ULL_WANT_MOVED_OUT);
}

/* Who asked for it is gone: nobody stands by for ever. */
static void stands_by_for_a_while_only(void **state)
{
    (void)state;
    enum ull__wanted wanted;
    ull__ledger_stand(ledger);
    uint64_t number = ull__ledger_command(ledger, ULL_WANT_STAND_BY);
    atomic_store(&ledger->file->stand_until_ms, ull__monotonic_ns() / 1000000 - 1);
    assert_int_equal(ull__member_wanted(m), ULL_WANT_RESIDENT);
    assert_int_equal(ull__ledger_commanded(ledger, &wanted), number);
    assert_int_equal(wanted, ULL_WANT_RESIDENT);
    assert_int_equal(job().state, ULL_JOB_RUNNING);
    assert_true(ull__member_commanded(m)); /* and is answered */
}

static void root_commands_other_users(void **state)
{
    (void)state;
    uint64_t number = 0;
    enum ull__wanted wanted;
    if (geteuid() != 0) {
        print_message("skipped: needs root\n");
        skip();
    }
    assert_int_equal(chown(ull__ledger_path(ledger), NOBODY, NOBODY), 0);
    ull__ledger_each(as_root, &number);
    assert_int_equal(number, 1);
    assert_int_equal(ull__ledger_commanded(ledger, &wanted), 1);
    assert_int_equal(wanted, ULL_WANT_MOVED_OUT);
    assert_int_equal(job().budget_bytes[1], 77);
    assert_int_equal(job().priority, 9);
    assert_int_equal(chown(ull__ledger_path(ledger), 0, 0), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(numbered_and_answered),
        TEST(refused_with_a_reason),
        TEST(overtaken),
        TEST(outer_jobs_command_too),
        TEST(reported_by_another),
        TEST(places_are_given_clean),
        TEST(budgets_and_priorities),
        TEST(root_commands_other_users),
        TEST(asked_to_stand_by),
        TEST(stands_by_for_a_while_only),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
