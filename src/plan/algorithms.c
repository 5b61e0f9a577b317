/* algorithms.c: see algorithms.h. */
#include "algorithms.h"

#include <string.h>

#include "op.h"
#include "ops.h"
#include "profile.h"

enum { PADDED_BYTES = 16 };

static const char *const unit_texts[] = {
#define X(name, text, what) text,
    ULL_WORKSPACE_MAP(X)
#undef X
};

const char *ull__workspace_unit_text(enum ull__workspace_unit unit)
{
    return unit_texts[unit];
}

static bool is_convolution(const struct ull__op *op)
{
    return op == &ull__op_conv2d || op == &ull__op_conv2d_grad_input ||
           op == &ull__op_conv2d_grad_weight || op == &ull__op_conv_transpose2d;
}

/* Seconds of the fastest algorithm by the profile's rates: the larger of arithmetic and traffic, and a launch. */
static double seconds_by_rates(const struct ull__graph *graph, int node, const int64_t *values,
                               const struct ull__profile *profile)
{
    const struct ull__node *of = &graph->nodes[node];
    struct ull__cost cost;
    ull__op_cost(graph, node, values, &cost);
    bool half = of->input_count > 0 && of->inputs[0] != ULL_NONE &&
                ull__type_is_half(graph->tensors[of->inputs[0]].type);
    double arithmetic =
        cost.matrix_flops / (half ? profile->matrix_half_per_second : profile->matrix_per_second) +
        cost.flops / profile->flops_per_second;
    bool linked = (of->op->flags & ULL_OP_COPY) != 0 || ((of->op->flags & ULL_OP_COLLECTIVE) != 0 &&
                                                         of->attrs.collective.kind != ULL_OWN_PART);
    double rate = linked ? profile->link_per_second : profile->bytes_per_second;
    double traffic = cost.bytes / rate;
    return (arithmetic > traffic ? arithmetic : traffic) + profile->launch_seconds;
}

static double seconds_of(const struct ull__graph *graph, int node, const int64_t *values,
                         const struct ull__profile *profile)
{
    double measured = profile->meter != NULL
                          ? profile->meter->seconds(profile->meter->context, graph, node, values)
                          : -1;
    return measured >= 0 ? measured : seconds_by_rates(graph, node, values, profile);
}

/* --- Sizes of a node --- */

struct sizes {
    double units[ULL_WORKSPACE_UNITS]; /* bytes */
    double channels, window, weights, inner;
    bool half;
};

static double bytes_of(const struct ull__graph *graph, int tensor, const int64_t *values)
{
    int64_t bytes = tensor != ULL_NONE ? ull__tensor_bytes(graph, tensor, values) : 0;
    return bytes < 0 ? 1e30 : (double)bytes;
}

static double elements_of(const struct ull__graph *graph, int tensor, const int64_t *values)
{
    int64_t elements = ull__tensor_elements(graph, tensor, values);
    return elements < 0 ? 1e30 : (double)elements;
}

static void measure_convolution(const struct ull__graph *graph, const struct ull__node *node,
                                const int64_t *values, struct sizes *sizes)
{
    const struct ull__op *op = node->op;
    bool gives_big = op == &ull__op_conv2d_grad_input || op == &ull__op_conv_transpose2d;
    bool by_weights = op == &ull__op_conv2d_grad_weight;
    int big = gives_big ? node->outputs[0] : node->inputs[0];
    int small = gives_big ? node->inputs[0] : by_weights ? node->inputs[1] : node->outputs[0];
    int weights = by_weights ? node->outputs[0] : node->inputs[1];
    const struct ull__tensor *pictures = &graph->tensors[big], *w = &graph->tensors[weights];
    double channels = (double)ull__dim_value(graph->symbols, pictures->dims[1], values);
    double whole = 8.0 * PADDED_BYTES / ull__type_bits(pictures->type);
    double padded = (double)(int64_t)((channels + whole - 1) / whole) * whole;
    sizes->units[ULL_WORKSPACE_INPUT] = bytes_of(graph, big, values);
    sizes->units[ULL_WORKSPACE_PADDED] =
        channels > 0 ? sizes->units[ULL_WORKSPACE_INPUT] * (padded / channels) : 0;
    sizes->units[ULL_WORKSPACE_OUTPUT] = bytes_of(graph, small, values);
    sizes->weights = elements_of(graph, weights, values);
    sizes->channels = channels;
    sizes->window = (double)ull__dim_value(graph->symbols, w->dims[2], values) *
                    (double)ull__dim_value(graph->symbols, w->dims[3], values);
}

static void measure(const struct ull__graph *graph, int at, const int64_t *values, struct sizes *sizes)
{
    const struct ull__node *node = &graph->nodes[at];
    memset(sizes, 0, sizeof(*sizes));
    sizes->half = node->input_count > 0 && node->inputs[0] != ULL_NONE &&
                  ull__type_is_half(graph->tensors[node->inputs[0]].type);
    int64_t rule = ull__op_workspace(graph, at, values);
    sizes->units[ULL_WORKSPACE_RULE] = rule < 0 ? 1e30 : (double)rule;
    if (is_convolution(node->op)) {
        measure_convolution(graph, node, values, sizes);
    } else if (node->op == &ull__op_attention_grad) {
        sizes->units[ULL_WORKSPACE_OUTPUT] = bytes_of(graph, node->inputs[4], values);
    } else {
        struct ull__cost cost;
        ull__op_cost(graph, at, values, &cost);
        sizes->units[ULL_WORKSPACE_OUTPUT] = bytes_of(graph, node->outputs[0], values);
        sizes->weights = elements_of(graph, node->outputs[0], values);
        sizes->inner = sizes->weights > 0 ? cost.matrix_flops / 2 / sizes->weights : 0;
    }
    sizes->units[ULL_WORKSPACE_WEIGHTS] = 4 * sizes->weights;
}

/* --- Classes --- */

static bool has_type(const struct ull__algorithm_class *class, bool half)
{
    return half ? class->half : class->f32;
}

static const struct ull__algorithm_class *class_of(const struct ull__graph *graph, int node,
                                                   const int64_t *values,
                                                   const struct ull__algorithms *table,
                                                   struct sizes *sizes)
{
    bool measured = false;
    for (int i = 0; i < table->count; ++i) {
        const struct ull__algorithm_class *class = &table->classes[i];
        if (class->op != graph->nodes[node].op) {
            continue;
        }
        if (!measured) {
            measure(graph, node, values, sizes);
            measured = true;
        }
        if (has_type(class, sizes->half) &&
            (class->channels_most == 0 || sizes->channels <= class->channels_most) &&
            (class->window_most == 0 || sizes->window <= class->window_most) &&
            (class->weights_most == 0 || sizes->weights <= class->weights_most) &&
            sizes->inner >= class->inner_least) {
            return class;
        }
    }
    return NULL;
}

static double workspace_by(const struct ull__algorithm *algorithm, const struct sizes *sizes)
{
    double parts = algorithm->parts * sizes->units[ULL_WORKSPACE_WEIGHTS];
    double bytes = parts < algorithm->parts_most ? parts : algorithm->parts_most;
    for (int i = 0; i < ULL_WORKSPACE_UNITS; ++i) {
        bytes += algorithm->multiples[i] * sizes->units[i];
    }
    return bytes;
}

/* --- Choices --- */

/* From the fastest on; those that take no less than a faster one go, and those above the bound, if any is left. */
static int thin(struct ull__choice *choices, int count, int64_t most)
{
    int kept = 0;
    for (int i = 1; i < count; ++i) {
        struct ull__choice choice = choices[i];
        int at = i;
        for (; at > 0 && choices[at - 1].seconds > choice.seconds; --at) {
            choices[at] = choices[at - 1];
        }
        choices[at] = choice;
    }
    for (int i = 0; i < count; ++i) {
        if (kept == 0 || choices[i].workspace < choices[kept - 1].workspace) {
            /* Of equally fast ones the smaller; of those above the bound the last. */
            bool instead = kept > 0 && (choices[kept - 1].seconds >= choices[i].seconds ||
                                        (most > 0 && choices[kept - 1].workspace > most));
            kept -= instead;
            choices[kept++] = choices[i];
        }
    }
    return kept;
}

static int by_rule(const struct ull__graph *graph, int node, const int64_t *values,
                   const struct ull__profile *profile, struct ull__choice *choices)
{
    const struct ull__meter *meter = profile->meter;
    const struct ull__op *op = graph->nodes[node].op;
    int64_t workspace = meter != NULL ? meter->workspace(meter->context, graph, node, values)
                                      : ull__op_workspace(graph, node, values);
    if (workspace < 0 || workspace > INT64_MAX / 4) {
        return 0;
    }
    choices[0] = (struct ull__choice){"", workspace, seconds_of(graph, node, values, profile)};
    if (meter != NULL || workspace == 0 || !is_convolution(op) || profile->lean_convolution <= 1) {
        return 1;
    }
    choices[0].name = "columns";
    choices[1] = (struct ull__choice){"direct", 0, choices[0].seconds * profile->lean_convolution};
    return 2;
}

int ull__node_choices(const struct ull__graph *graph, int node, const int64_t *values,
                      const struct ull__profile *profile, struct ull__choice choices[ULL_CHOICES])
{
    struct sizes sizes;
    const struct ull__algorithm_class *class =
        profile->meter == NULL ? class_of(graph, node, values, &profile->algorithms, &sizes) : NULL;
    int count = class != NULL ? class->count : 0;
    if (class == NULL) {
        count = by_rule(graph, node, values, profile, choices);
    }
    double seconds = class != NULL ? seconds_by_rates(graph, node, values, profile) : 0;
    for (int i = 0; class != NULL && i < count; ++i) {
        double bytes = workspace_by(&class->algorithms[i], &sizes);
        if (bytes > (double)(INT64_MAX / 4)) {
            return 0;
        }
        choices[i] = (struct ull__choice){class->algorithms[i].name, (int64_t)bytes,
                                          seconds * class->algorithms[i].slowdown};
    }
    return thin(choices, count, profile->most_workspace);
}
