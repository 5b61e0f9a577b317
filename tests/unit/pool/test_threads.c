/*
 * test_threads.c: four threads over one pool, each on a stream of its own, some memory freed by another
 * thread than the one that asked for it, while a fifth changes the limit, trims and reads statistics. Each
 * piece is written and read back whole, so two owners of one byte are noticed. Run under TSan as well.
 *
 * The second half of the time streams have fronts, whether threads wait for each other or not.
 *
 *   test_threads [OPERATIONS]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "pool_private.h"

enum { THREADS = 4, HELD = 24, PAGE = 1 << 16, PAGES = 1024 };

struct piece {
    unsigned char *bytes;
    size_t size;
    unsigned char value;
};

static struct ull__device *device;
static struct ull_pool *pool;
static uint64_t operations;
static atomic_int running;
static struct {
    pthread_mutex_t lock;
    struct piece piece;
} given = {.lock = PTHREAD_MUTEX_INITIALIZER};

__attribute__((noreturn)) static void fail(const char *what)
{
    printf("test_threads: %s\n", what);
    exit(1);
}

static void end(struct piece *p, void *stream)
{
    for (size_t i = 0; i < p->size; i += 97) {
        if (p->bytes[i] != p->value)
            fail("somebody else wrote into it");
    }
    if (ull_pool_free(pool, p->bytes, stream) != ULL_OK)
        fail("a free was refused");
    *p = (struct piece){0};
}

/* Gives a piece to whoever comes next, and takes what was left there. */
static void swap(struct piece *p)
{
    pthread_mutex_lock(&given.lock);
    struct piece other = given.piece;
    given.piece = *p;
    *p = other;
    pthread_mutex_unlock(&given.lock);
}

static void force_fronts(void)
{
    ull__lock(&pool->lock);
    pool->fronts_forced = true;
    ull__unlock(&pool->lock);
}

static void *work(void *context)
{
    uint64_t random = (uintptr_t)context * 77 + 1;
    struct piece held[HELD] = {0};
    void *stream;
    if (device->ops->stream_create(device, &stream) != ULL_OK)
        fail("no stream");
    for (uint64_t i = 0; i < operations; i++) {
        if (i == operations / 2)
            force_fronts();
        random = random * 6364136223846793005u + 1442695040888963407u;
        struct piece *p = &held[(random >> 40) % HELD];
        if (random >> 60 == 0)
            swap(p);
        if (p->size) {
            end(p, stream);
            continue;
        }
        size_t size = 1 + (random >> 20) % (random >> 59 == 1 ? 20 * PAGE : PAGE / 4);
        void *address;
        if (ull_pool_allocate(pool, size, stream, &address) != ULL_OK)
            continue; /* the limit may be low at the moment */
        *p = (struct piece){.bytes = address, .size = size, .value = (unsigned char)(random >> 8)};
        for (size_t k = 0; k < size; k += 97)
            p->bytes[k] = p->value;
    }
    for (int i = 0; i < HELD; i++) {
        if (held[i].size)
            end(&held[i], stream);
    }
    ull_pool_forget_stream(pool, stream);
    device->ops->stream_destroy(device, stream);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static void *meddle(void *context)
{
    (void)context;
    for (uint64_t i = 0; atomic_load(&running) > 0; i++) {
        struct ull_stats s = {.size = sizeof s};
        ull_pool_set_limit(pool, i % 4 == 0 ? PAGES / 4 * (uint64_t)PAGE : 0);
        ull_pool_trim(pool, i % 32 * PAGE, NULL);
        ull_pool_stats(pool, &s);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS], meddler;
    char what[256];
    operations = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
    if (ull__device_host_create((uint64_t)PAGES * PAGE, PAGE, &device, NULL) != ULL_OK ||
        ull_pool_create(device, NULL, &pool, NULL) != ULL_OK)
        fail("no pool");
    atomic_store(&running, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    pthread_create(&meddler, NULL, meddle, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(meddler, NULL);
    if (given.piece.size)
        end(&given.piece, NULL);
    if (!ull__pool_check(pool, what, sizeof what))
        fail(what);
    struct ull_stats s = {.size = sizeof s};
    ull_pool_stats(pool, &s);
    if (s.in_use != 0 || s.allocations != s.frees)
        fail("something is still in use");
    ull_pool_destroy(pool);
    if (ull__device_host_held(device).pages || ull__device_host_held(device).misuses)
        fail("the device was misused, or something leaked");
    ull__device_destroy(device);
    printf("test_threads: %llu requests\n", (unsigned long long)s.allocations);
    return 0;
}
