/*
 * cache.c: a program with a pool of libullage.so, which keeps what is freed.
 *
 *   cache WORD...     take SIZE   a piece, filled with a byte; prints "take 0", or the status
 *                     check       all pieces have their bytes; prints "check right"
 *                     free        all pieces
 *                     held        prints the bytes of pages that the pool holds
 *                     fork        a child ends, with its parent's pool; prints its exit code
 *                     again       the pool ends, and another one begins
 *                     touch FILE, wait FILE, hold
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ullage/device.h"
#include "ullage/pool.h"

enum { PIECES = 64, PROBES = 16 };

static ull_device *device;
static struct ull_pool *pool;
static struct {
    char *address;
    uint64_t bytes;
} pieces[PIECES];
static int count;

static void must(ull_status status, const char *what)
{
    if (status == ULL_OK)
        return;
    printf("%s: %s\n", what, ull_status_text(status));
    exit(1);
}

static void begin(void)
{
    must(ull_device_open_cuda(0, &device, NULL), "device");
    must(ull_pool_create(device, NULL, &pool, NULL), "pool");
}

static void end(void)
{
    ull_pool_destroy(pool);
    ull_device_close(device);
    count = 0;
}

static uint64_t size_of(const char *text)
{
    char *unit;
    uint64_t size = strtoull(text, &unit, 10);
    return size << (strcmp(unit, "GiB") == 0 ? 30 : 20);
}

static void take(uint64_t bytes)
{
    void *address;
    ull_status status = ull_pool_allocate(pool, bytes, NULL, &address);
    printf("take %d\n", (int)status);
    if (status != ULL_OK)
        return;
    must(ull_device_fill(device, address, (uint8_t)(count + 1), bytes, NULL), "fill");
    must(ull_device_synchronize(device, NULL), "fill");
    pieces[count].address = address;
    pieces[count++].bytes = bytes;
}

static void check(void)
{
    for (int i = 0; i < count; i++) {
        for (uint64_t p = 0; p < PROBES; p++) {
            uint8_t byte = 0;
            const char *at = pieces[i].address + (pieces[i].bytes - 1) / PROBES * p;
            must(ull_device_copy_out(device, &byte, at, 1, NULL), "copy");
            must(ull_device_synchronize(device, NULL), "copy");
            if (byte != (uint8_t)(i + 1)) {
                printf("piece %d has %d\n", i, byte);
                exit(1);
            }
        }
    }
    printf("check right\n");
}

static void free_all(void)
{
    while (count > 0)
        must(ull_pool_free(pool, pieces[--count].address, NULL), "free");
}

static void held(void)
{
    struct ull_stats stats = {.size = sizeof stats};
    must(ull_pool_stats(pool, &stats), "stats");
    printf("held %llu\n", (unsigned long long)stats.held);
}

static void in_a_child(void)
{
    int code = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        ull_pool_destroy(pool);
        exit(0);
    }
    waitpid(child, &code, 0);
    printf("fork %d\n", code);
}

static void wait_for(const char *file)
{
    while (file == NULL || access(file, F_OK) != 0)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

int main(int argc, char **argv)
{
    begin();
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(word, "take") == 0 && ++i)
            take(size_of(next));
        else if (strcmp(word, "check") == 0)
            check();
        else if (strcmp(word, "free") == 0)
            free_all();
        else if (strcmp(word, "held") == 0)
            held();
        else if (strcmp(word, "fork") == 0)
            in_a_child();
        else if (strcmp(word, "again") == 0)
            end(), begin();
        else if (strcmp(word, "touch") == 0 && ++i)
            fclose(fopen(next, "w"));
        else if (strcmp(word, "wait") == 0 && ++i)
            wait_for(next);
        else if (strcmp(word, "hold") == 0)
            wait_for(NULL);
        fflush(stdout);
    }
    end();
    return 0;
}
