/*
 * algorithms.h: the algorithms that a device has for an operator, each with the workspace and the time that it takes.
 *
 * A device's profile has a table of classes of nodes: by operator, type and sizes. A class lists algorithms with rules: bytes as
 * multiples of what the node reads and writes, time as a multiple of the fastest one's. The first class that a node is in counts.
 * What a backend says (struct ull__meter) goes before all tables.
 *
 * Without a class for it, a node takes what its operator's own rule says (op.h), and a convolution can do without at the profile's
 * lean_convolution times the time.
 */
#ifndef ULLAGE_PLAN_ALGORITHMS_H
#define ULLAGE_PLAN_ALGORITHMS_H

#include <stdbool.h>
#include <stdint.h>

struct ull__graph;
struct ull__op;
struct ull__profile;

enum { ULL_CHOICES = 4, ULL_ALGORITHM_CLASSES = 24 };

/* What a workspace may be multiples of: name in a profile, and what it is. */
#define ULL_WORKSPACE_MAP(X)                                                                       \
    X(RULE, "rule", "the operator's own rule")                                                     \
    X(INPUT, "input", "pictures before a convolution")                                             \
    X(PADDED, "padded", "the same with channels that fill 16 bytes")                               \
    X(OUTPUT, "output", "pictures after a convolution, what attention gives")                      \
    X(WEIGHTS, "weights", "weights of a convolution, the result of a product, in f32")

enum ull__workspace_unit {
#define X(name, text, what) ULL_WORKSPACE_##name,
    ULL_WORKSPACE_MAP(X)
#undef X
        ULL_WORKSPACE_UNITS
};
const char *ull__workspace_unit_text(enum ull__workspace_unit unit);

/* Bytes: the sum of multiples of units; and parts of a sum, each as large as the weights unit, up to parts_most bytes together. */
struct ull__algorithm {
    char name[32]; /* as the library calls it */
    double multiples[ULL_WORKSPACE_UNITS];
    double parts, parts_most;
    double slowdown; /* at least 1: seconds are those of the fastest times this */
};

struct ull__algorithm_class {
    const struct ull__op *op;
    bool f32, half; /* of which types its first input may be */
    /* Bounds, included; 0: none. */
    double channels_most; /* of the pictures before a convolution */
    double window_most;   /* elements of a convolution's window */
    double weights_most;  /* elements of the weights unit */
    double inner_least;   /* terms of each sum of a product */
    struct ull__algorithm algorithms[ULL_CHOICES];
    int count;
};

struct ull__algorithms {
    struct ull__algorithm_class classes[ULL_ALGORITHM_CLASSES];
    int count;
};

/* What a node may run with. */
struct ull__choice {
    const char *name;  /* "": the operator has one way only */
    int64_t workspace; /* bytes */
    double seconds;
};

/*
 * The choices of a node, from the fastest on, each with less workspace than those before it; of those that take more than the
 * profile's most_workspace only the smallest, if there is no other. Returns how many; 0: a workspace is larger than there can be.
 * Names are the profile's.
 */
int ull__node_choices(const struct ull__graph *graph, int node, const int64_t *values,
                      const struct ull__profile *profile, struct ull__choice choices[ULL_CHOICES]);

#endif
