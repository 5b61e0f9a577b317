/*
 * offsets_search.h: the exact search for offsets below a capacity, in one instance (offsets_private.h).
 *
 * What is searched. If there is a plan at all, there is one whose sum of offsets is least. In that plan every
 * buffer lies at 0 or on top of another one (with padding for its alignment), and none could be moved down into a gap.
 * Sorted by offset it is a sequence in which each buffer comes to lie at `low`: the lowest place above all those
 * before it in the sequence that it conflicts with. So the search places buffers in order of rising offsets, each at
 * its low, and leaves out what that plan cannot have:
 *
 * 1. What was placed last at offset h, nothing follows below h. A buffer whose low is below h lies on top of
 *    one that is still to come: it is *blocked* until its low rises. The same holds for a buffer that was tried at its
 *    low in vain, for all that is tried after it at the same node.
 * 2. A buffer is not placed at or above the low end of another that is not pinned: that one would fit below it.
 * 3. Each buffer has an `earliest` offset, from which bounds are computed until nothing changes:
 *    - a blocked buffer is at least on top of the lowest end among those that it conflicts with;
 *    - in a section, the buffers with earliest >= e need e + their sizes, which must not pass the capacity;
 *    - a buffer that lets the rest of its section pass the capacity if it is the lowest in it is not the lowest, so it
 *      is on top of the lowest end of the others there.
 * 4. What is left falls apart into parts without conflicts between them. They are searched one by one, and if one fails
 *    that the last placement did not touch, no other placement there helps: the node fails at once.
 * 5. What failed is remembered by what is left, its lows and which are blocked; how the buffers below were stacked
 *    does not matter. Two hashes of 64 bits stand for that.
 * 6. Of equal buffers the first one is lower.
 *
 * Among places of equal offset an order decides; several orders are tried in turn, each with a number of nodes that
 * grows, and with more and more chance in them (of a fixed seed). Rounds are independent of each other, so
 * that threads may share them: the first round in their order that ends with an answer gives it.
 *
 * These ideas are from the literature on packing with fixed lifetimes and on scheduling with disjunctive resources
 * (active schedules, not-first rules); the code is ours.
 */
#ifndef ULLAGE_PLAN_OFFSETS_SEARCH_H
#define ULLAGE_PLAN_OFFSETS_SEARCH_H

#include "offsets_private.h"

enum {
    ULL__OFFSETS_SEARCH_MOST = 4096, /* buffers in an instance; larger ones are left to the heuristics */
};

#define ULL__NO_BUFFER UINT32_MAX

/* What the search knows of an instance whatever the capacity; not changed by it, so that threads share it. */
struct ull__offsets_space {
    const struct ull__instance *in;
    uint32_t *member_from, *member;   /* buffers of a section */
    uint32_t *section_from, *section; /* sections of a buffer */
    uint32_t *near_from, *near;       /* buffers that a buffer conflicts with */
    uint32_t *twin;                   /* the equal buffer before it, or ULL__NO_BUFFER */
};

/* False without memory. */
bool ull__offsets_space_init(struct ull__offsets_space *space, const struct ull__instance *in);
void ull__offsets_space_finish(struct ull__offsets_space *space);

/* A buffer in the search. All numbers are units; those that change are int64_t so that one trail undoes them. */
struct ull__offsets_spot {
    int64_t low, earliest;
    int64_t left;                /* to be placed */
    int64_t blocked;             /* ULL__FREE... */
    int64_t size, align, latest; /* not changed */
};

enum { ULL__FREE, ULL__BLOCKED, ULL__UNDER_PIN /* a pinned buffer is in the way at low */ };

struct ull__offsets_change {
    int64_t *where, old;
};

/* One thread's search under way. */
struct ull__offsets_state {
    const struct ull__offsets_space *space;
    struct ull__offsets_spot *spots;
    int64_t top;          /* units: no section reaches above */
    bool pins;            /* there are pinned buffers */
    int64_t *end1, *end2; /* by section: the two lowest earliest ends in it */
    int64_t *holder;      /* whose end1 is */
    uint32_t *member;     /* as in space, what is left first and by earliest */
    uint32_t *scratch;
    uint64_t *dirty; /* bits: sections to be looked at */
    size_t dirty_words;
    struct ull__offsets_change *trail;
    size_t used, room;
    bool failed; /* no memory */
};

bool ull__offsets_state_init(struct ull__offsets_state *state,
                             const struct ull__offsets_space *space);
void ull__offsets_state_finish(struct ull__offsets_state *state);

/* Nothing is placed, and plans may be up to `capacity` bytes high. False if that alone cannot be. */
bool ull__offsets_state_begin(struct ull__offsets_state *state, uint64_t capacity);

/* Puts b at its low. False if something has no room any more. */
bool ull__offsets_state_place(struct ull__offsets_state *state, uint32_t b);

/* Notes that of `list` nothing is placed below `floor`. False if a pinned buffer would have to be. */
bool ull__offsets_state_lift(struct ull__offsets_state *state, const uint32_t *list, size_t count,
                             int64_t floor);

void ull__offsets_state_block(struct ull__offsets_state *state, uint32_t b);

/* Rule 3 for the sections of all parts, but not for what is blocked. False if something has no room any more. */
bool ull__offsets_state_settle(struct ull__offsets_state *state);

/* Rule 3 for one part, until nothing changes. False if something has no room any more. */
bool ull__offsets_state_propagate(struct ull__offsets_state *state, const uint32_t *list,
                                  size_t count);

/* What was to be looked at is not: it is about to be undone. */
void ull__offsets_state_forget(struct ull__offsets_state *state);

/* Back to when the trail was `used` long. */
void ull__offsets_state_undo(struct ull__offsets_state *state, size_t used);

enum ull__offsets_search_end {
    ULL__OFFSETS_SEARCH_FOUND,
    ULL__OFFSETS_SEARCH_NONE,
    ULL__OFFSETS_SEARCH_LIMIT,
    ULL__OFFSETS_SEARCH_FAILED
};

/*
 * Searches a plan of at most `capacity` bytes, with at most `nodes` nodes; *used gets those needed. FOUND: offsets has
 * it, in units. NONE: there is none. FAILED: no memory.
 */
enum ull__offsets_search_end ull__offsets_search(const struct ull__offsets_space *space,
                                                 uint64_t capacity, uint64_t nodes,
                                                 unsigned int threads, uint64_t *offsets,
                                                 uint64_t *used);

/* One round in the calling thread; *stop becoming smaller than `round` ends it. */
struct ull__offsets_round {
    const struct ull__offsets_space *space;
    uint64_t capacity, nodes;
    uint64_t round;
    uint64_t used;     /* result: nodes */
    uint64_t *offsets; /* result if found; has room for all */
    const _Atomic(uint64_t) *stop;
};
struct ull__offsets_table; /* what failed */
enum ull__offsets_search_end ull__offsets_round_run(struct ull__offsets_round *round,
                                                    struct ull__offsets_state *state,
                                                    struct ull__offsets_table *table);
/* For rounds of `nodes` nodes together. NULL without memory. */
struct ull__offsets_table *ull__offsets_table_create(uint64_t nodes);
void ull__offsets_table_destroy(struct ull__offsets_table *table);

/* Which of equal places is tried first in a round: the rank of each buffer. False without memory. */
bool ull__offsets_round_ranks(const struct ull__instance *in, uint64_t round, uint32_t *ranks);

#endif
