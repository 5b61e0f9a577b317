/*
 * suite.h: ONNX's own test models (Debian's libonnx-testdata): each a folder with model.onnx and
 * test_data_set_0/input_0.pb, output_0.pb ...
 */
#ifndef ULLAGE_TESTS_ONNX_SUITE_H
#define ULLAGE_TESTS_ONNX_SUITE_H

#include "onnx.h"

enum { SUITE_TENSORS = 16 };

struct suite_case {
    char name[200]; /* "node/test_abs" */
    char folder[400];
    struct ull__onnx_tensor inputs[SUITE_TENSORS], outputs[SUITE_TENSORS];
    int input_count, output_count; /* output_count -1: they are no tensors */
};

/* Names of all cases in order, below the folder of the package; NULL after the last one. The caller's, with free. */
char **suite_names(const char *data);
/* Reads tensors, with names of the model's inputs. False: there is no such case. */
bool suite_load(const char *data, const char *name, struct suite_case *c);
void suite_finish(struct suite_case *c);

/* What a model of a case becomes. given: how many of its inputs are constants of the graph, bit i the i-th. */
struct suite_result {
    struct ull__graph *graph; /* NULL: not supported */
    unsigned given;
    struct ull_error why;
};

/*
 * Reads the model with as few inputs as constants as it can do with: shapes and the like have to be known. The
 * caller destroys the graph.
 */
void suite_read(const struct suite_case *c, struct suite_result *result);

#endif
