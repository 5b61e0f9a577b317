/*
 * dim.c: sizes as expressions. See dim.h.
 *
 * An expression is a sum of terms, each a coefficient and a product of unknowns in rising order; the terms
 * are in order of degree. That form is unique, and each expression is kept once, so equality is equality
 * of numbers. An unknown is a symbol, or a quotient or maximum of two expressions.
 *
 * The table is searched from its end: a graph has a few dozen expressions.
 */
#include "dim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A ull__dim that is no constant is this and the place of its expression. */
#define EXPRESSION ((int64_t)1 << 62)

enum unknown_kind { SYMBOL, QUOTIENT, MAXIMUM };

struct unknown {
    enum unknown_kind kind;
    int symbol;    /* of a SYMBOL */
    ull__dim a, b; /* of the others */
};

struct term {
    int64_t factor;
    int32_t count; /* of unknowns; 0: the constant */
    int32_t of[ULL_DIM_FACTORS];
};
_Static_assert(sizeof(struct term) == 8 + 4 * (1 + ULL_DIM_FACTORS), "terms are compared as bytes");

struct sum {
    int count;
    struct term terms[ULL_DIM_TERMS];
};

struct ull__dims {
    struct sum *sums;
    int sum_count, sum_room;
    struct unknown *unknowns;
    int unknown_count, unknown_room;
    char names[ULL_SYMBOLS][32];
    int symbols;
};

struct ull__dims *ull__dims_create(void)
{
    return calloc(1, sizeof(struct ull__dims));
}

void ull__dims_destroy(struct ull__dims *dims)
{
    if (dims == NULL) {
        return;
    }
    free(dims->sums);
    free(dims->unknowns);
    free(dims);
}

struct ull__dims *ull__dims_copy(const struct ull__dims *dims)
{
    struct ull__dims *copy = ull__dims_create();
    if (copy == NULL) {
        return NULL;
    }
    *copy = *dims;
    copy->sum_room = dims->sum_count;
    copy->unknown_room = dims->unknown_count;
    copy->sums = malloc(sizeof(*copy->sums) * (size_t)(dims->sum_count + 1));
    copy->unknowns = malloc(sizeof(*copy->unknowns) * (size_t)(dims->unknown_count + 1));
    if (copy->sums == NULL || copy->unknowns == NULL) {
        ull__dims_destroy(copy);
        return NULL;
    }
    if (dims->sum_count > 0) {
        memcpy(copy->sums, dims->sums, sizeof(*copy->sums) * (size_t)dims->sum_count);
    }
    if (dims->unknown_count > 0) {
        memcpy(copy->unknowns, dims->unknowns, sizeof(*copy->unknowns) * (size_t)dims->unknown_count);
    }
    return copy;
}

static bool small(int64_t value)
{
    return value >= -ULL_DIM_MOST && value <= ULL_DIM_MOST;
}

/* The order of terms: by degree, then by their unknowns. It is kept by multiplication, so division can go by it. */
static int order(const struct term *a, const struct term *b)
{
    if (a->count != b->count) {
        return a->count < b->count ? -1 : 1;
    }
    for (int i = 0; i < a->count; ++i) {
        if (a->of[i] != b->of[i]) {
            return a->of[i] > b->of[i] ? -1 : 1;
        }
    }
    return 0;
}

/* Adds a term to a sum in place. False: too many terms, or an overflow. */
static bool put(struct sum *sum, const struct term *term)
{
    int at = 0;
    while (at < sum->count && order(&sum->terms[at], term) < 0) {
        at += 1;
    }
    if (at < sum->count && order(&sum->terms[at], term) == 0) {
        sum->terms[at].factor += term->factor; /* both are at most 2^60 in amount */
        if (sum->terms[at].factor == 0) {
            sum->count -= 1;
            memmove(&sum->terms[at], &sum->terms[at + 1], sizeof(*term) * (size_t)(sum->count - at));
            return true;
        }
        return small(sum->terms[at].factor);
    }
    if (sum->count == ULL_DIM_TERMS) {
        return false;
    }
    memmove(&sum->terms[at + 1], &sum->terms[at], sizeof(*term) * (size_t)(sum->count - at));
    sum->terms[at] = *term;
    sum->count += 1;
    return true;
}

/* The sum of a dimension. False for BAD. */
static bool open_sum(const struct ull__dims *dims, ull__dim dim, struct sum *sum)
{
    if (dim == ULL_DIM_BAD) {
        return false;
    }
    memset(sum, 0, sizeof(*sum));
    if (ull__dim_is_const(dim)) {
        if (dim != 0) {
            sum->count = 1;
            sum->terms[0].factor = dim;
        }
        return true;
    }
    *sum = dims->sums[dim - EXPRESSION];
    return true;
}

/* The dimension of a sum, which becomes part of the table if it is new. */
static ull__dim close_sum(struct ull__dims *dims, const struct sum *sum)
{
    if (sum->count == 0) {
        return 0;
    }
    if (sum->count == 1 && sum->terms[0].count == 0) {
        return sum->terms[0].factor;
    }
    for (int i = dims->sum_count - 1; i >= 0; --i) {
        if (memcmp(&dims->sums[i], sum, sizeof(*sum)) == 0) {
            return EXPRESSION + i;
        }
    }
    if (dims->sum_count == dims->sum_room) {
        int room = dims->sum_room == 0 ? 16 : 2 * dims->sum_room;
        struct sum *more = realloc(dims->sums, sizeof(*more) * (size_t)room);
        if (more == NULL) {
            return ULL_DIM_BAD;
        }
        dims->sums = more;
        dims->sum_room = room;
    }
    dims->sums[dims->sum_count] = *sum;
    return EXPRESSION + dims->sum_count++;
}

/* Clears what lies behind the last term, so that equal sums are equal bytes. */
static void tidy(struct sum *sum)
{
    memset(&sum->terms[sum->count], 0, sizeof(sum->terms[0]) * (size_t)(ULL_DIM_TERMS - sum->count));
}

static ull__dim of_unknown(struct ull__dims *dims, const struct unknown *unknown)
{
    int at = 0;
    for (; at < dims->unknown_count; ++at) {
        const struct unknown *known = &dims->unknowns[at];
        if (known->kind == unknown->kind && known->symbol == unknown->symbol &&
            known->a == unknown->a && known->b == unknown->b) {
            break;
        }
    }
    if (at == dims->unknown_count) {
        if (dims->unknown_count == dims->unknown_room) {
            int room = dims->unknown_room == 0 ? 16 : 2 * dims->unknown_room;
            struct unknown *more = realloc(dims->unknowns, sizeof(*more) * (size_t)room);
            if (more == NULL) {
                return ULL_DIM_BAD;
            }
            dims->unknowns = more;
            dims->unknown_room = room;
        }
        dims->unknowns[dims->unknown_count++] = *unknown;
    }
    struct sum sum;
    memset(&sum, 0, sizeof(sum));
    sum.count = 1;
    sum.terms[0].factor = 1;
    sum.terms[0].count = 1;
    sum.terms[0].of[0] = at;
    return close_sum(dims, &sum);
}

int ull__dim_symbol_find(const struct ull__dims *dims, const char *name)
{
    for (int i = 0; i < dims->symbols; ++i) {
        if (strcmp(dims->names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

ull__dim ull__dim_symbol(struct ull__dims *dims, const char *name)
{
    int at = ull__dim_symbol_find(dims, name);
    if (at < 0) {
        if (dims->symbols == ULL_SYMBOLS || strlen(name) >= sizeof(dims->names[0])) {
            return ULL_DIM_BAD;
        }
        at = dims->symbols++;
        strcpy(dims->names[at], name);
    }
    return of_unknown(dims, &(struct unknown){.kind = SYMBOL, .symbol = at});
}

int ull__dim_symbols(const struct ull__dims *dims)
{
    return dims->symbols;
}

const char *ull__dim_symbol_name(const struct ull__dims *dims, int symbol)
{
    return dims->names[symbol];
}

/* a + scale * b. */
static ull__dim combine(struct ull__dims *dims, ull__dim a, ull__dim b, int64_t scale)
{
    if (ull__dim_is_const(a) && ull__dim_is_const(b)) {
        int64_t value = a + scale * b;
        return small(value) ? value : ULL_DIM_BAD;
    }
    struct sum sum, other;
    if (!open_sum(dims, a, &sum) || !open_sum(dims, b, &other)) {
        return ULL_DIM_BAD;
    }
    for (int i = 0; i < other.count; ++i) {
        other.terms[i].factor *= scale;
        if (!put(&sum, &other.terms[i])) {
            return ULL_DIM_BAD;
        }
    }
    tidy(&sum);
    return close_sum(dims, &sum);
}

ull__dim ull__dim_add(struct ull__dims *dims, ull__dim a, ull__dim b)
{
    return combine(dims, a, b, 1);
}

ull__dim ull__dim_sub(struct ull__dims *dims, ull__dim a, ull__dim b)
{
    return combine(dims, a, b, -1);
}

/* The product of two terms; false if it has too many unknowns or overflows. */
static bool multiply(const struct term *a, const struct term *b, struct term *product)
{
    if (a->count + b->count > ULL_DIM_FACTORS ||
        __builtin_mul_overflow(a->factor, b->factor, &product->factor) || !small(product->factor)) {
        return false;
    }
    memset(product->of, 0, sizeof(product->of));
    product->count = a->count + b->count;
    for (int i = 0, j = 0; i + j < product->count;) {
        bool first = j == b->count || (i < a->count && a->of[i] <= b->of[j]);
        product->of[i + j] = first ? a->of[i] : b->of[j];
        i += first;
        j += !first;
    }
    return true;
}

ull__dim ull__dim_mul(struct ull__dims *dims, ull__dim a, ull__dim b)
{
    struct sum left, right, product;
    if (!open_sum(dims, a, &left) || !open_sum(dims, b, &right)) {
        return ULL_DIM_BAD;
    }
    memset(&product, 0, sizeof(product));
    for (int i = 0; i < left.count; ++i) {
        for (int j = 0; j < right.count; ++j) {
            struct term term;
            if (!multiply(&left.terms[i], &right.terms[j], &term) || !put(&product, &term)) {
                return ULL_DIM_BAD;
            }
        }
    }
    tidy(&product);
    return close_sum(dims, &product);
}

/* The quotient of two terms where it has none left over. */
static bool divide(const struct term *a, const struct term *b, struct term *quotient)
{
    memset(quotient, 0, sizeof(*quotient));
    if (a->factor % b->factor != 0) {
        return false;
    }
    quotient->factor = a->factor / b->factor;
    int j = 0;
    for (int i = 0; i < a->count; ++i) {
        if (j < b->count && a->of[i] == b->of[j]) {
            j += 1;
        } else {
            quotient->of[quotient->count++] = a->of[i];
        }
    }
    return j == b->count;
}

/* Long division of polynomials. False unless b divides a for all values. */
static bool divides(struct ull__dims *dims, const struct sum *a, const struct sum *b,
                    struct sum *quotient)
{
    struct sum rest = *a;
    memset(quotient, 0, sizeof(*quotient));
    const struct term *lead = &b->terms[b->count - 1];
    for (int turn = 0; rest.count > 0; ++turn) {
        struct term term;
        if (turn > 2 * ULL_DIM_TERMS || !divide(&rest.terms[rest.count - 1], lead, &term) ||
            !put(quotient, &term)) {
            return false;
        }
        for (int i = 0; i < b->count; ++i) {
            struct term less;
            if (!multiply(&b->terms[i], &term, &less)) {
                return false;
            }
            less.factor = -less.factor;
            if (!put(&rest, &less)) {
                return false;
            }
        }
    }
    (void)dims;
    tidy(quotient);
    return true;
}

/* Rounded down also below zero. b is not 0. */
static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

ull__dim ull__dim_div(struct ull__dims *dims, ull__dim a, ull__dim b)
{
    struct sum above, below, quotient;
    if (b == 0 || !open_sum(dims, a, &above) || !open_sum(dims, b, &below)) {
        return ULL_DIM_BAD;
    }
    if (ull__dim_is_const(a) && ull__dim_is_const(b)) {
        return floor_div(a, b);
    }
    if (divides(dims, &above, &below, &quotient)) {
        return close_sum(dims, &quotient);
    }
    return of_unknown(dims, &(struct unknown){.kind = QUOTIENT, .a = a, .b = b});
}

ull__dim ull__dim_div_up(struct ull__dims *dims, ull__dim a, ull__dim b)
{
    return ull__dim_div(dims, ull__dim_add(dims, a, ull__dim_sub(dims, b, 1)), b);
}

ull__dim ull__dim_max(struct ull__dims *dims, ull__dim a, ull__dim b)
{
    if (a == b) {
        return a;
    }
    if (a == ULL_DIM_BAD || b == ULL_DIM_BAD) {
        return ULL_DIM_BAD;
    }
    if (ull__dim_is_const(a) && ull__dim_is_const(b)) {
        return a > b ? a : b;
    }
    return of_unknown(dims,
                      &(struct unknown){.kind = MAXIMUM, .a = a < b ? a : b, .b = a < b ? b : a});
}

bool ull__dim_may_equal(struct ull__dims *dims, ull__dim a, ull__dim b)
{
    struct sum sum;
    if (a == b || !open_sum(dims, ull__dim_sub(dims, a, b), &sum)) {
        return a == b;
    }
    bool above = false, below = false;
    for (int i = 0; i < sum.count; ++i) {
        above |= sum.terms[i].factor > 0;
        below |= sum.terms[i].factor < 0;
        for (int j = 0; j < sum.terms[i].count; ++j) {
            /* A quotient may be 0, or below. */
            above |= dims->unknowns[sum.terms[i].of[j]].kind != SYMBOL;
            below |= dims->unknowns[sum.terms[i].of[j]].kind != SYMBOL;
        }
    }
    return (above && below) || sum.count == 0;
}

static int64_t unknown_value(const struct ull__dims *dims, int at, const int64_t *values)
{
    const struct unknown *unknown = &dims->unknowns[at];
    if (unknown->kind == SYMBOL) {
        return values != NULL ? values[unknown->symbol] : ULL_DIM_BAD;
    }
    int64_t a = ull__dim_value(dims, unknown->a, values);
    int64_t b = ull__dim_value(dims, unknown->b, values);
    if (a == ULL_DIM_BAD || b == ULL_DIM_BAD) {
        return ULL_DIM_BAD;
    }
    if (unknown->kind == MAXIMUM) {
        return a > b ? a : b;
    }
    return b == 0 ? ULL_DIM_BAD : floor_div(a, b);
}

int64_t ull__dim_value(const struct ull__dims *dims, ull__dim dim, const int64_t *values)
{
    if (ull__dim_is_const(dim) || dim == ULL_DIM_BAD) {
        return dim;
    }
    const struct sum *sum = &dims->sums[dim - EXPRESSION];
    int64_t total = 0;
    for (int i = 0; i < sum->count; ++i) {
        int64_t product = sum->terms[i].factor;
        for (int j = 0; j < sum->terms[i].count; ++j) {
            int64_t value = unknown_value(dims, sum->terms[i].of[j], values);
            if (value == ULL_DIM_BAD || __builtin_mul_overflow(product, value, &product)) {
                return ULL_DIM_BAD;
            }
        }
        if (__builtin_add_overflow(total, product, &total)) {
            return ULL_DIM_BAD;
        }
    }
    return small(total) ? total : ULL_DIM_BAD;
}

static void write_unknown(const struct ull__dims *dims, int at, FILE *out)
{
    const struct unknown *unknown = &dims->unknowns[at];
    if (unknown->kind == SYMBOL) {
        fputs(dims->names[unknown->symbol], out);
        return;
    }
    char a[128], b[128];
    ull__dim_text(dims, unknown->a, a, sizeof(a));
    ull__dim_text(dims, unknown->b, b, sizeof(b));
    fprintf(out, unknown->kind == MAXIMUM ? "max(%s, %s)" : "floor((%s)/%s)", a, b);
}

static void write_term(const struct ull__dims *dims, const struct term *term, bool first, FILE *out)
{
    int64_t amount = term->factor < 0 ? -term->factor : term->factor;
    fputs(term->factor < 0 ? (first ? "-" : " - ") : (first ? "" : " + "), out);
    if (amount != 1 || term->count == 0) {
        fprintf(out, term->count > 0 ? "%lld*" : "%lld", (long long)amount);
    }
    for (int i = 0; i < term->count; ++i) {
        fputs(i > 0 ? "*" : "", out);
        write_unknown(dims, term->of[i], out);
    }
}

const char *ull__dim_text(const struct ull__dims *dims, ull__dim dim, char *buffer, size_t size)
{
    buffer[0] = '\0';
    if (dim == ULL_DIM_BAD) {
        snprintf(buffer, size, "?");
    } else if (ull__dim_is_const(dim)) {
        snprintf(buffer, size, "%lld", (long long)dim);
    } else {
        FILE *out = fmemopen(buffer, size, "w");
        if (out != NULL) {
            const struct sum *sum = &dims->sums[dim - EXPRESSION];
            /* The constant, which is the first, is read best at the end. */
            for (int i = 0; i < sum->count; ++i) {
                int at = sum->terms[0].count == 0 ? (i + 1) % sum->count : i;
                write_term(dims, &sum->terms[at], i == 0, out);
            }
            fclose(out);
            buffer[size - 1] = '\0';
        }
    }
    return buffer;
}
