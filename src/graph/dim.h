/*
 * dim.h: the size of one dimension of a tensor: a number, or an expression over symbols such as `batch`.
 *
 * A graph is built and differentiated once and then asked for its sizes at any batch, so a size is kept as it
 * came about: a polynomial over symbols with whole coefficients, and quotients rounded down as further
 * unknowns ("(image + 6 - 7)/2 + 1" of a convolution). Equal expressions are one: two dimensions are equal for
 * all values of their symbols if, and but for quotients only if, they are the same number. A product divides
 * exactly by its factors, so a reshape finds what is left.
 *
 * Expressions live in a table that a graph owns; a ull__dim is a number that is copied freely. What cannot be
 * (overflow beyond 2^60, a division by zero, no memory, an expression of more than a few terms) is
 * ULL_DIM_BAD, and so is everything made of it. One thread at a time; evaluation alone may run in several.
 */
#ifndef ULLAGE_GRAPH_DIM_H
#define ULLAGE_GRAPH_DIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A constant of at most 2^60 in amount is itself. */
typedef int64_t ull__dim;

#define ULL_DIM_BAD INT64_MIN
#define ULL_DIM_MOST ((int64_t)1 << 60)
/* Symbols in one table, and terms of one expression. */
enum { ULL_SYMBOLS = 16, ULL_DIM_TERMS = 12, ULL_DIM_FACTORS = 7 };

struct ull__dims;

struct ull__dims *ull__dims_create(void);
void ull__dims_destroy(struct ull__dims *dims);
/* Dimensions of the old table mean the same in the new one. NULL without memory. */
struct ull__dims *ull__dims_copy(const struct ull__dims *dims);

static inline bool ull__dim_is_const(ull__dim dim)
{
    return dim >= -ULL_DIM_MOST && dim <= ULL_DIM_MOST;
}

/* The symbol of that name, made if it is not there. The name is copied. BAD after ULL_SYMBOLS. */
ull__dim ull__dim_symbol(struct ull__dims *dims, const char *name);
/* How many there are, and their names in order of making: the order of `values` below. */
int ull__dim_symbols(const struct ull__dims *dims);
const char *ull__dim_symbol_name(const struct ull__dims *dims, int symbol);
/* The place of a symbol by name, -1 if there is none. */
int ull__dim_symbol_find(const struct ull__dims *dims, const char *name);

ull__dim ull__dim_add(struct ull__dims *dims, ull__dim a, ull__dim b);
ull__dim ull__dim_sub(struct ull__dims *dims, ull__dim a, ull__dim b);
ull__dim ull__dim_mul(struct ull__dims *dims, ull__dim a, ull__dim b);
/* Rounded down; exact, and then without a rounding, where b divides a for all values. */
ull__dim ull__dim_div(struct ull__dims *dims, ull__dim a, ull__dim b);
/* Rounded up. */
ull__dim ull__dim_div_up(struct ull__dims *dims, ull__dim a, ull__dim b);
/* The larger of both; known only for constants and equal ones, else an unknown of its own. */
ull__dim ull__dim_max(struct ull__dims *dims, ull__dim a, ull__dim b);

/* Whether they are equal for some values of at least 1 of their symbols, as far as their difference shows. */
bool ull__dim_may_equal(struct ull__dims *dims, ull__dim a, ull__dim b);

/*
 * The value where symbol i is values[i], or ULL_DIM_BAD for an overflow or a division by zero. values may be
 * NULL if the dimension is a constant.
 */
int64_t ull__dim_value(const struct ull__dims *dims, ull__dim dim, const int64_t *values);

/* "batch", "2*batch*time + 1". Returns buffer, which is cut off at size. */
const char *ull__dim_text(const struct ull__dims *dims, ull__dim dim, char *buffer, size_t size);

#endif
