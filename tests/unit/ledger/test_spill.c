/* test_spill.c: the account of host memory: one for all processes, in all jobs around, through kills. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

enum { MOST = 100, WORKERS = 6, KILLS = 200 };

static struct ull__ledger *make(uint64_t most, const struct ull__ledger *around)
{
    struct ull__job_spec spec = test_spec(2, 1000);
    spec.spill_bytes = most;
    if (around)
        snprintf(spec.parent, sizeof spec.parent, "%s", ull__ledger_path(around));
    return test_create(&spec);
}

static struct ull__job_view job(struct ull__ledger *ledger)
{
    struct ull__job_view view;
    ull__ledger_job(ledger, &view);
    return view;
}

static uint64_t spilled(struct ull__ledger *ledger)
{
    struct ull__job_view view = job(ledger);
    return view.spilled_bytes[0] + view.spilled_bytes[1];
}

static void leave(struct ull__member *m, struct ull__ledger *ledger)
{
    test_die(m);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(m);
}

static void one_account_for_all_devices(void **state)
{
    (void)state;
    struct ull__ledger *ledger = make(MOST, NULL);
    struct ull__member *m = test_join(ull__ledger_path(ledger));
    assert_true(ull__member_spill(m, 0, 60));
    assert_false(ull__member_spill(m, 1, 41));
    assert_true(ull__member_spill(m, 1, 40));
    assert_false(ull__member_spill(m, 0, 1));
    assert_true(ull__member_spill(m, 0, 0));
    assert_false(ull__member_spill(m, 0, UINT64_MAX));
    assert_int_equal(job(ledger).spilled_bytes[1], 40);
    assert_int_equal(test_total(ledger, 0, 0), 0); /* no bytes of the device */
    ull__member_unspill(m, 1, 10);
    ull__member_unspill(m, 0, 1000); /* at most what there is */
    assert_int_equal(spilled(ledger), 30);
    assert_int_equal(job(ledger).spilled_peak_bytes, 100);
    leave(m, ledger);
    assert_int_equal(spilled(ledger), 0);
    test_destroy(ledger);
}

static void none_without_leave(void **state)
{
    (void)state;
    struct ull__ledger *ledger = make(0, NULL);
    struct ull__member *m = test_join(ull__ledger_path(ledger));
    assert_false(ull__member_spill(m, 0, 1));
    leave(m, ledger);
    test_destroy(ledger);
}

static void jobs_around_count_too(void **state)
{
    (void)state;
    struct ull__ledger *outer = make(50, NULL), *inner = make(MOST, outer);
    struct ull__member *m = test_join(ull__ledger_path(inner));
    assert_false(ull__member_spill(m, 0, 51)); /* and nothing of it is left in the inner one */
    assert_int_equal(spilled(inner), 0);
    assert_int_equal(job(inner).spilled_bytes[0], 0);
    assert_true(ull__member_spill(m, 0, 50));
    assert_int_equal(spilled(outer), 50);
    ull__member_unspill(m, 0, 20);
    assert_int_equal(spilled(outer), 30);
    test_die(m);
    ull__ledger_sweep(inner, test_not_listed, NULL);
    ull__ledger_sweep(outer, test_not_listed, NULL);
    test_forget(m);
    assert_int_equal(spilled(inner) + spilled(outer), 0);
    test_destroy(inner);
    test_destroy(outer);
}

/* --- killed at any moment ----------------------------------------------------------------------------------- */

struct work {
    const char *path;
    _Atomic uint64_t *granted;
};

static int work(void *data)
{
    const struct work *what = data;
    struct ull__member *m = test_join(what->path);
    uint64_t seed = (uint64_t)getpid() * 0x9e3779b97f4a7c15ull | 1;
    uint64_t own[2] = {0};
    while (m) {
        int device = (int)(test_random(&seed) % 2);
        uint64_t bytes = test_random(&seed) % 30 + 1;
        if (test_random(&seed) % 2 && own[device] >= bytes) {
            own[device] -= bytes;
            ull__member_unspill(m, device, bytes);
        } else if (ull__member_spill(m, device, bytes)) {
            own[device] += bytes;
            atomic_fetch_add(what->granted, 1);
        }
    }
    return 1;
}

static void kills(void **state)
{
    (void)state;
    struct ull__ledger *ledger = make(MOST, NULL);
    struct work what = {ull__ledger_path(ledger), test_shared(sizeof(uint64_t))};
    uint64_t seed = 88172645463325252ull;
    pid_t pids[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        pids[i] = test_fork(work, &what);
    for (int k = 0; k < KILLS / TEST_SLOWNESS; k++) {
        int victim = (int)(test_random(&seed) % WORKERS);
        test_sleep_us((long)(test_random(&seed) % 2000));
        assert_true(job(ledger).spilled_peak_bytes <= MOST);
        kill(pids[victim], SIGKILL);
        assert_int_equal(test_wait(pids[victim]), -SIGKILL); /* it had not ended by itself */
        ull__ledger_sweep(ledger, test_not_listed, NULL);
        pids[victim] = test_fork(work, &what);
    }
    assert_true(atomic_load(what.granted) > 100);
    for (int i = 0; i < WORKERS; i++)
        test_kill(pids[i]);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_slots_in_use(ledger), 0);
    assert_int_equal(spilled(ledger), 0);
    struct ull__member *m = test_join(ull__ledger_path(ledger));
    assert_true(ull__member_spill(m, 0, MOST)); /* all of it can be had again */
    leave(m, ledger);
    test_destroy(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_account_for_all_devices),
        cmocka_unit_test(none_without_leave),
        cmocka_unit_test(jobs_around_count_too),
        cmocka_unit_test(kills),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
