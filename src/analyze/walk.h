/*
 * walk.h: goes through a history in order of time and knows at each moment what is held and live, by whom.
 *
 *     struct ull__walk *walk = ull__walk_create(facts);
 *     while (ull__walk_next(walk))
 *         if (walk->step == ULL_STEP_CAME)
 *             ... walk->block ... walk->all.held ...
 *     ull__walk_destroy(walk);
 *
 * `held` is what the driver has given (blocks and charges without one), `live` what the program has asked for
 * and not given back: chunks where a process has an allocator of its own, else its blocks. One event can be
 * several steps: at the end of a process each of its blocks goes in a step of its own.
 *
 * What cannot be, after events were dropped, is put right as far as it shows: a block at an address that is in
 * use takes the place of the one that was there; a free of what is not there does nothing; no figure goes below 0.
 */
#ifndef ULLAGE_WALK_H
#define ULLAGE_WALK_H

#include "facts.h"

struct ull__totals {
    uint64_t held; /* bytes */
    uint64_t live;
    uint64_t chunks; /* what live chunks take, after rounding; 0 without an allocator above the driver */
    uint64_t by_class[ULL_CLASSES]; /* of held */
    uint32_t blocks;                /* live ones: chunks where there are any */
};

enum ull__step {
    ULL_STEP_OTHER,    /* nothing that changes the books: HOST, CARD, MARK, START, BUDGET */
    ULL_STEP_CAME,     /* a block: walk->block */
    ULL_STEP_FREED,    /* a block was freed: walk->block */
    ULL_STEP_REPLACED, /* its free was lost: another one has its address now */
    ULL_STEP_LEFT,     /* it went with its process */
    ULL_STEP_REFUSED,  /* an allocation */
    ULL_STEP_STRAY,    /* a free of a block that is not known, or one that failed */
    ULL_STEP_CHARGED,  /* the books of a class changed */
    ULL_STEP_ENDED,    /* a process, after its blocks have left */
};

struct ull__walk {
    const struct ull__history *history;
    const struct ull__facts *facts;

    /* The last step. */
    enum ull__step step;
    size_t at; /* its event's number; it is history->events[at] */
    const struct ull__event *event;
    struct ull__block block; /* the one that came or went */
    uint32_t place; /* of that block in `blocks`; the same from when it comes to when it goes */

    /* After the last step. */
    struct ull__totals all;
    struct ull__totals *devices;
    struct ull__totals *processes;
    uint64_t *budgets; /* by device; 0: none */
    uint64_t *host;    /* by process: resident bytes, 0 before the first sample */

    /* All blocks, with places that are empty (layer NONE). */
    struct ull__block *blocks;
    uint32_t place_count;
    uint32_t block_count; /* of both layers */

    struct ull__walk_books *books;
};

/* Before the first event, with what existed before. NULL without memory. */
struct ull__walk *ull__walk_create(const struct ull__facts *facts);
void ull__walk_destroy(struct ull__walk *walk);

/* The next step; false at the end, or without memory (then ull__walk_failed). */
bool ull__walk_next(struct ull__walk *walk);
bool ull__walk_failed(const struct ull__walk *walk);

/* Goes on until all steps of event `at` are done. False as ull__walk_next. */
bool ull__walk_through(struct ull__walk *walk, size_t at);

/* Of one process on one device. */
const struct ull__totals *ull__walk_share(const struct ull__walk *walk, uint32_t process,
                                          uint32_t device);

/* A block counts as live: it is a chunk, or of a process that has none. */
static inline bool ull__block_is_live(const struct ull__facts *facts, const struct ull__block *block)
{
    return block->layer == ULL_LAYER_CHUNK || !facts->processes[block->process].chunks;
}

#endif
