/*
 * program.h: a training step with numbers in the place of symbols: what is decided on.
 *
 *     graph, values, device --ull__program_create--> program --ull__schedule (schedule.h)--> peak, time
 *
 * An item is a node that does work: views have none, and their readers read what they look at. A buffer is a tensor
 * that has memory of its own. Items are in the order of the graph: forward, backward, update.
 */
#ifndef ULLAGE_PLAN_PROGRAM_H
#define ULLAGE_PLAN_PROGRAM_H

#include "algorithms.h"
#include "graph.h"
#include "profile.h"

struct ull__program_buffer {
    int tensor;
    int64_t bytes; /* rounded up to the device's alignment */
    enum ull__role role;
    enum ull__life life;
    int item;         /* that makes it; ULL_NONE: it is there before */
    int last_forward; /* the last item of the forward pass that reads it; its own if there is none */
    bool forward;     /* made by the forward pass, so it can be made again */
    bool backward;    /* read after the forward pass */
    bool result;      /* what the step is for: a loss; never dropped */
};

struct ull__program_item {
    int node;
    int choices, choice_count; /* places in `choices` of its algorithms, at least one */
    int inputs, input_count;   /* places in `refs`: buffers, none twice */
    int outputs, output_count;
    int first_input; /* the buffer of input 0; ULL_NONE */
    bool forward, update;
    bool gathers; /* makes whole weights of the parts that devices have */
    bool prologue; /* once a step, before the first micro-step; these are the first of the forward pass */
    bool inplace; /* output 0 may take the place of first_input */
};

struct ull__program {
    const struct ull__graph *graph; /* must outlive the program */
    /* Of each item from the fastest on; each of the others takes less workspace than those before it. */
    struct ull__choice *choices;
    struct ull__program_item *items;
    int item_count;
    int forward_items; /* these are the first */
    struct ull__program_buffer *buffers;
    int buffer_count;
    int *refs;
    int *buffer_of; /* by tensor: of the owner of its memory; ULL_NONE: nothing reads or writes it */

    int64_t persistent_bytes;      /* from step to step */
    int64_t step_bytes;            /* over the micro-steps of a step */
    int64_t role_bytes[ULL_ROLES]; /* of both, by role */
};

/*
 * ULL_E_INVALID: a size that overflows, naming the tensor. ULL_E_NO_MEMORY. Caller destroys. Names of algorithms are the
 * profile's, which must outlive the program.
 */
ull_status ull__program_create(const struct ull__graph *graph, const int64_t *values,
                               const struct ull__profile *profile, struct ull__program **program,
                               struct ull_error *err);
void ull__program_destroy(struct ull__program *program);

/* An algorithm of an item, by its number in a decision; 0: the fastest. */
static inline const struct ull__choice *ull__item_choice(const struct ull__program *program,
                                                         int item, int algorithm)
{
    return &program->choices[program->items[item].choices + algorithm];
}

/* Puts items of the backward pass off that make more than they free. False without memory: nothing is changed. */
bool ull__program_order(struct ull__program *program, const struct ull__profile *profile);

#endif
