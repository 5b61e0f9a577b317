/*
 * onnx.h: models in ONNX files (operator sets 6 to 17) as graphs.
 *
 * The file's operators become those of src/graph. Shape computations are folded, constants too; layer norm, GELU and
 * attention that an exporter has taken apart are put together again. Floating-point initializers become
 * parameters, everything else constants. What a training needs is added: the first dimension of the inputs becomes the
 * symbol `batch`, batch norm works on the batch's statistics, 16-bit and 64-bit floats become f32 (precision is a
 * pass of its own), and a loss is put behind the first output where the file has none.
 *
 * A file is not trusted: sizes, nesting, cycles and names are checked, time and memory are bounded by the file's
 * size and by limits below. Loops, branches, sequences, quantized operators and other domains are not supported:
 * all operators that are not are named at once.
 */
#ifndef ULLAGE_ONNX_H
#define ULLAGE_ONNX_H

#include "graph.h"

/* A file of weights and all is at most what protobuf allows. */
#define ULL_ONNX_MOST_BYTES ((size_t)INT32_MAX)
enum { ULL_ONNX_OPSET_LEAST = 6, ULL_ONNX_OPSET_MOST = 17 };

enum ull__onnx_loss {
    ULL_ONNX_LOSS_AUTO, /* the model's; else cross-entropy behind [batch, classes] and [batch, time, classes], else mse */
    ULL_ONNX_LOSS_MSE,
    ULL_ONNX_LOSS_CROSS_ENTROPY, /* classes are dimension 1 of pictures, else the last one */
};

/* A value for a dimension that the file leaves open. */
struct ull__onnx_size {
    char name[64];
    int64_t value;
};

/* A tensor of a file: rows, in the machine's byte order. */
struct ull__onnx_tensor {
    char name[256];
    enum ull__type type;
    int rank;
    int64_t dims[ULL_RANK];
    void *data;
    size_t bytes;
};

struct ull__onnx_options {
    const char *label;  /* of the model, for messages: its path */
    const char *folder; /* where data outside of the file lies; NULL: there may be none */
    bool values;        /* weights get their values; else their shapes alone */
    bool as_is; /* types, sizes, batch norm and dropout as in the file, and no loss: an inference */
    bool apart; /* decomposed operators stay so: to compare with */
    enum ull__onnx_loss loss;
    const struct ull__onnx_size *sizes;
    int size_count;
    const struct ull__onnx_tensor *given; /* inputs that are constants: their values */
    int given_count;
};

/*
 * ULL_E_FORMAT: not a model, one that contradicts itself, or one that this reader does not support; the message says
 * what and where. ULL_E_NOT_FOUND, ULL_E_PERMISSION, ULL_E_SYSTEM: the file, or the one with its weights.
 * ULL_E_INVALID: a size that is not open, or an open one without a value. Caller destroys the graph.
 */
ull_status ull__onnx_read(const char *path, const struct ull__onnx_options *options,
                          struct ull__graph **graph, struct ull_error *err);
ull_status ull__onnx_parse(const void *data, size_t size, const struct ull__onnx_options *options,
                           struct ull__graph **graph, struct ull_error *err);

/* A tensor alone, as in the .pb files beside ONNX's test models. Caller finishes it. */
ull_status ull__onnx_tensor_parse(const void *data, size_t size, struct ull__onnx_tensor *tensor,
                                  struct ull_error *err);
void ull__onnx_tensor_finish(struct ull__onnx_tensor *tensor);

/* Names of the operators that are supported, in the order of the alphabet; NULL after the last one. */
const char *ull__onnx_operator(int i);

#endif
