/* cases_sequences.c: random cases of norms over rows, products, attention, tables and losses. */
#include <string.h>

#include "cases.h"

static void build_layer_norm(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 1, 4, dims), axis = (int)cases_below(c, rank);
    int x = cases_real(c, rank, dims, FILL_GRID);
    int scale = cases_single(c, rank - axis, dims + axis, FILL_GRID);
    int shift = cases_coin(c) ? cases_single(c, rank - axis, dims + axis, FILL_GRID) : ULL_NONE;
    cases_result(c, ull__layer_norm(c->graph, x, scale, shift, axis, cases_coin(c) ? 0.01 : 0.1));
}

static void build_rms_norm(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 1, 4, dims);
    int x = cases_real(c, rank, dims, FILL_GRID);
    int scale = cases_single(c, 1, dims + rank - 1, FILL_GRID);
    cases_result(c, ull__rms_norm(c->graph, x, scale, cases_coin(c) ? 0.01 : 0.1));
}

/* Leading dimensions of which some are 1, and some are missing. */
static int leading(struct cases *c, int rank, const ull__dim *whole, ull__dim *dims)
{
    int first = cases_coin(c) ? 0 : (int)cases_below(c, rank + 1);
    for (int i = first; i < rank; ++i) {
        dims[i - first] = cases_below(c, 4) == 0 ? 1 : whole[i];
    }
    return rank - first;
}

static void build_matmul(struct cases *c)
{
    ull__dim whole[ULL_RANK], a[ULL_RANK], b[ULL_RANK];
    int rank = cases_dims(c, 0, c->large ? 1 : 3, whole);
    if (rank > 0 && c->large) {
        whole[0] = 1 + cases_below(c, 3);
    }
    int rank_a = leading(c, rank, whole, a), rank_b = leading(c, rank, whole, b);
    bool ta = cases_coin(c), tb = cases_coin(c);
    ull__dim rows = cases_below(c, 4) == 0 ? c->graph->batch : cases_size(c, 5, 100);
    ull__dim inner = cases_size(c, 6, 100), columns = cases_size(c, 5, 100);
    inner = cases_below(c, 24) == 0 ? 0 : inner;
    a[rank_a] = ta ? inner : rows;
    a[rank_a + 1] = ta ? rows : inner;
    b[rank_b] = tb ? columns : inner;
    b[rank_b + 1] = tb ? inner : columns;
    int of_a = cases_real(c, rank_a + 2, a, FILL_GRID),
        of_b = cases_real(c, rank_b + 2, b, FILL_GRID);
    cases_result(c, ull__matmul(c->graph, of_a, of_b, ta, tb));
}

static void build_bias(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 1, 4, dims), axis = (int)cases_below(c, rank);
    int x = cases_real(c, rank, dims, FILL_GRID);
    int b = cases_single(c, 1, dims + axis, FILL_GRID);
    cases_result(c, ull__bias(c->graph, x, b, axis));
}

static void build_softmax(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 1, 4, dims), x = cases_single(c, rank, dims, FILL_GRID);
    cases_result(c, ull__softmax(c->graph, x, (int)cases_below(c, rank)));
}

static void build_log_softmax(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 1, 4, dims), x = cases_single(c, rank, dims, FILL_GRID);
    cases_result(c, ull__log_softmax(c->graph, x, (int)cases_below(c, rank)));
}

/* Broadcast to [samples, heads, queries, keys]. */
static int mask_of(struct cases *c, const ull__dim *whole)
{
    ull__dim dims[4];
    int rank = leading(c, 4, whole, dims);
    return cases_input(c, ULL_TYPE_F32, rank, dims, cases_coin(c) ? FILL_MASK : FILL_GRID, 0);
}

static void build_attention(struct cases *c)
{
    static const double dropouts[] = {0, 0, 0.25, 0.5};
    int kv = 1 + (int)cases_below(c, 2), heads = kv * (1 + (int)cases_below(c, 3));
    int64_t width = cases_size(c, 4, 40), form = cases_below(c, 3);
    ull__dim n = cases_coin(c) ? c->graph->batch : 1 + cases_below(c, 2), t = cases_size(c, 5, 70);
    ull__dim s = form == 2 || cases_coin(c) ? t : cases_size(c, 5, 70);
    struct ull__attention_attrs attrs = {.heads = heads,
                                         .kv_heads = kv,
                                         .causal = cases_coin(c),
                                         .window = cases_coin(c) ? 0 : cases_size(c, 4, 50),
                                         .scale = cases_coin(c) ? 0 : 0.3,
                                         .dropout = dropouts[cases_below(c, 4)]};
    int q, k = ULL_NONE, v = ULL_NONE;
    if (form == 0) {
        q = cases_real(c, 3, (ull__dim[]){n, t, heads * width}, FILL_GRID);
        k = cases_real(c, 3, (ull__dim[]){n, s, kv * width}, FILL_GRID);
        v = cases_real(c, 3, (ull__dim[]){n, s, kv * width}, FILL_GRID);
    } else if (form == 1) {
        q = cases_real(c, 4, (ull__dim[]){n, heads, t, width}, FILL_GRID);
        k = cases_real(c, 4, (ull__dim[]){n, kv, s, width}, FILL_GRID);
        v = cases_real(c, 4, (ull__dim[]){n, kv, s, width}, FILL_GRID);
    } else {
        q = cases_real(c, 3, (ull__dim[]){n, t, (heads + 2 * kv) * width}, FILL_GRID);
    }
    int mask = cases_coin(c) ? ULL_NONE : mask_of(c, (ull__dim[]){n, heads, t, s});
    cases_result(c, ull__attention(c->graph, q, k, v, mask, attrs));
}

static void build_rotary(struct cases *c)
{
    int heads = 1 + (int)cases_below(c, 3), half = (int)cases_size(c, 3, 20);
    ull__dim dims[3] = {cases_coin(c) ? c->graph->batch : 2, cases_size(c, 4, 30), 2 * half * heads};
    struct ull__rotary_attrs attrs = {.base = cases_coin(c) ? 10000 : 100,
                                      .turned =
                                          cases_coin(c) ? 0 : 2 * (1 + (int)cases_below(c, half)),
                                      .inverse = cases_below(c, 4) == 0,
                                      .interleaved = cases_coin(c)};
    cases_result(c, ull__rotary(c->graph, cases_real(c, 3, dims, FILL_GRID), heads, attrs));
}

static enum ull__type index_type(struct cases *c)
{
    return cases_coin(c) ? ULL_TYPE_I32 : ULL_TYPE_I64;
}

static void build_embedding(struct cases *c)
{
    ull__dim dims[ULL_RANK], table[2] = {cases_size(c, 5, 50), cases_size(c, 4, 70)};
    int rank = cases_dims(c, 0, c->large ? 1 : 3, dims);
    int ids = cases_input(c, index_type(c), rank, dims, FILL_INDEX, (double)table[0]);
    cases_result(c, ull__embedding(c->graph, ids, cases_real(c, 2, table, FILL_GRID)));
}

static void build_gather(struct cases *c)
{
    ull__dim dims[ULL_RANK], of_index[ULL_RANK];
    int rank = cases_dims(c, 1, 4, dims), axis = (int)cases_below(c, rank);
    dims[axis] = 1 + cases_below(c, 4);
    int x = cases_real(c, rank, dims, FILL_GRID),
        rank_index = cases_dims(c, 0, c->large ? 1 : 2, of_index);
    int index = cases_input(c, index_type(c), rank_index, of_index, FILL_INDEX, (double)dims[axis]);
    cases_result(c, ull__gather(c->graph, x, index, axis));
}

static int count_of(struct cases *c)
{
    return cases_coin(c) ? ULL_NONE : cases_input(c, ULL_TYPE_F32, 0, NULL, FILL_VALUE, 7);
}

static struct ull__loss_attrs loss_of(struct cases *c)
{
    return (struct ull__loss_attrs){.ignored = -100,
                                    .smoothing = cases_coin(c) ? 0 : 0.1,
                                    .chunk = cases_below(c, c->large ? 64 : 4)};
}

static void build_cross_entropy(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 1, 4, dims);
    dims[rank - 1] = cases_size(c, 6, 100);
    int x = cases_single(c, rank, dims, FILL_GRID);
    int targets = cases_input(c, index_type(c), rank - 1, dims, FILL_TARGET, (double)dims[rank - 1]);
    int count = count_of(c);
    cases_result(c, ull__cross_entropy(c->graph, x, targets, count, loss_of(c)));
}

static void build_linear_cross_entropy(struct cases *c)
{
    ull__dim dims[ULL_RANK], w[2] = {cases_size(c, 6, 100), cases_size(c, 4, 70)};
    int rank = cases_dims(c, 2, c->large ? 2 : 3, dims);
    dims[rank - 1] = w[1];
    int x = cases_real(c, rank, dims, FILL_GRID), of_w = cases_real(c, 2, w, FILL_GRID);
    int targets = cases_input(c, index_type(c), rank - 1, dims, FILL_TARGET, (double)w[0]);
    int count = count_of(c);
    cases_result(c, ull__linear_cross_entropy(c->graph, x, of_w, targets, count, loss_of(c)));
}

static void build_mse(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 0, 3, dims);
    int x = cases_single(c, rank, dims, FILL_GRID), y = cases_single(c, rank, dims, FILL_OTHER);
    int count = count_of(c);
    cases_result(c, ull__mse(c->graph, x, y, count));
}

const struct cases_builder cases_sequences[] = {
    {&ull__op_layer_norm, build_layer_norm},
    {&ull__op_rms_norm, build_rms_norm},
    {&ull__op_matmul, build_matmul},
    {&ull__op_bias, build_bias},
    {&ull__op_softmax, build_softmax},
    {&ull__op_log_softmax, build_log_softmax},
    {&ull__op_attention, build_attention},
    {&ull__op_rotary, build_rotary},
    {&ull__op_embedding, build_embedding},
    {&ull__op_gather, build_gather},
    {&ull__op_cross_entropy, build_cross_entropy},
    {&ull__op_linear_cross_entropy, build_linear_cross_entropy},
    {&ull__op_mse, build_mse},
    {NULL, NULL},
};
