/*
 * test_host_store.c: the place that a job's bytes move to, over a driver that only pins: what is ready is pinned or is not,
 * nothing that lies there is lost while it is touched, and every pin is undone and in the account.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "evict.h"

#if defined(__SANITIZE_ADDRESS__)
void __lsan_disable(void);
#endif

#define MIB ((size_t)1 << 20)
#define PART (256 * MIB)
enum { PINS = 16 };

/* --- what the store asks for -------------------------------------------------------------------------------------- */

const union ull__cuda *_Atomic ull__driver;
struct ull__state ull__state;
static union ull__cuda driver;
static struct ull__job_spec job;
static struct {
    unsigned char *at;
    size_t bytes;
} pins[PINS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* threads pin */
static int pinned_now, wrong, said;
static bool refuses, forgets;
static uint64_t room, held, account, most_account;

static CUresult pin(void *at, size_t bytes, unsigned int flags)
{
    CUresult result = refuses ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    (void)flags;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < pinned_now; i++)
        wrong += pins[i].at < (unsigned char *)at + bytes &&
                 pins[i].at + pins[i].bytes > (unsigned char *)at;
    if (result == CUDA_SUCCESS) {
        pins[pinned_now].at = at;
        pins[pinned_now++].bytes = bytes;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult unpin(void *at)
{
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < pinned_now && pins[i].at != at)
        i++;
    wrong += i == pinned_now;
    if (i < pinned_now)
        pins[i] = pins[--pinned_now];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult flags_of(unsigned int *flags, void *at)
{
    (void)at;
    *flags = 0;
    return forgets ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult current(CUcontext *context)
{
    *context = NULL;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

struct ull__ledger *ull__member_ledger(struct ull__member *member)
{
    (void)member;
    return NULL;
}

const struct ull__job_spec *ull__ledger_spec(const struct ull__ledger *ledger)
{
    (void)ledger;
    return &job;
}

bool ull__member_may_pin(struct ull__member *member, uint64_t bytes)
{
    (void)member;
    return account + bytes <= most_account;
}

bool ull__member_pin(struct ull__member *member, uint64_t bytes)
{
    bool may = ull__member_may_pin(member, bytes);
    account += may ? bytes : 0;
    return may;
}

void ull__member_unpin(struct ull__member *member, uint64_t bytes)
{
    (void)member;
    wrong += bytes > account;
    account -= bytes;
}

uint64_t ull__member_held(struct ull__member *member, int device, enum ull__class class)
{
    (void)member, (void)device, (void)class;
    return held;
}

int ull__block_contexts(CUcontext *contexts, int max)
{
    (void)contexts, (void)max;
    return 1;
}

bool ull__use_context(int ordinal)
{
    (void)ordinal;
    return true;
}

bool ull__host_has(uint64_t bytes, uint64_t *left)
{
    if (left)
        *left = room;
    return bytes <= room;
}

void ull__say(const char *format, ...)
{
    (void)format;
    said++;
}

static int begin(void **state)
{
    (void)state;
    memset(&job, 0, sizeof job);
    job.device_count = 1;
    job.devices[0].total_bytes = 1024 * MIB;
    driver.cuMemHostRegister_v2 = pin;
    driver.cuMemHostUnregister = unpin;
    driver.cuMemHostGetFlags = flags_of;
    driver.cuCtxGetCurrent = current;
    driver.cuCtxSetCurrent = set_current;
    atomic_store(&ull__driver, &driver);
    atomic_store(&ull__state.gpu_count, 1);
    refuses = forgets = false;
    pinned_now = wrong = said = 0;
    room = held = most_account = (uint64_t)1 << 40;
    account = 0;
    return 0;
}

/* The range of a test before goes with the first that is larger, or stays mapped: as in a forked child. */
static int end(void **state)
{
    (void)state;
    ull__store_unpin(NULL, NULL);
    assert_int_equal(wrong, 0);
    ull__store_forget();
    return 0;
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static unsigned char byte_of(size_t at)
{
    return (unsigned char)(at / 4096 % 255 + 1);
}

static void fill(size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 4096)
        ull__store_base()[at] = byte_of(at);
}

static size_t lost(size_t bytes)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes; at += 4096)
        count += ull__store_base()[at] != byte_of(at);
    return count;
}

/* Goes along as the copies do; returns how many bytes the device could reach. */
static size_t walk(size_t bytes)
{
    size_t direct_bytes = 0, step;
    for (size_t at = 0; at < bytes; at += step) {
        bool direct;
        step = ull__store_ready(ull__store_base() + at, &direct);
        assert_true(step > 0);
        step = step < bytes - at ? step : bytes - at;
        direct_bytes += direct ? step : 0;
    }
    return direct_bytes;
}

static void pinned_ahead_of_the_copies(void **state)
{
    (void)state;
    const size_t bytes = PART + 5 * MIB; /* a whole part, and a piece of one */
    assert_true(ull__store_open(bytes));
    assert_int_equal((uintptr_t)ull__store_base() % (2 * MIB), 0);
    fill(bytes); /* as after a move that was not finished */
    ull__store_prepare();
    assert_int_equal(walk(bytes), bytes);
    ull__store_settle();
    assert_int_equal(pinned_now, 2);
    assert_int_equal(pins[0].bytes + pins[1].bytes,
                     PART + 6 * MIB); /* whole huge pages of what is used */
    assert_int_equal(lost(bytes), 0);
    ull__store_unpin(NULL, NULL);
    assert_int_equal(pinned_now, 0);
    assert_int_equal(account, 0); /* none of it was to stay */
}

static void not_pinned_where_it_is_refused(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        refuses = way == 0;
        job.never_pins = way == 1;
        assert_true(ull__store_open(20 * MIB));
        ull__store_prepare();
        assert_int_equal(walk(20 * MIB), 0);
        ull__store_settle();
        assert_int_equal(pinned_now, 0);
    }
}

/* Settled at once, before anybody asked whether anything is ready: as where the device fails. */
static void given_up_half_way(void **state)
{
    (void)state;
    assert_true(ull__store_open(20 * MIB));
    ull__store_prepare();
    ull__store_settle();
    size_t direct = walk(20 * MIB);
    assert_true(direct == 0 || direct == 20 * MIB);
    assert_int_equal(pinned_now, direct > 0);
}

static void given_back(void **state)
{
    (void)state;
    assert_true(ull__store_open(10 * MIB));
    fill(10 * MIB);
    room = 15 * MIB; /* no plenty: the kernel has it at once */
    ull__store_give_back();
    assert_int_equal(lost(10 * MIB), 10 * MIB / 4096);
    assert_true(ull__store_open(10 * MIB));
    fill(10 * MIB);
    assert_int_equal(lost(10 * MIB), 0);
    room = (uint64_t)1 << 40;
    ull__store_give_back(); /* the kernel may have it, or not: each page is whole, or nothing */
    for (size_t at = 0; at < 10 * MIB; at += 4096)
        assert_true(ull__store_base()[at] == byte_of(at) || ull__store_base()[at] == 0);
}

static bool never(void *unused)
{
    (void)unused;
    return false;
}

static bool always(void *unused)
{
    (void)unused;
    return true;
}

static void pinned_for_good(void **state)
{
    (void)state;
    job.pinned_bytes = 30 * MIB;
    held = 0;
    assert_false(ull__store_ahead_due()); /* there is nothing yet that may move */
    held = 100 * MIB;
    assert_true(ull__store_ahead_due());
    ull__store_ahead(always, NULL);
    assert_int_equal(account + ull__store_kept() + (uint64_t)pinned_now, 0);
    ull__store_ahead(never, NULL);
    assert_int_equal(ull__store_kept(), 30 * MIB);
    assert_int_equal(account, 30 * MIB);
    assert_false(ull__store_ahead_due());
    /* A move that takes more than that: the rest is pinned for its time only. */
    assert_true(ull__store_open(50 * MIB));
    fill(50 * MIB);
    ull__store_prepare();
    assert_int_equal(walk(50 * MIB), 50 * MIB);
    ull__store_settle();
    assert_int_equal(pinned_now, 2);
    ull__store_unpin(NULL, NULL);
    assert_int_equal(pinned_now, 1);
    room = 0;
    ull__store_give_back(); /* and what stays pinned stays */
    assert_int_equal(lost(30 * MIB), 0);
    assert_int_equal(ull__store_base()[40 * MIB], 0);
    /* The device was reset, and the pins with it. */
    forgets = true;
    pinned_now = 0;
    assert_true(ull__store_open(MIB));
    ull__store_prepare();
    ull__store_settle(); /* what it pinned meanwhile, or did not, goes again at the end */
    assert_int_equal(ull__store_kept(), 0);
    assert_int_equal(account, 0);
}

static void not_where_others_need_it(void **state)
{
    (void)state;
    job.pinned_bytes = 30 * MIB;
    room = 100 * MIB; /* it would leave them less than a GiB */
    ull__store_ahead(never, NULL);
    assert_int_equal(account + ull__store_kept() + (uint64_t)pinned_now, 0);
    assert_false(ull__store_ahead_due()); /* not again at once */
}

static void never_again_once_it_is_refused(void **state)
{
    (void)state;
    job.pinned_bytes = 30 * MIB;
    refuses = true;
    assert_true(ull__store_ahead_due());
    ull__store_ahead(never, NULL);
    assert_int_equal(said, 1);
    assert_int_equal(account + ull__store_kept() + (uint64_t)pinned_now, 0);
    assert_false(ull__store_ahead_due());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
#if defined(__SANITIZE_ADDRESS__)
    /* A store lives as long as its process; tests begin with a new one each, and what the one before had is not freed. */
    __lsan_disable();
#endif
    const struct CMUnitTest tests[] = {
        TEST(pinned_ahead_of_the_copies),
        TEST(not_pinned_where_it_is_refused),
        TEST(given_up_half_way),
        TEST(given_back),
        TEST(pinned_for_good),
        TEST(not_where_others_need_it),
        TEST(never_again_once_it_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
