/* test_accounts.c: `run --each`: a budget of its own for every direct child of the command. */
#include "support.h"

static struct ull__ledger *create_each(void)
{
    struct ull__job_spec spec = test_spec(1, 100);
    spec.each = true;
    return test_create(&spec);
}

static struct ull__member *join(struct ull__ledger *ledger, uint32_t root, uint64_t ticks)
{
    struct ull__member *m = test_join_root(ull__ledger_path(ledger), root, ticks);
    assert_non_null(m);
    ull__member_set_driver_pid(m, 42);
    return m;
}

static uint32_t account_of(struct ull__ledger *ledger, struct ull__member *m)
{
    struct ull__process_view view;
    assert_true(ull__ledger_process(ledger, test_slot(m, 0), &view));
    return view.account;
}

static void leave(struct ull__ledger *ledger, struct ull__member *m)
{
    test_die(m);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(m);
}

static void each_root_has_its_budget(void **state)
{
    (void)state;
    struct ull__ledger *ledger = create_each();
    struct ull__member *command = join(ledger, 0, 0);
    struct ull__member *a = join(ledger, 11, 5), *a2 = join(ledger, 11, 5), *b = join(ledger, 12, 5);
    assert_int_equal(account_of(ledger, command), 0);
    assert_int_equal(account_of(ledger, a), account_of(ledger, a2));
    assert_int_not_equal(account_of(ledger, a), account_of(ledger, b));
    assert_int_equal(ull__member_reserve(command, 0, ULL_CLASS_DATA, 100), ULL_OK);
    assert_int_equal(ull__member_reserve(a, 0, ULL_CLASS_DATA, 60), ULL_OK);
    assert_int_equal(ull__member_reserve(a2, 0, ULL_CLASS_DATA, 41), ULL_E_NO_MEMORY);
    assert_int_equal(ull__member_reserve(b, 0, ULL_CLASS_DATA, 100), ULL_OK);
    struct ull__account_view view;
    assert_true(ull__ledger_account(ledger, (int)account_of(ledger, a), &view));
    assert_int_equal(view.root_pid, 11);
    assert_true(view.live);
    assert_int_equal(view.usage[0].held_bytes, 60);
    assert_int_equal(view.usage[0].by_class[ULL_CLASS_DATA], 60);
    assert_false(ull__ledger_account(ledger, 3, &view));
    test_assert_consistent(ledger);
    struct ull__member *all[] = {command, a, a2, b};
    for (int i = 0; i < 4; i++)
        leave(ledger, all[i]);
    assert_int_equal(test_total(ledger, 1, 0) + test_total(ledger, 2, 0), 0);
    test_destroy(ledger);
}

static void without_each_there_is_one(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    struct ull__member *m = join(ledger, 11, 5);
    assert_int_equal(account_of(ledger, m), 0);
    leave(ledger, m);
    test_destroy(ledger);
}

static void a_reused_pid_is_no_relative(void **state)
{
    (void)state;
    struct ull__ledger *ledger = create_each();
    struct ull__member *old = join(ledger, 11, 5), *new = join(ledger, 11, 900);
    struct ull__member *unknown = join(ledger, 11, 0); /* whose start is not known */
    assert_int_not_equal(account_of(ledger, old), account_of(ledger, new));
    assert_int_equal(account_of(ledger, old), account_of(ledger, unknown));
    leave(ledger, old);
    leave(ledger, new);
    leave(ledger, unknown);
    test_destroy(ledger);
}

static void more_roots_than_accounts(void **state)
{
    (void)state;
    struct ull__ledger *ledger = create_each();
    struct ull__member *m[ULL_MAX_ACCOUNTS + 1];
    for (uint32_t i = 1; i < ULL_MAX_ACCOUNTS; i++) {
        m[i] = join(ledger, 100 + i, i);
        assert_int_equal(account_of(ledger, m[i]), i);
        assert_int_equal(ull__member_reserve(m[i], 0, ULL_CLASS_DATA, 50), ULL_OK);
        ull__member_settled_to(m[i], 0, ULL_CLASS_DATA);
    }
    struct ull__member *one_more = join(ledger, 1000, 1);
    assert_int_equal(account_of(ledger, one_more), 0);
    /* One is dead and its bytes are not freed: its account is not to be had. */
    test_die(m[7]);
    ull__ledger_sweep(ledger, test_listed, NULL);
    struct ull__member *two_more = join(ledger, 1001, 1);
    assert_int_equal(account_of(ledger, two_more), 0);
    /* Now they are: the next root has it, with nothing left over from the last one. */
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    struct ull__account_view view;
    assert_true(ull__ledger_account(ledger, 7, &view));
    assert_int_equal(view.root_pid, 107); /* kept for the report until it is needed */
    assert_int_equal(view.usage[0].peak_bytes, 50);
    struct ull__member *heir = join(ledger, 1002, 1);
    assert_int_equal(account_of(ledger, heir), 7);
    assert_true(ull__ledger_account(ledger, 7, &view));
    assert_int_equal(view.root_pid, 1002);
    assert_int_equal(view.usage[0].peak_bytes, 0);
    assert_int_equal(ull__member_reserve(heir, 0, ULL_CLASS_DATA, 100), ULL_OK);
    test_assert_consistent(ledger);
    test_forget(m[7]);
    for (int i = 1; i < ULL_MAX_ACCOUNTS; i++)
        if (i != 7)
            leave(ledger, m[i]);
    leave(ledger, one_more);
    leave(ledger, two_more);
    leave(ledger, heir);
    assert_int_equal(test_slots_in_use(ledger), 0);
    test_destroy(ledger);
}

/* Memory that passes from one account to another stays in the total that it was charged to. */
static void memory_shared_between_accounts(void **state)
{
    (void)state;
    struct ull__ledger *ledger = create_each();
    struct ull__member *a = join(ledger, 11, 5), *b = join(ledger, 12, 5);
    ull__member_reserve(a, 0, ULL_CLASS_DATA, 60);
    ull__member_export(a, 0, ULL_CLASS_DATA, 7, 60);
    ull__member_import(b, 0, 7, 60);
    ull__member_release_exported(a, 0, ULL_CLASS_DATA, 7, 60);
    assert_int_equal(test_total(ledger, 1, 0), 60);
    assert_int_equal(test_total(ledger, 2, 0), 0);
    leave(ledger, a);
    assert_int_equal(test_total(ledger, 1, 0), 60);
    ull__member_import_closed(b, 0, 7, 60);
    assert_int_equal(test_total(ledger, 1, 0), 0);
    assert_int_equal(test_total(ledger, 2, 0), 0);
    leave(ledger, b);
    assert_int_equal(test_shares_in_use(ledger), 0);
    test_destroy(ledger);
}

static int join_same_root(void *data)
{
    struct ull__ledger *ledger = data;
    struct ull__member *m = test_join_root(ull__ledger_path(ledger), 11, 5);
    return m ? (int)account_of(ledger, m) : 200;
}

static void relatives_that_join_at_once_share(void **state)
{
    (void)state;
    for (int round = 0; round < 20 / TEST_SLOWNESS; round++) {
        struct ull__ledger *ledger = create_each();
        pid_t pids[8];
        for (int i = 0; i < 8; i++)
            pids[i] = test_fork(join_same_root, ledger);
        for (int i = 0; i < 8; i++)
            assert_int_equal(test_wait(pids[i]), 1);
        test_destroy(ledger);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_root_has_its_budget),
        cmocka_unit_test(without_each_there_is_one),
        cmocka_unit_test(a_reused_pid_is_no_relative),
        cmocka_unit_test(more_roots_than_accounts),
        cmocka_unit_test(memory_shared_between_accounts),
        cmocka_unit_test(relatives_that_join_at_once_share),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
