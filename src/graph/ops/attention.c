/*
 * attention.c: softmax(q k' * scale + mask) v in one, causal, full or over a sliding window, with grouped keys; and
 * its gradient, which makes the products again from q, k and the logarithms of the sums.
 *
 * Source: FlashAttention-2 (Dao, 2023): what has to be kept is linear in the length of the sequence.
 */
#include "../ops.h"

struct shape {
    ull__dim samples, queries, keys;
    ull__dim width; /* of a head */
    int rank;       /* 3: time before heads; 4: heads before time */
    bool packed;
};

static bool read_shape(struct ull__graph *g, int node, struct shape *shape)
{
    const struct ull__attention_attrs *attrs = &g->nodes[node].attrs.attention;
    const struct ull__tensor *q = ull__in(g, node, 0);
    shape->packed = !ull__has_in(g, node, 1);
    shape->rank = q->rank;
    shape->samples = q->dims[0];
    if (attrs->heads < 1 || attrs->kv_heads < 1 || attrs->heads % attrs->kv_heads != 0) {
        ull__op_fail(g, node, "%d heads do not share %d heads of keys", attrs->heads,
                     attrs->kv_heads);
        return false;
    }
    if (q->rank == 4 && !shape->packed) {
        shape->queries = q->dims[2];
        shape->width = q->dims[3];
        shape->keys = ull__in(g, node, 1)->dims[2];
    } else if (q->rank == 3) {
        int heads = shape->packed ? attrs->heads + 2 * attrs->kv_heads : attrs->heads;
        if (ull__dim_is_const(q->dims[2]) && q->dims[2] % heads != 0) {
            ull__op_fail(g, node, "the width is not that of %d equal heads", heads);
            return false;
        }
        shape->queries = q->dims[1];
        shape->width = ull__dim_div(g->symbols, q->dims[2], heads);
        shape->keys = shape->packed ? q->dims[1] : ull__in(g, node, 1)->dims[1];
    } else {
        ull__op_fail(g, node, "expected three or four dimensions");
        return false;
    }
    return true;
}

/* Keys and values have the shapes that those of the queries ask for. */
static bool keys_fit(struct ull__graph *g, int node, const struct shape *shape)
{
    const struct ull__attention_attrs *attrs = &g->nodes[node].attrs.attention;
    for (int i = 1; i < 3 && !shape->packed; ++i) {
        const struct ull__tensor *of = ull__in(g, node, i);
        ull__dim all = ull__dim_mul(g->symbols, shape->width, attrs->kv_heads);
        bool fits =
            of->rank == shape->rank && ull__dim_may_equal(g->symbols, of->dims[0], shape->samples);
        if (fits && shape->rank == 3) {
            fits = ull__dim_may_equal(g->symbols, of->dims[1], shape->keys) &&
                   ull__dim_may_equal(g->symbols, of->dims[2], all);
        } else if (fits) {
            fits = ull__dim_may_equal(g->symbols, of->dims[1], attrs->kv_heads) &&
                   ull__dim_may_equal(g->symbols, of->dims[2], shape->keys) &&
                   ull__dim_may_equal(g->symbols, of->dims[3], shape->width);
        }
        if (!fits) {
            ull__op_fail(g, node, "%s do not fit the queries", i == 1 ? "keys" : "values");
            return false;
        }
    }
    return true;
}

/* Inputs: q, k, v, mask, the generator where probabilities are dropped. */
static void infer(struct ull__graph *g, int node)
{
    struct shape shape;
    if (!read_shape(g, node, &shape) || !keys_fit(g, node, &shape)) {
        return;
    }
    const struct ull__attention_attrs attrs = g->nodes[node].attrs.attention;
    struct ull__tensor q = *ull__in(g, node, 0);
    if (!(attrs.dropout >= 0 && attrs.dropout < 1) ||
        (attrs.dropout > 0 && !ull__has_in(g, node, 4))) {
        ull__op_fail(g, node, "dropout %g: expected 0 up to 1, and a generator", attrs.dropout);
        return;
    }
    if (shape.packed) {
        q.dims[2] = ull__dim_mul(g->symbols, shape.width, attrs.heads);
    }
    ull__op_output(g, node, q.type, q.rank, q.dims);
    ull__op_output(g, node, ULL_TYPE_F32, 3, (ull__dim[]){shape.samples, attrs.heads, shape.queries});
}

/* Inputs: q, k, v, mask, o, logarithms, do, the generator. Outputs: of q, k and v, or of the packed one. */
static void infer_grad(struct ull__graph *g, int node)
{
    for (int i = 0; i < 3; ++i) {
        if (ull__has_in(g, node, i)) {
            ull__op_output_like(g, node, g->nodes[node].inputs[i]);
        }
    }
}

/* Two products each way forward, five in the gradient; half of them under a causal mask. */
static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    const struct ull__node *of = &g->nodes[node];
    const struct ull__attention_attrs *attrs = &of->attrs.attention;
    const struct ull__tensor *q = ull__in(g, node, 0);
    bool packed = !ull__has_in(g, node, 1), grad = of->op == &ull__op_attention_grad;
    int time = q->rank == 4 ? 2 : 1;
    double queries = (double)ull__dim_value(g->symbols, q->dims[time], values);
    double keys = packed
                      ? queries
                      : (double)ull__dim_value(g->symbols, ull__in(g, node, 1)->dims[time], values);
    double seen = attrs->window > 0 && (double)attrs->window < keys ? (double)attrs->window : keys;
    if (attrs->causal && seen == keys) {
        seen = keys / 2;
    }
    double elements = ull__in_elements(g, node, 0, values);
    if (packed) {
        elements *= (double)attrs->heads / (attrs->heads + 2 * attrs->kv_heads);
    }
    cost->matrix_flops = elements * seen * 2 * (grad ? 5 : 2);
    cost->flops = elements > 0 ? elements * 2 : 0;
}

/* The gradient's sum over dy * o for each query, and the queries' gradient in f32. */
static int64_t workspace(const struct ull__graph *g, int node, const int64_t *values)
{
    const struct ull__node *of = &g->nodes[node];
    int64_t sums = ull__tensor_bytes(g, of->inputs[5], values);
    int64_t queries = ull__tensor_elements(g, of->inputs[4], values), bytes;
    if (sums < 0 || queries < 0 || __builtin_mul_overflow(queries, 4, &bytes)) {
        return ULL_DIM_BAD;
    }
    return sums + (ull__type_is_half(g->tensors[of->inputs[4]].type) ? bytes : 0);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    if (of.input_count > 3 && wanted[3]) {
        ull__op_fail(g, node, "no gradient is defined for the mask");
        return;
    }
    bool drops = ull__has_in(g, node, 4);
    int inputs[8] = {ULL_NONE,      ULL_NONE,      ULL_NONE, ULL_NONE,
                     of.outputs[0], of.outputs[1], dy[0],    drops ? of.inputs[4] : ULL_NONE};
    for (int i = 0; i < of.input_count && i < 4; ++i) {
        inputs[i] = of.inputs[i];
    }
    int grad = ull__graph_node(g, &ull__op_attention_grad, &of.attrs, inputs, drops ? 8 : 7);
    for (int i = 0; grad != ULL_NONE && i < g->nodes[grad].output_count; ++i) {
        dx[i] = g->nodes[grad].outputs[i];
    }
}

const struct ull__op ull__op_attention = {
    .name = "attention",
    .flags = ULL_OP_RANDOM,
    .precision = ULL_PRECISION_HALF,
    .inputs_least = 1,
    .inputs_most = 5,
    .keeps = 1u << 3 | 1u << 4,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

const struct ull__op ull__op_attention_grad = {
    .name = "attention_grad",
    .flags = ULL_OP_GRADIENT | ULL_OP_RANDOM,
    .precision = ULL_PRECISION_HALF,
    .inputs_least = 1,
    .inputs_most = 8,
    .infer = infer_grad,
    .cost = cost,
    .workspace = workspace,
};

int ull__attention(struct ull__graph *g, int q, int k, int v, int mask,
                   struct ull__attention_attrs attrs)
{
    int generator = ULL_NONE, count = mask != ULL_NONE ? 4 : k != ULL_NONE ? 3 : 1;
    if (attrs.dropout > 0) {
        attrs.key = (uint32_t)g->node_count;
        generator = ull__graph_generator(g);
        count = 5;
    }
    return ull__graph_apply(g, &ull__op_attention, &(union ull__attrs){.attention = attrs},
                            (int[]){q, k, v, mask, generator}, count);
}
