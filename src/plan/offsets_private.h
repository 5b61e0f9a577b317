/*
 * offsets_private.h: what the parts of the offset solver share; see offsets.h for what it does.
 *
 * The parts work on an instance: the buffers of one connected component of the conflict graph, without those that
 * take no room, with sizes and offsets in units of the smallest alignment, and moments that matter in place of time.
 *
 * A section is a set of buffers that conflict with each other. With lifetimes these are the maximal sets that are live
 * together, in the order of time, and a buffer is in sections [first, end). With a predicate they are cliques that
 * were found greedily, each buffer being in one at least; `rows` has all conflicts then.
 */
#ifndef ULLAGE_PLAN_OFFSETS_PRIVATE_H
#define ULLAGE_PLAN_OFFSETS_PRIVATE_H

#include "offsets.h"

#define ULL__UNPINNED UINT64_MAX

struct ull__instance {
    size_t count;
    uint32_t *id;     /* index in the problem */
    uint64_t *size;   /* units, rounded up */
    uint64_t *spare;  /* bytes by which size was rounded up */
    uint64_t *align;  /* units, a power of two */
    uint64_t *pin;    /* units, or ULL__UNPINNED */
    uint64_t *length; /* how long it is live; with a predicate, the size of what it conflicts with */
    uint32_t *first, *end; /* lifetimes only */
    uint64_t *rows;        /* predicate only: bit j of row i */
    size_t words;          /* of a row */
    size_t sections;
    uint32_t *section_from; /* sections + 1 indices in section_member */
    uint32_t *section_member;
    uint64_t *section_load; /* units: the sum of sizes */
    uint64_t *busiest;      /* by buffer: the load of its fullest section */
    uint64_t unit;          /* bytes */
    uint64_t lower_bound;   /* bytes */
};

/* A set of instances that together are the problem. */
struct ull__parts {
    struct ull__instance *parts;
    size_t count;
    uint64_t lower_bound; /* bytes, of all */
};

/* Checks the problem and cuts it into instances. */
ull_status ull__parts_init(const struct ull__offsets_problem *problem, struct ull_error *err,
                           struct ull__parts *parts);
void ull__parts_finish(struct ull__parts *parts);

/* The predicate's answer in any order of the two. */
static inline bool ull__ask(const struct ull__offsets_problem *problem, uint32_t left, uint32_t right)
{
    return left < right ? problem->conflict(problem->context, left, right)
                        : problem->conflict(problem->context, right, left);
}

/* Fills rows, sections and what depends on them, in the predicate's form. False without memory. */
bool ull__cliques(struct ull__instance *in, const struct ull__offsets_problem *problem);

static inline bool ull__in_conflict(const struct ull__instance *in, size_t left, size_t right)
{
    if (in->rows)
        return in->rows[left * in->words + right / 64] >> (right % 64) & 1;
    return in->first[left] < in->end[right] && in->first[right] < in->end[left];
}

/*
 * Sorts indices by a key, largest first, then by their place before. A merge sort: qsort has no place for the key.
 * `scratch` has room for `count`.
 */
void ull__sort_largest(uint32_t *order, uint32_t *scratch, size_t count, const uint64_t *key);

static inline uint64_t ull__align_up(uint64_t offset, uint64_t align)
{
    return (offset + align - 1) & ~(align - 1);
}

/* Bytes up to which buffer b reaches at an offset in units. */
static inline uint64_t ull__end_bytes(const struct ull__instance *in, size_t b, uint64_t offset)
{
    return (offset + in->size[b]) * in->unit - in->spare[b];
}

/*
 * The best of the greedy plans: stops at one whose height in bytes is at most `enough`, or a little more if it is to be
 * quick. offsets has in->count places, in units. False without memory.
 */
bool ull__greedy(const struct ull__instance *in, uint64_t enough, bool quick, uint64_t *offsets,
                 uint64_t *height);

#endif
