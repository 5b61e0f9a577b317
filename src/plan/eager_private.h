/*
 * eager_private.h: the state of a simulation (eager.c) and the rules that it follows (eager_rules.c).
 */
#ifndef ULLAGE_PLAN_EAGER_PRIVATE_H
#define ULLAGE_PLAN_EAGER_PRIVATE_H

#include "eager.h"
#include "ops.h"

/* Storages that one operator saves, and inputs of it that are looked at. */
enum { SAVED_MOST = 16 };

struct storage {
    int64_t bytes;
    int references;
};

/* What autograd keeps of one run of an operator. */
struct saved {
    int storages[SAVED_MOST];
    int count;
};

struct eager {
    const struct ull__graph *graph;
    const int64_t *values;
    struct ull__eager_mode mode;
    int64_t live, peak;
    bool failed;

    struct storage *storages;
    int storage_count, storage_room;

    int *of;          /* by tensor: its storage while the forward pass refers to it; ULL_NONE */
    bool *half;       /* by tensor: 16 bits under autocast */
    bool *scattered;  /* by tensor: not in order of rows, so that a reshape copies it */
    bool *wanted;     /* by tensor: a gradient is needed */
    int *last_reader; /* by tensor: a node; of a view, that of everything that looks at its memory */
    int *first_reader;   /* by tensor: a node */
    int *cached;         /* by tensor: the 16-bit copy of a weight in autocast's cache; ULL_NONE */
    int *gradient;       /* by tensor: storage of its gradient in the backward pass; ULL_NONE */
    struct saved *saved; /* by node */
};

/* What autocast makes of an operator's floating inputs. */
enum casts { CAST_NONE, CAST_HALF, CAST_FULL };

/* Bytes of a tensor in the type that it has in this mode, or in 16 bits. */
int64_t ull__eager_bytes_of(struct eager *e, int tensor, bool half);
int64_t ull__eager_own_bytes(struct eager *e, int tensor);
bool ull__eager_is_weight(const struct eager *e, int tensor);
/* Autocast's lists. */
enum casts ull__eager_casts_of(const struct ull__node *node);
bool ull__eager_is_float(const struct eager *e, int tensor);
bool ull__eager_is_view(const struct eager *e, const struct ull__node *node);
/* Writes into its first input, as models are written: biases are part of a product, ReLU is in place where it can be. */
bool ull__eager_in_place(const struct eager *e, int at, bool half);
/* The type of an operator's floating results. */
bool ull__eager_half_result(const struct eager *e, const struct ull__node *node);
/* Which inputs autograd saves for the gradient, as a mask; and whether it saves output 0. */
unsigned ull__eager_saved_inputs(const struct eager *e, const struct ull__node *node, bool *output);
/* What an operator allocates for its gradient besides: statistics, indices, masks, log-probabilities. */
int64_t ull__eager_saved_besides(struct eager *e, const struct ull__node *node);
/* What cuDNN takes while a convolution runs forward, or for the gradient by one of its inputs (0 or 1). */
enum { EAGER_FORWARD = -1 };
int64_t ull__eager_workspace(struct eager *e, const struct ull__node *node, int direction);
/* Whether an operator reads an input in 16 bits. */
bool ull__eager_reads_half(const struct eager *e, const struct ull__node *node, int input);
/* Operators whose gradient is the one of the result, maybe under another shape or in another type. */
bool ull__eager_passes_on(const struct ull__node *node);

#endif
