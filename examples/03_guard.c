/*
 * 03_guard.c: a training step that is sure of its memory before it begins.
 *
 * A guard sets memory aside for the step. If there is too little, the fallback makes room (here: the
 * program drops its cache of batches), and if that does not suffice, the step is tried with half the
 * batch. Within the guard no other thread can take the memory away.
 *
 * Runs on memory of this machine as the device: no GPU is needed.
 */
#include <stdio.h>

#include "ullage/device.h"
#include "ullage/policy.h"

#define MIB ((uint64_t)1 << 20)

struct cache {
    struct ull_alloc *alloc;
    void *batches[4]; /* of 8 MiB */
};

/* The fallback: returns the bytes that it gave back. */
static uint64_t drop_cache(void *context, uint64_t wanted)
{
    struct cache *cache = context;
    uint64_t given = 0;
    for (int i = 0; i < 4 && given < wanted; i++) {
        if (cache->batches[i] && ull_alloc_free(cache->alloc, cache->batches[i], NULL) == ULL_OK)
            given += 8 * MIB;
        cache->batches[i] = NULL;
    }
    printf("  fallback: wanted %llu MiB, dropped %llu MiB of cached batches\n",
           (unsigned long long)(wanted / MIB), (unsigned long long)(given / MIB));
    return given;
}

/* A step needs 1 MiB for each sample: activations first, then their gradients. */
static ull_status step(struct ull_alloc *alloc, uint64_t batch)
{
    void *activations = NULL, *gradients = NULL;
    ull_status status = ull_alloc_allocate(alloc, batch * MIB / 2, NULL, &activations);
    if (status == ULL_OK)
        status = ull_alloc_allocate(alloc, batch * MIB / 2, NULL, &gradients);
    ull_alloc_free(alloc, activations, NULL);
    ull_alloc_free(alloc, gradients, NULL);
    return status;
}

static ull_status train(struct ull_alloc *alloc)
{
    struct ull_report report;
    for (uint64_t batch = 96; batch > 0; batch /= 2) {
        struct ull_guard *guard;
        printf("batch %llu\n", (unsigned long long)batch);
        if (ull_guard_begin(alloc, batch * MIB, &guard, &report) != ULL_OK) {
            printf("  refused: %.72s...\n", report.text);
            continue;
        }
        ull_status status = step(alloc, batch);
        printf("  step: %s\n", ull_status_text(status));
        ull_guard_end(guard);
        return status;
    }
    return ULL_E_NO_MEMORY;
}

int main(void)
{
    ull_device *device;
    struct ull_pool *pool = NULL;
    struct ull_alloc *base = NULL, *alloc = NULL;
    struct ull_error err = {"no memory"};
    if (ull_device_open_host(64 * MIB, &device, &err) != ULL_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    ull_status status = ull_pool_create(device, NULL, &pool, &err);
    if (status == ULL_OK)
        status = ull_alloc_over_pool(pool, &base);
    if (status == ULL_OK)
        status = ull_guard_create(base, &alloc, &err);
    struct cache cache = {.alloc = alloc};
    for (int i = 0; status == ULL_OK && i < 4; i++)
        status = ull_alloc_allocate(alloc, 8 * MIB, NULL, &cache.batches[i]);
    if (status == ULL_OK)
        status = ull_guard_add_fallback(alloc, "cached batches", drop_cache, &cache);
    if (status == ULL_OK)
        status = train(alloc);
    else
        fprintf(stderr, "%s\n", err.message);
    ull_alloc_destroy(alloc);
    ull_alloc_destroy(base);
    ull_pool_destroy(pool);
    ull_device_close(device);
    return status == ULL_OK ? 0 : 1;
}
