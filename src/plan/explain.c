/* explain.c: plans in steps, and the tutorials' plan. See explain.h. */
#include "explain.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "plan_private.h"

static const struct {
    const char *text, *what;
} techniques[] = {
#define X(name, text, what) {text, what},
    ULL_TECHNIQUE_MAP(X)
#undef X
};

const char *ull__technique_text(enum ull__technique technique)
{
    return techniques[technique].text;
}

const char *ull__technique_what(enum ull__technique technique)
{
    return techniques[technique].what;
}

/* ULL_NONE: the planner has no such variant. */
static int find_variant(const struct ull__planner *planner, enum ull__precision precision,
                        bool chunked, int64_t accumulation, int stage)
{
    for (int i = 0; i < planner->variant_count; ++i) {
        const struct ull__plan_graph *graph = &planner->graphs[planner->variants[i].graph];
        if (graph->precision == precision && graph->chunked == chunked &&
            graph->zero_stage == stage && planner->variants[i].accumulation == accumulation) {
            return i;
        }
    }
    return ULL_NONE;
}

/* Bytes and seconds of a variant with a decision; `fill` makes it of the first one, NULL: that itself. */
static ull_status weigh(const struct ull__planner *planner, struct ull__plan *plan,
                        void (*fill)(const struct ull__program *program,
                                     struct ull__decision *decision, const void *context),
                        const void *context, struct ull_error *err)
{
    const struct ull__program *program = planner->variants[plan->variant].program;
    struct ull__scheduler *scheduler = ull__scheduler_create(program, &planner->profile);
    struct ull__decision decision = {NULL, NULL};
    bool fine = scheduler != NULL && ull__decision_create(program, &decision);
    if (fine) {
        if (fill != NULL) {
            fill(program, &decision, context);
        }
        ull__schedule_cost(scheduler, &decision, &plan->cost);
        ull__plan_account(planner, plan);
    }
    ull__scheduler_destroy(scheduler);
    ull__decision_finish(&decision);
    return fine ? ULL_OK : ull__fail(err, ULL_E_NO_MEMORY, "no memory to explain a plan");
}

/* The part of a plan's decision that techniques up to one account for. */
struct partly {
    const struct ull__program *program;
    const struct ull__decision *whole;
    enum ull__technique up_to;
};

static void fill_partly(const struct ull__program *program, struct ull__decision *decision,
                        const void *context)
{
    const struct partly *partly = context;
    if (program == partly->program) {
        ull__decision_copy(program, decision, partly->whole);
    } else {
        /* Weights that are gathered and dropped again belong to the stage that cuts them. */
        ull__plan_carry(partly->program, partly->whole, program, decision);
    }
    for (int i = 0; i < program->buffer_count; ++i) {
        bool early = (decision->keep[i] == ULL_DROP && partly->up_to < ULL_TECHNIQUE_RECOMPUTATION) ||
                     (decision->keep[i] == ULL_SEND && partly->up_to < ULL_TECHNIQUE_SENDING);
        bool read = program->buffers[i].backward || program->buffers[i].result;
        decision->keep[i] = early && read ? ULL_KEEP : decision->keep[i];
    }
    if (partly->up_to < ULL_TECHNIQUE_WORKSPACE) {
        memset(decision->algorithm, 0, (size_t)program->item_count);
    }
}

static bool uses(const struct ull__planner *planner, const struct ull__plan *plan,
                 enum ull__technique technique)
{
    const struct ull__program *program = planner->variants[plan->variant].program;
    bool smaller = false;
    for (int i = 0; i < program->item_count; ++i) {
        smaller |= plan->decision.algorithm[i] != 0;
    }
    switch (technique) {
    case ULL_TECHNIQUE_PLAIN:
        return true;
    case ULL_TECHNIQUE_PRECISION:
        return plan->precision != ULL_PRECISION_F32;
    case ULL_TECHNIQUE_CHUNKS:
        return plan->chunked_loss;
    case ULL_TECHNIQUE_ACCUMULATION:
        return plan->accumulation > 1;
    case ULL_TECHNIQUE_RECOMPUTATION:
        return plan->cost.dropped_bytes > 0;
    case ULL_TECHNIQUE_WORKSPACE:
        return smaller;
    case ULL_TECHNIQUE_SENDING:
        return plan->cost.sent_bytes > 0;
    case ULL_TECHNIQUE_OPTIMIZER:
        return plan->offload_optimizer;
    default:
        return plan->zero_stage > 0;
    }
}

ull_status ull__plan_steps(const struct ull__planner *planner, int plan,
                           struct ull__plan_step steps[ULL_TECHNIQUES], int *count,
                           struct ull_error *err)
{
    const struct ull__plan *whole = &planner->plans[plan];
    int made = 0;
    for (enum ull__technique t = ULL_TECHNIQUE_PLAIN; t < ULL_TECHNIQUES; ++t) {
        if (!uses(planner, whole, t)) {
            continue;
        }
        struct ull__plan partial = {
            .variant = find_variant(
                planner, t >= ULL_TECHNIQUE_PRECISION ? whole->precision : ULL_PRECISION_F32,
                t >= ULL_TECHNIQUE_CHUNKS && whole->chunked_loss,
                t >= ULL_TECHNIQUE_ACCUMULATION ? whole->accumulation : 1,
                t >= ULL_TECHNIQUE_ZERO ? whole->zero_stage : 0),
            .offload_optimizer = t >= ULL_TECHNIQUE_OPTIMIZER && whole->offload_optimizer};
        if (partial.variant == ULL_NONE) {
            continue; /* 16 bits were asked for: there is no plan in 32 */
        }
        struct partly partly = {ull__planner_program(planner, plan), &whole->decision, t};
        bool decided = t >= ULL_TECHNIQUE_RECOMPUTATION;
        ull_status status = weigh(planner, &partial, decided ? fill_partly : NULL, &partly, err);
        if (status != ULL_OK) {
            return status;
        }
        steps[made++] = (struct ull__plan_step){t, partial.bound_bytes, partial.step_seconds};
    }
    *count = made;
    return ULL_OK;
}

enum { THUMB_BYTES = 100000000, THUMB_WEIGHTS = 10000000 };

/* Everything within a layer that is large is dropped; what leads from layer to layer is kept. */
static void fill_by_thumb(const struct ull__program *program, struct ull__decision *decision,
                          const void *context)
{
    const struct ull__graph *graph = program->graph;
    int64_t *bytes = calloc((size_t)graph->block_count + 1, sizeof(*bytes));
    int64_t *weights = calloc((size_t)graph->block_count + 1, sizeof(*weights));
    (void)context;
    for (int i = 0; i < program->forward_items && bytes != NULL && weights != NULL; ++i) {
        const struct ull__program_item *item = &program->items[i];
        int block = graph->nodes[item->node].block;
        for (int j = 0; j < item->output_count && block != ULL_NONE; ++j) {
            bytes[block] += program->buffers[program->refs[item->outputs + j]].bytes;
        }
        for (int j = 0; j < item->input_count && block != ULL_NONE; ++j) {
            const struct ull__program_buffer *input =
                &program->buffers[program->refs[item->inputs + j]];
            if (input->role == ULL_ROLE_PARAMETER) {
                weights[block] +=
                    input->bytes * 8 / ull__type_bits(graph->tensors[input->tensor].type);
            }
        }
    }
    for (int i = 0; i < program->buffer_count && bytes != NULL && weights != NULL; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        if (!buffer->forward || buffer->item == ULL_NONE || buffer->result) {
            continue;
        }
        int block = graph->nodes[program->items[buffer->item].node].block;
        int last = graph->nodes[program->items[buffer->last_forward].node].block;
        if (block != ULL_NONE && block == last &&
            (bytes[block] > THUMB_BYTES || weights[block] > THUMB_WEIGHTS)) {
            decision->keep[i] = ULL_DROP;
        }
    }
    free(bytes);
    free(weights);
}

ull_status ull__plan_by_thumb(const struct ull__planner *planner, int64_t budget,
                              struct ull__thumb_plan *thumb, struct ull_error *err)
{
    enum ull__precision precision = planner->graphs[planner->graph_count - 1].precision;
    int64_t room = budget - (int64_t)planner->profile.outside_bytes;
    bool any = false;
    for (int64_t cuts = 1; cuts <= 8; cuts *= 2) {
        struct ull__plan plan = {.variant = find_variant(planner, precision, false, cuts, 0)};
        if (plan.variant == ULL_NONE) {
            continue;
        }
        ull_status status = weigh(planner, &plan, fill_by_thumb, NULL, err);
        if (status != ULL_OK) {
            return status;
        }
        any = true;
        *thumb = (struct ull__thumb_plan){precision, cuts, plan.bound_bytes, plan.step_seconds,
                                          plan.bound_bytes <= room};
        if (thumb->fits) {
            break;
        }
    }
    return any ? ULL_OK : ull__fail(err, ULL_E_INVALID, "no plan to compare with");
}
