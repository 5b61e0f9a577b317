/*
 * schedule.h: what a decision costs: the order in which items then run, how long each buffer is needed, the most bytes
 * at any moment, and the time.
 *
 * Of each buffer that the forward pass makes it is decided whether it is kept until it is last read, or dropped after
 * its last reader in the forward pass. What was dropped and is needed later is made again, once, just before the first
 * who needs it, from what is kept; what that run needs in turn is made again as well. What was made
 * again stays until its last reader.
 */
#ifndef ULLAGE_PLAN_SCHEDULE_H
#define ULLAGE_PLAN_SCHEDULE_H

#include "program.h"

enum ull__keep {
    ULL_KEEP, /* on the device, up to its last reader */
    ULL_DROP, /* made again if it is needed */
    ULL_SEND, /* to the host after its last reader of the forward pass, and back before the next */
};

/* A decision: of every buffer (enum ull__keep; read of those of the forward pass), and of every item its algorithm. */
struct ull__decision {
    uint8_t *keep;      /* by buffer */
    uint8_t *algorithm; /* by item: which of its choices (ull__item_choice); 0: the fastest */
};

struct ull__cost_of {
    int64_t peak_bytes;   /* of everything that is not persistent, accumulated gradients included */
    double micro_seconds; /* of one micro-step */
    double update_seconds; /* and of what comes once before the micro-steps */
    double again_seconds;  /* of micro_seconds: what is done a second time */
    int64_t dropped_bytes; /* of buffers that are made again */
    int64_t sent_bytes;    /* to the host, a micro-step */
    int peak_at;           /* the place in the order */
};

/* One item in the order. */
struct ull__placed {
    int item;
    bool again;
};

/* One stay of a buffer in memory. */
struct ull__stay {
    int buffer; /* ULL_NONE: workspace of the item at `begin` */
    int64_t bytes;
    int begin, end; /* places in the order; the last one included */
    int joins;      /* ULL_NONE, or the stay whose memory it takes over in place */
    int before;     /* the buffer's stay before this one; ULL_NONE */
    bool returned;  /* came back from the host: its bytes are written by a copy */
};

struct ull__scheduler;

/* Works on one program; one thread each. NULL without memory. The program must outlive it. */
struct ull__scheduler *ull__scheduler_create(const struct ull__program *program,
                                             const struct ull__profile *profile);
void ull__scheduler_destroy(struct ull__scheduler *scheduler);

/* The first decision: everything that the backward pass reads is kept, algorithms are the fastest. Owned by the caller. */
bool ull__decision_create(const struct ull__program *program, struct ull__decision *decision);
void ull__decision_finish(struct ull__decision *decision);
/* A copy of its own. False without memory. */
bool ull__decision_clone(const struct ull__program *program, struct ull__decision *to,
                         const struct ull__decision *from);
void ull__decision_copy(const struct ull__program *program, struct ull__decision *to,
                        const struct ull__decision *from);

/*
 * What a decision costs. Times and workspaces of the program's choices are taken at the first call: they must not change
 * before the scheduler is destroyed.
 */
void ull__schedule_cost(struct ull__scheduler *scheduler, const struct ull__decision *decision,
                        struct ull__cost_of *cost);
/* The same, and what ull__schedule_order and ull__schedule_stays give. */
void ull__schedule(struct ull__scheduler *scheduler, const struct ull__decision *decision,
                   struct ull__cost_of *cost);

/*
 * Of the last one, for which `decision` and `cost` are: gives each item the fastest algorithm that keeps all places where it
 * runs within `level` bytes, or its smallest. What is sent to the host may take other times then, so the level can be
 * missed: the cost says. For order and stays afterwards, ull__schedule.
 */
void ull__schedule_fit(struct ull__scheduler *scheduler, struct ull__decision *decision,
                       int64_t level, struct ull__cost_of *cost);
/* The lowest level that algorithms can be fitted to. */
int64_t ull__schedule_lowest(struct ull__scheduler *scheduler);

/* Of the last one: bytes at each place of the order, workspace included; the scheduler's, until the next one. */
const int64_t *ull__schedule_bytes(const struct ull__scheduler *scheduler, int *count);
/* The item at a place. */
int ull__schedule_item(const struct ull__scheduler *scheduler, int place);
/* From which place on and up to which a buffer is in memory that the forward pass makes and that is kept. */
void ull__schedule_kept(const struct ull__scheduler *scheduler, int buffer, int *begin, int *end);

/* Of the last ull__schedule: the order, and the stays; the scheduler's, until the next one. */
const struct ull__placed *ull__schedule_order(const struct ull__scheduler *scheduler, int *count);
const struct ull__stay *ull__schedule_stays(const struct ull__scheduler *scheduler, int *count);

#endif
