/* test_offer.c: pools of a process in a job: what its ledger says of them, and that they give back what is asked for. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"
#include "offer.h"
#include "self.h"
#include "support.h"
#include "ullage/pool.h"

#define PAGE (2 * MIB)
enum { DEVICE_PAGES = 256, TRIES = 3000 };

static const char uuid_text[] = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
static struct ull__ledger *ledger;
static struct ull__member *m;
static struct ull__device *device;

static int set_up(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(2, 1000 * MIB);
    snprintf(spec.devices[1].uuid, sizeof spec.devices[1].uuid, "%s", uuid_text);
    ledger = test_create(&spec);
    struct ull__identity self = {
        .pid = (uint32_t)getpid(), .start_ticks = ull__own_start_ticks(), .command = "test"};
    assert_int_equal(ull__member_join(ull__ledger_path(ledger), &self, &m, NULL), ULL_OK);
    assert_int_equal(ull__member_reserve(m, 1, ULL_CLASS_DATA, 600 * MIB), ULL_OK); /* the fake card's */
    assert_true(ull__ledger_serve(ledger, (uint32_t)getpid()));
    assert_int_equal(ull__device_host_create(DEVICE_PAGES * PAGE, PAGE, &device, NULL), ULL_OK);
    device->has_uuid = true;
    for (int i = 0; i < 16; i++)
        device->uuid[i] = (uint8_t)i;
    setenv("ULLAGE_JOB", ull__ledger_path(ledger), 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ull__device_destroy(device);
    unsetenv("ULLAGE_JOB");
    test_die(m);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_forget(m);
    test_destroy(ledger);
    return 0;
}

static int threads(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count;
}

static struct ull_pool *make(void)
{
    struct ull_pool *pool = NULL;
    assert_int_equal(ull_pool_create(device, NULL, &pool, NULL), ULL_OK);
    return pool;
}

static void keep(struct ull_pool *pool, uint64_t bytes)
{
    void *p;
    assert_int_equal(ull_pool_allocate(pool, bytes, NULL, &p), ULL_OK);
    assert_int_equal(ull_pool_free(pool, p, NULL), ULL_OK);
}

static struct ull__process_view view(void)
{
    struct ull__process_view process;
    assert_true(ull__ledger_process(ledger, test_slot(m, 0), &process));
    return process;
}

static uint64_t held(struct ull_pool *pool)
{
    struct ull_stats stats = {.size = sizeof stats};
    assert_int_equal(ull_pool_stats(pool, &stats), ULL_OK);
    return stats.held;
}

/* Until the ledger says so, which takes a second; the daemon's sign of life is kept fresh. */
static void says(uint64_t bytes)
{
    for (int i = 0; i < TRIES && view().idle_bytes[1] != bytes; i++) {
        ull__ledger_serve(ledger, (uint32_t)getpid());
        test_sleep_us(10000);
    }
    assert_int_equal(view().idle_bytes[1], bytes);
}

static void asks(uint64_t bytes)
{
    assert_true(ull__ledger_trim(ledger, test_slot(m, 0), 1, bytes));
    for (int i = 0; i < TRIES && view().trimming[1]; i++)
        test_sleep_us(10000);
    assert_false(view().trimming[1]);
}

static void offers_and_gives(void **state)
{
    (void)state;
    int before = threads();
    struct ull_pool *one = make(), *two = make();
    assert_int_equal(threads(), before + 1); /* one for all of them */
    keep(one, 40 * PAGE);
    keep(two, 20 * PAGE);
    says(60 * PAGE);
    asks(10 * PAGE); /* the last comes first */
    assert_int_equal(held(one) + held(two), 50 * PAGE);
    assert_int_equal(view().idle_bytes[1], 50 * PAGE); /* said before the answer */
    asks(1000 * PAGE);
    assert_int_equal(held(one) + held(two), 0);
    keep(one, 5 * PAGE);
    says(5 * PAGE);
    ull_pool_destroy(one);
    says(0);
    assert_int_equal(threads(), before + 1);
    ull_pool_destroy(two);
    assert_int_equal(threads(), before);
    two = make(); /* and again */
    keep(two, 3 * PAGE);
    says(3 * PAGE);
    ull_pool_destroy(two);
    assert_int_equal(view().idle_bytes[1], 0);
}

/* Without a job, in one that this process has not joined, or of another device: nothing at all. */
static void no_thread_without_need(void **state)
{
    (void)state;
    int before = threads();
    unsetenv("ULLAGE_JOB");
    ull_pool_destroy(make());
    setenv("ULLAGE_JOB", "/nowhere", 1);
    struct ull_pool *pool = make();
    assert_int_equal(threads(), before);
    ull_pool_destroy(pool);
    setenv("ULLAGE_JOB", ull__ledger_path(ledger), 1);
    device->uuid[3] = 77;
    pool = make();
    assert_int_equal(threads(), before);
    ull_pool_destroy(pool);
    device->has_uuid = false;
    pool = make();
    assert_int_equal(threads(), before);
    ull_pool_destroy(pool);
}

/* A child has its parent's pools in name only, and its end does nothing to what the parent says. */
static void in_a_forked_child(void **state)
{
    (void)state;
    struct ull_pool *pool = make();
    keep(pool, 7 * PAGE);
    says(7 * PAGE);
    pid_t child = fork();
    if (child == 0) {
        struct ull__device *own = NULL;
        struct ull_pool *others = NULL;
        int before = threads();
        ull_pool_destroy(pool);
        if (ull__device_host_create(16 * PAGE, PAGE, &own, NULL) != ULL_OK)
            _exit(1);
        own->has_uuid = true;
        memcpy(own->uuid, device->uuid, sizeof own->uuid);
        if (ull_pool_create(own, NULL, &others, NULL) != ULL_OK || threads() != before)
            _exit(2); /* the child has not joined */
        ull_pool_destroy(others);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(view().idle_bytes[1], 7 * PAGE);
    asks(7 * PAGE);
    assert_int_equal(held(pool), 0);
    ull_pool_destroy(pool);
}

static void *nothing(void *data)
{
    return data;
}

int main(void)
{
    pthread_t thread; /* a sanitizer has one of its own as soon as there is any */
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(offers_and_gives),
        TEST(no_thread_without_need),
        TEST(in_a_forked_child),
    };
    if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    ull__offer_begin();
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
