/*
 * reference.h: runs a graph slowly and plainly in f64: what every backend is compared with.
 *
 *     struct ref *ref = ref_create(graph, values);
 *     ref_fill(ref, 1);                                     parameters as their `init` says
 *     memcpy(ref_data(ref, x), ...);
 *     ref_run(ref, ULL_PHASE_MICRO);
 *     double loss = ref_data(ref, graph->losses[0])[0];
 *
 * Every tensor is an array of doubles, whatever its type is: whole numbers up to 2^53 and truth values (0 and 1) are exact
 * in them. Views and new versions of a tensor lie in its array, so an order of nodes that reads what is overwritten
 * gives wrong numbers here as it does on a device. Each operator is the definition written out as loops, with no
 * code of src/ but the graph itself and the generator (random.h). What it cannot do: layouts other than rows (they are read as
 * rows).
 *
 * It is for tests: what cannot be (no memory, a wrong index) ends the program with a message.
 */
#ifndef ULLAGE_TEST_REFERENCE_H
#define ULLAGE_TEST_REFERENCE_H

#include "ops.h"

struct ref;

/* values: those of the symbols, in the graph's order; copied. Everything is 0 but constants and data. */
struct ref *ref_create(const struct ull__graph *graph, const int64_t *values);
void ref_destroy(struct ref *ref);

/* Fills parameters and state as `init` says, masters like their parameters. Other numbers than a backend draws. */
void ref_fill(struct ref *ref, uint64_t seed);

/* Whether each result is rounded to its tensor's type as it is stored; else all floating types are f64. */
void ref_round(struct ref *ref, bool rounds);

/* A tensor's elements in rows, those of its owner: writing them changes it. */
double *ref_data(struct ref *ref, int tensor);
int64_t ref_count(const struct ref *ref, int tensor);
/* The size of dimension i. */
int64_t ref_size(const struct ref *ref, int tensor, int i);

/* Sets a control scalar, if the graph has it. */
void ref_control(struct ref *ref, const char *name, double value);
void ref_generator(struct ref *ref, int64_t seed, int64_t step, int64_t sample);

/* All nodes of a phase in the order of their numbers. A node whose predicate is true does nothing. */
void ref_run(struct ref *ref, enum ull__phase phase);
void ref_node(struct ref *ref, int node);

/*
 * A world: `devices` references of one graph, which run its nodes side by side. ref_cut: values of parameters, state and masters of a
 * graph of the whole model, by their names; of what is cut in `to`, the part of device `device`. A master is what its weight is.
 */
void ref_cut(struct ref *to, int device, int devices, struct ref *whole);
void ref_run_world(struct ref *const *refs, int devices, enum ull__phase phase);

/* Between elements as a type stores them, in rows, and doubles. */
void ref_decode(enum ull__type type, const void *from, double *to, int64_t count);
void ref_encode(enum ull__type type, const double *from, void *to, int64_t count);

/* The nearest value that a type has: halves to even; infinite where it is too large. Whole numbers wrap around. */
double ref_rounded(double value, enum ull__type type);

#endif
