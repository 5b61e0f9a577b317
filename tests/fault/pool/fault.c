/*
 * fault.c: fails the n-th call of the device, for n from 1 on until nothing fails any more.
 *
 *   fault_pool [plain]      plain: a device that cannot map pages
 *
 * One scene with everything in it: a reserve, growth, views, a second stream, a trim, a changed limit, a
 * prewarm. Each time the pool has to be whole after every failure, to go on working as soon as
 * the device does, to serve all of its limit, and to give everything back.
 */
#include <stdio.h>
#include <stdlib.h>

#include <string.h>

#include "device.h"
#include "plain_host.h"
#include "pool_private.h"

enum { PAGE = 1 << 16, PAGES = 64, HELD = 32 };

static uint64_t n;
static bool plain;

__attribute__((noreturn)) static void fail(const char *what, const char *more)
{
    printf("fault_pool: call %llu fails: %s%s\n", (unsigned long long)n, what, more);
    exit(1);
}

static void check(struct ull_pool *pool)
{
    char what[256];
    if (!ull__pool_check(pool, what, sizeof what))
        fail("an invariant is broken: ", what);
}

/* Three pages that lie apart, for two requests of a page and a half: one begins in a page that the other one ends in. */
static void shared(struct ull_pool *pool)
{
    void *page[8] = {0}, *pair[2] = {0};
    ull_pool_set_limit(pool, 8 * PAGE);
    for (int i = 0; i < 8; i++)
        ull_pool_allocate(pool, PAGE, NULL, &page[i]);
    for (int i = 1; i < 6; i += 2)
        ull_pool_free(pool, page[i], NULL);
    for (int i = 0; i < 2; i++) {
        ull_pool_allocate(pool, 3 * PAGE / 2, NULL, &pair[i]);
        check(pool);
    }
    for (int i = 0; i < 2; i++) {
        ull_pool_free(pool, pair[i], NULL);
        check(pool);
    }
    for (int i = 0; i < 8; i++)
        ull_pool_free(pool, i % 2 == 0 || i > 6 ? page[i] : NULL, NULL);
    ull_pool_set_limit(pool, 0);
}

/* What a program does; requests that fail are done without. */
static void scene(struct ull_pool *pool, ull__stream other)
{
    void *held[HELD] = {0};
    for (int i = 0; i < HELD; i++) {
        if (ull_pool_allocate(pool, i % 5 == 4 ? 1000 : 3 * PAGE / 2, NULL, &held[i]) != ULL_OK)
            held[i] = NULL;
        check(pool);
    }
    for (int i = 0; i < HELD; i += 2) {
        if (held[i] && i % 4 == 0)
            ull_pool_use_on(pool, held[i], other);
        if (ull_pool_free(pool, held[i], NULL) != ULL_OK)
            fail("a free was refused", "");
        held[i] = NULL;
        check(pool);
    }
    void *large = NULL, *second = NULL;
    if (ull_pool_allocate(pool, 20 * PAGE, NULL, &large) != ULL_OK)
        large = NULL;
    check(pool);
    ull_pool_free(pool, large, NULL);
    if (ull_pool_allocate(pool, 16 * PAGE, other, &second) != ULL_OK)
        second = NULL;
    check(pool);
    ull_pool_free(pool, second, other);
    ull_pool_set_reserve(pool, 8 * PAGE);
    ull_pool_trim(pool, 6 * PAGE, NULL);
    check(pool);
    ull_pool_set_limit(pool, 40 * PAGE);
    ull_pool_prewarm(pool, 10 * PAGE);
    check(pool);
    ull_pool_set_limit(pool, 0);
    for (int i = 0; i < HELD; i++)
        ull_pool_free(pool, held[i], NULL);
    shared(pool);
    check(pool);
}

/* True if the n-th call was made. */
static bool attempt(void)
{
    struct ull__device *device;
    struct ull_pool *pool = NULL;
    struct ull_pool_options options;
    struct ull_error error = {.message = ""};
    ull__stream other;
    void *all;
    if (ull__device_host_create((uint64_t)PAGES * PAGE, PAGE, &device, NULL) != ULL_OK ||
        (plain && !(device = plain_host(device, 0))) ||
        device->ops->stream_create(device, &other) != ULL_OK)
        fail("no device", "");
    ull_pool_options_init(&options);
    options.reserve = 4 * PAGE;
    options.mapping_factor = 1;
    options.small_bytes = 4096;
    ull__device_host_fail_at(device, n);
    ull_status status = ull_pool_create(device, &options, &pool, &error);
    if (status == ULL_OK) {
        scene(pool, other);
    } else if (pool || error.message[0] == 0) {
        fail("create failed without a message or with a pool", "");
    }
    bool reached = ull__device_host_fail_at_left(device) == 0;
    ull__device_host_fail_at(device, 0);
    if (pool) {
        scene(pool, other);
        if (ull_pool_allocate(pool, (uint64_t)PAGES * PAGE, other, &all) != ULL_OK)
            fail("memory was lost", "");
        ull_pool_free(pool, all, other);
    }
    ull_pool_destroy(pool);
    struct ull__device_held held = ull__device_host_held(device);
    if (held.pages || held.mappings || held.reserved_bytes || held.events || held.misuses)
        fail("something leaked, or the device was misused", "");
    ull__device_destroy(device);
    return reached;
}

int main(int argc, char **argv)
{
    plain = argc > 1 && strcmp(argv[1], "plain") == 0;
    for (n = 1; attempt(); n++)
        continue;
    if (n < 20)
        fail("the scene makes hardly any call", "");
    printf("fault_pool: each of %llu calls failed once\n", (unsigned long long)n - 1);
    return 0;
}
