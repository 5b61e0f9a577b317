/* ours.c: the pool as beside.c plays it. */
#include "allocator.h"
#include "bench.h"
#include "device.h"
#include "ullage/pool.h"

static struct ull__device *host, *card;

struct ours {
    struct ull_pool *pool;
    struct ull__device *device;
    ull__stream streams[2];
};

static void *create_on(struct ull__device *device, uint64_t limit, uint64_t reserve)
{
    struct ull_pool_options options;
    struct ull_error error;
    struct ours *ours = calloc(1, sizeof *ours);
    if (!ours)
        return NULL;
    ours->device = device;
    ull_pool_options_init(&options);
    options.limit = limit;
    options.reserve = reserve;
    options.growth = reserve == 0;
    if (ull_pool_create(device, &options, &ours->pool, &error) != ULL_OK)
        bench_die("pool", error.message);
    for (int i = 0; i < 2; i++)
        if (device->ops->stream_create(device, &ours->streams[i]) != ULL_OK)
            bench_die("stream", "no memory");
    return ours;
}

static void *create_on_host(uint64_t limit, uint64_t reserve)
{
    return create_on(host, limit, reserve);
}

static void *create_on_card(uint64_t limit, uint64_t reserve)
{
    return create_on(card, limit, reserve);
}

static void destroy(void *allocator)
{
    struct ours *ours = allocator;
    ull_pool_destroy(ours->pool);
    for (int i = 0; i < 2; i++)
        ours->device->ops->stream_destroy(ours->device, ours->streams[i]);
    free(ours);
}

static void *allocate(void *allocator, uint64_t bytes, void *stream)
{
    void *address;
    return ull_pool_allocate(((struct ours *)allocator)->pool, bytes, stream, &address) == ULL_OK
               ? address
               : NULL;
}

static void give(void *allocator, void *address, void *stream)
{
    if (ull_pool_free(((struct ours *)allocator)->pool, address, stream) != ULL_OK)
        bench_die("free", "refused");
}

static uint64_t peak_held(void *allocator)
{
    struct ull_stats s = {.size = sizeof s};
    ull_pool_stats(((struct ours *)allocator)->pool, &s);
    return s.peak_held;
}

static void *stream(void *allocator, unsigned int number)
{
    return ((struct ours *)allocator)->streams[number];
}

#define OURS(text, function)                                                                       \
    {                                                                                              \
        .name = text, .reserves = true, .limits = true, .counts = true, .create = function,        \
        .destroy = destroy, .allocate = allocate, .give = give, .peak_held = peak_held,            \
        .stream = stream                                                                           \
    }

const struct beside_allocator *beside_ours(void)
{
    static const struct beside_allocator list[] = {OURS("ullage", create_on_host), {.name = NULL}};
    struct ull_error error;
    if (!host && ull__device_host_create((uint64_t)96 << 30, 0, &host, &error) != ULL_OK)
        bench_die("device", error.message);
    return list;
}

const struct beside_allocator *beside_ours_over_card(void)
{
    static const struct beside_allocator list[] = {OURS("ullage, card", create_on_card),
                                                   {.name = NULL}};
    struct ull_error error;
    if (!card && ull__device_cuda_create(0, &card, &error) != ULL_OK)
        bench_die("device", error.message);
    return list;
}
