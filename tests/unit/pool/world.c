/* world.c: see world.h. */
#include "world.h"

#include <stdlib.h>

static uint64_t world_now(void *context)
{
    return ((struct world *)context)->clock;
}

void start(struct world *w)
{
    assert_int_equal(ull_pool_create(w->device, &w->options, &w->pool, NULL), ULL_OK);
    w->pool->fronts_forced = getenv("ULLAGE_TEST_FRONTS") != NULL;
}

int setup(void **state)
{
    static struct world w;
    w = (struct world){0};
    if (ull__device_host_create(256 * PAGE, 0, &w.device, NULL) != ULL_OK)
        return -1;
    for (int i = 0; i < 2; i++)
        w.device->ops->stream_create(w.device, &w.streams[i]);
    ull_pool_options_init(&w.options);
    w.options.now_ns = world_now;
    w.options.now_context = &w;
    *state = &w;
    return 0;
}

int teardown(void **state)
{
    struct world *w = *state;
    char what[256];
    if (w->pool && !ull__pool_check(w->pool, what, sizeof what)) {
        print_error("%s\n", what);
        return -1;
    }
    ull_pool_destroy(w->pool);
    struct ull__device_held held = ull__device_host_held(w->device);
    for (int i = 0; i < 2; i++)
        w->device->ops->stream_destroy(w->device, w->streams[i]);
    ull__device_destroy(w->device);
    return held.pages || held.mappings || held.reserved_bytes || held.events || held.misuses ? -1 : 0;
}

void *get_on(struct world *w, uint64_t bytes, ull__stream stream)
{
    void *address = NULL;
    assert_int_equal(ull_pool_allocate(w->pool, bytes, stream, &address), ULL_OK);
    assert_non_null(address);
    return address;
}

void *get(struct world *w, uint64_t bytes)
{
    return get_on(w, bytes, NULL);
}

void give(struct world *w, void *address)
{
    assert_int_equal(ull_pool_free(w->pool, address, NULL), ULL_OK);
}

void refused(struct world *w, uint64_t bytes)
{
    void *address = w;
    assert_int_equal(ull_pool_allocate(w->pool, bytes, NULL, &address), ULL_E_NO_MEMORY);
    assert_ptr_equal(address, w);
}

struct ull_stats stats(struct world *w)
{
    struct ull_stats s = {.size = sizeof s};
    assert_int_equal(ull_pool_stats(w->pool, &s), ULL_OK);
    return s;
}
