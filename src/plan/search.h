/*
 * search.h: decisions that are worth having: for each amount of memory, the fastest that was found.
 *
 * The result does not depend on a budget, nor on time or addresses: the same program gives the same decisions. No
 * one of them is dominated: less memory is always slower.
 *
 * How: from what keeps everything downwards, dropping (or sending to the host, or giving a smaller workspace) what frees the
 * most bytes above a level for the least time; at each of some levels what was dropped is taken back where it turns
 * out that there is room. Beside that, from decisions that keep only what crosses cuts of the forward pass, of which
 * checkpoints at each block and at every √n-th are some; and from what was found by random changes, which at the end with
 * the least memory may also cross flat places. All that is met on the way is remembered. Programs with few
 * buffers are searched through completely. Algorithms do not change the order, so for what was found those that suit a
 * level are simply the fastest that fit at each place: each decision is given them at some levels.
 *
 * What it cannot do: prove that a larger program's decisions are the best; tests compare them with exact ones.
 */
#ifndef ULLAGE_PLAN_SEARCH_H
#define ULLAGE_PLAN_SEARCH_H

#include "progress.h"
#include "schedule.h"

struct ull__found {
    struct ull__decision decision;
    struct ull__cost_of cost;
};

struct ull__frontier {
    struct ull__found *entries; /* from the most memory to the least */
    int count, room;
};

struct ull__search_options {
    int64_t smallest_dropped; /* bytes; smaller buffers are kept */
    bool no_drop;
    bool fastest;       /* algorithms only */
    int64_t host_bytes; /* what may be sent to the host, together; 0: nothing */
    int levels;         /* 0: 24 */
    long schedules; /* about how many decisions are tried; 0: some ten thousand, fewer of a large program */
    struct ull__progress *progress; /* counts them; NULL: nobody looks on */
};

/* How many decisions will be tried at most. */
long ull__search_schedules(const struct ull__program *program,
                           const struct ull__search_options *options);

ull_status ull__search(const struct ull__program *program, const struct ull__profile *profile,
                       const struct ull__search_options *options, struct ull__frontier *frontier,
                       struct ull_error *err);
/* Puts a decision in, a copy, unless it is dominated; takes out what it dominates. False without memory. */
bool ull__frontier_put(struct ull__frontier *frontier, const struct ull__program *program,
                       const struct ull__decision *decision, const struct ull__cost_of *cost);
void ull__frontier_finish(struct ull__frontier *frontier);

/*
 * Keeps what crosses cuts of the forward pass and drops everything else: `cut` says behind which of the program's
 * forward items there is one. What people do by hand is this: a checkpoint at each block.
 */
void ull__decide_by_cuts(const struct ull__program *program, const bool *cut,
                         struct ull__decision *decision);
/* The cuts behind every nth block of the model. False: it has no blocks. */
bool ull__cuts_at_blocks(const struct ull__program *program, int every, bool *cut);
/* Cuts that divide the bytes that the forward pass makes into equal parts. */
void ull__cuts_by_bytes(const struct ull__program *program, int parts, bool *cut);

#endif
