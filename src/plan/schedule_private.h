/*
 * schedule_private.h: what the files of the scheduler share.
 *
 *     fixed.c     what no decision changes, made once
 *     schedule.c  what a decision costs
 *     listing.c   its order and stays in full, and algorithms that fit
 *
 * The forward pass runs in the order of its items whatever is decided: nothing that it reads is gone. So its places are its
 * items, and so are those of everything behind it but for the second runs that are put in before them. Bytes of
 * buffers that only later items touch, and of the workspace of everything but second runs, are added up once. What is
 * left for each decision are the movers: buffers that the forward pass makes or reads. Each has one stay that begins
 * in the forward pass, and at most one behind it: when it has come back, or was made again.
 */
#ifndef ULLAGE_PLAN_SCHEDULE_PRIVATE_H
#define ULLAGE_PLAN_SCHEDULE_PRIVATE_H

#include "schedule.h"

/* A part of ull__scheduler's `moved`: what an item reads or makes of the movers. */
struct ull__span {
    int first, count;
};

struct ull__mover {
    int buffer;
    int item;  /* that makes it; ULL_NONE: an input */
    int joins; /* the mover whose memory it may take over, when its item works in place; ULL_NONE */
    int64_t bytes;
};

/* An item behind the forward pass that reads movers. */
struct ull__reading {
    int item;
    struct ull__span reads;
    int joins;         /* the mover whose memory its output 0 may take over; ULL_NONE */
    int64_t out_bytes; /* of that output */
};

/* A second run. */
struct ull__again {
    int item;
    int before; /* the item that it is put in before, behind those that are there already */
};

struct ull__scheduler {
    const struct ull__program *program;
    const struct ull__profile *profile;
    char *room; /* that all lists are in */

    /* --- Fixed --- */
    struct ull__mover *movers; /* inputs, then in the order in which they are made */
    int mover_count, input_count;
    int *first_begins, *first_ends; /* `begins` and `ends` as they are before the first second run */
    int *mover_of;                  /* by buffer; ULL_NONE */
    int *moved;
    struct ull__span *reads, *makes; /* by item of the forward pass, in `moved` */
    struct ull__reading *readings;
    int reading_count;
    int *last_touch;   /* by buffer that is no mover: the last item that reads or makes it */
    bool *joins_fixed; /* by item: its output 0 takes over the memory of a buffer that is no mover */
    int64_t *fixed;    /* by item: bytes of what is no mover when it runs, without workspace */
    int64_t *between;  /* by item: bytes of that just before it */
    int *micro, *update; /* items whose times are the micro-step's, and those of what is once a step */
    int micro_count, update_count;

    /* --- By algorithms: made anew when those of a decision differ --- */
    uint8_t *algorithm; /* what these are for */
    bool priced;        /* there are any */
    double *seconds;
    int64_t *workspace;
    int64_t *base_bytes; /* by item: `fixed` and its workspace */
    double *base_starts; /* by item: seconds of all before it, second runs left out */
    double *micro_before; /* by number in `micro`: seconds of those before it, added up in this order */
    double update_seconds;

    /* --- The last decision --- */
    const struct ull__decision *decision;
    int *stay; /* by mover: where it is now, its first stay (twice its number) or its second (one more); ULL_NONE: gone */
    int *begins; /* by stay, as above; of a second one ULL_NONE: there is none */
    int *ends;
    bool *returned; /* by mover: its second stay came back from the host */
    bool *joined;   /* by stay: takes over the memory of another */
    struct ull__again *again;
    int again_count;
    int *second; /* movers that were made again, in this order */
    int second_count;
    int *sent;    /* movers that come back, in this order */
    int *sent_at; /* the places at which they were needed */
    int sent_count;
    int *reading_at; /* by reading: its place */
    bool *reading_joined;
    double *left_at; /* by mover: when its last byte has left */
    double *starts; /* by place: seconds from the beginning, without waiting; where anything is sent */
    int64_t *change; /* by place: bytes of movers that come, less those that have gone */
    int64_t *bytes;  /* by place */
    int count;       /* places */

    /* --- In full (listing.c) --- */
    bool ordered; /* `order` is the last decision's */
    struct ull__placed *order;
    struct ull__stay *stays;
    int stay_count;
    int *last;       /* by buffer: its last stay */
    int *place_of;   /* by item: its place, not of second runs */
    uint8_t *fitted; /* by item: an algorithm, in ull__schedule_fit */
};

/* Lists the order and the stays of the last decision. */
void ull__schedule_list(struct ull__scheduler *scheduler);

/* The stay of a mover that is there just before a place. */
static inline int ull__stay_before(const struct ull__scheduler *s, int mover, int place)
{
    int second = 2 * mover + 1;
    return s->begins[second] != ULL_NONE && s->begins[second] < place ? second : second - 1;
}

#endif
