/*
 * test_kernels.c: what random cases of a few elements do not reach (test_conformance.c): sizes over the blocks of kernels, the
 * same bits with any number of threads, state that is not written twice, targets and ids out of range.
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
#include "reference.h"
#include "type.h"

enum { OPERANDS = 12 };

/* Results of all nodes of a graph, by tensor, as they lie in memory. */
struct results {
    const struct ull__graph *graph;
    void *bytes[64];
};

static int64_t sizes[ULL_SYMBOLS];

static double value_of(int tensor, int64_t i)
{
    return (double)((i * 7919 + tensor * 131) % 1009) / 504.5 - 1;
}

/* Inputs are the same numbers in every run; whole ones count up to `limit`. */
static void *input(const struct ull__graph *g, int tensor, int64_t limit)
{
    int64_t count = ull__tensor_elements(g, tensor, sizes);
    double *values = calloc((size_t)count + 1, sizeof(*values));
    void *bytes = calloc(1, (size_t)ull__tensor_bytes(g, tensor, sizes) + 64);
    assert_true(values != NULL && bytes != NULL);
    for (int64_t i = 0; i < count; ++i) {
        bool real = ull__type_is_float(g->tensors[tensor].type);
        values[i] = real ? value_of(tensor, i) : (double)(i * 31 % limit);
    }
    ref_encode(g->tensors[tensor].type, values, bytes, count);
    free(values);
    return bytes;
}

static void run_node(struct results *r, struct ull__backend *backend, int at, bool again)
{
    const struct ull__graph *g = r->graph;
    const struct ull__node *node = &g->nodes[at];
    struct ull__selecting what = {.graph = g, .node = at, .values = sizes, .most_workspace = ULL_NONE};
    struct ull__selection selection;
    struct ull__kernel *kernel;
    void *in[OPERANDS] = {NULL}, *out[OPERANDS] = {NULL};
    assert_int_equal(backend->ops->select(backend, &what, &selection, NULL), ULL_OK);
    assert_int_equal(backend->ops->compile(backend, &what, &kernel, NULL), ULL_OK);
    for (int i = 0; i < node->input_count; ++i) {
        in[i] = node->inputs[i] != ULL_NONE ? r->bytes[node->inputs[i]] : NULL;
    }
    for (int i = 0; i < node->output_count; ++i) {
        int tensor = node->outputs[i], alias = g->tensors[tensor].alias;
        if (r->bytes[tensor] == NULL && alias != ULL_NONE) {
            r->bytes[tensor] = r->bytes[alias];
        } else if (r->bytes[tensor] == NULL) {
            r->bytes[tensor] = calloc(1, (size_t)ull__tensor_bytes(g, tensor, sizes) + 64);
        }
        bool state = g->tensors[tensor].writes;
        out[i] = again && state ? NULL : r->bytes[tensor];
    }
    void *workspace = NULL;
    assert_int_equal(posix_memalign(&workspace, 64, (size_t)selection.workspace + 64), 0);
    memset(workspace, 0xff, (size_t)selection.workspace);
    struct ull__launch launch = {.inputs = in, .outputs = out, .workspace = workspace};
    backend->ops->enqueue(backend, node->queue, kernel, &launch);
    assert_int_equal(backend->ops->synchronize(backend, NULL), ULL_OK);
    backend->ops->release(backend, kernel);
    free(workspace);
}

static struct results run_graph(const struct ull__graph *g, int threads, int64_t limit)
{
    struct results r = {.graph = g};
    struct ull__backend *backend;
    struct ull__cpu_options options = {.threads = threads};
    assert_int_equal(ull__cpu_create(&options, &backend, NULL), ULL_OK);
    assert_true(g->tensor_count <= 64);
    for (int i = 0; i < g->tensor_count; ++i) {
        r.bytes[i] = g->tensors[i].node == ULL_NONE ? input(g, i, limit) : NULL;
    }
    for (int i = 0; i < g->node_count; ++i) {
        run_node(&r, backend, i, false);
    }
    backend->ops->destroy(backend);
    return r;
}

static void free_results(struct results *r)
{
    for (int i = 0; i < r->graph->tensor_count; ++i) {
        if (r->graph->tensors[i].alias == ULL_NONE) {
            free(r->bytes[i]);
        }
    }
}

/*
 * All that nodes make against the reference, then with one and with three threads against each other: the same bits, but
 * where products of matrices are cut differently for more threads.
 */
static void check(struct ull__graph *g, int64_t limit, double tolerance, bool same_bits)
{
    ull__graph_values(g, 3, sizes);
    assert_true(ull__graph_ok(g));
    struct results one = run_graph(g, 1, limit), three = run_graph(g, 3, limit);
    struct ref *ref = ref_create(g, sizes);
    for (int i = 0; i < g->tensor_count; ++i) {
        if (g->tensors[i].node == ULL_NONE) {
            void *bytes = input(g, i, limit);
            ref_decode(g->tensors[i].type, bytes, ref_data(ref, i), ref_count(ref, i));
            free(bytes);
        }
    }
    for (int i = 0; i < g->node_count; ++i) {
        ref_node(ref, i);
    }
    for (int i = 0; i < g->tensor_count; ++i) {
        int64_t count = ref_count(ref, i);
        size_t bytes = (size_t)ull__tensor_bytes(g, i, sizes);
        double *got = calloc((size_t)count + 1, sizeof(*got)), most = 1;
        ref_decode(g->tensors[i].type, one.bytes[i], got, count);
        for (int64_t j = 0; j < count; ++j) {
            most = fmax(most, fabs(ref_data(ref, i)[j]));
        }
        for (int64_t j = 0; j < count; ++j) {
            double off = fabs(got[j] - ref_data(ref, i)[j]);
            if (!(off <= tolerance * most)) {
                fail_msg("%s, tensor %d, element %lld: %.9g, expected %.9g",
                         g->tensors[i].node != ULL_NONE ? g->nodes[g->tensors[i].node].op->name : "",
                         i, (long long)j, got[j], ref_data(ref, i)[j]);
            }
        }
        if (same_bits) {
            assert_memory_equal(one.bytes[i], three.bytes[i], bytes);
        }
        free(got);
    }
    ref_destroy(ref);
    free_results(&one);
    free_results(&three);
    ull__graph_destroy(g);
}

/* A value and its gradient, which is a tensor like it. */
static int real(struct ull__graph *g, int rank, const ull__dim *dims)
{
    return ull__graph_input(g, "x", ULL_TYPE_F32, rank, dims);
}

static void attention_over_several_blocks(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; ++kind) {
        struct ull__graph *g = ull__graph_create();
        struct ull__attention_attrs attrs = {.heads = 2,
                                             .kv_heads = 1,
                                             .causal = kind != 1,
                                             .window = kind == 2 ? 90 : 0,
                                             .dropout = kind == 1 ? 0.3 : 0,
                                             .key = 5};
        int q = real(g, 3, (ull__dim[]){1, 150, 2 * 12}), k = real(g, 3, (ull__dim[]){1, 280, 12});
        int v = real(g, 3, (ull__dim[]){1, 280, 12}), d = real(g, 3, (ull__dim[]){1, 150, 2 * 12});
        int mask = kind == 1 ? real(g, 2, (ull__dim[]){150, 280}) : ULL_NONE;
        int generator = kind == 1 ? ull__graph_generator(g) : ULL_NONE;
        union ull__attrs all = {.attention = attrs};
        int o = ull__graph_apply(g, &ull__op_attention, &all, (int[]){q, k, v, mask, generator}, 5);
        int log_sums = ull__graph_output(g, o, 1);
        ull__graph_node(g, &ull__op_attention_grad, &all,
                        (int[]){q, k, v, mask, o, log_sums, d, generator}, 8);
        check(g, 100, 1e-5, true);
    }
}

static void losses_over_several_blocks(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; ++kind) {
        struct ull__graph *g = ull__graph_create();
        union ull__attrs attrs = {.loss = {.ignored = 7,
                                           .smoothing = kind == 1 ? 0.1 : 0,
                                           .chunk = kind == 0   ? 0
                                                    : kind == 1 ? 20
                                                                : 140}};
        int x = real(g, 2, (ull__dim[]){300, 9}), w = real(g, 2, (ull__dim[]){1100, 9});
        int targets = ull__graph_input(g, "y", ULL_TYPE_I64, 1, (ull__dim[]){300});
        int loss =
            ull__graph_apply(g, &ull__op_linear_cross_entropy, &attrs, (int[]){x, w, targets}, 3);
        int log_sums = ull__graph_output(g, loss, 1), one = real(g, 0, NULL);
        ull__graph_node(g, &ull__op_linear_cross_entropy_grad, &attrs,
                        (int[]){x, w, targets, log_sums, one}, 5);
        int logits = real(g, 2, (ull__dim[]){300, 2100});
        loss = ull__cross_entropy(g, logits, targets, ULL_NONE, attrs.loss);
        log_sums = ull__graph_output(g, loss, 1);
        ull__graph_apply(g, &ull__op_cross_entropy_grad, &attrs,
                         (int[]){logits, targets, log_sums, one}, 4);
        check(g, 1100, 1e-5, false);
    }
}

static void norms_of_wide_rows(void **state)
{
    (void)state;
    struct ull__graph *g = ull__graph_create();
    ull__dim wide = 2100, dims[2] = {70, wide};
    int x = real(g, 2, dims), d = real(g, 2, dims), scale = real(g, 1, &wide),
        shift = real(g, 1, &wide);
    int y = ull__layer_norm(g, x, scale, shift, 1, 1e-5);
    union ull__attrs attrs = {.norm = {.axis = 1, .epsilon = 1e-5}};
    ull__graph_node(g, &ull__op_layer_norm_grad, &attrs,
                    (int[]){d, x, scale, ull__graph_output(g, y, 1), ull__graph_output(g, y, 2)}, 5);
    ull__softmax(g, x, 1);
    ull__softmax(g, x, 0);
    ull__reduce(g, ULL_REDUCE_SUM, x, 1, false);
    ull__reduce(g, ULL_REDUCE_MAX, x, 3, false);
    ull__transpose(g, x, (int[]){1, 0});
    int mean = ull__graph_state(g, "mean", 1, &wide, ULL_INIT_ZERO);
    int var = ull__graph_state(g, "var", 1, &wide, ULL_INIT_ONE);
    struct ull__norm_attrs norm = {.epsilon = 1e-2, .momentum = 0.1, .group = 40, .training = true};
    y = ull__batch_norm(g, x, scale, shift, mean, var, norm);
    ull__graph_node(g, &ull__op_batch_norm_grad, &(union ull__attrs){.norm = norm},
                    (int[]){d, x, scale, ull__graph_output(g, y, 1), ull__graph_output(g, y, 2)}, 5);
    check(g, 100, 2e-5, true);
}

/* A million numbers whose sum is small beside them. */
static void long_sums_stay_exact(void **state)
{
    (void)state;
    struct ull__graph *g = ull__graph_create();
    int x = real(g, 2, (ull__dim[]){1 << 14, 64});
    ull__reduce(g, ULL_REDUCE_SUM, x, 1, false);
    ull__reduce(g, ULL_REDUCE_SUM_SQUARE, x, 3, false);
    ull__graph_apply(g, &ull__op_norm_square, NULL, (int[]){x, x}, 2);
    check(g, 100, 3e-6, true);
}

/* The second run of a node is a recomputation: it gives the same and leaves the running statistics alone. */
static void statistics_are_committed_once(void **state)
{
    struct ull__graph *g = ull__graph_create();
    ull__dim dims[2] = {8, 5};
    int x = real(g, 2, dims), scale = real(g, 1, dims + 1), shift = real(g, 1, dims + 1);
    int mean = ull__graph_state(g, "mean", 1, dims + 1, ULL_INIT_ZERO);
    int var = ull__graph_state(g, "var", 1, dims + 1, ULL_INIT_ONE);
    struct ull__norm_attrs norm = {.epsilon = 1e-2, .momentum = 0.1, .training = true};
    int y = ull__batch_norm(g, x, scale, shift, mean, var, norm);
    struct ull__backend *backend;
    (void)state;
    ull__graph_values(g, 1, sizes);
    struct results r = run_graph(g, 1, 100);
    float before[40], running[5], after[40];
    memcpy(before, r.bytes[y], sizeof(before));
    memcpy(running, r.bytes[mean], sizeof(running));
    memset(r.bytes[y], 0, sizeof(before));
    assert_int_equal(ull__cpu_create(&(struct ull__cpu_options){.threads = 2}, &backend, NULL),
                     ULL_OK);
    run_node(&r, backend, 0, true);
    memcpy(after, r.bytes[y], sizeof(after));
    assert_memory_equal(before, after, sizeof(before));
    assert_memory_equal(running, r.bytes[mean], sizeof(running));
    backend->ops->destroy(backend);
    free_results(&r);
    ull__graph_destroy(g);
}

/* Targets and ids that are not there: NaN where they belong, nothing else touched. */
static void what_is_out_of_range_is_seen(void **state)
{
    struct ull__graph *g = ull__graph_create();
    struct ull__loss_attrs attrs = {.ignored = -100};
    int logits = real(g, 2, (ull__dim[]){4, 3}), table = real(g, 2, (ull__dim[]){3, 2});
    int targets = ull__graph_input(g, "y", ULL_TYPE_I32, 1, (ull__dim[]){4});
    int loss = ull__cross_entropy(g, logits, targets, ULL_NONE, attrs);
    int rows = ull__embedding(g, targets, table), one = real(g, 0, NULL);
    int slope = ull__graph_apply(g, &ull__op_cross_entropy_grad, &(union ull__attrs){.loss = attrs},
                                 (int[]){logits, targets, ull__graph_output(g, loss, 1), one}, 4);
    union ull__attrs size = {.axis = {.size = 3}};
    int grad = ull__graph_apply(g, &ull__op_embedding_grad, &size, (int[]){targets, rows}, 2);
    (void)state;
    ull__graph_values(g, 1, sizes);
    /* Counted by 31 up to 40: 0, 31, 22, 13. */
    struct results r = run_graph(g, 2, 40);
    assert_true(isnan(*(float *)r.bytes[loss]));
    for (int i = 0; i < 12; ++i) {
        assert_true(isnan(((float *)r.bytes[slope])[i]) == (i >= 3));
    }
    for (int i = 0; i < 8; ++i) {
        assert_true(isnan(((float *)r.bytes[rows])[i]) == (i >= 2));
    }
    for (int i = 0; i < 6; ++i) {
        assert_float_equal(((float *)r.bytes[grad])[i], i < 2 ? ((float *)r.bytes[rows])[i] : 0, 0);
    }
    free_results(&r);
    ull__graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_over_several_blocks),
        cmocka_unit_test(losses_over_several_blocks),
        cmocka_unit_test(norms_of_wide_rows),
        cmocka_unit_test(long_sums_stay_exact),
        cmocka_unit_test(statistics_are_committed_once),
        cmocka_unit_test(what_is_out_of_range_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
