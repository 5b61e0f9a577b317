/*
 * allocator.h: what beside.c asks of an allocator. Each is in a library of its own that exports beside_allocators, so
 * that the program is built without any of them; ours is in ours.c.
 *
 * Every function but create and destroy may be called by two threads at the same time.
 */
#ifndef ULLAGE_BENCH_BESIDE_ALLOCATOR_H
#define ULLAGE_BENCH_BESIDE_ALLOCATOR_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct beside_allocator {
    const char *name; /* NULL ends the list */
    bool reserves;    /* can take all of its memory at the start */
    bool limits;      /* can be held to a limit */
    bool counts;      /* knows what it holds: peak_held is there */
    /*
     * limit: most bytes to hold, 0: what the device has. reserve: bytes to take at the start instead of growing, 0:
     * none. At most one at a time. NULL if that cannot be had.
     */
    void *(*create)(uint64_t limit, uint64_t reserve);
    /* Everything has been freed. What was held goes back. */
    void (*destroy)(void *allocator);
    /* NULL: refused. */
    void *(*allocate)(void *allocator, uint64_t bytes, void *stream);
    /* Of the same stream. NULL is fine. */
    void (*give)(void *allocator, void *address, void *stream);
    /* Bytes held from the system at most, since create. */
    uint64_t (*peak_held)(void *allocator);
    /* Stream 0 or 1, as allocate takes it; NULL where the allocator has none. Lives as long as the allocator. */
    void *(*stream)(void *allocator, unsigned int number);
};

/* A library's, with static lifetime; the last has no name. */
const struct beside_allocator *beside_allocators(void);
typedef const struct beside_allocator *beside_allocators_fn(void);

#ifdef __cplusplus
}
#endif

/* The pool over the host's memory, and over the CUDA driver's first card. End the program if there is none. */
const struct beside_allocator *beside_ours(void);
const struct beside_allocator *beside_ours_over_card(void);

#endif
