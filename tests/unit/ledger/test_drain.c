/*
 * test_drain.c: the bytes of the dead stay charged until the driver has freed them, or until time has
 * passed where it cannot tell.
 */
#include <unistd.h>

#include "support.h"

static struct ull__ledger *ledger;
static struct ull__member *witness;

static int set_up(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(2, 100);
    ledger = test_create(&spec);
    witness = test_join(ull__ledger_path(ledger));
    ull__member_set_driver_pid(witness, 1000);
    return witness ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    test_die(witness);
    test_forget(witness);
    test_destroy(ledger);
    return 0;
}

/* As if the death had been seen longer ago. */
static void grow_old(int slot, uint64_t ns)
{
    _Atomic uint64_t *death = &ledger->file->slots[slot].death_ns;
    atomic_store(death, atomic_load(death) - ns);
}

static int dead(uint64_t bytes, uint32_t driver_pid)
{
    struct test_holder holder = test_hold(ull__ledger_path(ledger), bytes, driver_pid);
    assert_true(holder.slot >= 0);
    test_kill(holder.pid);
    return holder.slot;
}

static void listed_stays_charged(void **state)
{
    (void)state;
    int slot = dead(70, 42);
    struct ull__process_view view;
    for (int i = 0; i < 10; i++)
        ull__ledger_sweep(ledger, test_listed, NULL);
    assert_true(ull__ledger_process(ledger, slot, &view));
    assert_true(view.draining);
    assert_int_equal(view.usage[0].held_bytes, 70);
    assert_int_equal(ull__member_reserve(witness, 0, ULL_CLASS_DATA, 31), ULL_E_NO_MEMORY);
    assert_int_equal(ull__member_reserve(witness, 0, ULL_CLASS_DATA, 30), ULL_OK);
    grow_old(slot, 2 * ULL_DRAIN_GRACE_NS); /* time alone does not free what is listed */
    ull__ledger_sweep(ledger, test_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 100);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 30);
    assert_false(ull__ledger_process(ledger, slot, &view));
    ull__member_release(witness, 0, ULL_CLASS_DATA, 30);
    test_assert_consistent(ledger);
}

static void listed_for_half_a_minute_is_a_stranger(void **state)
{
    (void)state;
    int slot = dead(70, 42);
    ull__ledger_sweep(ledger, test_listed, NULL);
    grow_old(slot, 29 * ULL_DRAIN_GRACE_NS);
    ull__ledger_sweep(ledger, test_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 70);
    grow_old(slot, 2 * ULL_DRAIN_GRACE_NS);
    ull__ledger_sweep(ledger, test_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 0);
}

static void a_reused_pid_waits_for_the_grace_only(void **state)
{
    (void)state;
    int slot = dead(70, 42);
    struct test_holder next = test_hold(ull__ledger_path(ledger), 5, 42);
    ull__ledger_sweep(ledger, test_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 75);
    grow_old(slot, ULL_DRAIN_GRACE_NS);
    ull__ledger_sweep(ledger, test_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 5);
    test_kill(next.pid);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 0);
}

static void time_decides(ull__listed_fn *listed, uint32_t driver_pid)
{
    int slot = dead(70, driver_pid);
    ull__ledger_sweep(ledger, listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 70);
    test_sleep_us(300000);
    ull__ledger_sweep(ledger, listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 70);
    grow_old(slot, ULL_DRAIN_GRACE_NS);
    ull__ledger_sweep(ledger, listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 0);
    assert_int_equal(test_slots_in_use(ledger), 1);
}

static void where_nobody_can_say_time_decides(void **state)
{
    (void)state;
    time_decides(test_not_listed, 0); /* a pid that is not known is not asked about */
    time_decides(NULL, 42);
    time_decides(test_cannot_say, 42);
}

static int listed_on_second(void *data, const char *uuid, uint32_t driver_pid, uint64_t *used)
{
    (void)data, (void)driver_pid, (void)used;
    return uuid[4] == '1';
}

static void each_device_for_itself(void **state)
{
    (void)state;
    struct test_holder holder = test_hold(ull__ledger_path(ledger), 70, 42);
    /* As if it held memory on the second device too. */
    struct ull__change change = {
        .slot = holder.slot, .device = 1, .class = ULL_CLASS_POOL, .total_delta = 8, .held_delta = 8};
    assert_int_equal(ull__change_apply(ledger->file, &change), ULL_OK);
    test_kill(holder.pid);
    ull__ledger_sweep(ledger, listed_on_second, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 0);
    assert_int_equal(test_total(ledger, 0, 1), 8);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 1), 0);
    assert_int_equal(test_slots_in_use(ledger), 1);
}

/* A recovery that was itself cut off, and whose mutex somebody else then took and let go. */
static void a_recovery_is_taken_up_by_the_next(void **state)
{
    (void)state;
    int slot = dead(70, 42);
    ull__ledger_sweep(ledger, test_listed, NULL);
    struct ull__slot_device *books = &ledger->file->slots[slot].devices[0];
    /* The first one had swapped the cell, and had not written the books. */
    struct ull__change change = {
        .slot = slot, .device = 0, .class = ULL_CLASS_DATA, .total_delta = -70, .held_delta = -70};
    assert_int_equal(ull__change_apply(ledger->file, &change), ULL_OK);
    books->intent.held_before = 70;
    atomic_store(&books->held[ULL_CLASS_DATA], 70);
    atomic_store(&books->intent.sequence, atomic_load(&books->sequence));
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 0);
    assert_int_equal(test_slots_in_use(ledger), 1);
    assert_int_equal(ull__member_reserve(witness, 0, ULL_CLASS_DATA, 100), ULL_OK);
    ull__member_release(witness, 0, ULL_CLASS_DATA, 100);
}

/* A thread that the kernel has not yet ended may still be inside a change. */
static void a_change_in_progress_is_waited_for(void **state)
{
    (void)state;
    int slot = dead(70, 42);
    struct ull__slot *its = &ledger->file->slots[slot];
    bool died;
    assert_true(ull__robust_trylock(&its->changing, &died)); /* this thread plays it */
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 70);
    assert_int_equal(atomic_load(&its->state), SLOT_DRAINING);
    pthread_mutex_unlock(&its->changing);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 0);
    test_assert_consistent(ledger);
}

/* A latecomer of the dead process may change nothing, also when the slot is somebody else's. */
static void a_place_given_up_cannot_be_used(void **state)
{
    (void)state;
    struct ull__member *m = test_join(ull__ledger_path(ledger));
    ull__member_set_driver_pid(m, 42);
    test_die(m);
    ull__ledger_sweep(ledger, test_listed, NULL);
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 1), ULL_E_NO_MEMORY);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    struct ull__member *next = test_join(ull__ledger_path(ledger));
    assert_int_equal(test_slot(next, 0), test_slot(m, 0));
    assert_int_equal(ull__member_reserve(next, 0, ULL_CLASS_DATA, 10), ULL_OK);
    ull__member_release(m, 0, ULL_CLASS_DATA, 10);
    ull__member_charge(m, 0, ULL_CLASS_DATA, 10);
    assert_int_equal(ull__member_export(m, 0, ULL_CLASS_DATA, 1, 10), ULL_E_FULL);
    assert_int_equal(ull__member_import(m, 0, 1, 10), ULL_E_FULL);
    ull__member_release_exported(m, 0, ULL_CLASS_DATA, 1, 10);
    ull__member_import_closed(m, 0, 1, 10);
    assert_int_equal(test_total(ledger, 0, 0), 10);
    assert_int_equal(test_shares_in_use(ledger), 0);
    test_forget(m);
    ull__member_release(next, 0, ULL_CLASS_DATA, 10);
    test_die(next);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(next);
    assert_int_equal(test_slots_in_use(ledger), 1);
}

static void who_lists_jobs_does_not_decide(void **state)
{
    (void)state;
    int slot = dead(70, 42);
    ull__ledger_sweep(ledger, ull__assume_listed, NULL);
    grow_old(slot, 5 * ULL_DRAIN_GRACE_NS);
    ull__ledger_sweep(ledger, ull__assume_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 70);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(listed_stays_charged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(listed_for_half_a_minute_is_a_stranger, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reused_pid_waits_for_the_grace_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(where_nobody_can_say_time_decides, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_device_for_itself, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_recovery_is_taken_up_by_the_next, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_change_in_progress_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_place_given_up_cannot_be_used, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_lists_jobs_does_not_decide, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
