/*
 * malloc_pool.c: fails the n-th request for host memory of the pool and its host device.
 *
 * The scene grows everything that grows: chunks and the table of addresses, lanes and their events, marks of
 * use, ranges and views. A call that fails says ULL_E_NO_MEMORY and changes nothing; memory that could not be
 * freed on a stream that the pool did not know yet can be freed later. Then, with host memory again, the pool
 * is whole, serves all of its limit, and gives everything back.
 */
#include <stdio.h>
#include <string.h>

#include "allocations.h"
#include "device.h"
#include "pool_private.h"

enum { PAGE = 1 << 14, PAGES = 64, SMALL = 700, LARGE = 20, STREAMS = 6, VIEWS = 18 };

struct scene {
    struct ull__device *device;
    struct ull_pool *pool;
    ull__stream streams[STREAMS];
    void *small[SMALL], *large[LARGE], *view[VIEWS];
};

static void check(struct scene *s)
{
    char what[256];
    if (!ull__pool_check(s->pool, what, sizeof what))
        fail("an invariant is broken: ", what);
}

/* The status is that of a call that worked or had too little memory. */
static bool fronts; /* each stream has one, as if several threads shared the pool */

static bool worked(ull_status status, const char *call)
{
    if (status != ULL_OK && status != ULL_E_NO_MEMORY)
        fail(call, ull_status_name(status));
    return status == ULL_OK;
}

static void get(struct scene *s, void **place, uint64_t bytes, int stream)
{
    void *address = s;
    if (worked(ull_pool_allocate(s->pool, bytes, s->streams[stream], &address), "allocate: "))
        *place = address;
    else if (address != s)
        fail("a request that failed wrote its result", "");
}

static void give(struct scene *s, void **place, int stream)
{
    if (*place && worked(ull_pool_free(s->pool, *place, s->streams[stream]), "free: "))
        *place = NULL;
}

static void give_all(struct scene *s)
{
    for (int i = 0; i < SMALL; i++)
        give(s, &s->small[i], (i + 3) % STREAMS);
    for (int i = 0; i < VIEWS; i++)
        give(s, &s->view[i], 1);
    for (int i = 0; i < LARGE; i++)
        give(s, &s->large[i], 2);
}

static void graphs(struct scene *s)
{
    uint64_t graph = 0;
    void *of_graph = NULL;
    if (worked(ull_pool_graph_begin(s->pool, s->streams[4], &graph), "graph_begin: ")) {
        get(s, &of_graph, 2 * PAGE, 4);
        give(s, &of_graph, 4);
        if (ull_pool_graph_end(s->pool, s->streams[4]) != ULL_OK)
            fail("graph_end", "");
        worked(ull_pool_graph_release(s->pool, graph, s->streams[4]), "graph_release: ");
    } else if (graph != 0) {
        fail("a graph has a name that could not begin", "");
    }
}

static void changes(struct scene *s)
{
    uint64_t returned = 77;
    ull_pool_set_limit(s->pool, 40 * PAGE);
    ull_pool_trim(s->pool, 10 * PAGE, &returned);
    ull_pool_set_limit(s->pool, 0);
    worked(ull_pool_prewarm(s->pool, 9 * PAGE), "prewarm: ");
    worked(ull_pool_set_reserve(s->pool, 50 * PAGE), "set_reserve: ");
    worked(ull_pool_set_reserve(s->pool, 2 * PAGE), "set_reserve: ");
    worked(ull_pool_forget_stream(s->pool, s->streams[5]), "forget_stream: ");
    check(s);
}

static void use(struct scene *s)
{
    for (int i = 0; i < SMALL; i++) {
        get(s, &s->small[i], 200, i % 4);
        if (s->small[i] && i % 5 == 0)
            worked(ull_pool_use_on(s->pool, s->small[i], s->streams[(i + 1) % STREAMS]),
                   "use_on: ");
    }
    check(s);
    for (int i = 0; i < LARGE; i++)
        get(s, &s->large[i], 2 * PAGE, i % 2);
    for (int i = 0; i < LARGE; i += 2)
        give(s, &s->large[i], i % STREAMS);
    check(s);
    for (int i = 0; i < VIEWS; i++) {
        get(s, &s->view[i], (uint64_t)(2 * i + 3) * PAGE, i % STREAMS);
        if (i % 3 != 0)
            give(s, &s->view[i], (i + 1) % STREAMS);
    }
    check(s);
    graphs(s);
    changes(s);
    give_all(s);
    check(s);
}

static void all_is_well(struct scene *s)
{
    void *all = NULL;
    struct ull_request request = {.bytes = (uint64_t)PAGES * PAGE, .stream = s->streams[0]};
    struct ull_refusal refusal;
    char text[2048];
    give_all(s); /* what could not be freed before */
    use(s);
    if (ull_pool_request(s->pool, &request, &refusal, &all) != ULL_OK) {
        ull_refusal_text(&refusal, text, sizeof text);
        fail("memory was lost: ", text);
    }
    if (ull_pool_free(s->pool, all, s->streams[0]) != ULL_OK)
        fail("a free was refused", "");
    struct ull_stats stats = {.size = sizeof stats};
    ull_pool_stats(s->pool, &stats);
    if (stats.in_use != 0 || stats.allocations != stats.frees)
        fail("something is still in use", "");
}

static void with_pool(struct scene *s)
{
    struct ull_pool_options options;
    struct ull_error error = {.message = ""};
    ull_pool_options_init(&options);
    options.reserve = 2 * PAGE;
    options.small_bytes = 4096;
    if (worked(ull_pool_create(s->device, &options, &s->pool, &error), "pool_create: ")) {
        s->pool->fronts_forced = fronts;
        use(s);
        allocations_work();
        all_is_well(s);
    } else if (s->pool || error.message[0] == 0) {
        fail("create failed without a message or with a pool", "");
    }
    allocations_work();
    ull_pool_destroy(s->pool);
    struct ull__device_held held = ull__device_host_held(s->device);
    if (held.pages || held.mappings || held.reserved_bytes || held.events || held.misuses)
        fail("something leaked, or the device was misused", "");
}

static void scene(void)
{
    struct scene s = {.pool = NULL};
    struct ull_error error = {.message = ""};
    ull_status status = ull__device_host_create((uint64_t)PAGES * PAGE, PAGE, &s.device, &error);
    if (status == ULL_E_SYSTEM || !worked(status, "device_create: ")) {
        if (error.message[0] == 0)
            fail("create of the device failed without a message", "");
        return;
    }
    ull__device_host_delay(s.device, true);
    for (int i = 0; i < STREAMS; i++)
        worked(s.device->ops->stream_create(s.device, &s.streams[i]), "stream_create: ");
    with_pool(&s);
    for (int i = 0; i < STREAMS; i++) {
        if (s.streams[i])
            s.device->ops->stream_destroy(s.device, s.streams[i]);
    }
    ull__device_destroy(s.device);
}

int main(void)
{
    uint64_t count = each_fails("malloc_pool", scene);
    fronts = true;
    if (count < 50 || each_fails("malloc_pool with fronts", scene) <= count)
        fail("the scene asks for hardly any memory", "");
    return 0;
}
