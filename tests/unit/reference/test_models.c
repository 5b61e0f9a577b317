/*
 * test_models.c: whole models: gradients against finite differences, micro-batches against the batch at once, and passes
 * that must not change what a model computes.
 */
#include "models.h"

static const struct model_case models[] = {
    {"mlp:inputs=5,hidden=7,layers=2,classes=4", 6, 4, 0},
    {"lenet:image=28,classes=3", 2, 3, 0},
    {"resnet20:image=8,width=2,classes=3", 4, 3, 0},
    {"gpt-char:context=6,vocab=11,layers=2,width=8,heads=2,dropout=0.2", 4, 11, 11},
    {"vit-b16:image=8,patch=4,layers=1,width=8,heads=2,classes=3", 4, 3, 0},
    {"unet:image=20,width=1,channels=1", 2, 2, 0},
    {"bert-base:context=5,vocab=9,layers=1,width=8,heads=2,classes=3", 4, 3, 9},
    {"bert-base:context=4,vocab=9,layers=1,width=8,heads=2", 4, 9, 9},
    {"llama:context=5,vocab=9,layers=2,width=12,heads=3,kv_heads=1,hidden=16", 4, 9, 9},
};

enum { MODELS = sizeof(models) / sizeof(models[0]) };

/* Weights of a fresh model are small: larger ones let every part of it have a say in the loss. */
static void fill(const struct ull__graph *graph, struct ref *ref)
{
    ref_fill(ref, 3);
    for (int i = 0; i < graph->tensor_count; ++i) {
        bool wide = graph->tensors[i].init == ULL_INIT_NORMAL &&
                    (is_parameter(graph, i) || graph->tensors[i].role == ULL_ROLE_MASTER);
        for (int64_t j = 0; wide && j < ref_count(ref, i); ++j) {
            ref_data(ref, i)[j] *= 0.3 / graph->tensors[i].init_scale;
        }
    }
    ref_generator(ref, 5, 1, 0);
}

static double loss_of(const struct ull__graph *graph, struct ref *ref, int nodes)
{
    for (int i = 0; i < nodes; ++i) {
        ref_node(ref, i);
    }
    return ref_data(ref, graph->losses[0])[0];
}

enum { TOGETHER = 4 };

/* Goes `far` along a random direction in the first parameters of a list; gives its slope by their gradients. */
static double go(struct ref *ref, const int *gradient, const int *list, double far, double *size)
{
    uint64_t seed = 9;
    double slope = 0;
    *size = 0;
    for (int i = 0; i < TOGETHER && list[i] != ULL_NONE; ++i) {
        for (int64_t j = 0; j < ref_count(ref, list[i]); ++j) {
            double way = 2 * random_real(&seed) - 1;
            int of = gradient[list[i]];
            slope += of != ULL_NONE ? way * ref_data(ref, of)[j] : 0;
            *size += of != ULL_NONE ? fabs(ref_data(ref, of)[j]) : 0;
            ref_data(ref, list[i])[j] += far * way;
        }
    }
    return slope;
}

static void check_slope(const struct model *model, struct ref *ref, int nodes, const int *gradient,
                        const int *list, const char *what)
{
    double step = 1e-6, size, loss[2];
    double analytic = go(ref, gradient, list, step, &size);
    loss[0] = loss_of(model->graph, ref, nodes);
    go(ref, gradient, list, -2 * step, &size);
    loss[1] = loss_of(model->graph, ref, nodes);
    go(ref, gradient, list, step, &size);
    double numeric = (loss[0] - loss[1]) / (2 * step);
    if (!(fabs(numeric - analytic) <= 1e-8 + 2e-6 * (fabs(numeric) + size))) {
        fail_msg("%s: '%s' and those after it: %.12g by gradients, %.12g by differences", what,
                 model->graph->tensors[list[0]].name, analytic, numeric);
    }
}

/* Along random directions, in four parameters at a time. */
static void check_slopes(const struct model *model, const char *what)
{
    struct ull__graph *graph = model->graph;
    int nodes = graph->node_count, tensors = graph->tensor_count, count = 0;
    int *gradient = calloc((size_t)tensors, sizeof(*gradient));
    int *list = malloc(sizeof(*list) * (size_t)(tensors + 1));
    ull__differentiate(graph, ULL_NONE, gradient, NULL, NULL);
    struct ref *ref = reference_of(graph, model->batch);
    fill(graph, ref);
    set_inputs(model, ref, 1, 0, model->batch);
    ref_run(ref, ULL_PHASE_MICRO);
    for (int i = 0; i < tensors; ++i) {
        if (is_parameter(graph, i)) {
            list[count++] = i;
        }
    }
    list[count] = ULL_NONE;
    for (int i = 0; i < count; i += TOGETHER) {
        check_slope(model, ref, nodes, gradient, list + i, what);
    }
    ref_destroy(ref);
    free(gradient);
    free(list);
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; ++i) {
        struct model model = model_of(&models[i]);
        check_slopes(&model, models[i].text);
        ull__graph_destroy(model.graph);
    }
}

/* --- Micro-batches --- */

static const struct ull__step_options clipped_adamw = {
    .optimizer = ULL_OPTIMIZER_ADAMW,
    .attrs = {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.1, .limit = 0.5},
    .accumulate = true};

/* `steps` steps of a batch in `parts` equal micro-batches. */
static struct ref *trained(const struct model *model, int parts, int steps)
{
    struct ref *ref = reference_of(model->graph, model->batch / parts);
    fill(model->graph, ref);
    ref_control(ref, "learning_rate", 0.05);
    for (int step = 0; step < steps; ++step) {
        for (int part = 0; part < parts; ++part) {
            int64_t first = model->batch / parts * part;
            set_inputs(model, ref, (uint64_t)step, first, model->batch);
            ref_control(ref, "adding", part > 0);
            ref_generator(ref, 5, step, first);
            ref_run(ref, ULL_PHASE_MICRO);
        }
        ref_run(ref, ULL_PHASE_UPDATE);
    }
    return ref;
}

static void must_agree(const struct ull__graph *graph, struct ref *a, struct ref *b,
                       double tolerance, const char *what)
{
    double off = 0, size = 0;
    int compared = 0;
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        bool lasts = tensor->node == ULL_NONE && tensor->life == ULL_LIFE_PERSISTENT &&
                     tensor->role != ULL_ROLE_CONSTANT && tensor->role != ULL_ROLE_CONTROL;
        for (int64_t j = 0; lasts && j < ref_count(a, i); ++j) {
            double x = ref_data(a, i)[j], y = ref_data(b, i)[j];
            if (!isfinite(x) || !isfinite(y)) {
                fail_msg("%s: '%s' is %g and %g", what, tensor->name, x, y);
            }
            off = fmax(off, fabs(x - y));
            size = fmax(size, fabs(x));
            compared += 1;
        }
    }
    assert_true(compared > 0 && size > 0);
    if (!(off <= tolerance * size)) {
        fail_msg("%s: weights and state differ by %g", what, off);
    }
}

/*
 * What is left of Adam's division by small second moments is about 1e-12 of the weights. Batch norm has groups that
 * micro-batches do not cut.
 */
static void micro_batches_add_up(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; ++i) {
        struct model model = model_of(&models[i]);
        int64_t group = model.batch / (model.batch % 4 == 0 ? 4 : 2);
        int parts = (int)(model.batch / group);
        ull__set_bn_group(model.graph, group);
        assert_int_equal(ull__step_build(model.graph, &clipped_adamw, NULL), ULL_OK);
        struct ref *whole = trained(&model, 1, 2), *split = trained(&model, parts, 2);
        must_agree(model.graph, whole, split, 1e-12, models[i].text);
        ref_destroy(whole);
        ref_destroy(split);
        ull__graph_destroy(model.graph);
    }
}

/* A mean of means is another number: this is what would be if each micro-batch counted its own targets. */
static void the_count_is_the_batch_s(void **state)
{
    struct model model = model_of(&models[0]);
    (void)state;
    assert_int_equal(ull__step_build(model.graph, &clipped_adamw, NULL), ULL_OK);
    struct ref *whole = trained(&model, 1, 1), *split = reference_of(model.graph, 3);
    fill(model.graph, split);
    ref_control(split, "learning_rate", 0.05);
    for (int part = 0; part < 2; ++part) {
        set_inputs(&model, split, 0, 3 * part, 6);
        double *target = ref_data(split, tensor_named(model.graph, "target")), valid = 0;
        for (int i = 0; i < 3; ++i) {
            valid += target[i] != -100;
        }
        ref_control(split, "target_count", valid);
        ref_control(split, "adding", part > 0);
        ref_run(split, ULL_PHASE_MICRO);
    }
    ref_run(split, ULL_PHASE_UPDATE);
    int w = tensor_named(model.graph, "head.weight");
    assert_true(fabs(ref_data(whole, w)[0] - ref_data(split, w)[0]) > 1e-9);
    ref_destroy(whole);
    ref_destroy(split);
    ull__graph_destroy(model.graph);
}

/* --- Passes --- */

/* Consuming each gradient as it comes changes the order of work, and no number. */
static void consumed_gradients_do_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; ++i) {
        struct ref *refs[2];
        struct model two[2];
        for (int consume = 0; consume < 2; ++consume) {
            struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_SGD,
                                                .attrs = {.momentum = 0.9, .weight_decay = 0.01},
                                                .consume = consume == 1};
            two[consume] = model_of(&models[i]);
            assert_int_equal(ull__step_build(two[consume].graph, &options, NULL), ULL_OK);
            refs[consume] = trained(&two[consume], 1, 2);
        }
        for (int t = 0; t < two[0].graph->tensor_count; ++t) {
            int other = tensor_named(two[1].graph, two[0].graph->tensors[t].name);
            if (is_parameter(two[0].graph, t)) {
                assert_memory_equal(ref_data(refs[0], t), ref_data(refs[1], other),
                                    sizeof(double) * (size_t)ref_count(refs[0], t));
            }
        }
        for (int j = 0; j < 2; ++j) {
            ref_destroy(refs[j]);
            ull__graph_destroy(two[j].graph);
        }
    }
}

/* The gradient of the parameter of that name; its rows by `count`. */
static const double *gradient_named(const struct ull__graph *graph, struct ref *ref,
                                    const int *gradient, const char *name)
{
    int tensor = tensor_named(graph, name);
    return gradient[tensor] != ULL_NONE ? ref_data(ref, gradient[tensor]) : NULL;
}

/* In f64 a cast changes nothing, so a graph of mixed precision or with a loss in turns gives the same gradients. */
static void check_same(const struct model_case *of,
                       struct ull__graph *(*pass)(const struct ull__graph *))
{
    struct model plain = model_of(of), other = plain;
    other.graph = pass(plain.graph);
    if (other.graph == NULL) {
        ull__graph_destroy(plain.graph);
        return;
    }
    struct model *both[2] = {&plain, &other};
    struct ref *refs[2];
    int *gradients[2];
    for (int i = 0; i < 2; ++i) {
        struct ull__graph *graph = both[i]->graph;
        gradients[i] = calloc((size_t)graph->tensor_count, sizeof(int));
        ull__differentiate(graph, ULL_NONE, gradients[i], NULL, NULL);
        if (!ull__graph_ok(graph)) {
            fail_msg("%s: %s", of->text, graph->error.message);
        }
        refs[i] = reference_of(graph, of->batch);
        fill(graph, refs[i]);
    }
    set_inputs(&plain, refs[0], 1, 0, of->batch);
    for (int t = 0; t < plain.graph->tensor_count; ++t) {
        int to = tensor_named(other.graph, plain.graph->tensors[t].name);
        if (plain.graph->tensors[t].node == ULL_NONE && plain.graph->tensors[t].name[0] != '\0') {
            memcpy(ref_data(refs[1], to), ref_data(refs[0], t),
                   sizeof(double) * (size_t)ref_count(refs[0], t));
        }
    }
    for (int i = 0; i < 2; ++i) {
        ref_run(refs[i], ULL_PHASE_MICRO);
    }
    double loss = ref_data(refs[0], plain.graph->losses[0])[0];
    assert_true(loss > 0 && fabs(loss - ref_data(refs[1], other.graph->losses[0])[0]) < 1e-13 * loss);
    for (int t = 0; t < plain.graph->tensor_count; ++t) {
        const char *name = plain.graph->tensors[t].name;
        if (!is_parameter(plain.graph, t)) {
            continue;
        }
        const double *a = gradient_named(plain.graph, refs[0], gradients[0], name);
        const double *b = gradient_named(other.graph, refs[1], gradients[1], name);
        assert_true((a == NULL) == (b == NULL));
        for (int64_t i = 0; a != NULL && i < ref_count(refs[0], t); ++i) {
            if (!(fabs(a[i] - b[i]) <= 1e-12 * (1 + fabs(a[i])))) {
                fail_msg("%s: gradient of '%s': %g and %g", of->text, name, a[i], b[i]);
            }
        }
    }
    for (int i = 0; i < 2; ++i) {
        free(gradients[i]);
        ref_destroy(refs[i]);
        ull__graph_destroy(both[i]->graph);
    }
}

static struct ull__graph *mixed(const struct ull__graph *model)
{
    return ull__mixed_precision(model, ULL_TYPE_BF16);
}

static void passes_change_no_number(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; ++i) {
        check_same(&models[i], ull__graph_copy);
        check_same(&models[i], mixed);
        check_same(&models[i], ull__chunk_loss);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(micro_batches_add_up),
        cmocka_unit_test(the_count_is_the_batch_s),
        cmocka_unit_test(consumed_gradients_do_the_same),
        cmocka_unit_test(passes_change_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
