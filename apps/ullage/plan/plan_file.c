/* plan_file.c: decisions and pins of a plan, by names. See plan_file.h. */
#include "plan_file.h"

#include <stdio.h>
#include <string.h>

#include "../json_keys.h"
#include "names.h"

const char *plan_backend_text(const char *described, char *text, size_t size)
{
    const char *last = NULL;
    for (const char *at = strstr(described, ", "); at != NULL; at = strstr(at + 1, ", ")) {
        last = at;
    }
    snprintf(text, size, "%.*s",
             (int)(last != NULL ? (size_t)(last - described) : strlen(described)), described);
    return text;
}

static const char *const optimizers[] = {"sgd", "adam", "adamw"};

const char *plan_optimizer_text(enum ull__optimizer optimizer)
{
    return optimizers[optimizer];
}

bool plan_optimizer_parse(const char *text, enum ull__optimizer *optimizer)
{
    for (int i = 0; i < 3; ++i) {
        if (strcmp(text, optimizers[i]) == 0) {
            *optimizer = (enum ull__optimizer)i;
            return true;
        }
    }
    return false;
}

void plan_put_training(struct ull_json *json, const struct ull__plan_request *request,
                       const struct ull__graph *model)
{
    char identity[24];
    snprintf(identity, sizeof(identity), "%016llx", (unsigned long long)ull__graph_identity(model));
    key_string(json, "graph", identity);
    key_string(json, "optimizer", plan_optimizer_text(request->optimizer));
    if (request->optimizer == ULL_OPTIMIZER_SGD) {
        key_number(json, "momentum", request->attrs.momentum);
    }
    key_number(json, "clip", request->attrs.limit);
    key_u64(json, "bn_group",
            (uint64_t)(request->bn_group > 0 ? request->bn_group
                                             : ull__default_bn_group(request->batch)));
}

static void put_kept(struct ull_json *json, const char *key, const struct ull__program *program,
                     const struct ull__names *names, const struct ull__decision *decision,
                     enum ull__keep keep)
{
    char text[256];
    ull__json_key(json, key);
    ull__json_array(json);
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        if (buffer->forward && buffer->backward && decision->keep[i] == keep) {
            ull__json_string(json, ull__names_tensor(names, buffer->tensor, text));
        }
    }
    ull__json_array_end(json);
}

/* Nodes that do not run with their fastest algorithm. */
static void put_slower(struct ull_json *json, const struct ull__program *program,
                       const struct ull__names *names, const struct ull__decision *decision)
{
    ull__json_key(json, "algorithms");
    ull__json_array(json);
    for (int i = 0; i < program->item_count; ++i) {
        if (decision->algorithm[i] != 0) {
            const struct ull__choice *choice = ull__item_choice(program, i, decision->algorithm[i]);
            ull__json_object(json);
            key_string(json, "node", ull__names_node(names, program->items[i].node));
            key_string(json, "algorithm", choice->name);
            key_u64(json, "workspace_bytes", (uint64_t)choice->workspace);
            ull__json_object_end(json);
        }
    }
    ull__json_array_end(json);
}

void plan_put_decision(struct ull_json *json, const struct ull__planner *planner, int number)
{
    int count;
    const struct ull__plan *plan = &ull__planner_plans(planner, &count)[number];
    const struct ull__program *program = ull__planner_program(planner, number);
    struct ull__names *names = ull__names_create(program->graph);
    ull__json_key(json, "decision");
    ull__json_object(json);
    if (names != NULL) {
        put_kept(json, "drop", program, names, &plan->decision, ULL_DROP);
        put_kept(json, "send", program, names, &plan->decision, ULL_SEND);
        put_slower(json, program, names, &plan->decision);
    }
    key_bool(json, "chunked_loss", plan->chunked_loss);
    key_bool(json, "offload_optimizer", plan->offload_optimizer);
    key_u64(json, "zero_stage", (uint64_t)plan->zero_stage);
    ull__json_object_end(json);
    ull__names_destroy(names);
}

static void put_layouts(struct ull_json *json, const struct ull__program *program,
                        const struct ull__names *names, const uint8_t *layouts)
{
    char text[256];
    ull__json_key(json, "layouts");
    if (layouts == NULL) {
        ull__json_null(json);
        return;
    }
    ull__json_object(json);
    ull__json_key(json, "channels_last");
    ull__json_array(json);
    for (int i = 0; i < program->buffer_count; ++i) {
        int tensor = program->buffers[i].tensor;
        if (layouts[tensor] == ULL_LAYOUT_CHANNELS_LAST) {
            ull__json_string(json, ull__names_tensor(names, tensor, text));
        }
    }
    ull__json_array_end(json);
    ull__json_object_end(json);
}

static void put_algorithms(struct ull_json *json, const struct ull__program *program,
                           const struct ull__names *names, const struct ull__meter *meter,
                           const int64_t *values, const struct ull__decision *decision)
{
    ull__json_key(json, "algorithms");
    ull__json_object(json);
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        const char *algorithm = meter->algorithm(meter->context, program->graph, item->node, values);
        ull__json_key(json, ull__names_node(names, item->node));
        ull__json_object(json);
        key_string(json, "name", algorithm != NULL ? algorithm : "");
        const struct ull__choice *choice = ull__item_choice(program, i, decision->algorithm[i]);
        key_u64(json, "workspace_bytes", (uint64_t)choice->workspace);
        key_number(json, "seconds", choice->seconds);
        ull__json_object_end(json);
    }
    ull__json_object_end(json);
}

void plan_put_pins(struct ull_json *json, const struct ull__planner *planner, int number,
                   const struct plan_runner *runner)
{
    int count;
    const struct ull__program *program = ull__planner_program(planner, number);
    const struct ull__meter *meter = ull__planner_profile(planner)->meter;
    struct ull__names *names = ull__names_create(program->graph);
    ull__json_key(json, "pins");
    ull__json_object(json);
    if (runner->backend == NULL || meter == NULL || names == NULL) {
        static const char *const keys[] = {"backend", "threads", "layouts", "algorithms"};
        for (int i = 0; i < 4; ++i) {
            ull__json_key(json, keys[i]);
            ull__json_null(json);
        }
    } else {
        int64_t values[ULL_SYMBOLS];
        ull__graph_values(program->graph, ull__planner_plans(planner, &count)[number].micro_batch,
                          values);
        key_string(json, "backend", runner->backend);
        key_u64(json, "threads", (uint64_t)runner->threads);
        put_layouts(json, program, names, meter->layouts(meter->context, program->graph, values));
        put_algorithms(json, program, names, meter, values,
                       &ull__planner_plans(planner, &count)[number].decision);
    }
    ull__json_object_end(json);
    ull__names_destroy(names);
}
