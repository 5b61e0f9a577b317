/* call.c: inputs, outputs and attributes of the node that is translated. See onnx_private.h. */
#include <string.h>

#include "onnx_private.h"

bool has_input(const struct call *call, int i)
{
    return (size_t)i < call->node->n_input && call->node->input[i] != NULL &&
           call->node->input[i][0] != '\0';
}

struct value *input(const struct call *call, int i)
{
    struct value *value = has_input(call, i) ? value_find(call->reader, call->node->input[i]) : NULL;
    return value != NULL && value_load(call->reader, value) ? value : NULL;
}

int tensor(const struct call *call, int i)
{
    struct value *value = input(call, i);
    return value != NULL ? value_tensor(call->reader, value) : ULL_NONE;
}

bool wholes(const struct call *call, int i, int most, ull__dim *numbers, int *count)
{
    struct value *value = input(call, i);
    if (value == NULL || ull__type_is_float(value->type) || value->rank > 1) {
        call_fail(call, "input %d is not a list of whole numbers", i);
        return false;
    }
    if (!value_cells(call->reader, value)) {
        call_fail(call,
                  "input %d has to be known when the model is read, and is computed from data", i);
        return false;
    }
    if (value->count > most) {
        call_fail(call, "input %d has %lld numbers: expected at most %d", i,
                  (long long)value->count, most);
        return false;
    }
    *count = (int)value->count;
    for (int j = 0; j < *count; ++j) {
        numbers[j] = value->cells[j].whole;
    }
    return true;
}

bool integers(const struct call *call, int i, int most, int64_t *numbers, int *count)
{
    if (!wholes(call, i, most, numbers, count)) {
        return false;
    }
    for (int j = 0; j < *count; ++j) {
        if (!ull__dim_is_const(numbers[j])) {
            call_fail(call, "input %d depends on the batch, which is not supported there", i);
            return false;
        }
    }
    return true;
}

bool scalar(const struct call *call, int i, double *number)
{
    struct value *value = input(call, i);
    if (value == NULL || value->weight || value->count != 1 || !value_cells(call->reader, value)) {
        return false;
    }
    if (ull__type_is_float(value->type)) {
        *number = value->cells[0].real;
        return true;
    }
    *number = (double)value->cells[0].whole;
    return ull__dim_is_const(value->cells[0].whole);
}

bool all_known(const struct call *call)
{
    int known = 0;
    for (int i = 0; (size_t)i < call->node->n_input; ++i) {
        struct value *value = input(call, i);
        if (value == NULL) {
            continue;
        }
        if (value->weight || !value_cells(call->reader, value)) {
            return false;
        }
        known += 1;
    }
    return known > 0;
}

const Onnx__AttributeProto *attribute(const struct call *call, const char *name)
{
    for (size_t i = 0; i < call->node->n_attribute; ++i) {
        const Onnx__AttributeProto *found = call->node->attribute[i];
        if (found->name != NULL && strcmp(found->name, name) == 0) {
            return found;
        }
    }
    return NULL;
}

int64_t attribute_int(const struct call *call, const char *name, int64_t otherwise)
{
    const Onnx__AttributeProto *found = attribute(call, name);
    return found != NULL && found->has_i ? found->i : otherwise;
}

double attribute_float(const struct call *call, const char *name, double otherwise)
{
    const Onnx__AttributeProto *found = attribute(call, name);
    return found != NULL && found->has_f ? (double)found->f : otherwise;
}

bool attribute_ints(const struct call *call, const char *name, int most, int64_t *numbers, int *count)
{
    const Onnx__AttributeProto *found = attribute(call, name);
    if (found == NULL || (found->n_ints == 0 && !found->has_type)) {
        return false;
    }
    if (found->n_ints > (size_t)most) {
        call_fail(call, "%s has %zu numbers: expected at most %d", name, found->n_ints, most);
        return false;
    }
    *count = (int)found->n_ints;
    if (*count > 0) {
        memcpy(numbers, found->ints, sizeof(*numbers) * found->n_ints);
    }
    return true;
}

bool attribute_is(const struct call *call, const char *name, const char *text, bool otherwise)
{
    const Onnx__AttributeProto *found = attribute(call, name);
    if (found == NULL || !found->has_s) {
        return otherwise;
    }
    return found->s.len == strlen(text) && memcmp(found->s.data, text, found->s.len) == 0;
}

int axis_of(const struct call *call, int64_t axis, int rank)
{
    int64_t counted = axis < 0 ? axis + rank : axis;
    if (counted < 0 || counted >= rank) {
        call_fail(call, "axis %lld of %d dimensions", (long long)axis, rank);
        return ULL_NONE;
    }
    return (int)counted;
}

int attribute_axis(const struct call *call, const char *name, int64_t otherwise, int rank)
{
    return axis_of(call, attribute_int(call, name, otherwise), rank);
}

bool wants_output(const struct call *call, int i)
{
    return (size_t)i < call->node->n_output && call->node->output[i] != NULL &&
           call->node->output[i][0] != '\0';
}

static struct value *output(const struct call *call, int i)
{
    return wants_output(call, i) ? value_find(call->reader, call->node->output[i]) : NULL;
}

void put(const struct call *call, int i, int made)
{
    struct value *value = output(call, i);
    if (value == NULL || made == ULL_NONE) {
        return;
    }
    const struct ull__tensor *of = &call->graph->tensors[made];
    value->tensor = made;
    value->made = true;
    value->type = of->type;
    value->rank = of->rank;
    memcpy(value->dims, of->dims, sizeof(value->dims));
    for (int j = 0; (size_t)j < call->node->n_input; ++j) {
        struct value *from = input(call, j);
        value->weight |= from != NULL && from->weight && ull__type_is_float(value->type);
    }
}

void put_cells(const struct call *call, enum ull__type type, int rank, const ull__dim *dims,
               int64_t count, union cell *cells)
{
    struct value *value = output(call, 0);
    if (value == NULL || cells == NULL) {
        return;
    }
    value->made = true;
    value->type = type;
    value->rank = rank;
    for (int i = 0; i < rank; ++i) {
        value->dims[i] = dims[i];
    }
    value->count = count;
    value->cells = cells;
}

void put_same(const struct call *call, int i, struct value *from)
{
    struct value *value = output(call, i);
    if (value == NULL || from == NULL) {
        return;
    }
    bool identity = strcmp(call->node->op_type, "Identity") == 0;
    if (!identity && from->initializer != NULL) {
        value_tensor(call->reader, from);
    }
    struct value kept = *value;
    *value = *from;
    value->name = kept.name;
    value->maker = kept.maker;
    if (identity && from->initializer != NULL) {
        value->tensor = ULL_NONE; /* a weight of its own: exporters name equal initial values once */
    }
}
