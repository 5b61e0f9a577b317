/* test_idle.c: what a process says that it could give back, and being asked for it. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "idle.h"
#include "support.h"

enum { NOBODY = 65534 };
#define KIB ((uint64_t)1 << 10)

static struct ull__ledger *ledger;
static struct ull__member *m;
static struct ull__idle *idle;

static struct ull__process_view process(void)
{
    struct ull__process_view view;
    assert_true(ull__ledger_process(ledger, test_slot(m, 0), &view));
    return view;
}

static struct ull__idle *open_own(const char *path)
{
    struct ull__process_view own = process();
    struct ull__idle *opened = NULL;
    struct ull_error err = {""};
    if (ull__idle_open(path, own.pid, own.start_ticks, &opened, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return opened;
}

static int set_up(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(2, 100 * MIB);
    ledger = test_create(&spec);
    m = test_join(ull__ledger_path(ledger));
    assert_int_equal(ull__member_reserve(m, 1, ULL_CLASS_DATA, 50 * MIB), ULL_OK);
    idle = open_own(ull__ledger_path(ledger));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ull__idle_close(idle);
    test_die(m);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(m);
    test_destroy(ledger);
    return 0;
}

static void said_and_added_up(void **state)
{
    (void)state;
    struct ull__idle *other = open_own(ull__ledger_path(ledger));
    assert_int_equal(ull__idle_device(idle, "GPU-1"), 1);
    assert_int_equal(ull__idle_device(idle, "GPU-7"), -1);
    assert_true(ull__idle_say(idle, 1, 20 * MIB));
    assert_true(ull__idle_say(other, 1, 10 * MIB));
    assert_int_equal(process().idle_bytes[1], 30 * MIB);
    assert_int_equal(process().idle_bytes[0], 0);
    assert_true(ull__idle_say(idle, 1, 5 * MIB));
    assert_int_equal(process().idle_bytes[1], 15 * MIB);
    ull__idle_close(other);
    assert_int_equal(process().idle_bytes[1], 5 * MIB);
    assert_true(ull__idle_say(idle, 1, 5000 * MIB)); /* no more than is held counts */
    assert_int_equal(process().idle_bytes[1], 50 * MIB);
}

static void asked_and_answered(void **state)
{
    (void)state;
    int slot = test_slot(m, 0);
    assert_int_equal(ull__idle_asked(idle, 1), 0);
    assert_false(process().trimming[1]);
    assert_true(ull__ledger_trim(ledger, slot, 1, 3 * MIB + 1));
    assert_true(process().trimming[1]);
    assert_false(process().trimming[0]);
    assert_int_equal(ull__idle_asked(idle, 1), 3 * MIB + KIB); /* rounded up */
    assert_int_equal(ull__idle_asked(idle, 1), 0);             /* once */
    assert_true(process().trimming[1]);
    /* Another one comes before the first is answered: the answer is to the first. */
    assert_true(ull__ledger_trim(ledger, slot, 1, 4 * MIB));
    ull__idle_answer(idle, 1);
    assert_true(process().trimming[1]);
    assert_int_equal(ull__idle_asked(idle, 1), 4 * MIB);
    ull__idle_answer(idle, 1);
    assert_false(process().trimming[1]);
    assert_false(ull__ledger_trim(ledger, -1, 1, MIB));
    assert_false(ull__ledger_trim(ledger, ULL_MAX_SLOTS, 1, MIB));
    assert_false(ull__ledger_trim(ledger, slot, ULL_MAX_DEVICES, MIB));
}

static void numbers_go_round(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 70000; n++) {
        assert_true(ull__ledger_trim(ledger, test_slot(m, 0), 0, n * KIB));
        assert_int_equal(ull__idle_asked(idle, 0), n * KIB);
        assert_true(process().trimming[0]);
        ull__idle_answer(idle, 0);
        assert_false(process().trimming[0]);
    }
    assert_true(ull__ledger_trim(ledger, test_slot(m, 0), 0, UINT64_MAX)); /* as much as there is */
    assert_true(ull__idle_asked(idle, 0) > (uint64_t)1 << 57);
}

/* The place of a process that ended, or executes another program, is not the next one's. */
static void places_are_given_clean(void **state)
{
    (void)state;
    assert_true(ull__idle_say(idle, 1, 20 * MIB));
    assert_true(ull__ledger_trim(ledger, test_slot(m, 0), 1, 10 * MIB));
    test_die(m);
    struct ull__member *gone = m;
    m = test_join(ull__ledger_path(ledger)); /* the old place is not swept yet */
    struct ull__idle *another = open_own(ull__ledger_path(ledger));
    assert_true(ull__idle_say(another, 1, MIB));
    assert_int_equal(process().idle_bytes[1], 0); /* it holds nothing */
    assert_int_equal(ull__member_reserve(m, 1, ULL_CLASS_DATA, 2 * MIB), ULL_OK);
    assert_int_equal(process().idle_bytes[1], MIB);
    assert_false(process().trimming[1]);
    assert_int_equal(ull__idle_asked(another, 1), 0);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(gone);
    assert_false(ull__idle_say(idle, 1, MIB)); /* its place is not its own any more */
    assert_int_equal(ull__idle_asked(idle, 1), 0);
    ull__idle_close(another);
}

static void nobody_is_found_in_vain(void **state)
{
    (void)state;
    struct ull__process_view own = process();
    struct ull__idle *none = NULL;
    const char *path = ull__ledger_path(ledger);
    assert_int_equal(ull__idle_open(path, own.pid + 1, own.start_ticks, &none, NULL),
                     ULL_E_NOT_FOUND);
    assert_int_equal(ull__idle_open(path, own.pid, own.start_ticks + 1, &none, NULL),
                     ULL_E_NOT_FOUND);
    assert_int_equal(ull__idle_open("/nowhere", own.pid, own.start_ticks, &none, NULL),
                     ULL_E_NOT_FOUND);
    assert_null(none);
}

/* A daemon serves the outermost job, so there it is said. */
static void said_to_the_outermost(void **state)
{
    (void)state;
    struct ull__job_spec spec =
        test_spec(1, 100 * MIB); /* one device, which is the outer one's second */
    snprintf(spec.devices[0].uuid, sizeof spec.devices[0].uuid, "GPU-1");
    snprintf(spec.parent, sizeof spec.parent, "%s", ull__ledger_path(ledger));
    struct ull__ledger *inner = test_create(&spec);
    test_die(m);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(m);
    m = test_join(ull__ledger_path(inner));
    struct ull__process_view own;
    struct ull__idle *nested = NULL;
    assert_int_equal(ull__member_reserve(m, 0, ULL_CLASS_DATA, 10 * MIB), ULL_OK);
    assert_true(ull__ledger_process(inner, test_slot(m, 0), &own));
    assert_int_equal(
        ull__idle_open(ull__ledger_path(inner), own.pid, own.start_ticks, &nested, NULL), ULL_OK);
    assert_int_equal(ull__idle_device(nested, "GPU-1"), 1);
    assert_false(ull__idle_served(nested));
    assert_true(ull__ledger_serve(ledger, 1));
    assert_true(ull__idle_served(nested));
    assert_true(ull__idle_say(nested, 1, 4 * MIB));
    assert_true(ull__ledger_process(ledger, test_slot(m, 1), &own));
    assert_int_equal(own.idle_bytes[1], 4 * MIB);
    assert_true(ull__ledger_process(inner, test_slot(m, 0), &own));
    assert_int_equal(own.idle_bytes[0], 0);
    ull__idle_close(nested);
    test_destroy(inner);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *ask_later(void *data)
{
    test_sleep_us(20000);
    ull__ledger_trim(ledger, *(int *)data, 0, MIB);
    return NULL;
}

static void sleeps_until_asked(void **state)
{
    (void)state;
    int slot = test_slot(m, 0);
    pthread_t thread;
    uint32_t bell = ull__idle_bell(idle);
    ull__idle_wait(idle, bell, 1000000); /* nobody asks: it ends */
    assert_int_equal(ull__idle_asked(idle, 0), 0);
    double began = seconds();
    assert_int_equal(pthread_create(&thread, NULL, ask_later, &slot), 0);
    ull__idle_wait(idle, bell, (uint64_t)100 * 1000000000u);
    assert_int_equal(ull__idle_asked(idle, 0), MIB);
    assert_true(seconds() - began < 50);
    pthread_join(thread, NULL);
    assert_true(ull__ledger_trim(ledger, slot, 1, MIB));
    ull__idle_wait(idle, bell, (uint64_t)100 * 1000000000u); /* asked before: no sleep at all */
    ull__idle_wait(idle, bell - 1, (uint64_t)100 * 1000000000u);
    assert_true(seconds() - began < 50);
}

static void as_root(struct ull__ledger *copy, void *data)
{
    *(bool *)data = ull__ledger_trim(copy, test_slot(m, 0), 1, 7 * MIB);
}

static void root_asks_other_users(void **state)
{
    (void)state;
    bool asked = false;
    if (geteuid() != 0) {
        print_message("skipped: needs root\n");
        skip();
    }
    assert_int_equal(chown(ull__ledger_path(ledger), NOBODY, NOBODY), 0);
    ull__ledger_each(as_root, &asked);
    assert_true(asked);
    assert_int_equal(ull__idle_asked(idle, 1), 7 * MIB);
    assert_int_equal(ull__idle_asked(idle, 0), 0);
    assert_int_equal(chown(ull__ledger_path(ledger), 0, 0), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(said_and_added_up),      TEST(asked_and_answered),      TEST(numbers_go_round),
        TEST(places_are_given_clean), TEST(nobody_is_found_in_vain), TEST(said_to_the_outermost),
        TEST(sleeps_until_asked),     TEST(root_asks_other_users),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
