/*
 * type.h: element types, and what a tensor is for: one list each.
 */
#ifndef ULLAGE_GRAPH_TYPE_H
#define ULLAGE_GRAPH_TYPE_H

#include <stdbool.h>
#include <stdint.h>

/* Name, text, bits, the number of its type in onnx.proto's TensorProto.DataType (0: it has none there). */
#define ULL_TYPE_MAP(X)                                                                            \
    X(F32, "f32", 32, 1)                                                                           \
    X(F16, "f16", 16, 10)                                                                          \
    X(BF16, "bf16", 16, 16)                                                                        \
    X(F64, "f64", 64, 11)                                                                          \
    X(F8, "f8", 8, 0)                                                                              \
    X(I64, "i64", 64, 7)                                                                           \
    X(I32, "i32", 32, 6)                                                                           \
    X(I16, "i16", 16, 5)                                                                           \
    X(I8, "i8", 8, 3)                                                                              \
    X(U8, "u8", 8, 2)                                                                              \
    X(U16, "u16", 16, 4)                                                                           \
    X(U32, "u32", 32, 12)                                                                          \
    X(U64, "u64", 64, 13)                                                                          \
    X(BOOL, "bool", 8, 9)                                                                          \
    X(BIT, "bit", 1, 0)

enum ull__type {
#define X(name, text, bits, onnx) ULL_TYPE_##name,
    ULL_TYPE_MAP(X)
#undef X
        ULL_TYPES
};

/* What a tensor is for. A table of components has a line for each role, in this order. */
#define ULL_ROLE_MAP(X)                                                                            \
    X(PARAMETER, "parameters")                                                                     \
    X(GRADIENT, "gradients")                                                                       \
    X(MASTER, "master_weights")                                                                    \
    X(OPTIMIZER, "optimizer_state")                                                                \
    X(STATE, "state")  /* kept between steps, not trained: statistics of batch norm */             \
    X(INPUT, "inputs") /* of a micro-step, targets among them */                                   \
    X(ACTIVATION, "activations")                                                                   \
    X(WORKSPACE, "workspace")                                                                      \
    X(CONTROL, "control")    /* scalars on the device: learning rate, step, loss scale ... */      \
    X(CONSTANT, "constants") /* the same in every step, with the values in the graph */

enum ull__role {
#define X(name, text) ULL_ROLE_##name,
    ULL_ROLE_MAP(X)
#undef X
        ULL_ROLES
};

const char *ull__type_text(enum ull__type type);
/* false: no type of that text. */
bool ull__type_parse(const char *text, enum ull__type *type);
int ull__type_bits(enum ull__type type);
bool ull__type_is_float(enum ull__type type);
/* f16 and bf16. */
bool ull__type_is_half(enum ull__type type);
const char *ull__role_text(enum ull__role role);

#endif
