/* make.c: small ONNX files made by a test. See make.h. */
#include "make.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096, PARTS = 600 };

struct make {
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    Onnx__NodeProto *nodes[PARTS];
    Onnx__TensorProto *tensors[PARTS];
    Onnx__ValueInfoProto *inputs[PARTS], *outputs[PARTS];
    void *room[ROOM];
    int rooms;
};

void *make_room(struct make *m, size_t size)
{
    void *room = calloc(1, size + 1);
    if (room == NULL || m->rooms == ROOM) {
        abort();
    }
    m->room[m->rooms++] = room;
    return room;
}

char *make_text(struct make *m, const char *text)
{
    return strcpy(make_room(m, strlen(text)), text);
}

struct make *make_new(int64_t opset)
{
    struct make *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        abort();
    }
    onnx__model_proto__init(&m->model);
    onnx__graph_proto__init(&m->graph);
    onnx__operator_set_id_proto__init(&m->opset);
    m->opset.has_version = 1;
    m->opset.version = opset;
    m->opsets[0] = &m->opset;
    m->model.n_opset_import = 1;
    m->model.opset_import = m->opsets;
    m->model.graph = &m->graph;
    m->graph.node = m->nodes;
    m->graph.initializer = m->tensors;
    m->graph.input = m->inputs;
    m->graph.output = m->outputs;
    return m;
}

/* The parts between commas. */
static size_t split(struct make *m, const char *text, char ***parts)
{
    size_t count = 0;
    *parts = make_room(m, sizeof(char *) * (strlen(text) + 1));
    if (text[0] == '\0') {
        return 0;
    }
    char *copy = make_text(m, text);
    for (char *part = copy; part != NULL; ++count) {
        (*parts)[count] = part;
        part = strchr(part, ',');
        if (part != NULL) {
            *part++ = '\0';
        }
    }
    return count;
}

static int64_t *numbers_of(struct make *m, const char *text, size_t *count)
{
    char **parts;
    *count = split(m, text, &parts);
    int64_t *numbers = make_room(m, sizeof(*numbers) * (*count + 1));
    for (size_t i = 0; i < *count; ++i) {
        numbers[i] = strtoll(parts[i], NULL, 10);
    }
    return numbers;
}

void make_input(struct make *m, const char *name, int type, const char *dims)
{
    Onnx__ValueInfoProto *info = make_room(m, sizeof(*info));
    Onnx__TypeProto *of = make_room(m, sizeof(*of));
    Onnx__TypeProto__Tensor *tensor = make_room(m, sizeof(*tensor));
    Onnx__TensorShapeProto *shape = make_room(m, sizeof(*shape));
    onnx__value_info_proto__init(info);
    onnx__type_proto__init(of);
    onnx__type_proto__tensor__init(tensor);
    onnx__tensor_shape_proto__init(shape);
    info->name = make_text(m, name);
    info->type = of;
    of->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    of->tensor_type = tensor;
    tensor->has_elem_type = 1;
    tensor->elem_type = type;
    tensor->shape = shape;
    char **parts;
    shape->n_dim = split(m, dims, &parts);
    shape->dim = make_room(m, sizeof(void *) * (shape->n_dim + 1));
    for (size_t i = 0; i < shape->n_dim; ++i) {
        Onnx__TensorShapeProto__Dimension *dim = make_room(m, sizeof(*dim));
        onnx__tensor_shape_proto__dimension__init(dim);
        if (strchr("-0123456789", parts[i][0]) != NULL) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dim->dim_value = strtoll(parts[i], NULL, 10);
        } else {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dim->dim_param = parts[i];
        }
        shape->dim[i] = dim;
    }
    m->inputs[m->graph.n_input++] = info;
}

static Onnx__TensorProto *tensor(struct make *m, const char *name, int type, const char *dims)
{
    Onnx__TensorProto *made = make_room(m, sizeof(*made));
    onnx__tensor_proto__init(made);
    made->name = make_text(m, name);
    made->has_data_type = 1;
    made->data_type = type;
    made->dims = numbers_of(m, dims, &made->n_dims);
    m->tensors[m->graph.n_initializer++] = made;
    return made;
}

Onnx__TensorProto *make_weight(struct make *m, const char *name, const char *dims)
{
    Onnx__TensorProto *made = tensor(m, name, 1, dims);
    size_t count = 1;
    for (size_t i = 0; i < made->n_dims; ++i) {
        count *= (size_t)made->dims[i];
    }
    if (made->n_dims == 0 || (count > 0 && count < 1 << 20)) {
        made->n_float_data = count;
        made->float_data = make_room(m, count * sizeof(float));
        for (size_t i = 0; i < count; ++i) {
            made->float_data[i] = (float)i / 8;
        }
    }
    return made;
}

void make_list(struct make *m, const char *name, const char *numbers)
{
    Onnx__TensorProto *made = tensor(m, name, 7, "0");
    made->int64_data = numbers_of(m, numbers, &made->n_int64_data);
    made->dims[0] = (int64_t)made->n_int64_data;
}

void make_number(struct make *m, const char *name, double number)
{
    Onnx__TensorProto *made = make_weight(m, name, "");
    made->float_data[0] = (float)number;
}

Onnx__NodeProto *make_node(struct make *m, const char *type, const char *inputs, const char *outputs)
{
    Onnx__NodeProto *node = make_room(m, sizeof(*node));
    onnx__node_proto__init(node);
    node->op_type = make_text(m, type);
    node->n_input = split(m, inputs, &node->input);
    node->n_output = split(m, outputs, &node->output);
    m->nodes[m->graph.n_node++] = node;
    return node;
}

static Onnx__AttributeProto *attribute(struct make *m, Onnx__NodeProto *node, const char *name,
                                       Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *made = make_room(m, sizeof(*made));
    Onnx__AttributeProto **list = make_room(m, sizeof(*list) * (node->n_attribute + 1));
    onnx__attribute_proto__init(made);
    made->name = make_text(m, name);
    made->has_type = 1;
    made->type = type;
    if (node->n_attribute > 0) {
        memcpy(list, node->attribute, sizeof(*list) * node->n_attribute);
    }
    list[node->n_attribute++] = made;
    node->attribute = list;
    return made;
}

void make_int(struct make *m, Onnx__NodeProto *node, const char *name, int64_t number)
{
    Onnx__AttributeProto *made = attribute(m, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    made->has_i = 1;
    made->i = number;
}

void make_ints(struct make *m, Onnx__NodeProto *node, const char *name, const char *numbers)
{
    Onnx__AttributeProto *made =
        attribute(m, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    made->ints = numbers_of(m, numbers, &made->n_ints);
}

void make_output(struct make *m, const char *name)
{
    Onnx__ValueInfoProto *info = make_room(m, sizeof(*info));
    onnx__value_info_proto__init(info);
    info->name = make_text(m, name);
    m->outputs[m->graph.n_output++] = info;
}

Onnx__ModelProto *make_model(struct make *m)
{
    return &m->model;
}

uint8_t *make_bytes(struct make *m, size_t *size)
{
    *size = onnx__model_proto__get_packed_size(&m->model);
    uint8_t *bytes = malloc(*size + 1);
    if (bytes == NULL) {
        abort();
    }
    onnx__model_proto__pack(&m->model, bytes);
    for (int i = 0; i < m->rooms; ++i) {
        free(m->room[i]);
    }
    free(m);
    return bytes;
}
