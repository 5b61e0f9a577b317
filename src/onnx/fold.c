/*
 * fold.c: operators on elements that are known when the model is read: the sizes that exporters compute step by step,
 * masks and tables. Whole numbers may hold symbols; reals are rounded as their type is.
 */
#include <math.h>
#include <string.h>

#include "onnx_private.h"

void strides_of(int rank, const ull__dim *dims, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
        strides[i] = stride;
        stride *= dims[i]; /* of a tensor whose elements were counted */
    }
}

int64_t cells_count(int rank, const ull__dim *dims)
{
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) {
        if (!ull__dim_is_const(dims[i]) || dims[i] < 0 ||
            __builtin_mul_overflow(count, dims[i], &count) || count > CELLS_OF_ONE) {
            return -1;
        }
    }
    return count;
}

/* Goes over all places of a shape in rows, and says where they are in other tensors. */
struct walk {
    int rank;
    int64_t index[ULL_RANK], dims[ULL_RANK];
};

static void walk_init(struct walk *walk, int rank, const ull__dim *dims)
{
    *walk = (struct walk){.rank = rank};
    for (int i = 0; i < rank; ++i) {
        walk->dims[i] = dims[i];
    }
}

/* The next place; adds to up to three offsets. */
static void walk_next(struct walk *walk, const int64_t *const strides[], int64_t *at, int tensors)
{
    for (int i = walk->rank - 1; i >= 0; --i) {
        walk->index[i] += 1;
        for (int j = 0; j < tensors; ++j) {
            at[j] += strides[j][i];
        }
        if (walk->index[i] < walk->dims[i]) {
            return;
        }
        for (int j = 0; j < tensors; ++j) {
            at[j] -= strides[j][i] * walk->dims[i];
        }
        walk->index[i] = 0;
    }
}

bool fold_move(const struct call *call, struct value *from, int64_t base, int rank,
               const ull__dim *dims, const int64_t *strides)
{
    int64_t count = cells_count(rank, dims), at[1] = {base};
    if (count < 0 || !value_cells(call->reader, from)) {
        return false;
    }
    union cell *cells = cells_new(call->reader, count);
    if (cells == NULL) {
        return false;
    }
    struct walk walk;
    walk_init(&walk, rank, dims);
    const int64_t *const all[1] = {strides};
    for (int64_t i = 0; i < count; ++i) {
        cells[i] = from->cells[at[0]];
        walk_next(&walk, all, at, 1);
    }
    put_cells(call, from->type, rank, dims, count, cells);
    return true;
}

bool fold_same(const struct call *call, struct value *from, int rank, const ull__dim *dims)
{
    int64_t strides[ULL_RANK];
    if (cells_count(rank, dims) != from->count) {
        return false;
    }
    strides_of(rank, dims, strides);
    return fold_move(call, from, 0, rank, dims, strides);
}

/* Strides of a tensor that is broadcast. */
static void broadcast_strides(const struct value *value, int rank, int64_t *strides)
{
    int64_t own[ULL_RANK];
    strides_of(value->rank, value->dims, own);
    for (int i = 0; i < rank; ++i) {
        int at = i - (rank - value->rank);
        strides[i] = at < 0 || value->dims[at] == 1 ? 0 : own[at];
    }
}

static bool is_comparison(enum ull__binary kind)
{
    return kind >= ULL_BINARY_EQUAL && kind <= ULL_BINARY_GREATER_EQUAL;
}

static bool compare(enum ull__binary kind, int order)
{
    switch (kind) {
    case ULL_BINARY_EQUAL:
        return order == 0;
    case ULL_BINARY_LESS:
        return order < 0;
    case ULL_BINARY_LESS_EQUAL:
        return order <= 0;
    case ULL_BINARY_GREATER:
        return order > 0;
    default:
        return order >= 0;
    }
}

/* False: it is not known. A symbol is at least 1, and no certain number. */
static bool whole(struct ull__dims *dims, enum ull__binary kind, ull__dim a, ull__dim b, ull__dim *out)
{
    bool plain = ull__dim_is_const(a) && ull__dim_is_const(b);
    if (is_comparison(kind)) {
        if (plain || a == b) {
            *out = compare(kind, a == b ? 0 : a < b ? -1 : 1);
        } else if ((ull__dim_is_const(a) && a < 1) || (ull__dim_is_const(b) && b < 1)) {
            *out = compare(kind, ull__dim_is_const(a) ? -1 : 1);
        } else {
            *out = 0;
            return kind == ULL_BINARY_EQUAL;
        }
        return true;
    }
    switch (kind) {
    case ULL_BINARY_ADD:
        *out = ull__dim_add(dims, a, b);
        break;
    case ULL_BINARY_SUB:
        *out = ull__dim_sub(dims, a, b);
        break;
    case ULL_BINARY_MUL:
        *out = ull__dim_mul(dims, a, b);
        break;
    case ULL_BINARY_DIV:
        if (b == 0) {
            return false;
        }
        *out = plain ? a / b : ull__dim_div(dims, a, b);
        break;
    case ULL_BINARY_MIN:
    case ULL_BINARY_MAX:
        *out = (kind == ULL_BINARY_MIN) == (a < b) ? a : b;
        return plain;
    case ULL_BINARY_AND:
        *out = a != 0 && b != 0;
        return plain;
    case ULL_BINARY_OR:
        *out = a != 0 || b != 0;
        return plain;
    case ULL_BINARY_XOR:
        *out = (a != 0) != (b != 0);
        return plain;
    default:
        return false;
    }
    return *out != ULL_DIM_BAD;
}

static bool real(enum ull__binary kind, double a, double b, double *out)
{
    switch (kind) {
    case ULL_BINARY_ADD:
        *out = a + b;
        return true;
    case ULL_BINARY_SUB:
        *out = a - b;
        return true;
    case ULL_BINARY_MUL:
        *out = a * b;
        return true;
    case ULL_BINARY_DIV:
        *out = a / b;
        return true;
    case ULL_BINARY_POW:
        *out = pow(a, b);
        return true;
    case ULL_BINARY_MIN:
        *out = fmin(a, b);
        return true;
    case ULL_BINARY_MAX:
        *out = fmax(a, b);
        return true;
    default:
        return false;
    }
}

static double rounded(enum ull__type type, double number)
{
    return type == ULL_TYPE_F32 ? (double)(float)number : number;
}

/* One element of a result. False: it is not known. */
static bool one_binary(struct reader *r, enum ull__binary kind, enum ull__type type, union cell a,
                       union cell b, union cell *out)
{
    if (!ull__type_is_float(type)) {
        return whole(r->graph->symbols, kind, a.whole, b.whole, &out->whole);
    }
    if (is_comparison(kind)) {
        bool ordered = !isnan(a.real) && !isnan(b.real);
        out->whole = ordered && compare(kind, a.real == b.real ? 0 : a.real < b.real ? -1 : 1);
        return true;
    }
    bool known = real(kind, a.real, b.real, &out->real);
    out->real = rounded(type, out->real);
    return known;
}

bool fold_binary(const struct call *call, enum ull__binary kind)
{
    struct reader *r = call->reader;
    struct value *a = input(call, 0), *b = input(call, 1);
    int rank;
    ull__dim dims[ULL_RANK];
    bool truth = is_comparison(kind) || (a != NULL && a->type == ULL_TYPE_BOOL);
    if (a == NULL || b == NULL || (!truth && (a->weight || b->weight)) || a->type != b->type ||
        !value_cells(r, a) || !value_cells(r, b) ||
        !ull__dims_broadcast(r->graph, a->rank, a->dims, b->rank, b->dims, &rank, dims)) {
        return false;
    }
    int64_t count = cells_count(rank, dims), strides[2][ULL_RANK], at[2] = {0, 0};
    union cell *cells = cells_new(r, count);
    if (cells == NULL) {
        return false;
    }
    broadcast_strides(a, rank, strides[0]);
    broadcast_strides(b, rank, strides[1]);
    const int64_t *const all[2] = {strides[0], strides[1]};
    struct walk walk;
    walk_init(&walk, rank, dims);
    for (int64_t i = 0; i < count; ++i) {
        if (!one_binary(r, kind, a->type, a->cells[at[0]], b->cells[at[1]], &cells[i])) {
            return false;
        }
        walk_next(&walk, all, at, 2);
    }
    put_cells(call, is_comparison(kind) ? ULL_TYPE_BOOL : a->type, rank, dims, count, cells);
    return true;
}

/* Of whole numbers; the result has the sign of the divisor, or with fmod that of the number. */
bool fold_mod(const struct call *call)
{
    struct reader *r = call->reader;
    struct value *a = input(call, 0), *b = input(call, 1);
    bool sign_of_a = attribute_int(call, "fmod", 0) != 0;
    if (a == NULL || b == NULL || ull__type_is_float(a->type) || !value_cells(r, a) ||
        !value_cells(r, b) || (b->count != 1 && b->count != a->count)) {
        return false;
    }
    union cell *cells = cells_new(r, a->count);
    for (int64_t i = 0; cells != NULL && i < a->count; ++i) {
        ull__dim x = a->cells[i].whole, y = b->cells[b->count == 1 ? 0 : i].whole;
        if (!ull__dim_is_const(x) || !ull__dim_is_const(y) || y == 0) {
            return false;
        }
        ull__dim rest = x % y;
        cells[i].whole = rest != 0 && !sign_of_a && (rest < 0) != (y < 0) ? rest + y : rest;
    }
    bool same = b->count == 1 ? b->rank <= a->rank : b->rank == a->rank;
    put_cells(call, a->type, a->rank, a->dims, a->count, same ? cells : NULL);
    return same && cells != NULL;
}

static bool one_unary(struct reader *r, enum ull__unary kind, enum ull__type type, union cell x,
                      union cell *out)
{
    if (!ull__type_is_float(type)) {
        switch (kind) {
        case ULL_UNARY_NEG:
            out->whole = ull__dim_sub(r->graph->symbols, 0, x.whole);
            return out->whole != ULL_DIM_BAD;
        case ULL_UNARY_NOT:
            out->whole = x.whole == 0;
            return true;
        case ULL_UNARY_ABS:
            out->whole = x.whole < 0 ? -x.whole : x.whole;
            return ull__dim_is_const(x.whole);
        default:
            return false;
        }
    }
    double number;
    switch (kind) {
    case ULL_UNARY_NEG:
        number = -x.real;
        break;
    case ULL_UNARY_ABS:
        number = fabs(x.real);
        break;
    case ULL_UNARY_SQRT:
        number = sqrt(x.real);
        break;
    case ULL_UNARY_RECIPROCAL:
        number = 1 / x.real;
        break;
    case ULL_UNARY_EXP:
        number = exp(x.real);
        break;
    case ULL_UNARY_LOG:
        number = log(x.real);
        break;
    case ULL_UNARY_FLOOR:
        number = floor(x.real);
        break;
    case ULL_UNARY_CEIL:
        number = ceil(x.real);
        break;
    case ULL_UNARY_SIN:
        number = sin(x.real);
        break;
    case ULL_UNARY_COS:
        number = cos(x.real);
        break;
    default:
        return false;
    }
    out->real = rounded(type, number);
    return true;
}

bool fold_unary(const struct call *call, enum ull__unary kind)
{
    struct value *x = input(call, 0);
    if (x == NULL || x->weight || !value_cells(call->reader, x)) {
        return false;
    }
    union cell *cells = cells_new(call->reader, x->count);
    for (int64_t i = 0; cells != NULL && i < x->count; ++i) {
        if (!one_unary(call->reader, kind, x->type, x->cells[i], &cells[i])) {
            return false;
        }
    }
    put_cells(call, x->type, x->rank, x->dims, x->count, cells);
    return cells != NULL;
}

bool fold_where(const struct call *call)
{
    struct reader *r = call->reader;
    struct value *c = input(call, 0), *a = input(call, 1), *b = input(call, 2);
    int rank, both;
    ull__dim some[ULL_RANK], dims[ULL_RANK];
    if (c == NULL || a == NULL || b == NULL || a->weight || b->weight || a->type != b->type ||
        !value_cells(r, c) || !value_cells(r, a) || !value_cells(r, b) ||
        !ull__dims_broadcast(r->graph, a->rank, a->dims, b->rank, b->dims, &both, some) ||
        !ull__dims_broadcast(r->graph, c->rank, c->dims, both, some, &rank, dims)) {
        return false;
    }
    int64_t count = cells_count(rank, dims), strides[3][ULL_RANK], at[3] = {0, 0, 0};
    union cell *cells = cells_new(r, count);
    if (cells == NULL) {
        return false;
    }
    broadcast_strides(c, rank, strides[0]);
    broadcast_strides(a, rank, strides[1]);
    broadcast_strides(b, rank, strides[2]);
    const int64_t *const all[3] = {strides[0], strides[1], strides[2]};
    struct walk walk;
    walk_init(&walk, rank, dims);
    for (int64_t i = 0; i < count; ++i) {
        cells[i] = c->cells[at[0]].whole != 0 ? a->cells[at[1]] : b->cells[at[2]];
        walk_next(&walk, all, at, 3);
    }
    put_cells(call, a->type, rank, dims, count, cells);
    return true;
}

bool fold_cast(const struct call *call, enum ull__type to)
{
    struct value *x = input(call, 0);
    bool reals = x != NULL && ull__type_is_float(x->type), real_after = ull__type_is_float(to);
    if (x == NULL || (x->weight && real_after) || !value_cells(call->reader, x)) {
        return false;
    }
    union cell *cells = cells_new(call->reader, x->count);
    for (int64_t i = 0; cells != NULL && i < x->count; ++i) {
        union cell from = x->cells[i];
        if (real_after) {
            if (!reals && !ull__dim_is_const(from.whole)) {
                return false;
            }
            cells[i].real = rounded(to, reals ? from.real : (double)from.whole);
        } else if (to == ULL_TYPE_BOOL) {
            cells[i].whole = reals ? from.real != 0 : from.whole != 0;
        } else if (!reals) {
            cells[i] = from;
        } else if (fabs(from.real) <= (double)ULL_DIM_MOST) {
            cells[i].whole = (int64_t)from.real;
        } else {
            return false;
        }
    }
    put_cells(call, to, x->rank, x->dims, x->count, cells);
    return cells != NULL;
}

bool fold_fill(const struct call *call, enum ull__type type, int rank, const ull__dim *dims,
               union cell cell)
{
    int64_t count = cells_count(rank, dims);
    union cell *cells = cells_new(call->reader, count);
    for (int64_t i = 0; cells != NULL && i < count; ++i) {
        cells[i] = cell;
    }
    put_cells(call, type, rank, dims, count, cells);
    return cells != NULL;
}
