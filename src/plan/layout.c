/*
 * layout.c: addresses for everything that a plan keeps in memory. See plan.h.
 *
 * Three regions, one behind the other: what is persistent, at the same offsets in every plan of a program; what lives
 * over the micro-steps of a step; and what passes, which shares addresses by lifetimes.
 */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "plan_private.h"

/* Weights and state first: what else there is differs from plan to plan, or with the length of a sample. */
static int rank(const struct ull__program_buffer *buffer)
{
    return buffer->role == ULL_ROLE_CONTROL ? 2 : buffer->role == ULL_ROLE_CONSTANT ? 1 : 0;
}

/* By name, then weights and state lie at the same places in all programs of one precision. */
static int by_name(const void *left, const void *right, void *context)
{
    const struct ull__program *program = context;
    const struct ull__program_buffer *a = &program->buffers[*(const int *)left];
    const struct ull__program_buffer *b = &program->buffers[*(const int *)right];
    if (rank(a) != rank(b)) {
        return rank(a) - rank(b);
    }
    int order =
        strcmp(program->graph->tensors[a->tensor].name, program->graph->tensors[b->tensor].name);
    return order != 0 ? order : (int)a->role - (int)b->role;
}

static bool in_host(const struct ull__program_buffer *buffer, bool offload)
{
    return offload && buffer->life == ULL_LIFE_PERSISTENT &&
           (buffer->role == ULL_ROLE_OPTIMIZER || buffer->role == ULL_ROLE_MASTER);
}

/* Offsets of what stays: in its region, or in the host's where the optimizer's state is there. */
static bool place_persistent(const struct ull__program *program, bool offload,
                             struct ull__plan_layout *layout)
{
    int *order = malloc(sizeof(*order) * ((size_t)program->buffer_count + 1));
    if (order == NULL) {
        return false;
    }
    for (int i = 0; i < program->buffer_count; ++i) {
        order[i] = i;
        layout->persistent_offsets[i] = layout->host_offsets[i] = ULL_NOT_THERE;
    }
    qsort_r(order, (size_t)program->buffer_count, sizeof(*order), by_name,
            (void *)(uintptr_t)program);
    layout->persistent_bytes = layout->step_bytes = layout->host_bytes = 0;
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[order[i]];
        bool host = in_host(buffer, offload);
        uint64_t *at = host                                  ? &layout->host_bytes
                       : buffer->life == ULL_LIFE_PERSISTENT ? &layout->persistent_bytes
                       : buffer->life == ULL_LIFE_STEP       ? &layout->step_bytes
                                                             : NULL;
        if (at != NULL) {
            (host ? layout->host_offsets : layout->persistent_offsets)[order[i]] = *at;
            *at += (uint64_t)buffer->bytes;
        }
    }
    layout->host_state_bytes = layout->host_bytes;
    /* What is sent there during a micro-step lies behind the state, each in a place of its own. */
    for (int i = 0; i < layout->stay_count; ++i) {
        int buffer = layout->stays[i].buffer;
        if (layout->stays[i].returned && layout->host_offsets[buffer] == ULL_NOT_THERE) {
            layout->host_offsets[buffer] = layout->host_bytes;
            layout->host_bytes += (uint64_t)program->buffers[buffer].bytes;
        }
    }
    free(order);
    return true;
}

ull_status ull__place_stays(const struct ull__stay *stays, int stay_count, uint64_t alignment,
                            uint64_t *offsets, uint64_t *height, struct ull_error *err)
{
    size_t room = (size_t)stay_count + 1;
    struct ull__buffer *buffers = calloc(room, sizeof(*buffers));
    int *of = calloc(room, sizeof(*of));
    int count = 0;
    ull_status status = ULL_E_NO_MEMORY;
    for (int i = 0; i < stay_count && buffers != NULL && of != NULL; ++i) {
        const struct ull__stay *stay = &stays[i];
        if (stay->joins != ULL_NONE) {
            of[i] = of[stay->joins];
            if (buffers[of[i]].upper < stay->end + 1) {
                buffers[of[i]].upper = stay->end + 1;
            }
            continue;
        }
        of[i] = count;
        buffers[count++] = (struct ull__buffer){.size = (uint64_t)stay->bytes,
                                                .alignment = alignment,
                                                .lower = stay->begin,
                                                .upper = stay->end + 1};
    }
    struct ull__offsets_problem problem = {
        .buffers = buffers, .count = (size_t)count, .capacity = ULL__OFFSETS_LOWEST};
    struct ull__offsets found = {0};
    if (buffers != NULL && of != NULL) {
        status = ull__offsets_solve(&problem, &(struct ull__offsets_effort){0}, err, &found);
    }
    if (status == ULL_OK) {
        status = ull__offsets_check(&problem, found.offsets, err, height);
        for (int i = 0; i < stay_count; ++i) {
            offsets[i] = found.offsets[of[i]];
        }
    }
    ull__offsets_finish(&found);
    free(buffers);
    free(of);
    return status;
}

ull_status ull__program_layout(const struct ull__program *program, const struct ull__profile *profile,
                               const struct ull__decision *decision, bool offload,
                               struct ull__plan_layout *layout, struct ull_error *err)
{
    struct ull__cost_of cost;
    memset(layout, 0, sizeof(*layout));
    layout->scheduler = ull__scheduler_create(program, profile);
    if (layout->scheduler == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a plan's addresses");
    }
    ull__schedule(layout->scheduler, decision, &cost);
    layout->order = ull__schedule_order(layout->scheduler, &layout->count);
    layout->stays = ull__schedule_stays(layout->scheduler, &layout->stay_count);
    size_t buffers = (size_t)program->buffer_count + 1;
    layout->offsets = calloc((size_t)layout->stay_count + 1, sizeof(*layout->offsets));
    layout->persistent_offsets = calloc(buffers, sizeof(*layout->persistent_offsets));
    layout->host_offsets = calloc(buffers, sizeof(*layout->host_offsets));
    layout->starts = calloc((size_t)layout->count + 1, sizeof(*layout->starts));
    ull_status status = ULL_E_NO_MEMORY;
    if (layout->offsets != NULL && layout->persistent_offsets != NULL &&
        layout->host_offsets != NULL && layout->starts != NULL &&
        place_persistent(program, offload, layout)) {
        status = ull__place_stays(layout->stays, layout->stay_count, profile->alignment,
                                  layout->offsets, &layout->passing_bytes, err);
    }
    if (status != ULL_OK) {
        ull__plan_layout_finish(layout);
        return ull__fail(err, status, "no addresses for a plan");
    }
    for (int i = 0; i < layout->count; ++i) {
        int item = layout->order[i].item;
        layout->starts[i + 1] =
            layout->starts[i] + ull__item_choice(program, item, decision->algorithm[item])->seconds;
        layout->micro_count += !program->items[item].update;
        layout->prologue_count += program->items[item].prologue;
    }
    layout->peak_at = cost.peak_at;
    return ULL_OK;
}

ull_status ull__planner_layout(const struct ull__planner *planner, int plan,
                               struct ull__plan_layout *layout, struct ull_error *err)
{
    const struct ull__plan *of = &planner->plans[plan];
    const struct ull__program *program = ull__planner_program(planner, plan);
    ull_status status = ull__program_layout(program, &planner->profile, &of->decision,
                                            of->offload_optimizer, layout, err);
    if (status != ULL_OK) {
        return status;
    }
    /* With room to bring the optimizer's state in. */
    if (of->offload_optimizer) {
        layout->staging_offsets[0] = layout->persistent_bytes;
        layout->staging_offsets[1] =
            layout->persistent_bytes + (uint64_t)planner->variants[of->variant].staging[0];
    }
    layout->persistent_bytes = (uint64_t)of->persistent_bytes;
    ull__plan_layout_bytes(planner, plan, layout, layout->peak_at, layout->at_peak);
    return ULL_OK;
}

void ull__plan_layout_finish(struct ull__plan_layout *layout)
{
    ull__scheduler_destroy(layout->scheduler);
    free(layout->offsets);
    free(layout->persistent_offsets);
    free(layout->host_offsets);
    free(layout->starts);
    memset(layout, 0, sizeof(*layout));
}

void ull__plan_layout_bytes(const struct ull__planner *planner, int plan,
                            const struct ull__plan_layout *layout, int place,
                            int64_t bytes[ULL_ROLES])
{
    const struct ull__program *program = ull__planner_program(planner, plan);
    memcpy(bytes, program->role_bytes, sizeof(program->role_bytes));
    if (planner->plans[plan].offload_optimizer) {
        /* The rest of the state is in the host's memory, but for what is being updated. */
        int64_t state = bytes[ULL_ROLE_OPTIMIZER] + bytes[ULL_ROLE_MASTER];
        bytes[ULL_ROLE_OPTIMIZER] =
            planner->plans[plan].persistent_bytes - (program->persistent_bytes - state);
        bytes[ULL_ROLE_MASTER] = 0;
    }
    for (int i = 0; i < layout->stay_count; ++i) {
        const struct ull__stay *stay = &layout->stays[i];
        int begin = stay->joins != ULL_NONE ? stay->begin + 1 : stay->begin;
        if (begin > place || stay->end < place) {
            continue;
        }
        bytes[stay->buffer == ULL_NONE ? ULL_ROLE_WORKSPACE : program->buffers[stay->buffer].role] +=
            stay->bytes;
    }
}
