/* plan_private.h: what the files of the planner share. */
#ifndef ULLAGE_PLAN_PRIVATE_H
#define ULLAGE_PLAN_PRIVATE_H

#include "plan.h"
#include "search.h"

/* A graph of a step, in one precision. */
struct ull__plan_graph {
    struct ull__graph *graph;
    enum ull__precision precision;
    bool chunked;
    bool accumulates;
    int zero_stage;
};

/* A graph with a micro-batch. */
struct ull__plan_variant {
    int graph; /* of the planner's */
    int64_t micro_batch, accumulation;
    struct ull__program *program;
    int64_t staging[2]; /* of ull__plan_staging */
};

/* Precision, form of the loss, accumulation, and over several devices four stages of ZeRO. */
enum { ULL_PLAN_GRAPHS = 2 * 2 * 2 * 4, ULL_PLAN_VARIANTS = 640 };

struct ull__planner {
    struct ull__plan_request request;
    struct ull__profile profile;
    struct ull__graph *model; /* a copy, with the statistics group of the request */
    int64_t bn_group;
    struct ull__plan_graph graphs[ULL_PLAN_GRAPHS];
    int graph_count;
    struct ull__plan_variant variants[ULL_PLAN_VARIANTS];
    int variant_count;
    struct ull__plan *plans;
    int plan_count, plan_room;
    bool given; /* one more plan behind them, from elsewhere (given.h) */
};

/* One search, and what it found. */
struct ull__plan_search {
    const struct ull__planner *planner;
    int variant; /* the first one of its precision and loss */
    struct ull__search_options options;
    struct ull__frontier frontier;
    ull_status status;
    struct ull_error error;
};

/* A decision for another program: for the tensors of the forward pass that both have. */
void ull__plan_carry(const struct ull__program *from, const struct ull__decision *decision,
                     const struct ull__program *to, struct ull__decision *carried);
/* Whether two variants have one search. */
bool ull__plan_same_search(const struct ull__planner *planner, int left, int right);
/* Does one(context, 0) to one(context, count - 1), side by side in threads and in any order, and waits for them. */
void ull__plan_share(int count, void (*one)(void *context, int at), void *context);
/* Runs all searches, and waits for them. The frontiers of all *count are the caller's, also where one has failed. */
ull_status ull__plan_searches(struct ull__planner *planner, const struct ull__search_options *options,
                              struct ull__plan_search searches[ULL_PLAN_GRAPHS], int *count,
                              struct ull_error *err);

/* Fills in graphs and variants. */
ull_status ull__plan_variants(struct ull__planner *planner, struct ull_error *err);
/* A program for a micro-batch, unless there are too many: variant_count says. */
ull_status ull__plan_add_variant(struct ull__planner *planner, int graph, int64_t micro_batch,
                                 int64_t accumulation, struct ull_error *err);
/* Whether the batch can be cut so: the statistics groups must stay whole. */
bool ull__plan_can_cut(const struct ull__planner *planner, int64_t accumulation);
/* Appends a plan, and a copy of the decision. False without memory. */
bool ull__plan_put(struct ull__planner *planner, const struct ull__plan *plan,
                   const struct ull__decision *decision);
/* Room to bring the optimizer's state of two parameters in, one while the other is worked on: taken in turns. */
void ull__plan_staging(const struct ull__program *program, int64_t slots[2]);
/* Bytes and seconds of a plan whose variant, decision's cost and choices are set. */
void ull__plan_account(const struct ull__planner *planner, struct ull__plan *plan);

/*
 * Offsets of stays, by lifetimes, and how high they reach; stays that take over each other's memory are one. ULL_E_NO_MEMORY,
 * or ULL_E_INVALID if the addresses do not pass the check (a bug).
 */
ull_status ull__place_stays(const struct ull__stay *stays, int stay_count, uint64_t alignment,
                            uint64_t *offsets, uint64_t *height, struct ull_error *err);

#endif
