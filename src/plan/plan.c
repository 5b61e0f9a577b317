/*
 * plan.c: the frontier of plans over all variants. See plan.h.
 *
 * Decisions are searched for each precision on the whole batch, and for the other variants those that were found are tried:
 * what is worth keeping hardly depends on the size of a micro-batch. They are carried over by the names of things: a
 * buffer by its tensor in the forward pass, which has the same number in every graph of a precision. Algorithms are chosen anew.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "plan_private.h"

bool ull__plan_put(struct ull__planner *planner, const struct ull__plan *plan,
                   const struct ull__decision *decision)
{
    const struct ull__program *program = planner->variants[plan->variant].program;
    if (planner->plan_count == planner->plan_room) {
        int room = planner->plan_room == 0 ? 256 : 2 * planner->plan_room;
        struct ull__plan *more = realloc(planner->plans, sizeof(*more) * (size_t)room);
        if (more == NULL) {
            return false;
        }
        planner->plans = more;
        planner->plan_room = room;
    }
    struct ull__plan *made = &planner->plans[planner->plan_count];
    *made = *plan;
    if (!ull__decision_clone(program, &made->decision, decision)) {
        return false;
    }
    planner->plan_count += 1;
    return true;
}

void ull__plan_staging(const struct ull__program *program, int64_t slots[2])
{
    int turn = 0;
    slots[0] = slots[1] = 0;
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        int64_t sum = 0;
        for (int j = 0; j < item->input_count; ++j) {
            const struct ull__program_buffer *buffer =
                &program->buffers[program->refs[item->inputs + j]];
            bool state = buffer->role == ULL_ROLE_OPTIMIZER || buffer->role == ULL_ROLE_MASTER;
            sum += state && buffer->life == ULL_LIFE_PERSISTENT ? buffer->bytes : 0;
        }
        if (sum > 0) {
            slots[turn % 2] = sum > slots[turn % 2] ? sum : slots[turn % 2];
            turn += 1;
        }
    }
}

void ull__plan_account(const struct ull__planner *planner, struct ull__plan *plan)
{
    const struct ull__plan_variant *variant = &planner->variants[plan->variant];
    const struct ull__program *program = variant->program;
    const struct ull__profile *profile = &planner->profile;
    int64_t state = program->role_bytes[ULL_ROLE_OPTIMIZER] + program->role_bytes[ULL_ROLE_MASTER];
    /* The last micro-batch may be smaller. */
    double micro_steps = (double)planner->request.batch / (double)variant->micro_batch;
    int64_t kept_state = state;
    plan->precision = planner->graphs[variant->graph].precision;
    plan->chunked_loss = planner->graphs[variant->graph].chunked;
    plan->micro_batch = variant->micro_batch;
    plan->accumulation = variant->accumulation;
    plan->host_bytes = plan->cost.sent_bytes;
    plan->zero_stage = planner->graphs[variant->graph].zero_stage;
    double seconds = plan->cost.micro_seconds * micro_steps + plan->cost.update_seconds;
    if (plan->offload_optimizer) {
        plan->host_bytes += kept_state;
        seconds += 2 * (double)kept_state / profile->link_per_second;
        int64_t slots = variant->staging[0] + variant->staging[1];
        kept_state = slots < kept_state ? slots : kept_state;
    }
    plan->persistent_bytes = program->persistent_bytes - state + kept_state;
    plan->bound_bytes = plan->persistent_bytes + plan->cost.peak_bytes;
    plan->step_seconds = seconds;
    if (profile->meter != NULL && profile->meter->load > 0) {
        plan->step_seconds = seconds * profile->meter->load + profile->meter->step_seconds;
    }
}

static int64_t host_budget(const struct ull__planner *planner)
{
    return planner->request.host_bytes == ULL_NONE ? (int64_t)planner->profile.host_bytes
                                                   : planner->request.host_bytes;
}

/* Offers a decision in all ways that do not change the program. */
static bool offer(struct ull__planner *planner, int variant, const struct ull__decision *decision,
                  const struct ull__cost_of *cost)
{
    int64_t host = host_budget(planner);
    for (int offload = 0; offload < (planner->request.plain ? 1 : 2); ++offload) {
        struct ull__plan plan = {.variant = variant, .cost = *cost, .offload_optimizer = offload != 0};
        ull__plan_account(planner, &plan);
        if ((plan.host_bytes <= host) && !ull__plan_put(planner, &plan, decision)) {
            return false;
        }
    }
    return true;
}

/* --- Carrying decisions from one program to another --- */

void ull__plan_carry(const struct ull__program *from, const struct ull__decision *decision,
                     const struct ull__program *to, struct ull__decision *carried)
{
    for (int i = 0; i < from->buffer_count; ++i) {
        int tensor = from->buffers[i].tensor;
        if (from->buffers[i].forward && tensor < to->graph->tensor_count) {
            int buffer = to->buffer_of[tensor];
            if (buffer != ULL_NONE && to->buffers[buffer].forward) {
                carried->keep[buffer] = decision->keep[i];
            }
        }
    }
    /* Programs of one model differ in other items than those with several algorithms. */
    for (int i = 0, j = 0; i < from->item_count; ++i) {
        if (from->items[i].choice_count == 1) {
            continue;
        }
        while (j < to->item_count && to->items[j].choice_count == 1) {
            j += 1;
        }
        if (j < to->item_count) {
            int last = to->items[j].choice_count - 1;
            carried->algorithm[j++] =
                (uint8_t)(decision->algorithm[i] < last ? decision->algorithm[i] : last);
        }
    }
}

/* A decision with the fastest algorithms, with those for the least memory, and between. False without memory. */
static bool put_fitted(struct ull__scheduler *scheduler, const struct ull__program *program,
                       struct ull__decision *decision, struct ull__frontier *frontier)
{
    struct ull__cost_of cost;
    memset(decision->algorithm, 0, (size_t)program->item_count);
    ull__schedule_cost(scheduler, decision, &cost);
    bool fine = ull__frontier_put(frontier, program, decision, &cost);
    int64_t lowest = ull__schedule_lowest(scheduler), highest = cost.peak_bytes;
    for (int half = 1; half >= 0 && lowest < highest && fine; --half) {
        ull__schedule_fit(scheduler, decision, lowest + half * ((highest - lowest) / 2), &cost);
        fine = ull__frontier_put(frontier, program, decision, &cost);
    }
    return fine;
}

/* What a search found, in another program or its own. */
struct carrying {
    const struct ull__planner *planner;
    const struct ull__plan_search *search;
    int variant;
    struct ull__frontier here;
    bool fine;
};

static void carry_one(void *context, int at)
{
    struct carrying *carrying = (struct carrying *)context + at;
    const struct ull__planner *planner = carrying->planner;
    const struct ull__frontier *frontier = &carrying->search->frontier;
    const struct ull__program *source = planner->variants[carrying->search->variant].program;
    const struct ull__program *program = planner->variants[carrying->variant].program;
    struct ull__scheduler *scheduler = ull__scheduler_create(program, &planner->profile);
    struct ull__decision decision = {NULL, NULL};
    bool fine = scheduler != NULL && ull__decision_create(program, &decision);
    /* About a hundred of them are enough here. */
    int step = frontier->count / 96 + 1;
    for (int i = 0; i < frontier->count && fine; ++i) {
        if (i % step == 0 || i + 1 == frontier->count) {
            ull__plan_carry(source, &frontier->entries[i].decision, program, &decision);
            fine = put_fitted(scheduler, program, &decision, &carrying->here);
        }
    }
    carrying->fine = fine;
    ull__scheduler_destroy(scheduler);
    ull__decision_finish(&decision);
}

/* Side by side, and then offered in the order of variants. */
static ull_status carry_all(struct ull__planner *planner, const struct ull__plan_search *searches,
                            int search_count, struct ull_error *err)
{
    size_t room = (size_t)search_count * (size_t)planner->variant_count + 1;
    struct carrying *carrying = calloc(room, sizeof(*carrying));
    bool fine = carrying != NULL;
    int count = 0;
    for (int i = 0; i < search_count * planner->variant_count && fine; ++i) {
        const struct ull__plan_search *search = &searches[i / planner->variant_count];
        int variant = i % planner->variant_count;
        if (ull__plan_same_search(planner, search->variant, variant)) {
            carrying[count++] = (struct carrying){planner, search, variant, {NULL, 0, 0}, false};
        }
    }
    ull__plan_share(count, carry_one, carrying);
    for (int i = 0; i < count; ++i) {
        const struct ull__frontier *here = &carrying[i].here;
        fine &= carrying[i].fine;
        for (int j = 0; j < here->count && fine; ++j) {
            fine = offer(planner, carrying[i].variant, &here->entries[j].decision,
                         &here->entries[j].cost);
        }
        ull__frontier_finish(&carrying[i].here);
    }
    free(carrying);
    return fine ? ULL_OK : ull__fail(err, ULL_E_NO_MEMORY, "no memory for plans");
}

/* --- The frontier --- */

static int by_memory(const void *left, const void *right)
{
    const struct ull__plan *a = left, *b = right;
    if (a->bound_bytes != b->bound_bytes) {
        return a->bound_bytes < b->bound_bytes ? -1 : 1;
    }
    if (a->step_seconds != b->step_seconds) {
        return a->step_seconds < b->step_seconds ? -1 : 1;
    }
    /* Fewer techniques first, then any fixed order. */
    if (a->offload_optimizer != b->offload_optimizer) {
        return a->offload_optimizer ? 1 : -1;
    }
    if (a->zero_stage != b->zero_stage) {
        return a->zero_stage - b->zero_stage;
    }
    return a->variant - b->variant;
}

static int by_variant(const void *left, const void *right)
{
    const struct ull__plan *a = left, *b = right;
    return a->variant != b->variant ? b->variant - a->variant : by_memory(left, right);
}

static int from_most(const void *left, const void *right)
{
    return by_memory(right, left);
}

/* Leaves those of which no other is both smaller and faster, from the most memory to the least. */
static void thin(struct ull__planner *planner)
{
    int kept = 0;
    double fastest = 1e300;
    bool each = planner->request.each_variant || planner->request.keep_variants;
    qsort(planner->plans, (size_t)planner->plan_count, sizeof(*planner->plans),
          each ? by_variant : by_memory);
    for (int i = 0; i < planner->plan_count; ++i) {
        if (each && kept > 0 && planner->plans[i].variant != planner->plans[kept - 1].variant) {
            fastest = 1e300;
        }
        if (planner->plans[i].step_seconds < fastest) {
            fastest = planner->plans[i].step_seconds;
            planner->plans[kept++] = planner->plans[i];
        } else {
            ull__decision_finish(&planner->plans[i].decision);
        }
    }
    planner->plan_count = kept;
    for (int i = 0; i < kept / 2; ++i) {
        struct ull__plan plan = planner->plans[i];
        planner->plans[i] = planner->plans[kept - 1 - i];
        planner->plans[kept - 1 - i] = plan;
    }
    if (planner->request.keep_variants) {
        qsort(planner->plans, (size_t)kept, sizeof(*planner->plans), from_most);
    }
}

/* The plan that does nothing. */
static ull_status plain_plan(struct ull__planner *planner, struct ull_error *err)
{
    const struct ull__program *program = planner->variants[0].program;
    struct ull__scheduler *scheduler = ull__scheduler_create(program, &planner->profile);
    struct ull__decision decision = {NULL, NULL};
    struct ull__cost_of cost;
    bool fine = scheduler != NULL && ull__decision_create(program, &decision);
    if (fine) {
        ull__schedule_cost(scheduler, &decision, &cost);
        fine = offer(planner, 0, &decision, &cost);
    }
    ull__scheduler_destroy(scheduler);
    ull__decision_finish(&decision);
    return fine ? ULL_OK : ull__fail(err, ULL_E_NO_MEMORY, "no memory for a plan");
}

static ull_status find_plans(struct ull__planner *planner, struct ull_error *err)
{
    struct ull__search_options options = {.smallest_dropped = planner->request.recompute_min,
                                          .host_bytes = host_budget(planner)};
    struct ull__plan_search searches[ULL_PLAN_GRAPHS];
    int count;
    ull_status status = ull__plan_searches(planner, &options, searches, &count, err);
    if (status == ULL_OK) {
        status = carry_all(planner, searches, count, err);
    }
    for (int i = 0; i < count; ++i) {
        ull__frontier_finish(&searches[i].frontier);
    }
    return status;
}

static ull_status request_fits(const struct ull__plan_request *request, struct ull_error *err)
{
    if (request->batch < 1 || request->batch > INT64_C(1) << 40) {
        return ull__fail(err, ULL_E_INVALID, "a batch of %lld: expected at least one sample",
                         (long long)request->batch);
    }
    if (request->bn_group < 0 || (request->bn_group > 0 && request->batch % request->bn_group != 0)) {
        return ull__fail(err, ULL_E_INVALID,
                         "a batch of %lld is not made of groups of %lld: expected a divisor",
                         (long long)request->batch, (long long)request->bn_group);
    }
    if (request->devices > 1 && request->batch % request->devices != 0) {
        return ull__fail(err, ULL_E_INVALID, "a batch of %lld does not divide over %d devices",
                         (long long)request->batch, request->devices);
    }
    return ULL_OK;
}

ull_status ull__planner_create(const struct ull__plan_request *request,
                               struct ull__planner **planner, struct ull_error *err)
{
    ull_status status = request_fits(request, err);
    if (status != ULL_OK) {
        return status;
    }
    struct ull__planner *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a planner");
    }
    made->request = *request;
    made->profile = *request->profile;
    made->profile.most_workspace = request->max_workspace;
    made->request.profile = &made->profile;
    if (request->devices > 1) {
        made->request.batch = request->batch / request->devices;
    }
    made->bn_group =
        request->bn_group > 0 ? request->bn_group : ull__default_bn_group(made->request.batch);
    made->model = ull__graph_copy(request->model);
    if (made->model == NULL) {
        status = ull__fail(err, ULL_E_NO_MEMORY, "no memory for a planner");
    } else if (!ull__graph_ok(made->model)) {
        status = ull__fail(err, made->model->status, "%s", made->model->error.message);
    } else {
        ull__set_bn_group(made->model, made->bn_group);
        status = ull__plan_variants(made, err);
    }
    if (status == ULL_OK) {
        status = request->plain ? plain_plan(made, err) : find_plans(made, err);
    }
    if (status != ULL_OK) {
        ull__planner_destroy(made);
        return status;
    }
    thin(made);
    *planner = made;
    return ULL_OK;
}

void ull__planner_destroy(struct ull__planner *planner)
{
    if (planner == NULL) {
        return;
    }
    for (int i = 0; i < planner->plan_count + planner->given; ++i) {
        ull__decision_finish(&planner->plans[i].decision);
    }
    for (int i = 0; i < planner->variant_count; ++i) {
        ull__program_destroy(planner->variants[i].program);
    }
    for (int i = 0; i < planner->graph_count; ++i) {
        ull__graph_destroy(planner->graphs[i].graph);
    }
    ull__graph_destroy(planner->model);
    free(planner->plans);
    free(planner);
}

const struct ull__plan *ull__planner_plans(const struct ull__planner *planner, int *count)
{
    *count = planner->plan_count;
    return planner->plans;
}

int64_t ull__planner_place(struct ull__planner *planner, int plan)
{
    if (planner->plans[plan].peak_bytes == 0) {
        struct ull__plan_layout layout;
        if (ull__planner_layout(planner, plan, &layout, NULL) != ULL_OK) {
            return -1;
        }
        planner->plans[plan].peak_bytes =
            (int64_t)(layout.persistent_bytes + layout.step_bytes + layout.passing_bytes);
        ull__plan_layout_finish(&layout);
    }
    return planner->plans[plan].peak_bytes;
}

int ull__planner_choose(struct ull__planner *planner, int64_t budget)
{
    int64_t room = budget - (int64_t)planner->profile.outside_bytes;
    for (int i = 0; i < planner->plan_count; ++i) {
        if (planner->plans[i].bound_bytes <= room) {
            int64_t peak = ull__planner_place(planner, i);
            if (peak >= 0 && peak <= room) {
                return i;
            }
        }
    }
    return ULL_NONE;
}

int ull__planner_smallest(struct ull__planner *planner)
{
    int smallest = ULL_NONE;
    for (int i = planner->plan_count - 1; i >= 0; --i) {
        if (smallest != ULL_NONE &&
            planner->plans[i].bound_bytes >= planner->plans[smallest].peak_bytes) {
            break;
        }
        int64_t peak = ull__planner_place(planner, i);
        if (peak >= 0 && (smallest == ULL_NONE || peak < planner->plans[smallest].peak_bytes)) {
            smallest = i;
        }
    }
    return smallest;
}

const struct ull__program *ull__planner_program(const struct ull__planner *planner, int plan)
{
    return planner->variants[planner->plans[plan].variant].program;
}

const struct ull__profile *ull__planner_profile(const struct ull__planner *planner)
{
    return &planner->profile;
}
