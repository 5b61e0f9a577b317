/* test_served.c: allocations that wait for room: for whom, for how long, and what ends it. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "layout.h"
#include "support.h"

enum { PID_BITS = 24 };

static struct ull__ledger *ledger;
static struct ull__member *m;

static int set_up(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 1000);
    ledger = test_create(&spec);
    m = test_join(ull__ledger_path(ledger));
    return 0;
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

static uint64_t wanted(void)
{
    return atomic_load(&ledger->file->slots[test_slot(m, 0)].devices[0].want);
}

/* The sign of life of a daemon, so many milliseconds old. */
static void last_seen(pid_t daemon, uint64_t ms_ago)
{
    atomic_store(&ledger->file->served,
                 (ull__monotonic_ns() / 1000000 - ms_ago) << PID_BITS | (uint64_t)daemon);
}

static pid_t somebody_dead(void)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    return child;
}

/* Answers as soon as somebody waits. */
static void *answer(void *granted)
{
    while (wanted() == 0)
        test_sleep_us(1000);
    ull__ledger_answer(ledger, test_slot(m, 0), *(bool *)granted);
    return NULL;
}

static bool want_and_hear(bool granted)
{
    pthread_t thread;
    struct ull__want want = {0};
    assert_int_equal(pthread_create(&thread, NULL, answer, &granted), 0);
    bool again = ull__member_want(m, 0, 100, &want);
    pthread_join(thread, NULL);
    assert_int_equal(wanted(), 100);
    ull__member_want_over(m, &want);
    assert_int_equal(wanted(), 0);
    return again;
}

static bool waits(void)
{
    struct ull__want want = {0};
    bool again = ull__member_want(m, 0, 100, &want);
    ull__member_want_over(m, &want);
    return again;
}

static void nobody_is_waited_for_who_never_came(void **state)
{
    (void)state;
    assert_false(waits());
}

static void an_answer_ends_it(void **state)
{
    (void)state;
    assert_true(ull__ledger_serve(ledger, (uint32_t)getpid()));
    assert_true(want_and_hear(true));
    assert_false(want_and_hear(false));
    assert_true(want_and_hear(true)); /* an old no is no answer */
}

static void what_no_budget_allows_does_not_wait(void **state)
{
    (void)state;
    struct ull__want want = {0};
    assert_true(ull__ledger_serve(ledger, (uint32_t)getpid()));
    assert_false(ull__member_want(m, 0, 1001, &want));
    assert_false(want.posted);
}

static void a_daemon_may_come_back(void **state)
{
    (void)state;
    pid_t dead = somebody_dead();
    last_seen(dead, 8000);
    assert_int_equal(ull__ledger_served(ledger), 0); /* what it set holds no more */
    assert_true(want_and_hear(true));
    last_seen(dead, 16000);
    assert_false(waits());
}

static void a_daemon_that_is_there_may_be_too_busy(void **state)
{
    (void)state;
    last_seen(getpid(), 30000);
    assert_true(want_and_hear(true));
    last_seen(getpid(), 61000); /* or it serves the job no more */
    assert_false(waits());
}

#define IN_A_JOB(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_JOB(nobody_is_waited_for_who_never_came),    IN_A_JOB(an_answer_ends_it),
        IN_A_JOB(what_no_budget_allows_does_not_wait),    IN_A_JOB(a_daemon_may_come_back),
        IN_A_JOB(a_daemon_that_is_there_may_be_too_busy),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
