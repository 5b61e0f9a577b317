/* model.h: what MODEL on a command line means. */
#ifndef ULLAGE_MODEL_H
#define ULLAGE_MODEL_H

#include "graph.h"

/* Whether it is the name of a file, and not one of the zoo. */
bool model_is_file(const char *text);

/*
 * Builds a model of the zoo ("resnet50:image=512") or of a file of ONNX ("model.onnx", "model.onnx:time=128,loss=mse":
 * sizes that the file leaves open, and the loss if it has none). values: weights of a file are read, else only their
 * shapes. ULL_E_INVALID: a name or an argument that there is not; others: the file. Caller destroys.
 */
ull_status model_build(const char *text, bool values, struct ull__graph **graph,
                       struct ull_error *err);

#endif
