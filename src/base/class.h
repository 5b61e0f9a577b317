/*
 * class.h: what a job's bytes are held for. The one list of classes, for the ledger, records and reports.
 */
#ifndef ULLAGE_CLASS_H
#define ULLAGE_CLASS_H

#define ULL_CLASS_MAP(X)                                                                           \
    X(CONTEXT, "context") /* what a context takes by itself */                                     \
    X(DATA, "data")       /* linear, pitched, managed memory, virtual-memory handles */            \
    X(POOL, "pool")       /* reserves of stream-ordered pools */                                   \
    X(GRAPH, "graph")     /* reserve of graph memory nodes */                                      \
    X(ARRAY, "array")     /* arrays and mipmaps */                                                 \
    X(MODULE, "module")   /* code, streams, stacks: seen only in the driver's process figure */

enum ull__class {
#define X(name, text) ULL_CLASS_##name,
    ULL_CLASS_MAP(X)
#undef X
        ULL_CLASSES
};
/* "context" and so on; never NULL. */
const char *ull__class_name(enum ull__class class);

#endif
