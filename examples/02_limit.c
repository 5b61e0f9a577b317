/*
 * 02_limit.c: a pool with a limit. It refuses what does not fit and says why; free pages that lie apart
 * are put side by side before it does; the limit can be changed while it runs.
 *
 *   cc 02_limit.c $(pkg-config --cflags --libs ullage) && ./a.out [host|cuda]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ullage/device.h"
#include "ullage/pool.h"

#define MIB ((uint64_t)1 << 20)

enum { BLOCKS = 16 };

static void check(ull_status status, const char *what)
{
    if (status == ULL_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, ull_status_text(status));
    exit(1);
}

static void expect(int condition, const char *what)
{
    printf("%-60s %s\n", what, condition ? "yes" : "NO");
    if (!condition)
        exit(1);
}

int main(int argc, char **argv)
{
    ull_device *device;
    struct ull_error error = {""};
    ull_status status = argc > 1 && strcmp(argv[1], "host") == 0
                            ? ull_device_open_host(1024 * MIB, &device, &error)
                            : ull_device_open_cuda(0, &device, &error);
    if (status != ULL_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }

    /* Takes pages when they are needed, 64 MiB of them at most. */
    struct ull_pool_options options;
    struct ull_pool *pool;
    ull_pool_options_init(&options);
    options.limit = 64 * MIB;
    check(ull_pool_create(device, &options, &pool, &error), error.message);

    void *block[BLOCKS], *large = NULL;
    for (int i = 0; i < BLOCKS; i++)
        check(ull_pool_allocate(pool, 4 * MIB, NULL, &block[i]), "block");

    /* All is in use: refused, with the report. */
    struct ull_request request = {.bytes = 4 * MIB, .tag = "[1024,1024] float32"};
    struct ull_refusal refusal;
    expect(ull_pool_request(pool, &request, &refusal, &large) == ULL_E_NO_MEMORY,
           "a 17th block of 4 MiB is refused");
    char text[1024];
    ull_refusal_text(&refusal, text, sizeof text);
    printf("%s\n", text);

    /* Every second block free: 32 MiB, of which no more than 4 MiB lie together. */
    for (int i = 0; i < BLOCKS; i += 2)
        check(ull_pool_free(pool, block[i], NULL), "free");
    check(ull_device_synchronize(device, NULL), "synchronize");
    request.bytes = 32 * MIB;
    expect(ull_pool_request(pool, &request, &refusal, &large) == ULL_OK,
           "32 MiB in one piece, out of eight of 4 MiB");
    check(ull_pool_free(pool, large, NULL), "free");

    /* Less from now on: free pages go back to the device at once, or as they become free. */
    check(ull_device_synchronize(device, NULL), "synchronize");
    check(ull_pool_set_limit(pool, 40 * MIB), "limit");
    struct ull_stats stats = {.size = sizeof stats};
    check(ull_pool_stats(pool, &stats), "stats");
    expect(stats.held <= 40 * MIB, "a limit of 40 MiB holds no more than that");
    request.bytes = 16 * MIB;
    expect(ull_pool_request(pool, &request, &refusal, &large) == ULL_E_NO_MEMORY,
           "16 MiB more are refused: 32 of 40 are in use");

    for (int i = 1; i < BLOCKS; i += 2)
        check(ull_pool_free(pool, block[i], NULL), "free");
    ull_pool_destroy(pool);
    ull_device_close(device);
    return 0;
}
