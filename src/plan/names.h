/*
 * names.h: names for what a program works with: they do not depend on numbers, sizes, workspaces or a backend, so that a
 * plan that is written down means the same where it is read.
 *
 * A node is "BLOCK/OPERATOR.N" ("layer1.0/conv2d.1"), the Nth of that operator in blocks of that name, or "OPERATOR.N" outside of blocks. A
 * tensor has the name of the node that makes it, with ":N" for its outputs from the second on, or its own.
 */
#ifndef ULLAGE_PLAN_NAMES_H
#define ULLAGE_PLAN_NAMES_H

#include "graph.h"

struct ull__names;

/* NULL without memory. The graph must outlive it. Thread safe once it is made. */
struct ull__names *ull__names_create(const struct ull__graph *graph);
void ull__names_destroy(struct ull__names *names);

const char *ull__names_node(const struct ull__names *names, int node);
/* Returns buffer; room for 256. */
const char *ull__names_tensor(const struct ull__names *names, int tensor, char *buffer);
/* ULL_NONE: there is none of that name. */
int ull__names_find_node(const struct ull__names *names, const char *name);
int ull__names_find_tensor(const struct ull__names *names, const char *name);

/* Of a model's operators, parameters, types and shapes for one sample: another model has another one. */
uint64_t ull__graph_identity(const struct ull__graph *graph);

#endif
