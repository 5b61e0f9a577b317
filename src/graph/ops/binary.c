/* binary.c: element-wise functions of two tensors that are broadcast to each other, and their gradients. */
#include "../ops.h"

static const char *const texts[] = {
#define X(name, text) text,
    ULL_BINARY_MAP(X)
#undef X
};

const char *ull__binary_text(enum ull__binary kind)
{
    return texts[kind];
}

static bool is_comparison(int kind)
{
    return kind >= ULL_BINARY_EQUAL;
}

static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor a = *ull__in(g, node, 0), b = *ull__in(g, node, 1);
    int rank;
    ull__dim dims[ULL_RANK];
    if (!ull__dims_broadcast(g, a.rank, a.dims, b.rank, b.dims, &rank, dims)) {
        ull__op_fail(g, node, "the shapes of %s do not fit", texts[g->nodes[node].attrs.binary.kind]);
        return;
    }
    /* A scalar beside a tensor takes the tensor's type. */
    enum ull__type type = a.rank == 0 && b.rank > 0 ? b.type : a.type;
    if (a.type != b.type && a.rank > 0 && b.rank > 0 && ull__type_is_float(a.type) &&
        a.type != ULL_TYPE_F64) {
        type = ULL_TYPE_F32;
    }
    ull__op_output(g, node, is_comparison(g->nodes[node].attrs.binary.kind) ? ULL_TYPE_BOOL : type,
                   rank, dims);
}

/* Inputs: a, b, dy. Outputs: of a and of b, in the shape of dy. */
static void infer_grad(struct ull__graph *g, int node)
{
    ull__op_output_like(g, node, g->nodes[node].inputs[2]);
    ull__op_output_like(g, node, g->nodes[node].inputs[2]);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    int a = of.inputs[0], b = of.inputs[1], kind = of.attrs.binary.kind;
    int da = ULL_NONE, db = ULL_NONE;
    if (kind == ULL_BINARY_ADD || kind == ULL_BINARY_SUB) {
        da = dy[0];
        db = kind == ULL_BINARY_ADD || !wanted[1] ? dy[0] : ull__unary(g, ULL_UNARY_NEG, dy[0]);
    } else if (kind == ULL_BINARY_MUL) {
        da = wanted[0] ? ull__binary(g, ULL_BINARY_MUL, dy[0], b) : ULL_NONE;
        db = wanted[1] ? ull__binary(g, ULL_BINARY_MUL, dy[0], a) : ULL_NONE;
    } else if (kind == ULL_BINARY_DIV && !wanted[1]) {
        da = ull__binary(g, ULL_BINARY_DIV, dy[0], b);
    } else if (!is_comparison(kind)) {
        int grad = ull__graph_node(g, &ull__op_binary_grad, &of.attrs, (int[]){a, b, dy[0]}, 3);
        if (grad != ULL_NONE) {
            da = g->nodes[grad].outputs[0];
            db = g->nodes[grad].outputs[1];
        }
    }
    dx[0] = wanted[0] ? ull__op_sum_to(g, da, a) : ULL_NONE;
    dx[1] = wanted[1] ? ull__op_sum_to(g, db, b) : ULL_NONE;
}

const struct ull__op ull__op_binary = {
    .name = "binary",
    .flags = ULL_OP_INPLACE | ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer,
    .gradient = gradient,
};

const struct ull__op ull__op_binary_grad = {
    .name = "binary_grad",
    .flags = ULL_OP_GRADIENT | ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 3,
    .inputs_most = 3,
    .infer = infer_grad,
};

int ull__binary(struct ull__graph *g, enum ull__binary kind, int a, int b)
{
    union ull__attrs attrs = {.binary = {.kind = (int)kind}};
    return ull__graph_apply(g, &ull__op_binary, &attrs, (int[]){a, b}, 2);
}
