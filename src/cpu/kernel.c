/* kernel.c: from a node to what is run. See kernels.h. */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "kernels.h"

#define X(isa) extern const struct ull__cpu_op *const ull__cpu_ops_##isa[];
X(base)
#ifdef ULL_CPU_AVX512
X(avx2)
X(avx512)
#endif
#undef X

const struct ull__cpu_op *const *ull__cpu_best(const char *most, const char **isa)
{
    (void)most;
#ifdef ULL_CPU_AVX512
    bool any = most == NULL || strcmp(most, "avx512") == 0, avx2 = any || strcmp(most, "avx2") == 0;
    if (any && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        *isa = "avx512";
        return ull__cpu_ops_avx512;
    }
    if (avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        *isa = "avx2";
        return ull__cpu_ops_avx2;
    }
#endif
    *isa = "base";
    return ull__cpu_ops_base;
}

const struct ull__cpu_op *ull__cpu_find(const struct ull__cpu_op *const *ops, const struct ull__op *op)
{
    for (; *ops != NULL; ++ops) {
        if ((*ops)->op == op) {
            return *ops;
        }
    }
    return NULL;
}

static bool number(const struct ull__graph *graph, const int64_t *values, ull__dim *dim)
{
    *dim = ull__dim_value(graph->symbols, *dim, values);
    return *dim != ULL_DIM_BAD;
}

static bool all(const struct ull__graph *graph, const int64_t *values, ull__dim *dims, int count)
{
    bool fine = true;
    for (int i = 0; i < count; ++i) {
        fine = number(graph, values, &dims[i]) && fine;
    }
    return fine;
}

/* Which member of attrs an operator reads decides which sizes are in it. */
static bool numbers(const struct ull__graph *graph, const int64_t *values, const struct ull__op *op,
                    union ull__attrs *attrs)
{
    static const struct ull__op *const windows[] = {
        &ull__op_conv2d,
        &ull__op_conv2d_grad_input,
        &ull__op_conv2d_grad_weight,
        &ull__op_conv_transpose2d,
        &ull__op_max_pool,
        &ull__op_max_pool_grad,
        &ull__op_avg_pool,
        &ull__op_avg_pool_grad,
        &ull__op_upsample_nearest,
        &ull__op_upsample_nearest_grad,
    };
    static const struct ull__op *const axes[] = {
        &ull__op_bias,   &ull__op_concat,      &ull__op_split,      &ull__op_slice,
        &ull__op_gather, &ull__op_gather_grad, &ull__op_slice_grad, &ull__op_embedding_grad,
    };
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); ++i) {
        if (op == windows[i]) {
            return all(graph, values, attrs->window.size, 2);
        }
    }
    for (size_t i = 0; i < sizeof(axes) / sizeof(axes[0]); ++i) {
        if (op == axes[i]) {
            return all(graph, values, attrs->axis.sizes, attrs->axis.count) &&
                   number(graph, values, &attrs->axis.begin) &&
                   number(graph, values, &attrs->axis.size);
        }
    }
    if (op == &ull__op_reduce || op == &ull__op_reduce_grad) {
        return all(graph, values, attrs->reduce.dims, attrs->reduce.rank);
    }
    if (op == &ull__op_expand || op == &ull__op_transpose) {
        return all(graph, values, attrs->shape.dims, attrs->shape.rank);
    }
    if (op == &ull__op_pad) {
        return all(graph, values, attrs->pad.before, attrs->pad.rank) &&
               all(graph, values, attrs->pad.after, attrs->pad.rank);
    }
    return true;
}

static bool resolve(const struct ull__selecting *what, int tensor, struct ull__cpu_operand *operand)
{
    if (tensor == ULL_NONE) {
        return true;
    }
    const struct ull__tensor *of = &what->graph->tensors[tensor];
    *operand = (struct ull__cpu_operand){
        .there = true,
        .type = of->type,
        .layout = what->layouts != NULL ? (enum ull__tensor_layout)what->layouts[tensor]
                                        : ULL_LAYOUT_ROWS,
        .rank = of->rank};
    for (int i = 0; i < of->rank; ++i) {
        operand->dims[i] = ull__dim_value(what->graph->symbols, of->dims[i], what->values);
    }
    operand->elements = ull__tensor_elements(what->graph, tensor, what->values);
    int64_t bytes = ull__tensor_bytes(what->graph, tensor, what->values);
    operand->bytes = (size_t)bytes;
    return operand->elements >= 0 && bytes >= 0;
}

static ull_status fill(const struct ull__selecting *what, struct ull__kernel *kernel,
                       struct ull_error *err)
{
    const struct ull__node *node = &what->graph->nodes[what->node];
    bool fine = numbers(what->graph, what->values, node->op, &kernel->attrs);
    for (int i = 0; i < node->input_count; ++i) {
        fine = resolve(what, node->inputs[i], &kernel->inputs[i]) && fine;
    }
    for (int i = 0; i < node->output_count; ++i) {
        fine = resolve(what, node->outputs[i], &kernel->outputs[i]) && fine;
    }
    return fine ? ULL_OK
                : ull__fail(err, ULL_E_INVALID,
                            "%s (node %d): a size that is larger than there can be", node->op->name,
                            what->node);
}

ull_status ull__kernel_create(const struct ull__selecting *what, const struct ull__cpu_op *const *ops,
                              const struct ull__cpu_library *library, int threads,
                              struct ull__kernel **kernel, struct ull_error *err)
{
    const struct ull__node *node = &what->graph->nodes[what->node];
    const struct ull__cpu_op *run_by = ull__cpu_find(ops, node->op);
    if (run_by == NULL) {
        return ull__fail(err, ULL_E_NOT_FOUND, "the processor has no kernel for %s (node %d)",
                         node->op->name, what->node);
    }
    size_t count = (size_t)node->input_count + (size_t)node->output_count;
    struct ull__kernel *made = calloc(1, sizeof(*made) + (count + 1) * sizeof(*made->inputs));
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a kernel of %s", node->op->name);
    }
    made->inputs = (struct ull__cpu_operand *)(made + 1);
    made->outputs = made->inputs + node->input_count;
    made->input_count = node->input_count;
    made->output_count = node->output_count;
    made->op = node->op;
    made->run_by = run_by;
    made->attrs = node->attrs;
    made->threads = threads;
    made->algorithm = "loops";
    ull_status status = fill(what, made, err);
    if (status == ULL_OK && run_by->prepare != NULL) {
        status = run_by->prepare(made, library, err);
    }
    if (status == ULL_OK && what->most_workspace != ULL_NONE &&
        made->workspace > what->most_workspace) {
        status = ull__fail(err, ULL_E_NOT_FOUND,
                           "%s (node %d) needs a workspace of %lld bytes, %lld are allowed",
                           node->op->name, what->node, (long long)made->workspace,
                           (long long)what->most_workspace);
    }
    if (status != ULL_OK) {
        ull__kernel_destroy(made);
        return status;
    }
    *kernel = made;
    return ULL_OK;
}

void ull__kernel_destroy(struct ull__kernel *kernel)
{
    if (kernel != NULL && kernel->run_by->finish != NULL) {
        kernel->run_by->finish(kernel);
    }
    free(kernel);
}
