/*
 * 01_allocate.c: a pool over a card, memory from it, work on it, and what the pool says of itself.
 *
 *   cc 01_allocate.c $(pkg-config --cflags --libs ullage) && ./a.out [host|cuda]
 *
 * Without an argument it takes the first card, or this machine's memory where there is none.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ullage/device.h"
#include "ullage/pool.h"

#define MIB ((uint64_t)1 << 20)

static void check(ull_status status, const char *what, const char *why)
{
    if (status == ULL_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, why ? why : ull_status_text(status),
            ull_status_name(status));
    exit(1);
}

static ull_device *open_device(const char *wanted)
{
    ull_device *device = NULL;
    struct ull_error error = {""};
    ull_status status = ULL_E_NO_DEVICE;
    if (!wanted || strcmp(wanted, "cuda") == 0)
        status = ull_device_open_cuda(0, &device, &error);
    if (status == ULL_E_NO_DEVICE && (!wanted || strcmp(wanted, "host") == 0))
        status = ull_device_open_host(1024 * MIB, &device, &error);
    check(status, "device", error.message);
    return device;
}

int main(int argc, char **argv)
{
    ull_device *device = open_device(argc > 1 ? argv[1] : NULL);
    struct ull_pool *pool;
    struct ull_error error = {""};
    check(ull_pool_create(device, NULL, &pool, &error), "pool", error.message);

    /* Memory for work on a stream. It is named with its stream when it is freed, too. */
    void *stream, *a, *b, *c;
    check(ull_device_stream_open(device, &stream), "stream", NULL);
    check(ull_pool_allocate(pool, 10 * MIB, stream, &a), "a", NULL);
    check(ull_pool_allocate(pool, 100, stream, &b), "b", NULL);

    unsigned char text[100] = "hello", back[100];
    check(ull_device_fill(device, a, 0xee, 10 * MIB, stream), "fill", NULL);
    check(ull_device_copy_in(device, b, text, sizeof text, stream), "copy", NULL);
    check(ull_device_copy_out(device, back, b, sizeof back, stream), "copy", NULL);
    check(ull_device_synchronize(device, stream), "synchronize", NULL);
    printf("on %s: '%s'\n", ull_device_name(device), (char *)back);

    /* What was freed on a stream may be had on it at once, with no wait: work is in order there. */
    check(ull_pool_free(pool, a, stream), "free", NULL);
    check(ull_pool_allocate(pool, 8 * MIB, stream, &c), "c", NULL);
    printf("the second large block %s\n", c == a ? "lies where the first was" : "lies elsewhere");

    /* Mistakes are answered, not crashed on. */
    printf("an inner address: %s\n", ull_status_name(ull_pool_free(pool, (char *)c + 256, stream)));
    check(ull_pool_free(pool, c, stream), "free", NULL);
    printf("freed twice: %s\n", ull_status_name(ull_pool_free(pool, c, stream)));
    check(ull_pool_free(pool, b, stream), "free", NULL);

    struct ull_stats stats = {.size = sizeof stats};
    check(ull_pool_stats(pool, &stats), "stats", NULL);
    printf("peak requested %" PRIu64 " KiB, peak held %" PRIu64 " KiB, in use now %" PRIu64 "\n",
           stats.peak_requested >> 10, stats.peak_held >> 10, stats.in_use);

    check(ull_pool_forget_stream(pool, stream), "forget", NULL);
    ull_device_stream_close(device, stream);
    ull_pool_destroy(pool);
    ull_device_close(device);
    return strcmp((char *)back, "hello") == 0 && stats.in_use == 0 ? 0 : 1;
}
