/*
 * test_trainings.c: trainings of small models, as a session runs them in f32 and 16 bits on the processor, against what PyTorch
 * computed in f64 (tests/data/golden): ten losses, and the norm and the sum of each weight and state after them. With plenty of memory,
 * and by plans that need less and less.
 *
 * ULLAGE_TEST_ALL=1 tries every model with every optimizer and precision.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu.h"
#include "golden.h"
#include "session.h"
#include "zoo.h"

static const char *const names[] = {"mlp", "resnet20", "vit", "gpt", "llama"};

enum {
    MODELS = sizeof(names) / sizeof(names[0]),
    PLANS = 3,
    SEED = 1
}; /* plans tried of each model */

/* Every model with every optimizer, or some of them: looking for plans takes long, most of all with sanitizers. */
static bool all(void)
{
    return getenv("ULLAGE_TEST_ALL") != NULL;
}

static bool is_tried(int model)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return all() || model == 0;
#else
    (void)model;
    return true;
#endif
}

static struct ull__backend *backend;

/* A batch as a source of samples. */
struct batch {
    int64_t elements, targets; /* of a sample */
    bool tokens;
    double *x, *y;
};

static uint64_t valid(void *context, int64_t first, int64_t count)
{
    const struct batch *batch = context;
    uint64_t found = 0;
    for (int64_t i = first * batch->targets; i < (first + count) * batch->targets; ++i) {
        found += batch->y[i] != -100;
    }
    return found;
}

static ull_status read(void *context, int64_t first, int64_t count, void *x, int32_t *targets,
                       struct ull_error *err)
{
    const struct batch *batch = context;
    (void)err;
    for (int64_t i = 0; i < count * batch->elements; ++i) {
        double value = batch->x[first * batch->elements + i];
        if (batch->tokens) {
            ((int32_t *)x)[i] = (int32_t)value;
        } else {
            ((float *)x)[i] = (float)value;
        }
    }
    for (int64_t i = 0; i < count * batch->targets; ++i) {
        targets[i] = (int32_t)batch->y[first * batch->targets + i];
    }
    return ULL_OK;
}

static struct batch batch_of(const struct golden *golden, const struct ull__session_info *info)
{
    struct batch batch = {
        .elements = info->sample_elements, .targets = info->sample_targets, .tokens = info->tokens};
    int64_t elements = batch.elements * golden->batch, targets = batch.targets * golden->batch;
    batch.x = calloc((size_t)elements, sizeof(double));
    batch.y = calloc((size_t)targets, sizeof(double));
    golden_input(batch.tokens ? "input_ids" : "input", info->classes, elements, batch.x);
    golden_input("target", info->classes, targets, batch.y);
    return batch;
}

/* What PyTorch began with; 16-bit weights follow. */
static void set_weight(const struct ull__session_tensor *tensor)
{
    size_t elements = tensor->bytes / sizeof(float);
    double *values = calloc(elements + 1, sizeof(*values));
    assert_int_equal(tensor->type, ULL_TYPE_F32);
    golden_parameter(tensor->name, tensor->rank, tensor->dims, values);
    for (size_t j = 0; j < elements; ++j) {
        ((float *)tensor->data)[j] = (float)values[j];
    }
    free(values);
}

static void must_be(const char *what, const char *name, double is, double expected, double most,
                    double tolerance)
{
    if (!(fabs(is - expected) <= tolerance * fmax(most, 0.1))) {
        fail_msg("%s: %s: %.8g, PyTorch has %.8g", what, name, is, expected);
    }
}

static void check_weights(const struct golden *golden, const char *prefix,
                          struct ull__session *session, double tolerance, const char *what)
{
    int count, compared = 0;
    const struct ull__session_tensor *tensors = ull__session_tensors(session, &count);
    for (int i = 0; i < count; ++i) {
        const struct golden_list *list = golden_find(golden, prefix, tensors[i].name);
        if (list == NULL || tensors[i].role == ULL_ROLE_OPTIMIZER) {
            continue;
        }
        size_t elements = tensors[i].bytes / sizeof(float);
        double sums[2] = {0, 0};
        for (size_t j = 0; j < elements; ++j) {
            double value = (double)((const float *)tensors[i].data)[j];
            sums[0] += value * value;
            sums[1] += value;
        }
        must_be(what, tensors[i].name, sqrt(sums[0]), list->values[0], list->values[0], tolerance);
        must_be(what, tensors[i].name, sums[1], list->values[1],
                list->values[0] * sqrt((double)elements), tolerance);
        compared += 1;
    }
    assert_true(compared > 3);
}

struct training {
    const struct golden *golden;
    struct ull__graph *model;
    int optimizer;
    enum ull__precision precision;
    double tolerance;
    int most_parts; /* micro-steps of a step, of the plans that were tried */
};

static struct ull__profile profile(void)
{
    return (struct ull__profile){.name = "test",
                                 .memory_bytes = UINT64_C(1) << 32,
                                 .host_bytes = UINT64_C(1) << 32,
                                 .bytes_per_second = 1e10,
                                 .matrix_per_second = 1e11,
                                 .matrix_half_per_second = 1e11,
                                 .flops_per_second = 1e10,
                                 .link_per_second = 1e10,
                                 .host_bytes_per_second = 1e10,
                                 .launch_seconds = 1e-6,
                                 .bf16 = true,
                                 .f16 = true,
                                 .lean_convolution = 1,
                                 .alignment = 64};
}

static struct ull__session *session_of(const struct training *t, uint64_t budget, double *rate)
{
    struct ull__step_options step;
    struct ull__profile machine = profile();
    struct ull__session *session;
    struct ull_error err = {{0}};
    golden_optimizer(t->optimizer, &step, rate);
    struct ull__session_options options = {.model = t->model,
                                           .backend = backend,
                                           .plan = {.profile = &machine,
                                                    .batch = t->golden->batch,
                                                    .bn_group = t->golden->batch,
                                                    .precision = t->precision,
                                                    .optimizer = step.optimizer,
                                                    .attrs = step.attrs},
                                           .budget_bytes = budget,
                                           .seed = SEED,
                                           .initial_loss_scale = 1024};
    if (!ull__has_bn(t->model)) {
        options.plan.bn_group = 0;
    }
    if (ull__session_create(&options, &session, &err) != ULL_OK) {
        fail_msg("%s: %s", t->golden->model, err.message);
    }
    return session;
}

/* Everything as before the first step. */
static void start_again(struct ull__session *session, const struct ull__session_info *info)
{
    int count;
    const struct ull__session_tensor *tensors = ull__session_tensors(session, &count);
    for (int i = 0; i < count; ++i) {
        if (tensors[i].role == ULL_ROLE_PARAMETER) {
            set_weight(&tensors[i]);
            continue;
        }
        bool is_one = strstr(tensors[i].name, "running_var") != NULL;
        for (size_t j = 0; j < tensors[i].bytes / sizeof(float); ++j) {
            ((float *)tensors[i].data)[j] = is_one ? 1 : 0;
        }
    }
    ull__session_restore(session, 0, info->loss_scale, 0, info->hysteresis_left);
}

/* What the first plan of a kind gave: the others, with the same micro-batch and loss, must give the same bits. */
struct first {
    int64_t micro_batch;
    double losses[GOLDEN_STEPS];
};

static void must_be_first(struct first *first, int64_t micro_batch, const double *losses,
                          const char *what)
{
    if (first->micro_batch == 0) {
        first->micro_batch = micro_batch;
        memcpy(first->losses, losses, sizeof(first->losses));
    }
    for (int i = 0; i < GOLDEN_STEPS && first->micro_batch == micro_batch; ++i) {
        if (first->losses[i] != losses[i]) {
            fail_msg("%s: step %d gives %.9g, another plan gave %.9g", what, i, losses[i],
                     first->losses[i]);
        }
    }
}

/* Ten steps by the plan that the session has. */
static void train(struct training *t, struct ull__session *session, struct first *firsts)
{
    double rate, losses[GOLDEN_STEPS];
    struct ull__session_info info;
    struct ull__step_options step;
    char what[256], prefix[16];
    ull__session_info(session, &info);
    snprintf(prefix, sizeof(prefix), "%s/", golden_optimizer(t->optimizer, &step, &rate));
    snprintf(what, sizeof(what), "%s %s%s, %lld x %lld, %llu bytes", t->golden->model, prefix,
             ull__precision_text(info.chosen->precision), (long long)info.chosen->micro_batch,
             (long long)info.chosen->accumulation, (unsigned long long)info.predicted_peak_bytes);
    struct batch batch = batch_of(t->golden, &info);
    struct ull__source source = {.context = &batch, .valid = valid, .read = read};
    start_again(session, &info);
    int parts = (int)info.chosen->accumulation;
    t->most_parts = parts > t->most_parts ? parts : t->most_parts;
    const struct golden_list *expected = golden_find(t->golden, prefix, "losses");
    for (int i = 0; i < GOLDEN_STEPS; ++i) {
        struct ull__step_result result;
        assert_int_equal(ull__session_step(session, &source, rate, &result, NULL), ULL_OK);
        assert_false(result.skipped);
        must_be(what, "a loss", result.loss, expected->values[i], expected->values[0], t->tolerance);
        losses[i] = result.loss;
    }
    must_be_first(&firsts[info.chosen->chunked_loss], info.chosen->micro_batch, losses, what);
    if (t->tolerance < 1e-3) {
        check_weights(t->golden, prefix, session, t->tolerance, what);
    }
    ull__session_info(session, &info);
    assert_true(info.measured_peak_bytes <= info.predicted_peak_bytes);
    free(batch.x);
    free(batch.y);
}

/* By plans from the one that needs most memory to the one that needs least. */
static void train_by_plans(struct training *t)
{
    double rate;
    struct ull__session *session = session_of(t, UINT64_C(1) << 24, &rate);
    struct ull__session_info info;
    struct first firsts[2] = {{0}}; /* of the loss as one, and in turns */
    int count;
    ull__session_info(session, &info);
    struct ull__planner *planner = (struct ull__planner *)info.planner;
    ull__planner_plans(planner, &count);
    for (int i = 0; i < PLANS; ++i) {
        bool changed;
        int64_t peak = ull__planner_place(planner, (count - 1) * i / (PLANS - 1));
        ull_status status = ull__session_replan(session, (uint64_t)peak, 0, 0, &changed, NULL);
        if (status == ULL_OK) {
            train(t, session, firsts);
        } else {
            assert_true(i > 0 &&
                        status == ULL_E_NO_MEMORY); /* of another kind: it cannot be switched to */
        }
    }
    ull__session_destroy(session);
}

/* Takes the numbers that are expected. Returns in how many micro-batches the batch came at most. */
static int check(struct golden *golden, int optimizer, enum ull__precision precision, double tolerance)
{
    struct training t = {
        .golden = golden, .optimizer = optimizer, .precision = precision, .tolerance = tolerance};
    struct ull_error err = {{0}};
    if (ull__zoo_build(golden->model, &t.model, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    train_by_plans(&t);
    ull__graph_destroy(t.model);
    golden_close(golden);
    return t.most_parts;
}

static void check_model(const char *name, int optimizer, enum ull__precision precision,
                        double tolerance)
{
    check(golden_open(GOLDEN_FOLDER, name), optimizer, precision, tolerance);
}

/* --- Where PyTorch has no numbers: dropout is our own --- */

static void add_list(struct golden *golden, const char *prefix, const char *name,
                     const double *values, int64_t count)
{
    size_t lists = (size_t)golden->count + 1;
    golden->lists = realloc(golden->lists, lists * sizeof(*golden->lists));
    assert_non_null(golden->lists);
    struct golden_list *list = &golden->lists[golden->count++];
    *list = (struct golden_list){.count = count, .values = calloc((size_t)count, sizeof(double))};
    snprintf(list->name, sizeof(list->name), "%s%s", prefix, name);
    memcpy(list->values, values, (size_t)count * sizeof(*values));
}

static bool is_source(const struct ull__graph *graph, int tensor, enum ull__role role)
{
    return graph->tensors[tensor].role == role && graph->tensors[tensor].node == ULL_NONE;
}

static void begin_reference(struct ref *ref, const struct ull__graph *graph)
{
    int logits = graph->outputs[0];
    int64_t classes = ref_size(ref, logits, graph->tensors[logits].rank - 1);
    ref_fill(ref, 1);
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        int64_t dims[ULL_RANK], valid = 0;
        for (int j = 0; j < tensor->rank; ++j) {
            dims[j] = ref_size(ref, i, j);
        }
        if (is_source(graph, i, ULL_ROLE_PARAMETER)) {
            golden_parameter(tensor->name, tensor->rank, dims, ref_data(ref, i));
        } else if (is_source(graph, i, ULL_ROLE_INPUT)) {
            golden_input(tensor->name, classes, ref_count(ref, i), ref_data(ref, i));
            for (int64_t j = 0; j < ref_count(ref, i); ++j) {
                valid += ref_data(ref, i)[j] != -100;
            }
            if (strcmp(tensor->name, "target") == 0) {
                ref_control(ref, "target_count", (double)valid);
            }
        }
    }
}

/* The norm and the sum of each parameter and state. */
static void add_sums(struct golden *golden, const char *prefix, struct ref *ref,
                     const struct ull__graph *graph)
{
    for (int i = 0; i < graph->tensor_count; ++i) {
        double sums[2] = {0, 0};
        for (int64_t j = 0; j < ref_count(ref, i); ++j) {
            sums[0] += ref_data(ref, i)[j] * ref_data(ref, i)[j];
            sums[1] += ref_data(ref, i)[j];
        }
        sums[0] = sqrt(sums[0]);
        if (is_source(graph, i, ULL_ROLE_PARAMETER) || is_source(graph, i, ULL_ROLE_STATE)) {
            add_list(golden, prefix, graph->tensors[i].name, sums, 2);
        }
    }
}

/* What the reference gives for ten steps, as the files of PyTorch's numbers have it. */
static struct golden *computed(const char *model, int64_t batch, int optimizer)
{
    struct golden *golden = calloc(1, sizeof(*golden));
    struct ull__step_options options;
    struct ull__graph *graph;
    int64_t values[ULL_SYMBOLS];
    double rate, losses[GOLDEN_STEPS];
    char prefix[16];
    snprintf(golden->model, sizeof(golden->model), "%s", model);
    snprintf(prefix, sizeof(prefix), "%s/", golden_optimizer(optimizer, &options, &rate));
    golden->batch = batch;
    assert_int_equal(ull__zoo_build(model, &graph, NULL), ULL_OK);
    assert_int_equal(ull__step_build(graph, &options, NULL), ULL_OK);
    ull__graph_values(graph, batch, values);
    struct ref *ref = ref_create(graph, values);
    begin_reference(ref, graph);
    ref_control(ref, "learning_rate", rate);
    for (int i = 0; i < GOLDEN_STEPS; ++i) {
        ref_generator(ref, SEED, i, 0);
        ref_run(ref, ULL_PHASE_MICRO);
        losses[i] = ref_data(ref, graph->losses[0])[0];
        ref_run(ref, ULL_PHASE_UPDATE);
    }
    add_list(golden, prefix, "losses", losses, GOLDEN_STEPS);
    add_sums(golden, prefix, ref, graph);
    ref_destroy(ref);
    ull__graph_destroy(graph);
    return golden;
}

/* Dropout draws alike in each plan and in the reference, in whichever micro-batches the batch comes. */
static void trainings_are_the_reference_s(void **state)
{
    (void)state;
    static const char gpt[] = "gpt-char:context=7,vocab=11,layers=1,width=12,heads=3,dropout=0.2";
    assert_true(check(computed(gpt, 4, 2), 2, ULL_PRECISION_F32, 1e-4) > 1);
    if (all()) {
        check(computed("unet:image=33,width=2,channels=1", 4, 0), 0, ULL_PRECISION_F32, 1e-4);
        check(computed("lenet:image=28,classes=3", 4, 0), 0, ULL_PRECISION_F32, 1e-4);
    }
}

static void trainings_are_pytorch_s(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; ++i) {
        for (int optimizer = 0; optimizer < GOLDEN_OPTIMIZERS; ++optimizer) {
            if (all() || (is_tried(i) && optimizer == i % GOLDEN_OPTIMIZERS)) {
                check_model(names[i], optimizer, ULL_PRECISION_F32, 1e-4);
            }
        }
    }
}

/* Ten steps in 16 bits stay near. */
static void half_precision_stays_near(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; ++i) {
        if (all() || (is_tried(i) && i == 3)) {
            check_model(names[i], i % GOLDEN_OPTIMIZERS, ULL_PRECISION_BF16, 0.1);
        }
        if (all() || (is_tried(i) && i == 1)) {
            check_model(names[i], (i + 1) % GOLDEN_OPTIMIZERS, ULL_PRECISION_F16, 0.06);
        }
    }
}

static int setup(void **state)
{
    (void)state;
    return ull__cpu_create(&(struct ull__cpu_options){.threads = 2}, &backend, NULL) != ULL_OK;
}

static int teardown(void **state)
{
    (void)state;
    backend->ops->destroy(backend);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trainings_are_pytorch_s),
        cmocka_unit_test(half_precision_stays_near),
        cmocka_unit_test(trainings_are_the_reference_s),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
