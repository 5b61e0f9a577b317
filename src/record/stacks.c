/*
 * stacks.c: see stacks.h. A table by hash, whose entries are claimed by compare-and-swap of the hash, and one
 * array that all frames are put into one stack after the other.
 */
#include "stacks.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ENTRIES = 1 << 14,
    FRAMES = 1 << 19,
    OWN_FRAMES = 8,  /* of this library, on top */
    LOOK_AT = 64,    /* entries, before the table counts as full */
    FUNCTION = 1024, /* longest name that is kept */
};

struct entry {
    _Atomic uint64_t hash;  /* 0: free */
    _Atomic uint32_t count; /* of frames; 0: being filled */
    uint32_t first;
    uint32_t written; /* its number in the file; only who writes looks at it */
};

struct ull__stacks {
    _Atomic uint32_t used; /* frames */
    _Atomic uint64_t dropped;
    struct entry entries[ENTRIES];
    void *frames[FRAMES];
};

struct ull__stacks *ull__stacks_create(void)
{
    void *frames[2];
    struct ull__stacks *stacks = mmap(NULL, sizeof *stacks, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        return NULL;
    backtrace(frames, 2);
    return stacks;
}

void ull__stacks_destroy(struct ull__stacks *stacks)
{
    if (stacks)
        munmap(stacks, sizeof *stacks);
}

/* Where this library lies. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

static bool is_own(const void *address)
{
    return (const char *)address >= __ehdr_start && (const char *)address < _end;
}

static uint64_t hash_frames(void *const *frames, int count)
{
    uint64_t hash = 0x9e3779b97f4a7c15ull;
    for (int i = 0; i < count; i++) {
        hash = (hash ^ (uintptr_t)frames[i]) * 0xff51afd7ed558ccdull;
        hash ^= hash >> 32;
    }
    return hash ? hash : 1;
}

static uint32_t drop(struct ull__stacks *stacks)
{
    atomic_fetch_add_explicit(&stacks->dropped, 1, memory_order_relaxed);
    return 0;
}

static bool fill(struct ull__stacks *stacks, struct entry *entry, void *const *frames, int count)
{
    uint32_t first = atomic_fetch_add(&stacks->used, (uint32_t)count);
    if (first > FRAMES - (uint32_t)count) {
        atomic_fetch_sub(&stacks->used, (uint32_t)count);
        return false; /* the entry stays without frames: it says nothing */
    }
    memcpy(stacks->frames + first, frames, (size_t)count * sizeof *frames);
    entry->first = first;
    atomic_store_explicit(&entry->count, (uint32_t)count, memory_order_release);
    return true;
}

uint32_t ull__stacks_take(struct ull__stacks *stacks)
{
    void *all[ULL_STACK_MOST + OWN_FRAMES];
    int got = backtrace(all, ULL_STACK_MOST + OWN_FRAMES), own = 0;
    while (own < got && own < OWN_FRAMES && is_own(all[own]))
        own++;
    int count = got - own < ULL_STACK_MOST ? got - own : ULL_STACK_MOST;
    if (count <= 0)
        return 0;
    uint64_t hash = hash_frames(all + own, count);
    for (uint64_t i = 0; i < LOOK_AT; i++) {
        uint32_t at = (uint32_t)((hash + i) % ENTRIES);
        struct entry *entry = &stacks->entries[at];
        uint64_t there = atomic_load_explicit(&entry->hash, memory_order_relaxed);
        if (there == 0 && atomic_compare_exchange_strong(&entry->hash, &there, hash))
            return fill(stacks, entry, all + own, count) ? at + 1 : drop(stacks);
        if (there == hash)
            return at + 1;
    }
    return drop(stacks);
}

uint64_t ull__stacks_dropped(struct ull__stacks *stacks)
{
    return atomic_load_explicit(&stacks->dropped, memory_order_relaxed);
}

/* The function that a frame is in, or where it lies in its library. */
static struct ull__record_frame name_frame(struct ull__writer *writer, const void *frame)
{
    char name[FUNCTION];
    Dl_info info = {0};
    const char *call =
        (const char *)frame - 1; /* a return address may be the next function's already */
    bool found = dladdr(call, &info) != 0;
    const char *file = found && info.dli_fname ? info.dli_fname : "";
    if (found && info.dli_sname)
        snprintf(name, sizeof name, "%s", info.dli_sname);
    else if (found && info.dli_fbase) {
        const char *slash = strrchr(file, '/');
        snprintf(name, sizeof name, "%s+0x%zx", slash ? slash + 1 : file,
                 (size_t)(call - (const char *)info.dli_fbase));
    } else
        snprintf(name, sizeof name, "0x%zx", (size_t)call);
    return (struct ull__record_frame){.function = ull__writer_text(writer, name),
                                      .file = ull__writer_text(writer, file)};
}

uint32_t ull__stacks_write(struct ull__stacks *stacks, uint32_t taken, struct ull__writer *writer)
{
    struct ull__record_frame frames[ULL_STACK_MOST];
    if (taken == 0 || taken > ENTRIES)
        return 0;
    struct entry *entry = &stacks->entries[taken - 1];
    uint32_t count = atomic_load_explicit(&entry->count, memory_order_acquire);
    if (entry->written || count == 0 || count > ULL_STACK_MOST) /* 0: by a thread in the middle of it */
        return entry->written;
    for (uint32_t i = 0; i < count; i++)
        frames[i] = name_frame(writer, stacks->frames[entry->first + i]);
    entry->written = ull__writer_stack(writer, frames, count);
    return entry->written;
}
