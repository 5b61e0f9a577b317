/* onnx_private.h: what the files of src/onnx share. */
#ifndef ULLAGE_ONNX_PRIVATE_H
#define ULLAGE_ONNX_PRIVATE_H

#include "onnx.h"
#include "onnx.pb-c.h"
#include "ops.h"

enum {
    NESTING = 32,           /* of messages */
    MESSAGES = 1 << 22,     /* in a file */
    CELLS_OF_ONE = 1 << 22, /* elements of a tensor that is folded */
    CELLS_OF_ALL = 1 << 24, /* of all of them */
};

/* An element that is known: a whole number or a truth, maybe with symbols; or a real number. */
union cell {
    ull__dim whole;
    double real;
};

/* A name of the file: what is known of it so far. */
struct value {
    const char *name;
    const Onnx__TensorProto *initializer;
    const struct ull__onnx_tensor *given;
    int maker; /* place of the node in the file; ULL_NONE */
    bool made; /* shape and type are known */
    enum ull__type type;
    int rank;
    ull__dim dims[ULL_RANK];
    int64_t count;     /* of elements, of what has cells */
    union cell *cells; /* NULL: the elements are not known */
    bool weight;       /* trained, or made of what is: not folded away */
    bool state;        /* kept, not trained: statistics */
    int tensor;        /* of the graph; ULL_NONE as long as nobody reads it there */
};

struct piece;

struct reader {
    const struct ull__onnx_options *options;
    const Onnx__GraphProto *file;
    struct ull__graph *graph;
    int64_t opset;

    struct value *values;
    int value_count;
    int *slots; /* hash table of places in values, ULL_NONE: free */
    size_t slot_count;

    int64_t first;      /* the fixed first dimension that became the symbol; 0: there was none */
    int64_t cells_left; /* that may be made */
    struct piece *pieces;

    ull_status status;
    struct ull_error error;
};

/* A node that is being translated. */
struct call {
    struct reader *reader;
    struct ull__graph *graph;
    const Onnx__NodeProto *node;
    int64_t opset;
};

struct translator {
    const char *name;
    void (*translate)(struct call *call);
};

/* --- read.c --- */

/* Keeps the first error. */
void reader_fail(struct reader *r, ull_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool reader_ok(const struct reader *r);
/* An error of the node that is translated. */
void call_fail(const struct call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Zeroed memory that goes with the reader; NULL and an error. */
void *reader_alloc(struct reader *r, size_t count, size_t size);
/* A name for a message: without control characters, and not too long. Up to four at once. */
const char *shown(const char *name);

/* --- wire.c --- */

/* Whether nesting and number of messages are within bounds. Does not read what is no message. */
ull_status ull__onnx_scan(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                          struct ull_error *err);

/* --- external.c --- */

/* Reads a part of a file beside the model. *data is the caller's to free. */
ull_status ull__onnx_external(const char *folder, const Onnx__TensorProto *tensor, size_t bytes,
                              void **data, struct ull_error *err);

/* --- tensor.c --- */

/* ULL_TYPES: none. */
enum ull__type type_of_file(int32_t number);
/* The type that it has in the graph. */
enum ull__type type_in_graph(const struct reader *r, enum ull__type type);
/* Type and dimensions; false and an error kept. */
bool tensor_shape(struct reader *r, const Onnx__TensorProto *tensor, enum ull__type *type,
                  int *rank, int64_t *dims, int64_t *count);
/* Its bytes, rows in the machine's order, of its type; the reader's. NULL and an error. */
void *tensor_data(struct reader *r, const Onnx__TensorProto *tensor);
/* Elements from bytes and back; for types of whole numbers, bool and floats. */
void cells_from_bytes(enum ull__type type, const void *bytes, int64_t count, union cell *cells);
void cells_to_bytes(enum ull__type type, const union cell *cells, int64_t count, void *bytes);

/* --- values.c --- */

/* NULL: no such name. */
struct value *value_find(struct reader *r, const char *name);
/* Makes room for a name; an error if it is there. */
struct value *value_add(struct reader *r, const char *name);
/* Fills in shape and type of an initializer. */
bool value_load(struct reader *r, struct value *value);
/* Whether the elements are known now. Of a weight too: its first values. */
bool value_cells(struct reader *r, struct value *value);
/* As a tensor of the graph; made at the first call. */
int value_tensor(struct reader *r, struct value *value);
union cell *cells_new(struct reader *r, int64_t count);
/* Two sizes that must be equal for every batch. */
bool same_size(struct reader *r, ull__dim a, ull__dim b);

/* --- inputs.c --- */

/* Names of sizes that a caller gives are those of open ones. */
void check_sizes(struct reader *r);
/* Inputs that are no initializers become those of the graph. */
void add_inputs(struct reader *r);

/* --- call.c: inputs, outputs and attributes of the node that is translated --- */

bool has_input(const struct call *call, int i);
/* NULL: not there. */
struct value *input(const struct call *call, int i);
/* As a tensor of the graph; ULL_NONE: not there, or an error. */
int tensor(const struct call *call, int i);
/* As whole numbers, maybe with symbols. False: they are not known, which is an error. */
bool wholes(const struct call *call, int i, int most, ull__dim *numbers, int *count);
/* The same of whole numbers without symbols. */
bool integers(const struct call *call, int i, int most, int64_t *numbers, int *count);
/* A known number that is not trained, of one element. */
bool scalar(const struct call *call, int i, double *number);
/* All inputs that are there have known elements, at least one is, and none is a weight. */
bool all_known(const struct call *call);

const Onnx__AttributeProto *attribute(const struct call *call, const char *name);
int64_t attribute_int(const struct call *call, const char *name, int64_t otherwise);
double attribute_float(const struct call *call, const char *name, double otherwise);
/* False: not there, or an error for too many. */
bool attribute_ints(const struct call *call, const char *name, int most, int64_t *numbers,
                    int *count);
/* Whether it is that text; `otherwise` if it is not there. */
bool attribute_is(const struct call *call, const char *name, const char *text, bool otherwise);
/* 0 to rank - 1 of an axis that may count from the end; ULL_NONE and an error. */
int axis_of(const struct call *call, int64_t axis, int rank);
int attribute_axis(const struct call *call, const char *name, int64_t otherwise, int rank);

bool wants_output(const struct call *call, int i);
/* An output that is a tensor of the graph. */
void put(const struct call *call, int i, int tensor);
/* An output with known elements. */
void put_cells(const struct call *call, enum ull__type type, int rank, const ull__dim *dims,
               int64_t count, union cell *cells);
/* An output that is the same as an input. */
void put_same(const struct call *call, int i, struct value *value);

/* --- fold.c, fold_parts.c --- */

/* The number of elements; -1: not a number, or more than are folded. */
int64_t cells_count(int rank, const ull__dim *dims);

/*
 * Elements of a value in another order: those at base + sum of index[i] * stride[i]. False: not folded, because they
 * are not known or too many. True also after an error.
 */
bool fold_move(const struct call *call, struct value *from, int64_t base, int rank,
               const ull__dim *dims, const int64_t *strides);
/* Strides of rows. */
void strides_of(int rank, const ull__dim *dims, int64_t *strides);
bool fold_same(const struct call *call, struct value *from, int rank, const ull__dim *dims);
bool fold_binary(const struct call *call, enum ull__binary kind);
bool fold_mod(const struct call *call);
bool fold_unary(const struct call *call, enum ull__unary kind);
bool fold_where(const struct call *call);
bool fold_concat(const struct call *call, int axis);
bool fold_gather(const struct call *call, int axis);
bool fold_cast(const struct call *call, enum ull__type to);
bool fold_fill(const struct call *call, enum ull__type type, int rank, const ull__dim *dims,
               union cell cell);

/* --- ops_*.c, operators.c --- */

const struct translator *operator_find(const char *name);

#define T(name) void translate_##name(struct call *call)
T(cast);
T(unary);
T(binary);
T(variadic);
T(where);
T(reduce);
T(clip);
T(identity);
T(dropout);
T(pow);
T(softmax);
T(matmul);
T(gemm);
T(conv);
T(conv_transpose);
T(pool);
T(global_pool);
T(batch_norm);
T(layer_norm);
T(instance_norm);
T(prelu);
T(composed);
T(mod);
T(einsum);
T(scatter);
T(loss);
T(constant);
T(constant_of_shape);
T(shape);
T(size);
T(range);
T(reshape);
T(flatten);
T(squeeze);
T(unsqueeze);
T(transpose);
T(expand);
T(tile);
T(concat);
T(split);
T(slice);
T(gather);
T(pad);
T(resize);
T(depth);
T(trilu);
#undef T

/* --- fuse.c --- */

/*
 * The graph again without what nobody reads, with decomposed operators put together unless they stay apart. The old
 * one is gone. NULL without memory.
 */
struct ull__graph *ull__onnx_fuse(struct ull__graph *from, bool apart);

/* --- ends.c --- */

/* Results and losses. */
void put_ends(struct reader *r);

#endif
