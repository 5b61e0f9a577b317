/*
 * unary.c: element-wise functions of one tensor (ULL_UNARY_MAP) and their gradients.
 *
 * The gradient reads what the list says: the input, the output (which is then all that has to be kept), or
 * nothing.
 */
#include "../ops.h"

static const struct {
    const char *text;
    enum ull__unary_saves saves;
} kinds[] = {
#define X(name, text, saves) {text, ULL_SAVES_##saves},
    ULL_UNARY_MAP(X)
#undef X
};

const char *ull__unary_text(enum ull__unary kind)
{
    return kinds[kind].text;
}

static void infer(struct ull__graph *g, int node)
{
    ull__op_output_like(g, node, g->nodes[node].inputs[0]);
}

/* Operations for an element, roughly: what counts is that they are few beside the traffic. */
static void cost(const struct ull__graph *g, int node, const int64_t *values, struct ull__cost *cost)
{
    int kind = g->nodes[node].attrs.unary.kind;
    bool simple = kind == ULL_UNARY_RELU || kind == ULL_UNARY_NEG || kind == ULL_UNARY_ABS ||
                  kind == ULL_UNARY_IDENTITY || kind == ULL_UNARY_SCALE || kind == ULL_UNARY_CLIP;
    cost->flops = ull__out_elements(g, node, 0, values) * (simple ? 1 : 10);
}

static void gradient(struct ull__graph *g, int node, const int *dy, const bool *wanted, int *dx)
{
    const struct ull__node of = g->nodes[node];
    const struct ull__unary_attrs *attrs = &of.attrs.unary;
    (void)wanted;
    switch (attrs->kind) {
    case ULL_UNARY_IDENTITY:
        dx[0] = dy[0];
        return;
    case ULL_UNARY_NEG:
        dx[0] = ull__unary(g, ULL_UNARY_NEG, dy[0]);
        return;
    case ULL_UNARY_SCALE:
        dx[0] = ull__unary_with(g, ULL_UNARY_SCALE, dy[0], attrs->alpha, 0);
        return;
    default:
        break;
    }
    if (kinds[attrs->kind].saves != ULL_SAVES_NOTHING) {
        int saved = kinds[attrs->kind].saves == ULL_SAVES_INPUT ? of.inputs[0] : of.outputs[0];
        dx[0] = ull__graph_apply(g, &ull__op_unary_grad, &of.attrs, (int[]){dy[0], saved}, 2);
    }
}

const struct ull__op ull__op_unary = {
    .name = "unary",
    .flags = ULL_OP_INPLACE | ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 1,
    .inputs_most = 1,
    .infer = infer,
    .cost = cost,
    .gradient = gradient,
};

/* Inputs: dy, and x or y. */
const struct ull__op ull__op_unary_grad = {
    .name = "unary_grad",
    .flags = ULL_OP_GRADIENT | ULL_OP_INPLACE | ULL_OP_ELEMENTWISE,
    .precision = ULL_PRECISION_FOLLOW,
    .inputs_least = 2,
    .inputs_most = 2,
    .infer = infer,
    .cost = cost,
};

int ull__unary_with(struct ull__graph *g, enum ull__unary kind, int x, double alpha, double beta)
{
    union ull__attrs attrs = {.unary = {.kind = (int)kind, .alpha = alpha, .beta = beta}};
    return ull__graph_apply(g, &ull__op_unary, &attrs, &x, 1);
}

int ull__unary(struct ull__graph *g, enum ull__unary kind, int x)
{
    return ull__unary_with(g, kind, x, 1, 0);
}
