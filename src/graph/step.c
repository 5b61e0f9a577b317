/*
 * step.c: backward pass and update of a model. See step.h.
 *
 * Everything that steers an update is a scalar on the device: the learning rate, the step, the loss scale, whether
 * micro-steps add up. A step whose gradients are not finite is skipped by the predicate of its updates.
 *
 * Where several devices share a batch, gradients are reduced over them as soon as nothing is added to them any more (from
 * stage 2 of ZeRO on in each micro-step), and from stage 1 on each device updates its part of the weights. What all
 * gradients are asked is then asked of the parts, and the answers are reduced.
 */
#include "step.h"

#include <stdlib.h>

#include "error.h"
#include "op.h"
#include "ops.h"
#include "share.h"

struct building {
    struct ull__graph *graph;
    const struct ull__step_options *options;
    int rate, step;  /* scalars */
    int factor;      /* of gradients; ULL_NONE: 1 */
    int adding;      /* whether a micro-step adds to those before it */
    int *parameters; /* with a gradient, in the order in which these are complete */
    int *gradients;  /* of these, as the update reads them */
    int count;
};

static bool is_shared(const struct building *building)
{
    return building->options->devices > 1;
}

static bool is_part(const struct ull__graph *graph, int tensor)
{
    return graph->tensors[tensor].shard_axis != ULL_NONE;
}

/* Whether a device updates its part of the weights only. */
static bool cuts_state(const struct building *building)
{
    return is_shared(building) && building->options->zero_stage >= 1;
}

/* Whether gradients are whole while they are added up, and reduced after that. */
static bool reduces_late(const struct building *building)
{
    const struct ull__step_options *options = building->options;
    return is_shared(building) && options->accumulate && options->zero_stage < 2;
}

/* A tensor beside a parameter, f32: of its shape, or of the shape of the device's part of it. */
static int beside(struct ull__graph *graph, int parameter, int part_of, enum ull__role role,
                  enum ull__life life, const char *what)
{
    struct ull__tensor tensor = graph->tensors[parameter];
    if (part_of > 1 && !is_part(graph, parameter)) {
        ull__share_cut(graph, &tensor, part_of);
    }
    tensor.name = ull__graph_text(graph, "%s.%s", tensor.name, what);
    tensor.type = ULL_TYPE_F32;
    tensor.role = role;
    tensor.life = life;
    tensor.init = ULL_INIT_ZERO;
    tensor.data = NULL;
    tensor.data_bytes = 0;
    tensor.of = parameter;
    return ull__graph_tensor(graph, &tensor);
}

/* The f32 weight that the update works on: the master, or the parameter itself. */
static int master_of(const struct ull__graph *graph, int parameter)
{
    for (int i = 0; i < graph->tensor_count; ++i) {
        if (graph->tensors[i].role == ULL_ROLE_MASTER && graph->tensors[i].node == ULL_NONE &&
            graph->tensors[i].of == parameter) {
            return i;
        }
    }
    return parameter;
}

/* The update of what lies at `master`, and at `half` in 16 bits (ULL_NONE: nothing). Returns the new weights as they are read. */
static int update_weights(struct building *building, int parameter, int gradient, int master, int half)
{
    struct ull__graph *graph = building->graph;
    const struct ull__step_options *options = building->options;
    union ull__attrs attrs = {.optimizer = options->attrs};
    int part_of = cuts_state(building) ? options->devices : 1, made;
    if (options->optimizer == ULL_OPTIMIZER_SGD) {
        int momentum = options->attrs.momentum > 0
                           ? beside(graph, parameter, part_of, ULL_ROLE_OPTIMIZER,
                                    ULL_LIFE_PERSISTENT, "momentum")
                           : ULL_NONE;
        made = ull__graph_node(
            graph, &ull__op_sgd, &attrs,
            (int[]){master, gradient, building->rate, building->factor, momentum, half}, 6);
    } else {
        int first =
            beside(graph, parameter, part_of, ULL_ROLE_OPTIMIZER, ULL_LIFE_PERSISTENT, "exp_avg");
        int second =
            beside(graph, parameter, part_of, ULL_ROLE_OPTIMIZER, ULL_LIFE_PERSISTENT, "exp_avg_sq");
        attrs.optimizer.decoupled = options->optimizer == ULL_OPTIMIZER_ADAMW;
        made = ull__graph_node(graph, &ull__op_adam, &attrs,
                               (int[]){master, gradient, building->rate, building->factor,
                                       building->step, first, second, half},
                               8);
    }
    if (made == ULL_NONE) {
        return ULL_NONE;
    }
    const struct ull__node *node = &graph->nodes[made];
    return node->outputs[half != ULL_NONE ? node->output_count - 1 : 0];
}

/* The device's part of the weights is taken out, updated, and goes to all. */
static void update_part(struct building *building, int parameter, int gradient, int master)
{
    struct ull__graph *graph = building->graph;
    int devices = building->options->devices, predicate = graph->predicate;
    struct ull__tensor like = graph->tensors[parameter];
    graph->predicate = ULL_NONE;
    int part = ull__share_part(graph, parameter, devices);
    graph->predicate = predicate;
    bool halved = master != parameter;
    int updated = update_weights(building, parameter, gradient, halved ? master : part,
                                 halved ? part : ULL_NONE);
    graph->predicate = ULL_NONE;
    ull__share_gather(graph, updated, &like, parameter, devices);
    graph->predicate = predicate;
}

/* gradient: what the update reads: reduced, and of the part that is updated. */
static void update(struct building *building, int parameter, int gradient)
{
    struct ull__graph *graph = building->graph;
    int master = master_of(graph, parameter);
    enum ull__pass pass = graph->pass;
    graph->pass = ULL_PASS_UPDATE;
    if (cuts_state(building) && !is_part(graph, parameter)) {
        update_part(building, parameter, gradient, master);
    } else {
        update_weights(building, parameter, gradient, master,
                       master != parameter ? parameter : ULL_NONE);
    }
    graph->pass = pass;
}

/* The step after this one. */
static int count_step(struct ull__graph *graph, int step)
{
    enum ull__pass pass = graph->pass;
    graph->pass = ULL_PASS_UPDATE;
    step = ull__graph_apply(graph, &ull__op_count_step, NULL, &step, 1);
    graph->pass = pass;
    return step;
}

/* A gradient over all devices: of the part that the device updates, or whole. */
static int reduce_gradient(struct building *building, int parameter, int gradient)
{
    struct ull__graph *graph = building->graph;
    int devices = building->options->devices;
    if (!is_shared(building) || is_part(graph, parameter)) {
        return gradient; /* that of gathered weights was reduced where they were gathered */
    }
    int made = cuts_state(building)
                   ? ull__share_scatter(graph, gradient, devices)
                   : ull__share_reduce(graph, gradient, ULL_REDUCTION_SUM, devices,
                                       graph->tensors[gradient].life == ULL_LIFE_STEP);
    if (made != ULL_NONE) {
        graph->tensors[made].role = ULL_ROLE_GRADIENT;
        graph->tensors[made].of = parameter;
    }
    return made;
}

/* A parameter's gradient of this micro-step is complete. */
static void gather(struct ull__graph *graph, int parameter, int gradient, void *context)
{
    struct building *building = context;
    const struct ull__step_options *options = building->options;
    if (!reduces_late(building)) {
        gradient = reduce_gradient(building, parameter, gradient);
    }
    if (options->consume) {
        if (building->count++ == 0) {
            building->step = count_step(graph, building->step);
        }
        update(building, parameter, gradient);
        return;
    }
    if (options->accumulate) {
        int part_of = cuts_state(building) && !reduces_late(building) ? options->devices : 1;
        int sum = beside(graph, parameter, part_of, ULL_ROLE_GRADIENT, ULL_LIFE_STEP, "grad");
        gradient = ull__graph_apply(graph, &ull__op_accumulate, NULL,
                                    (int[]){sum, gradient, building->adding}, 3);
    }
    building->parameters[building->count] = parameter;
    building->gradients[building->count++] = gradient;
}

static union ull__attrs scale_attrs(const struct ull__step_options *options)
{
    struct ull__scale_attrs scale = options->scale;
    scale.growth = scale.growth != 0 ? scale.growth : 2;
    scale.backoff = scale.backoff != 0 ? scale.backoff : 0.5;
    scale.interval = scale.interval != 0 ? scale.interval : 2000;
    scale.hysteresis = scale.hysteresis != 0 ? scale.hysteresis : 2;
    scale.floor = scale.floor != 0 ? scale.floor : 1;
    scale.ceiling = scale.ceiling != 0 ? scale.ceiling : 1 << 24;
    return (union ull__attrs){.scale = scale};
}

/* What was asked of the parts that the device has, of all parts. */
static int over_parts(struct building *building, int answer, enum ull__reduction reduce)
{
    return cuts_state(building)
               ? ull__share_reduce(building->graph, answer, reduce, building->options->devices, false)
               : answer;
}

/* Statistics that each device has of its own samples become their mean, so that they are the same everywhere. */
static void average_state(struct building *building)
{
    struct ull__graph *graph = building->graph;
    int tensors = graph->tensor_count;
    graph->phase = ULL_PHASE_UPDATE;
    graph->pass = ULL_PASS_UPDATE;
    for (int i = 0; i < tensors && is_shared(building) && ull__graph_ok(graph); ++i) {
        int last = ULL_NONE;
        for (int j = i + 1; j < tensors && graph->tensors[i].role == ULL_ROLE_STATE &&
                            graph->tensors[i].node == ULL_NONE;
             ++j) {
            last = graph->tensors[j].writes && ull__tensor_owner(graph, j) == i ? j : last;
        }
        if (last != ULL_NONE) {
            ull__share_reduce(graph, last, ULL_REDUCTION_MEAN, building->options->devices, true);
        }
    }
}

/* Loss scale, clipping, and the updates of all parameters. */
static void finish(struct building *building, int scale)
{
    struct ull__graph *graph = building->graph;
    const struct ull__step_options *options = building->options;
    int found = ULL_NONE, norm = ULL_NONE;
    /* Before the first update all gradients are needed; without clipping and scale they are reduced one by one. */
    bool all = scale != ULL_NONE || options->attrs.limit > 0, late = reduces_late(building);
    graph->phase = ULL_PHASE_UPDATE;
    graph->pass = ULL_PASS_UPDATE;
    for (int i = 0; i < building->count && late && all; ++i) {
        building->gradients[i] =
            reduce_gradient(building, building->parameters[i], building->gradients[i]);
    }
    if (scale != ULL_NONE) {
        found = ull__graph_apply(graph, &ull__op_finite, NULL, building->gradients, building->count);
        found = over_parts(building, found, ULL_REDUCTION_MAX);
    }
    if (options->attrs.limit > 0) {
        norm = ull__graph_apply(graph, &ull__op_norm_square, NULL, building->gradients,
                                building->count);
        norm = over_parts(building, norm, ULL_REDUCTION_SUM);
    }
    if (scale != ULL_NONE || norm != ULL_NONE) {
        union ull__attrs attrs = {.optimizer = options->attrs};
        building->factor = ull__graph_apply(graph, &ull__op_clip, &attrs, (int[]){scale, norm}, 2);
    }
    graph->predicate = found;
    building->step = count_step(graph, building->step);
    for (int i = 0; i < building->count && ull__graph_ok(graph); ++i) {
        int gradient = building->gradients[i];
        if (late && !all) {
            gradient = reduce_gradient(building, building->parameters[i], gradient);
        }
        update(building, building->parameters[i], gradient);
    }
    graph->predicate = ULL_NONE;
    if (scale != ULL_NONE) {
        int good = ull__graph_control(graph, "good_steps", ULL_TYPE_I32);
        int left = ull__graph_control(graph, "hysteresis_left", ULL_TYPE_I32);
        union ull__attrs attrs = scale_attrs(options);
        ull__graph_node(graph, &ull__op_loss_scale, &attrs, (int[]){scale, good, left, found}, 4);
    }
}

static ull_status options_fit(const struct ull__graph *graph,
                              const struct ull__step_options *options, struct ull_error *err)
{
    if (graph->loss_count == 0) {
        return ull__fail(err, ULL_E_INVALID, "model '%s' has no loss: nothing to train", graph->name);
    }
    if (options->consume && (options->accumulate || options->loss_scale || options->attrs.limit > 0)) {
        return ull__fail(
            err, ULL_E_INVALID,
            "gradients cannot be consumed as they come with accumulation, a loss scale or "
            "clipping: all of them are needed first");
    }
    if (options->devices > 1 && (options->zero_stage < 0 || options->zero_stage > 3)) {
        return ull__fail(err, ULL_E_INVALID, "stage %d of ZeRO: expected 0 to 3",
                         options->zero_stage);
    }
    return ULL_OK;
}

/* The scalars that steer a step. Returns the loss scale, ULL_NONE without one. */
static int controls(struct building *building)
{
    struct ull__graph *graph = building->graph;
    const struct ull__step_options *options = building->options;
    building->rate = ull__graph_control(graph, "learning_rate", ULL_TYPE_F32);
    building->step = ull__graph_control(graph, "step", ULL_TYPE_I64);
    building->adding =
        options->accumulate ? ull__graph_control(graph, "adding", ULL_TYPE_BOOL) : ULL_NONE;
    return options->loss_scale ? ull__graph_control(graph, "loss_scale", ULL_TYPE_F32) : ULL_NONE;
}

ull_status ull__step_build(struct ull__graph *graph, const struct ull__step_options *options,
                           struct ull_error *err)
{
    ull_status status = options_fit(graph, options, err);
    if (status != ULL_OK) {
        return status;
    }
    struct building building = {.graph = graph, .options = options, .factor = ULL_NONE};
    int scale = controls(&building);
    size_t tensors = (size_t)graph->tensor_count + 1;
    int *gradient = malloc(tensors * sizeof(*gradient));
    building.parameters = calloc(tensors, sizeof(int));
    building.gradients = calloc(tensors, sizeof(int));
    if (building.parameters == NULL || building.gradients == NULL || gradient == NULL) {
        ull__graph_fail(graph, ULL_E_NO_MEMORY, "no memory for the gradients of '%s'", graph->name);
    } else {
        ull__differentiate(graph, scale, gradient, gather, &building);
        if (!options->consume) {
            finish(&building, scale);
        }
        average_state(&building);
    }
    graph->phase = ULL_PHASE_MICRO;
    graph->pass = ULL_PASS_FORWARD;
    if (!ull__graph_ok(graph)) {
        status = ull__fail(err, graph->status, "%s", graph->error.message);
    }
    free(building.parameters);
    free(building.gradients);
    free(gradient);
    return status;
}
