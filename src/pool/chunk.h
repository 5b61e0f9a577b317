/*
 * chunk.h: a piece of addresses, as the pool knows it. One cache line of host memory, none of the device.
 */
#ifndef ULLAGE_CHUNK_H
#define ULLAGE_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

enum ull__chunk_state {
    ULL_LIVE,    /* in use by the program */
    ULL_WAITING, /* freed, but streams that used it have not passed yet; in pool->waiting */
    ULL_FREE,    /* in the bins of its lane */
    ULL_SWEPT,   /* on its way: in no bins, soon free or in use */
    ULL_SHADOW,  /* whole slots whose pages are to be used through other addresses now */
    ULL_HOLE,    /* whole slots without pages */
    ULL_LENT,    /* the end of a slot, in use through a view that begins with it, see share.c */
    ULL_REST,    /* what is before it in the first slot of that view */
    ULL_TAKEN    /* a piece of a front's block, in use by the program, see block.c */
};

struct ull__chunk {
    uint64_t address, size;
    struct ull__chunk *prev, *next; /* neighbours within the range; NULL at its ends */
    union {
        struct {
            struct ull__chunk *left, *right; /* in a bin, see bins.h and heap.h */
        } free;
        struct {
            uint64_t requested;
            const char *tag;
        } live;
    } u;
    union {
        uint64_t seq; /* FREE, SHADOW, WAITING: the free of the lane that must have passed for others */
        struct ull__chunk *block; /* in a front: see block.c */
    };
    union {
        uint32_t uses; /* WAITING, LIVE if in no front: the first of pool->uses, 0 for none; else 0 */
        uint32_t bin;   /* FREE: where it is */
        uint32_t front; /* LIVE, in one: which, see front_mark */
    };
    uint16_t lane; /* FREE, SHADOW, WAITING: whose it is; LIVE: the graph's that it belongs to, or 0 */
    /* Bytes of their own: a bit field that is written narrow and read wide stalls for 15 cycles. */
    uint8_t state, tier;
};

_Static_assert(sizeof(struct ull__chunk) == 64, "a chunk is a cache line");

#endif
