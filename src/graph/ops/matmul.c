/*
 * matmul.c: products of matrices, batched over leading dimensions that are broadcast.
 *
 * The gradient of a matrix that all batches share is one product over all rows, not a product for each batch
 * and a sum: what that would need is as large as batches times the matrix.
 */
#include "../ops.h"

static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor a = *ull__in(g, node, 0), b = *ull__in(g, node, 1);
    const struct ull__matmul_attrs *attrs = &g->nodes[node].attrs.matmul;
    if (a.rank < 2 || b.rank < 2) {
        ull__op_fail(g, node, "expected at least two dimensions each");
        return;
    }
    ull__dim rows = a.dims[a.rank - (attrs->transpose_a ? 1 : 2)];
    ull__dim inner_a = a.dims[a.rank - (attrs->transpose_a ? 2 : 1)];
    ull__dim inner_b = b.dims[b.rank - (attrs->transpose_b ? 1 : 2)];
    ull__dim columns = b.dims[b.rank - (attrs->transpose_b ? 2 : 1)];
    int rank;
    ull__dim dims[ULL_RANK];
    if (!ull__dim_may_equal(g->symbols, inner_a, inner_b) ||
        !ull__dims_broadcast(g, a.rank - 2, a.dims, b.rank - 2, b.dims, &rank, dims)) {
        ull__op_fail(g, node, "the matrices do not fit%s%s",
                     attrs->transpose_a ? ", the first one transposed" : "",
                     attrs->transpose_b ? ", the second one transposed" : "");
        return;
    }
    dims[rank] = rows;
    dims[rank + 1] = columns;
    bool full = attrs->full && ull__type_is_half(a.type);
    ull__op_output(g, node, full ? ULL_TYPE_F32 : a.type, rank + 2, dims);
}

static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    const struct ull__tensor *a = ull__in(g, node, 0);
    int inner = a->rank - (g->nodes[node].attrs.matmul.transpose_a ? 2 : 1);
    cost->matrix_flops = 2 * ull__out_elements(g, node, 0, values) *
                         (double)ull__dim_value(g->symbols, a->dims[inner], values);
}

static int product(struct ull__graph *g, int a, int b, bool transpose_a, bool transpose_b)
{
    union ull__attrs attrs = {.matmul = {.transpose_a = transpose_a, .transpose_b = transpose_b}};
    return ull__graph_apply(g, &ull__op_matmul, &attrs, (int[]){a, b}, 2);
}

/* [n, t, d] as [n*t, d]. */
static int rows_of(struct ull__graph *g, int x)
{
    struct ull__tensor of = g->tensors[x];
    if (of.rank == 2) {
        return x;
    }
    ull__dim dims[2] = {ull__dims_product(g, of.rank - 1, of.dims), of.dims[of.rank - 1]};
    return ull__reshape(g, x, 2, dims);
}

/* The gradient may be f32 where the operands are not (logits): products want both alike. */
static int alike(struct ull__graph *g, int dy, int with)
{
    return ull__cast(g, dy, g->tensors[with].type);
}

static void gradient(struct ull__graph *g, int node, const int *dys, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    int a = of.inputs[0], b = of.inputs[1], dy = alike(g, dys[0], a);
    bool ta = of.attrs.matmul.transpose_a, tb = of.attrs.matmul.transpose_b;
    if (!ull__graph_ok(g)) {
        return;
    }
    if (wanted[0]) {
        int da = ta ? product(g, b, dy, tb, true) : product(g, dy, b, false, !tb);
        dx[0] = ull__op_sum_to(g, da, a);
    }
    if (wanted[1] && g->tensors[b].rank == 2 && !ta) {
        int rows = rows_of(g, a), dy_rows = rows_of(g, dy);
        dx[1] = tb ? product(g, dy_rows, rows, true, false) : product(g, rows, dy_rows, true, false);
    } else if (wanted[1]) {
        int db = tb ? product(g, dy, a, true, ta) : product(g, a, dy, !ta, false);
        dx[1] = ull__op_sum_to(g, db, b);
    }
}

const struct ull__op ull__op_matmul = {
    .name = "matmul",
    .precision = ULL_PRECISION_HALF,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

int ull__matmul(struct ull__graph *g, int a, int b, bool transpose_a, bool transpose_b)
{
    return product(g, a, b, transpose_a, transpose_b);
}

int ull__linear(struct ull__graph *g, int x, int w, int b)
{
    int y = product(g, x, w, false, true);
    return b == ULL_NONE || y == ULL_NONE ? y : ull__bias(g, y, b, g->tensors[y].rank - 1);
}
