/*
 * test_kills.c: 2,000 kills at random moments. Eight processes change two devices' totals in every
 * way; the parent kills one of them after a random time and starts another, while the totals are
 * watched. In a first part only requests are made that must fit: the totals never pass the budget.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

enum { WORKERS = 8, KILLS = 2000, BUDGET = 1000 };

struct work {
    const char *path;
    bool everything; /* debts and named memory too */
};

static void one_change(struct ull__member *m, uint64_t random, bool everything)
{
    int device = (int)(random & 1);
    enum ull__class class = (enum ull__class)(random >> 1 & 3);
    uint64_t bytes = 1 + (random >> 8) % 200;
    uint64_t key = 1 + (random >> 32) % 4;
    switch (everything ? random >> 3 & 7 : 0) {
    case 1:
        ull__member_charge(m, device, class, bytes);
        break;
    case 2:
        if (ull__member_reserve(m, device, class, bytes) == ULL_OK) {
            ull__member_export(m, device, class, key, bytes);
            ull__member_release_exported(m, device, class, key, bytes);
        }
        return;
    case 3:
        ull__member_import(m, device, key, bytes);
        return;
    case 4:
        ull__member_import_closed(m, device, key, bytes);
        return;
    default:
        if (ull__member_reserve(m, device, class, bytes) != ULL_OK)
            return;
    }
    ull__member_settled_to(m, device, class);
    ull__member_granted(m, device, bytes);
    if (random >> 60) /* some is kept, to be there at the death */
        ull__member_release(m, device, class, bytes);
}

static int work(void *data)
{
    const struct work *what = data;
    struct ull__member *m = test_join(what->path);
    if (!m)
        return 1;
    ull__member_set_driver_pid(m, (uint32_t)getpid());
    uint64_t seed = (uint64_t)getpid() * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0;; i++) {
        one_change(m, test_random(&seed), what->everything);
        if (i % 64 == 0)
            for (int d = 0; d < 2; d++)
                for (int c = 0; c < ULL_CLASSES; c++)
                    ull__member_release(m, d, (enum ull__class)c, UINT32_MAX);
        if (i % 512 == 0)
            ull__member_sweep(m, test_not_listed, NULL);
    }
}

static void kill_many(bool everything, int kills)
{
    struct ull__job_spec spec = test_spec(2, BUDGET);
    struct ull__ledger *ledger = test_create(&spec);
    struct work what = {ull__ledger_path(ledger), everything};
    pid_t pids[WORKERS];
    uint64_t seed = 88172645463325252ull;
    for (int i = 0; i < WORKERS; i++)
        pids[i] = test_fork(work, &what);
    for (int k = 0; k < kills; k++) {
        int victim = (int)(test_random(&seed) % WORKERS);
        test_sleep_us((long)(test_random(&seed) % 2000));
        for (int d = 0; d < 2 && !everything; d++)
            assert_true(test_total(ledger, 0, d) <= BUDGET);
        int status = 0;
        kill(pids[victim], SIGKILL);
        waitpid(pids[victim], &status, 0);
        assert_true(WIFSIGNALED(status)); /* it had not ended by itself */
        if (test_random(&seed) & 1)       /* or leave it to the workers */
            ull__ledger_sweep(ledger, test_not_listed, NULL);
        pids[victim] = test_fork(work, &what);
    }
    for (int i = 0; i < WORKERS; i++)
        test_kill(pids[i]);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    for (int d = 0; d < 2; d++) {
        struct ull__account_view view;
        assert_int_equal(test_total(ledger, 0, d), 0);
        assert_true(ull__ledger_account(ledger, 0, &view));
        assert_true(view.usage[d].peak_bytes > 0);
        assert_true(everything || view.usage[d].peak_bytes <= BUDGET);
        for (int c = 0; c < ULL_CLASSES; c++)
            assert_true(view.usage[d].peak_by_class[c] <= view.usage[d].peak_bytes);
    }
    assert_int_equal(test_slots_in_use(ledger), 0);
    assert_int_equal(test_shares_in_use(ledger), 0);
    test_assert_consistent(ledger);
    test_destroy(ledger);
}

static void requests_only(void **state)
{
    (void)state;
    kill_many(false, KILLS / TEST_SLOWNESS);
}

static void every_kind_of_change(void **state)
{
    (void)state;
    kill_many(true, KILLS / 2 / TEST_SLOWNESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_only),
        cmocka_unit_test(every_kind_of_change),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
