/* allocations.c: see allocations.h. */
#include "allocations.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static const char *program;
static uint64_t n;   /* which request fails */
static bool all;     /* and those after it */
static uint64_t at;  /* requests so far, while `failing` */
static bool failing; /* else everything works */
static int64_t live; /* blocks and mappings */

void fail(const char *what, const char *more)
{
    printf("%s: request %llu for host memory fails%s: %s%s\n", program, (unsigned long long)n,
           all ? ", and all after it" : "", what, more);
    exit(1);
}

void allocations_work(void)
{
    failing = false;
}

static bool fails(void)
{
    if (!failing)
        return false;
    at++;
    bool now = all ? at >= n : at == n;
    if (now)
        errno = ENOMEM;
    return now;
}

static void *counted(void *block)
{
    live += block != NULL;
    return block;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *block);
void *__real_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *block);
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *block, size_t size)
{
    if (fails())
        return NULL;
    void *grown = __real_realloc(block, size);
    if (!block)
        counted(grown);
    return grown;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : counted(__real_strdup(text));
}

void __wrap_free(void *block)
{
    live -= block != NULL;
    __real_free(block);
}

/* To make addresses that are mapped inaccessible takes no memory. */
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (!(protection == PROT_NONE && flags & MAP_FIXED) && fails())
        return MAP_FAILED;
    return __real_mmap(address, size, protection, flags, fd, offset);
}

uint64_t each_fails(const char *name, void (*scene)(void))
{
    program = name;
    uint64_t most = 0;
    for (int both = 0; both < 2; both++) {
        all = both == 1;
        n = 0;
        do {
            int64_t before = live;
            n++;
            at = 0;
            failing = true;
            scene();
            allocations_work();
            if (live != before)
                fail("host memory leaked, or was freed twice", "");
            most = at > most ? at : most;
        } while (at >= n);
    }
    printf("%s: each of %llu requests for host memory failed, alone and with all after it\n", name,
           (unsigned long long)most);
    return most;
}
