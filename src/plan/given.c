/* given.c: see given.h. */
#include "given.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "names.h"
#include "plan_private.h"

/* The graph that has what is given; ULL_NONE: none. */
static int graph_of(const struct ull__planner *planner, const struct ull__given *given)
{
    bool accumulates = given->micro_batch < planner->request.batch;
    for (int i = 0; i < planner->graph_count; ++i) {
        const struct ull__plan_graph *graph = &planner->graphs[i];
        if (graph->precision == given->precision && graph->chunked == given->chunked_loss &&
            graph->accumulates == accumulates) {
            return i;
        }
    }
    return ULL_NONE;
}

/* A program of its own: its items may have other times. */
static ull_status make_variant(struct ull__planner *planner, const struct ull__given *given,
                               struct ull_error *err)
{
    int64_t batch = planner->request.batch, micro = given->micro_batch;
    int64_t accumulation = micro >= 1 ? (batch + micro - 1) / micro : 0;
    if (micro < 1 || micro > batch || !ull__plan_can_cut(planner, accumulation) ||
        (ull__has_bn(planner->model) && micro * accumulation != batch)) {
        return ull__fail(err, ULL_E_INVALID,
                         "a plan with micro-batches of %lld for batches of %lld: expected whole "
                         "statistics groups of %lld, and no more micro-steps than allowed",
                         (long long)micro, (long long)batch, (long long)planner->bn_group);
    }
    int graph = graph_of(planner, given);
    if (graph == ULL_NONE) {
        return ull__fail(err, ULL_E_INVALID, "a plan in %s%s, which this model cannot have",
                         ull__precision_text(given->precision),
                         given->chunked_loss ? ", the loss in turns" : "");
    }
    int before = planner->variant_count;
    ull_status status = ull__plan_add_variant(planner, graph, micro, accumulation, err);
    return status == ULL_OK && planner->variant_count == before
               ? ull__fail(err, ULL_E_INVALID, "there are too many plans to add one")
               : status;
}

static ull_status decide(const struct ull__program *program, const struct ull__names *names,
                         const char *const *list, int count, enum ull__keep keep,
                         struct ull__decision *decision, struct ull_error *err)
{
    for (int i = 0; i < count; ++i) {
        int tensor = ull__names_find_tensor(names, list[i]);
        int buffer = tensor != ULL_NONE ? program->buffer_of[tensor] : ULL_NONE;
        if (buffer == ULL_NONE || !program->buffers[buffer].forward) {
            return ull__fail(err, ULL_E_INVALID,
                             "the plan %s '%.100s', which the forward pass of model '%s' does not "
                             "make",
                             keep == ULL_DROP ? "drops" : "sends", list[i], program->graph->name);
        }
        decision->keep[buffer] = (uint8_t)keep;
    }
    return ULL_OK;
}

static void take_times(struct ull__program *program, const struct ull__names *names,
                       const struct ull__given *given)
{
    int *item_of = malloc(sizeof(*item_of) * ((size_t)program->graph->node_count + 1));
    for (int i = 0; i < program->graph->node_count && item_of != NULL; ++i) {
        item_of[i] = ULL_NONE;
    }
    for (int i = 0; i < program->item_count && item_of != NULL; ++i) {
        item_of[program->items[i].node] = i;
    }
    for (int i = 0; i < given->item_count && item_of != NULL; ++i) {
        int node = ull__names_find_node(names, given->items[i].node);
        if (node != ULL_NONE && item_of[node] != ULL_NONE && given->items[i].seconds >= 0) {
            const struct ull__program_item *item = &program->items[item_of[node]];
            for (int j = 0; j < item->choice_count; ++j) {
                program->choices[item->choices + j].seconds = given->items[i].seconds;
            }
        }
    }
    free(item_of);
}

static ull_status put(struct ull__planner *planner, const struct ull__given *given,
                      struct ull__decision *decision, struct ull_error *err)
{
    struct ull__program *program = planner->variants[planner->variant_count - 1].program;
    struct ull__plan plan = {.variant = planner->variant_count - 1,
                             .offload_optimizer = given->offload_optimizer};
    struct ull__names *names = ull__names_create(program->graph);
    struct ull__scheduler *scheduler = ull__scheduler_create(program, &planner->profile);
    ull_status status = ULL_OK;
    if (names == NULL || scheduler == NULL || !ull__decision_create(program, decision)) {
        status = ull__fail(err, ULL_E_NO_MEMORY, "no memory for a plan");
    }
    if (status == ULL_OK) {
        take_times(program, names, given);
        status = decide(program, names, given->drop, given->drop_count, ULL_DROP, decision, err);
    }
    if (status == ULL_OK) {
        status = decide(program, names, given->send, given->send_count, ULL_SEND, decision, err);
    }
    if (status == ULL_OK) {
        ull__schedule_cost(scheduler, decision, &plan.cost);
        ull__plan_account(planner, &plan);
        if (!ull__plan_put(planner, &plan, decision)) {
            status = ull__fail(err, ULL_E_NO_MEMORY, "no memory for a plan");
        }
    }
    ull__scheduler_destroy(scheduler);
    ull__names_destroy(names);
    return status;
}

ull_status ull__planner_give(struct ull__planner *planner, const struct ull__given *given,
                             int *plan, struct ull_error *err)
{
    struct ull__decision decision = {NULL, NULL};
    ull_status status = make_variant(planner, given, err);
    if (status == ULL_OK) {
        status = put(planner, given, &decision, err);
        ull__decision_finish(&decision);
    }
    if (status != ULL_OK) {
        return status;
    }
    /* It is no part of the frontier: others may be smaller and faster. */
    planner->plan_count -= 1;
    planner->given = true;
    *plan = planner->plan_count;
    return ull__planner_place(planner, *plan) >= 0
               ? ULL_OK
               : ull__fail(err, ULL_E_NO_MEMORY, "no memory to place a plan");
}

/* --- Times --- */

/* Times of a variant's items by the meter; what they were goes to `before`. */
static void swap_times(const struct ull__planner *planner, const struct ull__plan_variant *variant,
                       double *before)
{
    struct ull__program *program = variant->program;
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(program->graph, variant->micro_batch, values);
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        struct ull__choice now[ULL_CHOICES], *choices = &program->choices[item->choices];
        int count = ull__node_choices(program->graph, item->node, values, &planner->profile, now);
        for (int j = 0; j < item->choice_count; ++j) {
            before[item->choices + j] = choices[j].seconds;
            choices[j].seconds = j < count ? now[j].seconds : choices[j].seconds;
        }
    }
}

static bool reprice_variant(struct ull__planner *planner, int variant)
{
    struct ull__program *program = planner->variants[variant].program;
    double *before = malloc(sizeof(*before) * ULL_CHOICES * ((size_t)program->item_count + 1));
    struct ull__scheduler *scheduler = ull__scheduler_create(program, &planner->profile);
    bool fine = before != NULL && scheduler != NULL;
    if (fine) {
        swap_times(planner, &planner->variants[variant], before);
        for (int i = 0; i < planner->plan_count + planner->given; ++i) {
            struct ull__plan *plan = &planner->plans[i];
            if (plan->variant == variant) {
                struct ull__cost_of cost;
                ull__schedule_cost(scheduler, &plan->decision, &cost);
                cost.peak_bytes = plan->cost.peak_bytes;
                cost.peak_at = plan->cost.peak_at;
                plan->cost = cost;
                ull__plan_account(planner, plan);
            }
        }
        for (int i = 0; i < program->item_count; ++i) {
            const struct ull__program_item *item = &program->items[i];
            for (int j = 0; j < item->choice_count; ++j) {
                program->choices[item->choices + j].seconds = before[item->choices + j];
            }
        }
    }
    ull__scheduler_destroy(scheduler);
    free(before);
    return fine;
}

bool ull__planner_reprice(struct ull__planner *planner)
{
    bool fine = true;
    const struct ull__meter *meter = planner->profile.meter;
    double link = planner->profile.link_per_second;
    if (meter != NULL && meter->copied_per_second > 0) {
        planner->profile.link_per_second = meter->copied_per_second;
    }
    for (int i = 0; i < planner->variant_count && fine; ++i) {
        bool any = false;
        for (int j = 0; j < planner->plan_count + planner->given && !any; ++j) {
            any = planner->plans[j].variant == i;
        }
        fine = !any || reprice_variant(planner, i);
    }
    planner->profile.link_per_second = link;
    return fine;
}
