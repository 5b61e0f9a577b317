/* size.c: how many elements and bytes a tensor has, and where its memory is. See graph.h. */
#include "graph.h"

#include <stdio.h>

void ull__graph_values(const struct ull__graph *graph, int64_t batch, int64_t *values)
{
    for (int i = 0; i < ull__dim_symbols(graph->symbols); ++i) {
        values[i] = 1;
    }
    values[ull__dim_symbol_find(graph->symbols, "batch")] = batch;
}

/* The size of dimension i in memory: channels of a blocked layout are padded. */
static int64_t extent(const struct ull__graph *graph, const struct ull__tensor *tensor, int i,
                      const int64_t *values, bool padded)
{
    int64_t value = ull__dim_value(graph->symbols, tensor->dims[i], values);
    if (value < 0) {
        return ULL_DIM_BAD;
    }
    if (padded && tensor->layout == ULL_LAYOUT_BLOCKED && i == 1 && tensor->block > 1) {
        value = (value + tensor->block - 1) / tensor->block * tensor->block;
    }
    return value;
}

static int64_t count(const struct ull__graph *graph, const struct ull__tensor *tensor,
                     const int64_t *values, bool padded)
{
    int64_t product = 1;
    for (int i = 0; i < tensor->rank; ++i) {
        int64_t value = extent(graph, tensor, i, values, padded);
        if (value == ULL_DIM_BAD || __builtin_mul_overflow(product, value, &product)) {
            return ULL_DIM_BAD;
        }
    }
    return product > ULL_DIM_MOST ? ULL_DIM_BAD : product;
}

int64_t ull__tensor_elements(const struct ull__graph *graph, int tensor, const int64_t *values)
{
    return count(graph, &graph->tensors[tensor], values, false);
}

int64_t ull__tensor_bytes(const struct ull__graph *graph, int tensor, const int64_t *values)
{
    int64_t elements = count(graph, &graph->tensors[tensor], values, true), bits;
    if (elements == ULL_DIM_BAD ||
        __builtin_mul_overflow(elements, ull__type_bits(graph->tensors[tensor].type), &bits) ||
        bits > INT64_MAX - 7) {
        return ULL_DIM_BAD;
    }
    return (bits + 7) / 8;
}

const char *ull__tensor_text(const struct ull__graph *graph, int tensor, char *buffer, size_t size)
{
    const struct ull__tensor *of = &graph->tensors[tensor];
    size_t used = 0;
    buffer[0] = '\0';
    for (int i = -1; i <= of->rank && used < size; ++i) {
        char text[96];
        const char *part = i < 0 ? ull__type_text(of->type)
                           : i == of->rank
                               ? "]"
                               : ull__dim_text(graph->symbols, of->dims[i], text, sizeof(text));
        used += (size_t)snprintf(buffer + used, size - used, "%s%s",
                                 i < 0 || i == of->rank ? "" : (i == 0 ? "[" : ", "),
                                 of->rank == 0 && i == 0 ? "[]" : part);
    }
    return buffer;
}

int ull__tensor_owner(const struct ull__graph *graph, int tensor)
{
    while (graph->tensors[tensor].alias != ULL_NONE) {
        tensor = graph->tensors[tensor].alias;
    }
    return tensor;
}

int64_t ull__graph_parameters(const struct ull__graph *graph)
{
    int64_t total = 0;
    for (int i = 0; i < graph->tensor_count; ++i) {
        if (graph->tensors[i].role == ULL_ROLE_PARAMETER && graph->tensors[i].node == ULL_NONE) {
            int64_t elements = ull__tensor_elements(graph, i, NULL);
            if (elements == ULL_DIM_BAD || __builtin_add_overflow(total, elements, &total)) {
                return ULL_DIM_BAD;
            }
        }
    }
    return total;
}
