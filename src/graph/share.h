/*
 * share.h: what the devices of a data-parallel step say to each other, as nodes; how weights and state are cut.
 *
 * Device i of N has the i-th of N equal parts of a tensor's elements in rows, the last ones filled up with zeros. All of it is ZeRO's
 * (Rajbhandari et al., 2019): stage 1 cuts the optimizer's state and master weights, 2 the gradients that are added up too, 3 the
 * weights too.
 */
#ifndef ULLAGE_GRAPH_SHARE_H
#define ULLAGE_GRAPH_SHARE_H

#include "ops.h"

/* Stage 3 leaves smaller weights whole: they are few bytes, and each gathering has a latency. As stage 2 otherwise. */
enum { ULL_SHARD_LEAST = 16384 }; /* elements */

/* The shape of one part of `devices`, in the place of the whole's. */
void ull__share_cut(struct ull__graph *graph, struct ull__tensor *tensor, int devices);

/* Everything is reduced over all devices: into a tensor of its own, or as the new version of x. */
int ull__share_reduce(struct ull__graph *graph, int x, enum ull__reduction reduce, int devices,
                      bool in_place);
/* The device's own part of the sum over all devices. */
int ull__share_scatter(struct ull__graph *graph, int x, int devices);
/* The device's own part of what is the same on all of them. */
int ull__share_part(struct ull__graph *graph, int x, int devices);
/* A tensor like `like` of all parts; `into`: or that as a new version of it. */
int ull__share_gather(struct ull__graph *graph, int part, const struct ull__tensor *like, int into,
                      int devices);

#endif
