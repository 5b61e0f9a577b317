/* cases_elements.c: random cases of element-wise operators, reductions, and of what moves elements. */
#include <string.h>

#include "cases.h"

static void build_unary(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 0, 4, dims), kind = (int)cases_below(c, ULL_UNARIES);
    enum fill fill = kind == ULL_UNARY_LOG || kind == ULL_UNARY_SQRT || kind == ULL_UNARY_RSQRT ||
                             kind == ULL_UNARY_POW
                         ? FILL_POSITIVE
                     : kind == ULL_UNARY_RECIPROCAL ? FILL_AWAY
                                                    : FILL_GRID;
    static const double first[] = {0.5, -0.5, 2, 1, 0.1};
    double alpha = first[cases_below(c, 5)], beta = 0.5;
    if (kind == ULL_UNARY_CLIP) {
        alpha = -1;
        beta = cases_coin(c) ? 0.5 : -0.5;
    }
    if (kind == ULL_UNARY_NOT) {
        int x = cases_input(c, ULL_TYPE_BOOL, rank, dims, FILL_BOOL, 0);
        ull__unary(c->graph, ULL_UNARY_NOT, x);
        c->has_gradient = false;
        return;
    }
    int x = cases_real(c, rank, dims, fill);
    cases_result(c, ull__unary_with(c->graph, (enum ull__unary)kind, x, alpha, beta));
}

/* A shape that is broadcast to `whole`. */
static int part_of(struct cases *c, int rank, const ull__dim *whole, ull__dim *dims)
{
    int first = cases_coin(c) ? 0 : (int)cases_below(c, rank + 1);
    for (int i = first; i < rank; ++i) {
        dims[i - first] = cases_below(c, 3) == 0 ? 1 : whole[i];
    }
    return rank - first;
}

static void build_binary(struct cases *c)
{
    ull__dim whole[ULL_RANK], a[ULL_RANK], b[ULL_RANK];
    int rank = cases_dims(c, 0, 4, whole), kind = (int)cases_below(c, ULL_BINARIES);
    int rank_a = part_of(c, rank, whole, a), rank_b = part_of(c, rank, whole, b);
    if (kind >= ULL_BINARY_EQUAL) {
        bool truth = kind >= ULL_BINARY_AND;
        enum ull__type type = truth ? ULL_TYPE_BOOL : cases_coin(c) ? ULL_TYPE_I64 : c->type;
        enum fill fill = truth ? FILL_BOOL : FILL_INDEX;
        int x = cases_input(c, type, rank_a, a, fill, 3),
            y = cases_input(c, type, rank_b, b, fill, 3);
        ull__binary(c->graph, (enum ull__binary)kind, x, y);
        c->has_gradient = false;
        return;
    }
    int x = cases_real(c, rank_a, a, kind == ULL_BINARY_POW ? FILL_POSITIVE : FILL_GRID);
    int y = cases_real(c, rank_b, b, kind == ULL_BINARY_DIV ? FILL_AWAY : FILL_OTHER);
    if (cases_below(c, 4) == 0) {
        c->graph->tensors[cases_coin(c) ? x : y].role = ULL_ROLE_INPUT;
    } else if (cases_below(c, 8) == 0 && kind != ULL_BINARY_MIN && kind != ULL_BINARY_MAX) {
        y = x;
    }
    cases_result(c, ull__binary(c->graph, (enum ull__binary)kind, x, y));
}

static void build_where(struct cases *c)
{
    ull__dim whole[ULL_RANK], dims[ULL_RANK];
    int rank = cases_dims(c, 0, 4, whole), of_condition = part_of(c, rank, whole, dims);
    int condition = cases_input(c, ULL_TYPE_BOOL, of_condition, dims, FILL_BOOL, 0);
    int rank_a = part_of(c, rank, whole, dims), a = cases_real(c, rank_a, dims, FILL_GRID);
    int rank_b = part_of(c, rank, whole, dims), b = cases_real(c, rank_b, dims, FILL_GRID);
    cases_result(c, ull__where(c->graph, condition, a, b));
}

static void build_reduce(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int kind = (int)cases_below(c, ULL_REDUCES);
    c->large =
        c->large && kind != ULL_REDUCE_MAX && kind != ULL_REDUCE_MIN && kind != ULL_REDUCE_PROD;
    int rank = cases_dims(c, 0, 4, dims);
    uint32_t axes = (uint32_t)cases_below(c, 1 << rank);
    bool sums = kind == ULL_REDUCE_SUM || kind == ULL_REDUCE_SUM_SQUARE || kind == ULL_REDUCE_L1;
    for (int i = 0; i < rank; ++i) {
        if (!sums && dims[i] == 0) {
            dims[i] = 2; /* a mean or a maximum of nothing is no number */
        }
        if (!sums && !ull__dim_is_const(dims[i])) {
            dims[i] = 3;
        }
    }
    int x = kind == ULL_REDUCE_MEAN ? cases_real(c, rank, dims, FILL_DISTINCT)
                                    : cases_single(c, rank, dims, FILL_DISTINCT);
    cases_result(c, ull__reduce(c->graph, (enum ull__reduce)kind, x, axes, cases_coin(c)));
}

static void build_reshape(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 1, 4, dims), x = cases_real(c, rank, dims, FILL_GRID);
    int y = cases_coin(c) ? ull__flatten(c->graph, x, (int)cases_below(c, rank))
                          : ull__reshape(c->graph, x, 2, (ull__dim[]){1, ULL_NONE});
    cases_result(c, y);
}

static void build_transpose(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 1, 5, dims), x = cases_real(c, rank, dims, FILL_GRID), order[ULL_RANK];
    for (int i = 0; i < rank; ++i) {
        int at = (int)cases_below(c, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    cases_result(c, ull__transpose(c->graph, x, order));
}

static void build_expand(struct cases *c)
{
    ull__dim whole[ULL_RANK], dims[ULL_RANK];
    int rank = cases_dims(c, 0, 4, whole), of_x = part_of(c, rank, whole, dims);
    int x = cases_real(c, of_x, dims, FILL_GRID);
    cases_result(c, ull__expand(c->graph, x, rank, whole));
}

static void build_concat(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 1, 4, dims), axis = (int)cases_below(c, rank);
    int parts[5], count = 1 + (int)cases_below(c, 5);
    for (int i = 0; i < count; ++i) {
        dims[axis] = cases_below(c, 4);
        parts[i] =
            i > 0 && cases_below(c, 4) == 0 ? parts[i - 1] : cases_real(c, rank, dims, FILL_GRID);
    }
    cases_result(c, ull__concat(c->graph, parts, count, axis));
}

/* Not every part counts for the loss. */
static void build_split(struct cases *c)
{
    ull__dim dims[ULL_RANK], sizes[5], sum = 0;
    int rank = cases_dims(c, 1, 4, dims), axis = (int)cases_below(c, rank);
    int count = 1 + (int)cases_below(c, 5);
    for (int i = 0; i < count; ++i) {
        sizes[i] = cases_below(c, 4);
        sum += sizes[i];
    }
    for (int i = 0; i < axis && cases_coin(c); ++i) {
        dims[i] = 1;
    }
    dims[axis] = sum;
    int x = cases_real(c, rank, dims, FILL_GRID);
    int y = ull__split(c->graph, x, axis, count, sizes), always = (int)cases_below(c, count);
    for (int i = 0; i < count && y != ULL_NONE; ++i) {
        if (i == always || cases_coin(c)) {
            cases_result(c, ull__graph_output(c->graph, y, i));
        }
    }
}

static void build_slice(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 1, 4, dims), axis = (int)cases_below(c, rank);
    int64_t whole = 1 + cases_below(c, 6), begin = cases_below(c, whole);
    int step = 1 + (int)cases_below(c, 3);
    step = cases_below(c, 4) == 0 ? -step : cases_coin(c) ? 1 : step;
    int64_t room = step > 0 ? (whole - 1 - begin) / step + 1 : begin / -step + 1;
    for (int i = 0; i < axis && cases_coin(c); ++i) {
        dims[i] = 1;
    }
    dims[axis] = whole;
    int x = cases_real(c, rank, dims, FILL_GRID);
    cases_result(c, ull__slice(c->graph, x, axis, begin, cases_below(c, room + 1), step));
}

static void build_pad(struct cases *c)
{
    ull__dim dims[ULL_RANK], before[ULL_RANK], after[ULL_RANK];
    int rank = cases_dims(c, 1, 4, dims);
    for (int i = 0; i < rank; ++i) {
        before[i] = cases_below(c, 3);
        after[i] = cases_below(c, 3);
    }
    int x = cases_real(c, rank, dims, FILL_GRID);
    cases_result(c, ull__pad(c->graph, x, before, after, cases_coin(c) ? 0 : 0.5));
}

static void build_cast(struct cases *c)
{
    static const enum ull__type types[] = {ULL_TYPE_F32, ULL_TYPE_F16, ULL_TYPE_BF16};
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 0, 3, dims), x = cases_real(c, rank, dims, FILL_GRID);
    enum ull__type to = types[cases_below(c, 3)];
    to = to != c->type ? to : c->type == ULL_TYPE_F32 ? ULL_TYPE_BF16 : ULL_TYPE_F32;
    cases_result(c, ull__cast(c->graph, x, to));
}

static void build_dropout(struct cases *c)
{
    static const double rates[] = {0.1, 0.5, 0.9, 0.25};
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 0, 4, dims), x = cases_real(c, rank, dims, FILL_GRID);
    cases_result(c, ull__dropout(c->graph, x, rates[cases_below(c, 4)]));
}

const struct cases_builder cases_elements[] = {
    {&ull__op_unary, build_unary},     {&ull__op_binary, build_binary},
    {&ull__op_where, build_where},     {&ull__op_reduce, build_reduce},
    {&ull__op_reshape, build_reshape}, {&ull__op_transpose, build_transpose},
    {&ull__op_expand, build_expand},   {&ull__op_concat, build_concat},
    {&ull__op_split, build_split},     {&ull__op_slice, build_slice},
    {&ull__op_pad, build_pad},         {&ull__op_cast, build_cast},
    {&ull__op_dropout, build_dropout}, {NULL, NULL},
};
