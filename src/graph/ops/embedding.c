/* embedding.c: rows of a table, and their gradient: a table of zeros to which rows are added. */
#include "../ops.h"

static bool is_index(enum ull__type type)
{
    return type == ULL_TYPE_I32 || type == ULL_TYPE_I64;
}

/* Inputs: ids, table. */
static void infer(struct ull__graph *g, int node)
{
    struct ull__tensor ids = *ull__in(g, node, 0), table = *ull__in(g, node, 1);
    if (!is_index(ids.type) || table.rank != 2 || ids.rank + 1 > ULL_RANK) {
        ull__op_fail(g, node, "expected whole numbers and a table of rows");
        return;
    }
    ids.dims[ids.rank] = table.dims[1];
    ull__op_output(g, node, table.type, ids.rank + 1, ids.dims);
}

/* Inputs: ids, dy. attrs.axis.size is the number of rows. */
static void infer_grad(struct ull__graph *g, int node)
{
    const struct ull__tensor *dy = ull__in(g, node, 1);
    ull__dim dims[2] = {g->nodes[node].attrs.axis.size, dy->dims[dy->rank - 1]};
    ull__op_output(g, node, dy->type, 2, dims);
}

/* Only the rows that are asked for are read. */
static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    bool grad = (g->nodes[node].op->flags & ULL_OP_GRADIENT) != 0;
    double ids = ull__in_elements(g, node, 0, values);
    const struct ull__tensor *of = grad ? ull__in(g, node, 1) : ull__in(g, node, 1);
    double width = ull__type_bits(of->type) / 8.0;
    double rows = grad ? ull__in_elements(g, node, 1, values) : ull__out_elements(g, node, 0, values);
    cost->bytes = ids * ull__type_bits(ull__in(g, node, 0)->type) / 8 + 2 * rows * width +
                  (grad ? ull__out_elements(g, node, 0, values) * width : 0);
    cost->flops = grad ? rows : 0;
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    if (wanted[1]) {
        union ull__attrs attrs = {.axis = {.size = g->tensors[of.inputs[1]].dims[0]}};
        dx[1] = ull__graph_apply(g, &ull__op_embedding_grad, &attrs, (int[]){of.inputs[0], dy[0]}, 2);
    }
}

const struct ull__op ull__op_embedding = {
    .name = "embedding",
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

const struct ull__op ull__op_embedding_grad = {
    .name = "embedding_grad",
    .flags = ULL_OP_GRADIENT,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer_grad,
    .cost = cost,
};

int ull__embedding(struct ull__graph *g, int ids, int table)
{
    return ull__graph_apply(g, &ull__op_embedding, NULL, (int[]){ids, table}, 2);
}
