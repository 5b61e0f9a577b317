/*
 * test_world.c: a batch over several devices does what one device does with all of it, in f64: for each stage of ZeRO, with and
 * without accumulation, clipping and a loss scale; and what a device then holds.
 */
#include "models.h"

enum { DEVICES = 3, STEPS = 2, BATCH = 6 };

struct world_case {
    const char *text;
    struct ull__step_options options;
    enum ull__type half; /* F32: none */
};

static const struct model_case mlp = {"mlp:inputs=200,hidden=130,layers=2", BATCH, 10, 0};
static const struct model_case gpt = {
    "gpt-char:layers=1,width=40,heads=2,context=8,vocab=19,dropout=0.2", BATCH, 19, 19};

static struct ull__graph *step_of(const struct ull__graph *model, int devices, int stage,
                                  enum ull__type half, struct ull__step_options options)
{
    struct ull__graph *graph =
        half != ULL_TYPE_F32 ? ull__mixed_precision(model, half) : ull__graph_copy(model);
    struct ull_error err = {{0}};
    int64_t values[ULL_SYMBOLS];
    if (devices > 1) {
        struct ull__graph *whole = graph;
        graph = ull__data_parallel(whole, devices, stage);
        ull__graph_destroy(whole);
    }
    options.devices = devices;
    options.zero_stage = stage;
    if (graph == NULL || ull__step_build(graph, &options, &err) != ULL_OK) {
        fail_msg("%s: %s", model->name, err.message);
    }
    ull__graph_values(graph, 2, values);
    if (ull__graph_check(graph, values, &err) != ULL_OK) {
        fail_msg("%s, stage %d: %s", model->name, stage, err.message);
    }
    return graph;
}

static void controls(struct ref *ref, int step, double targets)
{
    ref_control(ref, "learning_rate", 0.02);
    if (step == 0) {
        ref_control(ref, "loss_scale", 1024);
        ref_control(ref, "hysteresis_left", 2);
    }
    if (targets >= 0) {
        ref_control(ref, "target_count", targets);
    }
}

/* Targets that count among a device's samples. */
static double valid_of(const struct model *model, int64_t first, int64_t samples)
{
    int target = tensor_named(model->graph, "target");
    struct ref *ref = reference_of(model->graph, samples);
    set_inputs(model, ref, 5, first, BATCH);
    double valid = 0;
    for (int64_t i = 0; i < ref_count(ref, target); ++i) {
        valid += ref_data(ref, target)[i] != -100;
    }
    ref_destroy(ref);
    return valid;
}

/* Steps of all devices, in one micro-step or in two. Returns the loss of the last one, added over devices. */
static double run(const struct model *model, struct ref **refs, int devices, int micro_steps)
{
    const struct ull__graph *graph = model->graph;
    int64_t own = BATCH / devices, micro = own / micro_steps;
    double loss = 0;
    for (int step = 0; step < STEPS; ++step) {
        loss = 0;
        for (int i = 0; i < devices; ++i) {
            controls(refs[i], step, valid_of(model, i * own, own));
        }
        ref_run_world(refs, devices, ULL_PHASE_PROLOGUE);
        for (int part = 0; part < micro_steps; ++part) {
            for (int i = 0; i < devices; ++i) {
                double targets = valid_of(model, i * own, own);
                int64_t first = i * own + part * micro;
                set_inputs(model, refs[i], 5, first, BATCH);
                ref_control(refs[i], "target_count", targets);
                ref_control(refs[i], "adding", part > 0);
                ref_generator(refs[i], 3, step, first);
            }
            ref_run_world(refs, devices, ULL_PHASE_MICRO);
            for (int i = 0; i < devices; ++i) {
                loss += ref_data(refs[i], graph->losses[0])[0];
            }
        }
        ref_run_world(refs, devices, ULL_PHASE_UPDATE);
    }
    return loss;
}

/* Weights of device `device` are those of the whole. */
static void compare(const struct ull__graph *graph, struct ref *part, int device,
                    const struct ull__graph *whole_graph, struct ref *whole, const char *what)
{
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (!is_parameter(graph, i)) {
            continue;
        }
        int from = tensor_named(whole_graph, tensor->name);
        int64_t count = ref_count(part, i), all = ref_count(whole, from);
        int64_t begin = tensor->shard_axis != ULL_NONE ? device * count : 0;
        for (int64_t j = 0; j < count && begin + j < all; ++j) {
            double here = ref_data(part, i)[j], there = ref_data(whole, from)[begin + j];
            if (!(fabs(here - there) <= 1e-11 * (1 + fabs(there)))) {
                fail_msg("%s, device %d, %s[%lld]: %.17g, and on one device %.17g", what, device,
                         tensor->name, (long long)(begin + j), here, there);
            }
        }
    }
}

static void check(const struct model_case *of, const struct world_case *c, int stage, bool splits)
{
    struct model model = model_of(of), alone = model, shared = model;
    char what[128];
    snprintf(what, sizeof(what), "%s, stage %d%s%s", of->text, stage,
             c->options.accumulate ? ", accumulating" : "", c->options.consume ? ", consuming" : "");
    alone.graph = step_of(model.graph, 1, 0, c->half, c->options);
    shared.graph = step_of(model.graph, DEVICES, stage, c->half, c->options);
    struct ref *whole = reference_of(alone.graph, BATCH), *refs[DEVICES];
    struct ref *source = reference_of(model.graph, BATCH);
    ref_fill(source, 7);
    ref_cut(whole, 0, 1, source);
    for (int i = 0; i < DEVICES; ++i) {
        refs[i] = reference_of(shared.graph, BATCH / DEVICES / (splits ? 2 : 1));
        ref_cut(refs[i], i, DEVICES, source);
    }
    double loss = run(&alone, &whole, 1, 1);
    double other = run(&shared, refs, DEVICES, splits ? 2 : 1);
    assert_true(fabs(loss - other) <= 1e-12 * fabs(loss));
    for (int i = 0; i < DEVICES; ++i) {
        compare(shared.graph, refs[i], i, alone.graph, whole, what);
        ref_destroy(refs[i]);
    }
    ref_destroy(whole);
    ref_destroy(source);
    ull__graph_destroy(alone.graph);
    ull__graph_destroy(shared.graph);
    ull__graph_destroy(model.graph);
}

/* With sanitizers it takes ten times as long: there only with all that a case can have. */
static bool with_gpt(size_t number)
{
#ifdef __SANITIZE_ADDRESS__
    return number == 2;
#else
    (void)number;
    return true;
#endif
}

static void devices_do_what_one_does(void **state)
{
    const struct ull__optimizer_attrs adam = {
        .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-3, .weight_decay = 0.01};
    struct ull__optimizer_attrs clipped = adam;
    clipped.limit = 0.05;
    const struct world_case cases[] = {
        {NULL, {.attrs = {.momentum = 0.9}, .consume = true}, ULL_TYPE_F32},
        {NULL, {.attrs = {.momentum = 0.9}, .accumulate = true}, ULL_TYPE_F32},
        {NULL, {.optimizer = ULL_OPTIMIZER_ADAMW, .attrs = clipped, .accumulate = true}, ULL_TYPE_BF16},
        {NULL, {.optimizer = ULL_OPTIMIZER_ADAM, .attrs = clipped, .loss_scale = true}, ULL_TYPE_F16},
        {NULL, {.optimizer = ULL_OPTIMIZER_ADAM, .attrs = adam, .consume = true}, ULL_TYPE_BF16},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        for (int stage = 0; stage <= 3; ++stage) {
            check(&mlp, &cases[i], stage, cases[i].options.accumulate);
            if (with_gpt(i)) {
                check(&gpt, &cases[i], stage, cases[i].options.accumulate);
            }
        }
    }
}

/* Statistics of batch norm are the mean of what the devices have, on all of them. */
static void statistics_are_averaged(void **state)
{
    const struct model_case of = {"resnet20:image=8,classes=4", 4, 4, 0};
    struct model model = model_of(&of);
    struct ull__step_options options = {.attrs = {.momentum = 0.9}, .consume = true};
    struct ref *source = reference_of(model.graph, 4), *refs[2], *apart[2];
    (void)state;
    ull__set_bn_group(model.graph, 2);
    struct model one = model, two = model;
    one.graph = step_of(model.graph, 1, 0, ULL_TYPE_F32, options);
    two.graph = step_of(model.graph, 2, 1, ULL_TYPE_F32, options);
    ref_fill(source, 3);
    for (int i = 0; i < 2; ++i) {
        refs[i] = reference_of(two.graph, 2);
        apart[i] = reference_of(one.graph, 2);
        ref_cut(refs[i], i, 2, source);
        ref_cut(apart[i], 0, 1, source);
        set_inputs(&two, refs[i], 5, 2 * i, 4);
        set_inputs(&one, apart[i], 5, 2 * i, 4);
        ref_run(apart[i], ULL_PHASE_MICRO);
    }
    for (enum ull__phase phase = ULL_PHASE_PROLOGUE; phase <= ULL_PHASE_UPDATE; ++phase) {
        ref_run_world(refs, 2, phase);
    }
    int compared = 0;
    for (int i = 0; i < two.graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &two.graph->tensors[i];
        if (tensor->role == ULL_ROLE_STATE && tensor->node == ULL_NONE) {
            int from = tensor_named(one.graph, tensor->name);
            double mean = (ref_data(apart[0], from)[0] + ref_data(apart[1], from)[0]) / 2;
            assert_true(ref_data(refs[0], i)[0] == ref_data(refs[1], i)[0]);
            assert_true(fabs(ref_data(refs[0], i)[0] - mean) <= 1e-12 * (1 + fabs(mean)));
            compared += 1;
        }
    }
    assert_true(compared > 10);
    for (int i = 0; i < 2; ++i) {
        ref_destroy(refs[i]);
        ref_destroy(apart[i]);
    }
    ref_destroy(source);
    ull__graph_destroy(one.graph);
    ull__graph_destroy(two.graph);
    ull__graph_destroy(model.graph);
}

/* Bytes that lie on a device from step to step: of N devices a share of what its stage cuts. */
static void stages_cut_what_they_say(void **state)
{
    const struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_ADAM, .accumulate = true};
    struct model model = model_of(&mlp);
    int64_t elements = ull__graph_parameters(model.graph);
    (void)state;
    for (int stage = 0; stage <= 3; ++stage) {
        struct ull__graph *graph = step_of(model.graph, 4, stage, ULL_TYPE_BF16, options);
        double bytes[ULL_ROLES] = {0};
        for (int i = 0; i < graph->tensor_count; ++i) {
            const struct ull__tensor *tensor = &graph->tensors[i];
            if (tensor->node == ULL_NONE) {
                bytes[tensor->role] += (double)ull__tensor_bytes(graph, i, NULL);
            }
        }
        double state_share = stage >= 1 ? 0.25 : 1, sums = stage >= 2 ? 0.25 : 1;
        double weights = stage >= 3 ? 0.25 : 1, all = (double)elements;
        assert_true(fabs(bytes[ULL_ROLE_OPTIMIZER] / all / 8 - state_share) < 0.02);
        assert_true(fabs(bytes[ULL_ROLE_MASTER] / all / 4 - state_share) < 0.02);
        assert_true(fabs(bytes[ULL_ROLE_GRADIENT] / all / 4 - sums) < 0.02);
        assert_true(fabs(bytes[ULL_ROLE_PARAMETER] / all / 2 - weights) < 0.05);
        ull__graph_destroy(graph);
    }
    ull__graph_destroy(model.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_do_what_one_does),
        cmocka_unit_test(statistics_are_averaged),
        cmocka_unit_test(stages_cut_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
