/*
 * preload.c: somebody else's preload library, with the habits of real ones.
 *
 * OPENS: it answers dlopen, goes on with RTLD_NEXT, and opens the driver in its constructor, when
 * libraries that stand in front of it in LD_PRELOAD have not been initialized yet. MALLOCS: it answers
 * the allocator's calls, and its first ones come out of a small array while dlsym looks for the real
 * ones. With GUEST_TRACE in the environment it says at the end what it saw.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic int seen;

__attribute__((destructor)) static void say(void)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s saw %s\n", WHO, seen ? "calls" : "nothing");
    if (getenv("GUEST_TRACE") && write(STDERR_FILENO, line, (size_t)length) != length)
        _exit(90);
}

#ifdef OPENS
void *dlopen(const char *path, int flags)
{
    void *(*next)(const char *, int);
    *(void **)&next = dlsym(RTLD_NEXT, "dlopen");
    seen++;
    return next(path, flags);
}

__attribute__((constructor)) static void early(void)
{
    /* Through the dlopen that everybody gets, the first in the list. */
    void *(*first)(const char *, int);
    int version = 0, (*get)(int *);
    *(void **)&first = dlsym(RTLD_DEFAULT, "dlopen");
    void *driver = first("libcuda.so", RTLD_NOW);
    if (!driver)
        return;
    *(void **)&get = dlsym(driver, "cuDriverGetVersion");
    if (get && get(&version) != 0)
        seen = -1000;
}
#endif

#ifdef MALLOCS
static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
} next;
static char early[65536];
static _Atomic size_t used;

static int is_early(const void *block)
{
    return (uintptr_t)block >= (uintptr_t)early && (uintptr_t)block < (uintptr_t)early + sizeof early;
}

static void *from_early(size_t size)
{
    size_t at = atomic_fetch_add(&used, (size + 31) / 16 * 16);
    if (at + size > sizeof early)
        _exit(91);
    return early + at;
}

static void find(void)
{
    static _Atomic int finding;
    if (next.realloc || finding)
        return;
    finding = 1;
    *(void **)&next.malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&next.calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&next.free = dlsym(RTLD_NEXT, "free");
    *(void **)&next.realloc = dlsym(RTLD_NEXT, "realloc");
    finding = 0;
}

void *malloc(size_t size)
{
    find();
    seen = 1;
    return next.realloc ? next.malloc(size) : from_early(size);
}

void *calloc(size_t count, size_t size)
{
    find();
    return next.realloc ? next.calloc(count, size) : from_early(count * size);
}

void *realloc(void *block, size_t size)
{
    find();
    if (!is_early(block) && next.realloc)
        return next.realloc(block, size);
    void *moved = malloc(size);
    if (moved && block)
        memcpy(moved, block, size); /* reads too far at most within the array */
    return moved;
}

void free(void *block)
{
    find();
    if (block && !is_early(block))
        next.free(block);
}
#endif
