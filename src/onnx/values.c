/* values.c: the names of a file, by hash, and how what stands behind them becomes a tensor of the graph. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "onnx_private.h"

static size_t hash_of(const char *name)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *name != '\0'; ++name) {
        hash = (hash ^ (unsigned char)*name) * UINT64_C(1099511628211);
    }
    return (size_t)(hash ^ hash >> 32);
}

/* The slot of a name, or the free one where it belongs. */
static size_t slot_of(const struct reader *r, const char *name)
{
    size_t at = hash_of(name) & (r->slot_count - 1);
    while (r->slots[at] != ULL_NONE && strcmp(r->values[r->slots[at]].name, name) != 0) {
        at = (at + 1) & (r->slot_count - 1);
    }
    return at;
}

struct value *value_find(struct reader *r, const char *name)
{
    int place = r->slots[slot_of(r, name)];
    return place == ULL_NONE ? NULL : &r->values[place];
}

struct value *value_add(struct reader *r, const char *name)
{
    size_t slot = slot_of(r, name);
    if (r->slots[slot] != ULL_NONE) {
        reader_fail(r, ULL_E_FORMAT, "'%s' is made twice", shown(name));
        return NULL;
    }
    r->slots[slot] = r->value_count;
    struct value *value = &r->values[r->value_count++];
    *value = (struct value){.name = name, .maker = ULL_NONE, .tensor = ULL_NONE};
    return value;
}

union cell *cells_new(struct reader *r, int64_t count)
{
    if (count < 0 || count > CELLS_OF_ONE || count > r->cells_left) {
        return NULL;
    }
    r->cells_left -= count;
    return reader_alloc(r, (size_t)count + 1, sizeof(union cell));
}

/* What is not finite is a mask, not a weight. A causal mask is infinite in its first row. */
static bool begins_infinite(const Onnx__TensorProto *tensor, enum ull__type type)
{
    size_t bytes = (size_t)(ull__type_bits(type) / 8);
    size_t there = tensor->has_raw_data ? tensor->raw_data.len / bytes : tensor->n_float_data;
    for (size_t i = 0; i < there && i < 4096; ++i) {
        union cell cell = {.real = 0};
        if (tensor->has_raw_data) {
            char copy[8];
            memcpy(copy, tensor->raw_data.data + i * bytes, bytes);
            cells_from_bytes(type, copy, 1, &cell);
        } else if (type == ULL_TYPE_F32) {
            cell.real = (double)tensor->float_data[i];
        }
        if (!isfinite(cell.real)) {
            return true;
        }
    }
    return false;
}

bool value_load(struct reader *r, struct value *value)
{
    if (value->made) {
        return true;
    }
    int64_t dims[ULL_RANK];
    enum ull__type type;
    if (value->given != NULL) {
        type = value->given->type;
        value->rank = value->given->rank;
        value->count = 1;
        for (int i = 0; i < value->rank; ++i) {
            value->dims[i] = value->given->dims[i];
            value->count *= value->given->dims[i];
        }
    } else if (value->initializer == NULL ||
               !tensor_shape(r, value->initializer, &type, &value->rank, dims, &value->count)) {
        return false;
    } else {
        memcpy(value->dims, dims, sizeof(dims));
    }
    value->type = type_in_graph(r, type);
    value->weight = ull__type_is_float(type) && value->rank > 0 && value->given == NULL;
    value->made = true;
    value->weight = value->weight && !begins_infinite(value->initializer, type);
    return reader_ok(r);
}

bool value_cells(struct reader *r, struct value *value)
{
    if (value->cells != NULL) {
        return true;
    }
    if ((value->initializer == NULL && value->given == NULL) || value->count > CELLS_OF_ONE ||
        value->count > r->cells_left) {
        return false;
    }
    union cell *cells = cells_new(r, value->count);
    if (cells == NULL) {
        return false;
    }
    if (value->given != NULL) {
        cells_from_bytes(value->given->type, value->given->data, value->count, cells);
    } else {
        void *data = tensor_data(r, value->initializer);
        if (data == NULL) {
            return false;
        }
        cells_from_bytes(type_of_file(value->initializer->data_type), data, value->count, cells);
        free(data);
    }
    value->cells = cells;
    return true;
}

/* A parameter or state, with its values where they are wanted. */
static int make_weight(struct reader *r, struct value *value)
{
    struct ull__graph *g = r->graph;
    struct ull__tensor tensor = {.name = value->name,
                                 .type = value->type,
                                 .role = value->state ? ULL_ROLE_STATE : ULL_ROLE_PARAMETER,
                                 .life = ULL_LIFE_PERSISTENT,
                                 .rank = value->rank,
                                 .node = ULL_NONE,
                                 .alias = ULL_NONE,
                                 .shard_axis = ULL_NONE,
                                 .shard_group = ULL_NONE,
                                 .of = ULL_NONE,
                                 .init = r->options->values ? ULL_INIT_DATA : ULL_INIT_ZERO};
    memcpy(tensor.dims, value->dims, sizeof(tensor.dims));
    if (r->options->values) {
        enum ull__type stored = type_of_file(value->initializer->data_type);
        void *data = tensor_data(r, value->initializer);
        tensor.data_bytes = (size_t)value->count * (size_t)(ull__type_bits(value->type) / 8);
        char *kept = data != NULL ? ull__graph_alloc(g, tensor.data_bytes + 1) : NULL;
        if (kept == NULL) {
            free(data);
            return ULL_NONE;
        }
        if (stored == value->type) {
            memcpy(kept, data, tensor.data_bytes);
        } else {
            size_t from = (size_t)(ull__type_bits(stored) / 8), to = sizeof(float);
            for (int64_t i = 0; i < value->count; ++i) {
                union cell cell;
                cells_from_bytes(stored, (char *)data + (size_t)i * from, 1, &cell);
                cells_to_bytes(value->type, &cell, 1, kept + (size_t)i * to);
            }
        }
        free(data);
        tensor.data = kept;
    }
    return ull__graph_tensor(g, &tensor);
}

static int make_constant(struct reader *r, struct value *value)
{
    int64_t bytes = value->count * (ull__type_bits(value->type) / 8);
    for (int64_t i = 0; i < value->count && !ull__type_is_float(value->type); ++i) {
        if (!ull__dim_is_const(value->cells[i].whole)) {
            reader_fail(r, ULL_E_FORMAT,
                        "'%s' depends on the batch and is used as data, which is not supported",
                        shown(value->name));
            return ULL_NONE;
        }
    }
    void *data = malloc((size_t)bytes + 1);
    if (data == NULL) {
        reader_fail(r, ULL_E_NO_MEMORY, "no memory for '%s'", shown(value->name));
        return ULL_NONE;
    }
    cells_to_bytes(value->type, value->cells, value->count, data);
    int made = ull__graph_constant(r->graph, value->name, value->type, value->rank, value->dims,
                                   data, (size_t)bytes);
    free(data);
    return made;
}

int value_tensor(struct reader *r, struct value *value)
{
    if (value->tensor != ULL_NONE || !reader_ok(r)) {
        return value->tensor;
    }
    if (!value->made && !value_load(r, value)) {
        reader_fail(r, ULL_E_FORMAT, "'%s' is not made by anything", shown(value->name));
        return ULL_NONE;
    }
    if (value->initializer != NULL && (value->weight || value->state)) {
        value->tensor = make_weight(r, value);
    } else if (value_cells(r, value)) {
        value->tensor = make_constant(r, value);
    } else {
        reader_fail(r, ULL_E_FORMAT, "the constant '%s' is larger than is supported",
                    shown(value->name));
    }
    return value->tensor;
}

bool same_size(struct reader *r, ull__dim a, ull__dim b)
{
    int64_t values[ULL_SYMBOLS];
    if (a == b) {
        return true;
    }
    for (int64_t batch = 3; batch < 8000; batch = batch * 50 + 7) {
        ull__graph_values(r->graph, batch, values);
        if (ull__dim_value(r->graph->symbols, a, values) !=
            ull__dim_value(r->graph->symbols, b, values)) {
            return false;
        }
    }
    return true;
}
