/*
 * given.h: a plan that was written down, put beside a planner's own: what it decides is taken as it is.
 *
 * Things are named as in names.h. What a backend has another way than the one it was written for (workspaces) is that of
 * the planner's profile; copies to and from the host are placed by the times that it was planned with.
 */
#ifndef ULLAGE_PLAN_GIVEN_H
#define ULLAGE_PLAN_GIVEN_H

#include "plan.h"

/* What an item was planned with. */
struct ull__given_item {
    const char *node;
    const char *algorithm; /* NULL: not said */
    double seconds;        /* below 0: not said */
};

struct ull__given {
    enum ull__precision precision;
    int64_t micro_batch;
    bool chunked_loss, offload_optimizer;
    const char **drop, **send; /* names of tensors */
    int drop_count, send_count;
    struct ull__given_item *items;
    int item_count;
};

/*
 * *plan: its number, behind those of ull__planner_plans; at most one for each planner. It is placed. ULL_E_INVALID: a micro-batch that does not
 * make up the batch, or that cuts a statistics group; a tensor that this model does not have. ULL_E_NO_MEMORY.
 */
ull_status ull__planner_give(struct ull__planner *planner, const struct ull__given *given,
                             int *plan, struct ull_error *err);

/*
 * Times of all plans anew, by what the profile's meter now says. Bytes and addresses stay as they are: copies were placed by the times
 * that were known then. False without memory: some plans have the new times.
 */
bool ull__planner_reprice(struct ull__planner *planner);

#endif
