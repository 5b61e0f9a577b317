/*
 * inputs.c: the inputs of a model: which of their dimensions is the batch, and how large those are that the file
 * leaves open.
 */
#include <stdio.h>
#include <string.h>

#include "onnx_private.h"

static const char *open_name(const Onnx__ValueInfoProto *info,
                             const Onnx__TensorShapeProto__Dimension *dim, int axis, char text[160])
{
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM &&
        dim->dim_param[0] != '\0') {
        snprintf(text, 160, "%s", dim->dim_param);
    } else {
        snprintf(text, 160, "%s_%d", info->name, axis);
    }
    return text;
}

static const struct ull__onnx_size *size_given(const struct reader *r, const char *name)
{
    for (int i = 0; i < r->options->size_count; ++i) {
        if (strcmp(r->options->sizes[i].name, name) == 0) {
            return &r->options->sizes[i];
        }
    }
    return NULL;
}

/* What the inputs' first dimension is: its number, or its name; neither if there is none. */
struct first {
    int64_t number;
    char name[160];
};

static ull__dim dim_of(struct reader *r, const Onnx__ValueInfoProto *info, int axis,
                       const struct first *first)
{
    const Onnx__TensorShapeProto__Dimension *dim = info->type->tensor_type->shape->dim[axis];
    char text[160];
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
        int64_t number = dim->dim_value;
        if (number < 0 || number > ULL_DIM_MOST) {
            reader_fail(r, ULL_E_FORMAT, "dimension %d of input '%s' is %lld: expected at least 1",
                        axis, shown(info->name), (long long)number);
        }
        return axis == 0 && number == first->number ? r->graph->batch : number;
    }
    open_name(info, dim, axis, text);
    const struct ull__onnx_size *size = size_given(r, text);
    if (size != NULL) {
        return size->value;
    }
    if (strcmp(text, first->name) == 0 ||
        (axis == 0 && first->name[0] != '\0' &&
         dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM)) {
        return r->graph->batch;
    }
    reader_fail(r, ULL_E_INVALID,
                "dimension %d of input '%s' is open: give it a size, as MODEL:%s=128", axis,
                shown(info->name), shown(text));
    return 1;
}

static const Onnx__TensorShapeProto *
shape_of_input(struct reader *r, const Onnx__ValueInfoProto *info, enum ull__type *type)
{
    const Onnx__TypeProto *of = info->type;
    if (info->name == NULL || of == NULL || of->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
        of->tensor_type == NULL || (*type = type_of_file(of->tensor_type->elem_type)) == ULL_TYPES) {
        reader_fail(r, ULL_E_FORMAT, "input '%s' is not a tensor of numbers", shown(info->name));
        return NULL;
    }
    if (of->tensor_type->shape == NULL || of->tensor_type->shape->n_dim > ULL_RANK) {
        reader_fail(r, ULL_E_FORMAT, "input '%s' has no shape, or one of more than %d dimensions",
                    shown(info->name), ULL_RANK);
        return NULL;
    }
    return of->tensor_type->shape;
}

static const struct ull__onnx_tensor *values_given(const struct reader *r, const char *name)
{
    for (int i = 0; i < r->options->given_count; ++i) {
        if (strcmp(r->options->given[i].name, name) == 0) {
            return &r->options->given[i];
        }
    }
    return NULL;
}

static void find_first(struct reader *r, struct first *first)
{
    *first = (struct first){.number = -1};
    for (size_t i = 0; i < r->file->n_input && reader_ok(r); ++i) {
        const Onnx__ValueInfoProto *info = r->file->input[i];
        enum ull__type type;
        if (info->name != NULL && (value_find(r, info->name) != NULL || values_given(r, info->name))) {
            continue;
        }
        const Onnx__TensorShapeProto *shape = shape_of_input(r, info, &type);
        if (shape == NULL || shape->n_dim == 0) {
            continue;
        }
        const Onnx__TensorShapeProto__Dimension *dim = shape->dim[0];
        if (dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
            open_name(info, dim, 0, first->name);
        } else if (!r->options->as_is && dim->dim_value > 0) {
            first->number = dim->dim_value;
            r->first = dim->dim_value;
        }
        return;
    }
}

void add_inputs(struct reader *r)
{
    struct first first;
    find_first(r, &first);
    for (size_t i = 0; i < r->file->n_input && reader_ok(r); ++i) {
        const Onnx__ValueInfoProto *info = r->file->input[i];
        enum ull__type type;
        if (info->name != NULL && value_find(r, info->name) != NULL) {
            continue; /* an initializer that a caller could replace */
        }
        const struct ull__onnx_tensor *given =
            info->name != NULL ? values_given(r, info->name) : NULL;
        struct value *value = NULL;
        if (given != NULL) {
            value = value_add(r, info->name);
            value->given = given;
            continue;
        }
        const Onnx__TensorShapeProto *shape = shape_of_input(r, info, &type);
        ull__dim dims[ULL_RANK];
        for (size_t j = 0; shape != NULL && j < shape->n_dim; ++j) {
            dims[j] = dim_of(r, info, (int)j, &first);
        }
        value = reader_ok(r) ? value_add(r, info->name) : NULL;
        if (value != NULL) {
            value->made = true;
            value->type = type_in_graph(r, type);
            value->rank = (int)shape->n_dim;
            memcpy(value->dims, dims, sizeof(dims));
            value->tensor = ull__graph_input(r->graph, info->name, value->type, value->rank, dims);
        }
    }
}

void check_sizes(struct reader *r)
{
    for (int i = 0; i < r->options->size_count && reader_ok(r); ++i) {
        const char *name = r->options->sizes[i].name;
        bool found = false;
        for (size_t j = 0; j < r->file->n_input; ++j) {
            const Onnx__ValueInfoProto *info = r->file->input[j];
            enum ull__type type;
            char text[160];
            const Onnx__TensorShapeProto *shape = shape_of_input(r, info, &type);
            for (size_t k = 0; shape != NULL && k < shape->n_dim; ++k) {
                found |= shape->dim[k]->value_case !=
                             ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE &&
                         strcmp(open_name(info, shape->dim[k], (int)k, text), name) == 0;
            }
        }
        if (!found) {
            reader_fail(r, ULL_E_INVALID, "it has no open size '%s'", shown(name));
        }
    }
}
