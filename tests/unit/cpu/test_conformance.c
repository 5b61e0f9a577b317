/*
 * test_conformance.c: every kernel of the processor against the reference (tests/reference), on random cases.
 *
 * A case is a graph of one operator, a loss and its gradients; each of its nodes is run by its kernel on what the
 * reference has, and its results are compared with the reference's. Operands lie between guards, results and workspaces
 * are full of NaN before. Every kernel runs twice and must give the same bits.
 *
 * ULLAGE_TEST_CASES says how many of each operator (30, with sanitizers 10), ULLAGE_TEST_SEED where they begin (1),
 * ULLAGE_TEST_OP which operator alone.
 */
#include "check_node.h"
#include "cpu.h"
#include "golden.h"
#include "zoo.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { BACKENDS = 4, CASES = 10, STEPS = 3 };
#else
enum { BACKENDS = 4, CASES = 30, STEPS = 6 };
#endif

static struct ull__backend *backends[BACKENDS];
static const enum ull__type types[] = {ULL_TYPE_F32, ULL_TYPE_F32, ULL_TYPE_BF16, ULL_TYPE_F16};

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void none_is_missing(void)
{
    for (int i = 0; ull__ops[i] != NULL; ++i) {
        if (is_missing[i]) {
            fail_msg("no kernel for some case of %s", ull__ops[i]->name);
        }
    }
}

static void check_case(struct cases *c, uint64_t seed, const char *what)
{
    if (c->has_gradient) {
        cases_lose(c);
    }
    if (!ull__graph_ok(c->graph)) {
        fail_msg("%s: %s", what, c->graph->error.message);
    }
    struct running r = {.backend = backends[seed / 7 % BACKENDS],
                        .c = c,
                        .ref = ref_create(c->graph, c->values),
                        .what = what};
    uint8_t *layouts = calloc((size_t)c->graph->tensor_count + 1, 1);
    if (seed % 2 == 0) {
        assert_int_equal(r.backend->ops->layouts(r.backend, c->graph, c->values, layouts, NULL),
                         ULL_OK);
        r.layouts = layouts;
    }
    cases_fill(c, r.ref);
    for (r.node = 0; r.node < c->graph->node_count; ++r.node) {
        check_node(&r, seed % 3 == 0);
    }
    ref_destroy(r.ref);
    free(layouts);
}

static void kernels_give_what_the_reference_gives(void **state)
{
    uint64_t cases = number("ULLAGE_TEST_CASES", CASES), first = number("ULLAGE_TEST_SEED", 1);
    const char *only = getenv("ULLAGE_TEST_OP");
    (void)state;
    for (int i = 0; ull__ops[i] != NULL; ++i) {
        const struct ull__op *op = ull__ops[i];
        for (uint64_t seed = first; seed < first + cases; ++seed) {
            struct cases c;
            if ((only != NULL && strcmp(only, op->name) != 0) ||
                !cases_create(&c, op, seed, types[seed / 3 % 4], seed % 5 == 0)) {
                break;
            }
            char what[64];
            snprintf(what, sizeof(what), "%s, seed %llu", op->name, (unsigned long long)seed);
            check_case(&c, seed, what);
            cases_finish(&c);
        }
    }
    none_is_missing();
}

/* Something that is no number, or too large for one, in each floating input of the operator. */
static void poison(const struct cases *c, struct ref *ref, uint64_t seed)
{
    static const double values[] = {NAN, INFINITY, -INFINITY};
    const struct ull__node *node = &c->graph->nodes[0];
    for (int i = 0; i < node->input_count; ++i) {
        int tensor = node->inputs[i];
        bool floats = tensor != ULL_NONE && ull__type_is_float(c->graph->tensors[tensor].type) &&
                      c->graph->tensors[tensor].rank > 0 && ref_count(ref, tensor) > 0;
        if (floats && (i == 0 || seed % 2 == 0)) {
            uint64_t at = seed * 7919 % (uint64_t)ref_count(ref, tensor);
            ref_data(ref, tensor)[at] = values[seed / 2 % 3];
        }
    }
}

/* A loss scale hangs on it: what the definition makes infinite or no number is neither lost nor made up. */
static void what_is_not_finite_stays_so(void **state)
{
    uint64_t cases = number("ULLAGE_TEST_CASES", CASES), first = number("ULLAGE_TEST_SEED", 1);
    const char *only = getenv("ULLAGE_TEST_OP");
    (void)state;
    for (int i = 0; ull__ops[i] != NULL; ++i) {
        for (uint64_t seed = first; seed < first + cases; ++seed) {
            struct cases c;
            if ((only != NULL && strcmp(only, ull__ops[i]->name) != 0) ||
                !cases_create(&c, ull__ops[i], seed, types[seed / 3 % 4], seed % 5 == 0)) {
                break;
            }
            char what[96];
            snprintf(what, sizeof(what), "%s that is not finite, seed %llu", ull__ops[i]->name,
                     (unsigned long long)seed);
            struct running r = {.backend = backends[seed / 7 % BACKENDS],
                                .c = &c,
                                .ref = ref_create(c.graph, c.values),
                                .poisoned = true,
                                .what = what};
            cases_fill(&c, r.ref);
            poison(&c, r.ref, seed);
            check_node(&r, false);
            ref_destroy(r.ref);
            cases_finish(&c);
        }
    }
}

/* --- Steps of whole models, in each precision: which types meet there is the graph's doing --- */

static const struct {
    const char *text;
    int64_t batch, classes;
} models[] = {
    {"mlp:inputs=5,hidden=7,layers=2,classes=4", 6, 4},
    {"lenet:image=28,classes=3", 2, 3},
    {"resnet20:image=8,width=2,classes=3", 4, 3},
    {"gpt-char:context=6,vocab=11,layers=1,width=8,heads=2,dropout=0.2", 4, 11},
    {"vit-b16:image=8,patch=4,layers=1,width=8,heads=2,classes=3", 4, 3},
    {"unet:image=20,width=1,channels=1", 2, 2},
    {"bert-base:context=4,vocab=9,layers=1,width=8,heads=2", 4, 9},
    {"llama:context=5,vocab=9,layers=1,width=12,heads=3,kv_heads=1,hidden=16", 4, 9},
};

static struct ull__graph *step_of(const char *text, enum ull__type type, bool chunked)
{
    struct ull__graph *model, *other = NULL;
    struct ull__step_options options = {.optimizer = type == ULL_TYPE_BF16 ? ULL_OPTIMIZER_SGD
                                                                           : ULL_OPTIMIZER_ADAMW,
                                        .attrs = {.momentum = 0.9,
                                                  .beta1 = 0.9,
                                                  .beta2 = 0.99,
                                                  .epsilon = 1e-4,
                                                  .weight_decay = 0.1,
                                                  .limit = 1},
                                        .accumulate = true,
                                        .loss_scale = type == ULL_TYPE_F16};
    struct ull_error err = {{0}};
    assert_int_equal(ull__zoo_build(text, &model, &err), ULL_OK);
    if (chunked) {
        other = ull__chunk_loss(model);
    }
    if (type != ULL_TYPE_F32) {
        struct ull__graph *mixed = ull__mixed_precision(other != NULL ? other : model, type);
        ull__graph_destroy(other);
        other = mixed;
    }
    if (other != NULL) {
        ull__graph_destroy(model);
        model = other;
    }
    if (ull__step_build(model, &options, &err) != ULL_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    return model;
}

static void fill_model(struct ref *ref, const struct ull__graph *g, int64_t classes)
{
    ref_fill(ref, 1);
    for (int i = 0; i < g->tensor_count; ++i) {
        const struct ull__tensor *of = &g->tensors[i];
        if (of->role == ULL_ROLE_INPUT && of->node == ULL_NONE) {
            int64_t below = strcmp(of->name, "token_type_ids") == 0 ? 2 : classes;
            golden_input(of->name, below, ref_count(ref, i), ref_data(ref, i));
        }
        for (int64_t j = 0; of->node == ULL_NONE && j < ref_count(ref, i); ++j) {
            ref_data(ref, i)[j] = ref_rounded(ref_data(ref, i)[j], of->type);
        }
    }
    ref_control(ref, "target_count", 7);
    ref_control(ref, "learning_rate", 0.125);
    ref_control(ref, "loss_scale", 1024);
    ref_control(ref, "hysteresis_left", 2);
    ref_generator(ref, 5, 6, 7);
}

static void steps_of_models_too(void **state)
{
    (void)state;
    for (size_t i = 0; i < STEPS * sizeof(models) / sizeof(models[0]); ++i) {
        const char *text = models[i / STEPS].text;
        enum ull__type type = types[1 + i % 3];
        struct cases c = {.graph = step_of(text, type, i / 3 % 2 == 0)};
        ull__graph_values(c.graph, models[i / STEPS].batch, c.values);
        struct running r = {.backend = backends[i % BACKENDS],
                            .c = &c,
                            .ref = ref_create(c.graph, c.values),
                            .layouts = calloc((size_t)c.graph->tensor_count + 1, 1),
                            .what = text};
        assert_int_equal(r.backend->ops->layouts(r.backend, c.graph, c.values, r.layouts, NULL),
                         ULL_OK);
        fill_model(r.ref, c.graph, models[i / STEPS].classes);
        for (r.node = 0; r.node < c.graph->node_count; ++r.node) {
            check_node(&r, i % 2 == 0);
        }
        free(r.layouts);
        ref_destroy(r.ref);
        ull__graph_destroy(c.graph);
    }
    none_is_missing();
}

static int setup(void **state)
{
    static const struct ull__cpu_options options[BACKENDS] = {{.threads = 2},
                                                              {.threads = 1, .isa = "avx2"},
                                                              {.threads = 3, .no_libraries = true},
                                                              {.threads = 2, .isa = "base"}};
    (void)state;
    for (int i = 0; i < BACKENDS; ++i) {
        if (ull__cpu_create(&options[i], &backends[i], NULL) != ULL_OK) {
            return 1;
        }
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < BACKENDS; ++i) {
        backends[i]->ops->destroy(backends[i]);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_give_what_the_reference_gives),
        cmocka_unit_test(what_is_not_finite_stays_so),
        cmocka_unit_test(steps_of_models_too),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
