/*
 * variants.c: the programs among which a planner chooses: precisions, losses in turns, micro-batches. See plan.h.
 */
#include "plan_private.h"

#include <string.h>

#include "error.h"

static const struct {
    const char *text;
    enum ull__type type;
} precisions[] = {
    {"auto", ULL_TYPE_F32},
    {"fp32", ULL_TYPE_F32},
    {"bf16", ULL_TYPE_BF16},
    {"fp16", ULL_TYPE_F16},
};

const char *ull__precision_text(enum ull__precision precision)
{
    return precisions[precision].text;
}

bool ull__precision_parse(const char *text, enum ull__precision *precision)
{
    for (int i = 0; i < 4; ++i) {
        if (strcmp(precisions[i].text, text) == 0) {
            *precision = (enum ull__precision)i;
            return true;
        }
    }
    return false;
}

int64_t ull__default_bn_group(int64_t batch)
{
    int64_t group = batch < 32 ? batch : 32;
    while (group > 1 && batch % group != 0) {
        group -= 1;
    }
    return group;
}

static ull_status add_graph(struct ull__planner *planner, enum ull__precision precision,
                            bool chunked, bool accumulates, int stage, struct ull_error *err)
{
    struct ull__graph *chunks = chunked ? ull__chunk_loss(planner->model) : NULL;
    if (chunked && chunks == NULL) {
        return ULL_OK; /* the model has no such loss */
    }
    const struct ull__graph *from = chunked ? chunks : planner->model;
    struct ull__graph *graph = precision == ULL_PRECISION_F32
                                   ? ull__graph_copy(from)
                                   : ull__mixed_precision(from, precisions[precision].type);
    ull__graph_destroy(chunks);
    if (graph != NULL && planner->request.devices > 1) {
        struct ull__graph *whole = graph;
        graph = ull__data_parallel(whole, planner->request.devices, stage);
        ull__graph_destroy(whole);
    }
    if (graph == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to plan '%s'", planner->model->name);
    }
    bool scaled = precision == ULL_PRECISION_F16, clipped = planner->request.attrs.limit > 0;
    struct ull__step_options options = {.optimizer = planner->request.optimizer,
                                        .attrs = planner->request.attrs,
                                        .accumulate = accumulates,
                                        .loss_scale = scaled,
                                        .scale = planner->request.scale,
                                        .devices = planner->request.devices,
                                        .zero_stage = stage,
                                        .consume = !planner->request.plain && !accumulates &&
                                                   !scaled && !clipped};
    ull_status status = ull__step_build(graph, &options, err);
    if (status != ULL_OK) {
        ull__graph_destroy(graph);
        return status;
    }
    planner->graphs[planner->graph_count++] =
        (struct ull__plan_graph){graph, precision, chunked, accumulates, stage};
    return ULL_OK;
}

/* The last micro-batch may be smaller, and then a kernel may take more: room for both. */
static void widen_workspaces(const struct ull__planner *planner, struct ull__program *program,
                             int64_t rest)
{
    const struct ull__meter *meter = planner->profile.meter;
    int64_t values[ULL_SYMBOLS], unit = (int64_t)planner->profile.alignment;
    ull__graph_values(program->graph, rest, values);
    for (int i = 0; i < program->item_count; ++i) {
        struct ull__choice *choice = &program->choices[program->items[i].choices];
        int64_t workspace =
            meter->workspace(meter->context, program->graph, program->items[i].node, values);
        workspace = (workspace + unit - 1) / unit * unit;
        choice->workspace = workspace > choice->workspace ? workspace : choice->workspace;
    }
}

ull_status ull__plan_add_variant(struct ull__planner *planner, int graph, int64_t micro_batch,
                                 int64_t accumulation, struct ull_error *err)
{
    int64_t values[ULL_SYMBOLS];
    struct ull__plan_variant *variant = &planner->variants[planner->variant_count];
    if (planner->variant_count == ULL_PLAN_VARIANTS) {
        return ULL_OK;
    }
    *variant = (struct ull__plan_variant){graph, micro_batch, accumulation, NULL, {0, 0}};
    ull__graph_values(planner->graphs[graph].graph, micro_batch, values);
    ull_status status = ull__program_create(planner->graphs[graph].graph, values, &planner->profile,
                                            &variant->program, err);
    int64_t rest = planner->request.batch % micro_batch;
    if (status == ULL_OK && rest > 0 && planner->profile.meter != NULL) {
        widen_workspaces(planner, variant->program, rest);
    }
    if (status == ULL_OK) {
        ull__plan_staging(variant->program, variant->staging);
        planner->variant_count += 1;
    }
    return status;
}

bool ull__plan_can_cut(const struct ull__planner *planner, int64_t accumulation)
{
    int64_t batch = planner->request.batch, micro = (batch + accumulation - 1) / accumulation;
    int64_t most = planner->request.max_accumulation;
    if (accumulation > batch || (most > 0 && accumulation > most) ||
        (micro * (accumulation - 1) >= batch && accumulation > 1)) {
        return false;
    }
    return !ull__has_bn(planner->model) ||
           (batch % accumulation == 0 && micro % planner->bn_group == 0);
}

ull_status ull__plan_variants(struct ull__planner *planner, struct ull_error *err)
{
    static const int64_t cuts[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024};
    enum ull__precision asked = planner->request.precision;
    int stages = planner->request.devices > 1 && !planner->request.plain ? 4 : 1;
    int kinds = planner->request.plain ? 1 : 2 * stages * 2;
    enum ull__precision half =
        planner->profile.bf16 || !planner->profile.f16 ? ULL_PRECISION_BF16 : ULL_PRECISION_F16;
    for (enum ull__precision p = ULL_PRECISION_F32; p <= ULL_PRECISION_F16; ++p) {
        bool wanted =
            p == asked || (asked == ULL_PRECISION_AUTO &&
                           (p == ULL_PRECISION_F32 || (p == half && !planner->request.plain)));
        for (int kind = 0; kind < kinds && wanted; ++kind) {
            bool accumulates = (kind & 1) != 0, chunked = kind / (2 * stages) != 0;
            int stage = stages > 1 ? kind / 2 % stages : 0;
            unsigned allowed = planner->request.zero_stages;
            bool fits = stages == 1 || allowed == 0 || (allowed >> stage & 1) != 0;
            if (!fits || (accumulates && planner->request.batch == 1)) {
                continue;
            }
            int graph = planner->graph_count;
            ull_status status = add_graph(planner, p, chunked, accumulates, stage, err);
            if (status == ULL_OK && planner->graph_count > graph && !accumulates) {
                status = ull__plan_add_variant(planner, graph, planner->request.batch, 1, err);
            }
            for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]) && status == ULL_OK &&
                               accumulates && planner->graph_count > graph;
                 ++i) {
                if (ull__plan_can_cut(planner, cuts[i])) {
                    int64_t micro = (planner->request.batch + cuts[i] - 1) / cuts[i];
                    status = ull__plan_add_variant(planner, graph, micro, cuts[i], err);
                }
            }
            if (status != ULL_OK) {
                return status;
            }
        }
    }
    return ULL_OK;
}
