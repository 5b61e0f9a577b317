/* meter_private.h: what the files of a meter share. */
#ifndef ULLAGE_TRAIN_METER_PRIVATE_H
#define ULLAGE_TRAIN_METER_PRIVATE_H

#include "meter.h"
#include "recent.h"

enum { ULL_METER_RECENT = 5, ULL_METER_OPERATORS = 96 };
_Static_assert((int)ULL_METER_RECENT <= (int)ULL_RECENT, "a median of them");

struct ull__meter_entry {
    uint64_t key; /* 0: free */
    int64_t workspace;
    const char *algorithm; /* static text; NULL: none */
    double fixed, each;    /* seconds: of a run, and of a sample; each below 0: not known */
    /* In a training; all 0: not seen in one. */
    double recent[ULL_METER_RECENT]; /* seconds of the last runs, on a machine as it was at the first */
    int seen;                        /* runs so far */
    double reference;                /* their median */
    double line,
        ratio; /* what was measured before says at the size that was seen last, and the reference to that */
    double sum; /* of the runs of this step */
    unsigned long runs;
    bool selected; /* workspace and algorithm are known */
};

struct ull__meter_table {
    struct ull__meter_entry *entries;
    size_t room, count;
};

/* What is known of all kernels of an operator together. */
struct ull__meter_operator {
    const struct ull__op *op;
    double line, reference; /* sums over kernels that were seen */
};

struct ull__meter_of {
    struct ull__meter meter;
    struct ull__backend *backend;
    uint64_t room;
    char *scratch; /* room bytes; NULL until something is measured, or there is no memory */
    uint64_t at;   /* the next place there */
    /* By operator, shapes and types: with all sizes, and for any number of samples. */
    struct ull__meter_table sized, times;
    struct ull__meter_operator operators[ULL_METER_OPERATORS];
    int operator_count;
    /* Of the last graph and sizes that were asked about. */
    const struct ull__graph *graph;
    int64_t values[ULL_SYMBOLS];
    uint8_t *layouts;
    int tensors;
    char missing[256];
};

/* meter_table.c */
/* A node of the meter's graph by what it does; with the sizes as they are, or for any number of samples. */
uint64_t ull__meter_key(const struct ull__meter_of *meter, int node, bool sizes);
/* The entry of a key, or the free one where it would be; NULL: the table is empty. */
struct ull__meter_entry *ull__meter_look(const struct ull__meter_table *table, uint64_t key);
/* The same, with room for a new one. NULL without memory. */
struct ull__meter_entry *ull__meter_entry_of(struct ull__meter_table *table, uint64_t key);

/* meter.c */
/* The meter is about this graph and sizes from here on. False without memory. */
bool ull__meter_turn_to(struct ull__meter_of *meter, const struct ull__graph *graph,
                        const int64_t *values);
int64_t ull__meter_batch(const struct ull__graph *graph, const int64_t *values);

/* The node of the meter's graph, at its sizes. */
static inline struct ull__meter_kernel ull__meter_kernel(const struct ull__meter_of *meter,
                                                         int node, int64_t batch)
{
    return (struct ull__meter_kernel){.op = meter->graph->nodes[node].op,
                                      .sized = ull__meter_key(meter, node, true),
                                      .timed = ull__meter_key(meter, node, false),
                                      .batch = batch};
}

#endif
