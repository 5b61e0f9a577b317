/*
 * graph.h: what graph.c and capture.c share.
 */
#ifndef ULLAGE_FAKE_GRAPH_H
#define ULLAGE_FAKE_GRAPH_H

#include "fake.h"

struct CUgraphNode_st {
    CUgraph graph;
    struct fake_work work;
    CUgraphNode *needs; /* nodes that must come before */
    size_t need_count;
    bool placed; /* while nodes are being ordered */
};

struct CUgraph_st {
    struct CUgraph_st *next, *previous; /* all that there are */
    CUgraphNode *nodes;
    size_t count, room;
};

/* Memory that a graph allocates each time it runs, at an address fixed when the node was added. */
struct fake_graph_memory {
    unsigned int references; /* the graph and its executables */
    bool active;             /* allocated by a run that did not free it */
    int card;
    CUdeviceptr ptr;
    uint64_t size; /* rounded up to 2 MiB */
    size_t asked;
    struct fake_block block;
};

void fake_graph_memory_drop(struct fake_graph_memory *memory);
CUgraph fake_graph_new(void);
void fake_graph_delete(CUgraph graph);
bool fake_graph_known(CUgraph graph);
CUresult fake_graph_add(CUgraph graph, const CUgraphNode *needs, size_t count,
                        const struct fake_work *work, CUgraphNode *out);
CUresult fake_graph_add_alloc(CUgraph graph, const CUgraphNode *needs, size_t count, int card,
                              size_t bytes, CUgraphNode *out, CUdeviceptr *ptr);
CUresult fake_graph_add_free(CUgraph graph, const CUgraphNode *needs, size_t count, CUdeviceptr ptr,
                             CUgraphNode *out);

#endif
