/*
 * search_private.h: what the files of the search share.
 *
 *     frontier.c  what was found
 *     moves.c     what can be done next
 *     search.c    where it goes
 */
#ifndef ULLAGE_PLAN_SEARCH_PRIVATE_H
#define ULLAGE_PLAN_SEARCH_PRIVATE_H

#include "search.h"

/* A copy of less than this is not worth its launch. */
enum { ULL_SEND_LEAST = 1 << 20 };

struct ull__searching {
    const struct ull__program *program;
    const struct ull__search_options *options;
    struct ull__scheduler *scheduler;
    struct ull__frontier *frontier;
    int *candidates; /* buffers of which something can be decided */
    int candidate_count;
    struct ull__decision current, trial;
    struct ull__cost_of cost; /* of `current`, whose schedule the scheduler holds after look() */
    bool *seen;               /* by buffer, for again_seconds */
    long schedules_left;
    bool failed;
};

/* What can be done with one buffer or item. */
struct ull__move {
    int buffer; /* ULL_NONE: the item takes its next smaller workspace */
    int item;
    enum ull__keep to;
    double score;
};

static inline double ull__seconds_of(const struct ull__cost_of *cost)
{
    return cost->micro_seconds + cost->update_seconds;
}

/* Puts a move among the `most` best, which are in order. */
void ull__move_insert(struct ull__move *moves, int *count, int most, const struct ull__move *move);
/* The most promising moves among what is in memory at a place of `current`. Returns how many. */
int ull__moves_at(struct ull__searching *s, int place, struct ull__move *moves, int most);
/* The largest buffers in memory there that could be sent to the host. */
int ull__sends_at(struct ull__searching *s, int place, struct ull__move *moves, int most);

#endif
