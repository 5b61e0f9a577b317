/*
 * backend.h: what runs the nodes of a graph: a seam that suits a processor and a GPU alike.
 *
 *     select   which algorithm a node would run with, and the workspace that it takes   (planning)
 *     compile  a kernel for one node at given sizes; may allocate                       (once, before the first step)
 *     enqueue  puts a kernel, with its addresses, into a queue; never allocates, never waits for the device
 *     copy, event_record, event_wait   order work on queues
 *     collective                       among the processes that have a device each
 *     segment_begin, _end, replay      what is enqueued in between is kept, and put into its queues as often as wanted
 *
 * Memory is not the backend's: addresses come from the caller's regions. A queue runs what it has in order; between queues
 * nothing is ordered but by events. Kernels may run in any order that queues and events allow.
 *
 * One thread at a time calls a backend. Headers only; an implementation fills in struct ull__backend_ops.
 */
#ifndef ULLAGE_BACKEND_BACKEND_H
#define ULLAGE_BACKEND_BACKEND_H

#include "graph.h"

struct ull__backend;
struct ull__kernel;
struct ull__segment;

/* A node at given sizes. */
struct ull__selecting {
    const struct ull__graph *graph;
    int node;
    const int64_t *values;  /* of the graph's symbols */
    const uint8_t *layouts; /* by tensor: enum ull__tensor_layout; NULL: all ROWS */
    int64_t most_workspace; /* bytes; ULL_NONE: no bound */
    bool deterministic;     /* only algorithms that give the same bits each time */
};

struct ull__selection {
    const char *algorithm; /* static text */
    int64_t workspace;     /* bytes */
    bool capturable;       /* may be in a segment */
    double seconds;        /* predicted; 0: not known */
};

/* What runs of one kernel took; the backend adds to it. */
struct ull__took {
    double seconds;
    unsigned long runs; /* that did something: not those that were skipped */
};

/* What copies to and from the host took together. */
struct ull__copied {
    double bytes, seconds;
};

/* What a kernel is run on. Addresses; NULL for operands that the node does not have. */
struct ull__launch {
    void *const *inputs, *const *outputs; /* as many as the node has; copied */
    void *workspace;
    const bool *skip; /* a bool in the device's memory: true when the kernel's turn comes: it does nothing. Or NULL */
    struct ull__took *took; /* NULL, or where its time goes while the backend times; must outlive the segment */
};

/*
 * A collective at given sizes (ops.h has kinds and reductions). Parts are along the middle one of three dimensions [outer, whole,
 * inner], of which a part has whole / ranks, rounded up; elements past the end are zeros in it.
 */
struct ull__collective_run {
    int kind, reduce, ranks;
    enum ull__type type;
    int64_t outer, whole, inner;
    const void *from;
    void *to; /* may be `from` */
};

struct ull__backend_ops {
    const char *name; /* "cpu" */
    void (*destroy)(struct ull__backend *backend);

    /*
     * How each tensor lies best: by tensor ROWS or CHANNELS_LAST, in which it has as many bytes as in rows. Tensors in
     * one memory have one layout.
     */
    ull_status (*layouts)(struct ull__backend *backend, const struct ull__graph *graph,
                          const int64_t *values, uint8_t *layouts, struct ull_error *err);
    /* ULL_E_NOT_FOUND, naming operator and types: no algorithm (within the bounds). */
    ull_status (*select)(struct ull__backend *backend, const struct ull__selecting *what,
                         struct ull__selection *selection, struct ull_error *err);
    ull_status (*compile)(struct ull__backend *backend, const struct ull__selecting *what,
                          struct ull__kernel **kernel, struct ull_error *err);
    void (*release)(struct ull__backend *backend, struct ull__kernel *kernel);

    void (*enqueue)(struct ull__backend *backend, enum ull__queue queue,
                    const struct ull__kernel *kernel, const struct ull__launch *launch);
    void (*copy)(struct ull__backend *backend, enum ull__queue queue, void *to, const void *from,
                 size_t bytes);

    /*
     * All ranks put the same ones into the same queue, in the same order. A rank that fails is told by `synchronize`
     * (ULL_E_SYSTEM), and from then on collectives do nothing.
     */
    void (*collective)(struct ull__backend *backend, enum ull__queue queue,
                       const struct ull__collective_run *what);

    /* Events are numbers; 0 to events - 1 are there after `events` was called. With more than before none is recorded. */
    ull_status (*events)(struct ull__backend *backend, int events, struct ull_error *err);
    void (*event_record)(struct ull__backend *backend, enum ull__queue queue, int event);
    /* The queue goes on once the latest recording that was enqueued before has been passed. */
    void (*event_wait)(struct ull__backend *backend, enum ull__queue queue, int event);

    /* Not nested. A segment is released by its owner, after it ran. */
    ull_status (*segment_begin)(struct ull__backend *backend, struct ull_error *err);
    ull_status (*segment_end)(struct ull__backend *backend, struct ull__segment **segment,
                              struct ull_error *err);
    void (*replay)(struct ull__backend *backend, const struct ull__segment *segment);
    void (*segment_release)(struct ull__backend *backend, struct ull__segment *segment);

    /* The caller waits until all queues are empty. The first error of what ran, once. */
    ull_status (*synchronize)(struct ull__backend *backend, struct ull_error *err);
    /*
     * The highest address that a kernel or copy was handed and that lies within [begin, end), one past its last byte, since the last
     * call for this range; noted where kernels are started, from their operands' addresses and sizes. 0: none. After synchronize.
     */
    uintptr_t (*reached)(struct ull__backend *backend, const void *begin, const void *end);
    /*
     * From here on kernels that have a `took` are timed, and copies on the queues to and from the host; NULL: not any more. Read after
     * synchronize. Timing changes no order. The operation is NULL where a backend cannot tell.
     */
    void (*timing)(struct ull__backend *backend, struct ull__copied *copied);
};

struct ull__backend {
    const struct ull__backend_ops *ops;
    int rank, ranks; /* which one it is of those that its collectives are among; 0 and 1: alone */
};

#endif
