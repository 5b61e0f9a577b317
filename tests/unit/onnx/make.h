/*
 * make.h: small ONNX files made by a test.
 *
 *     struct make *m = make_new(13);
 *     make_input(m, "x", 1, "batch,4");
 *     make_weight(m, "w", "4,2");
 *     make_node(m, "MatMul", "x,w", "y");
 *     make_output(m, "y");
 *     size_t size; uint8_t *bytes = make_bytes(m, &size);   (the caller's to free; m is gone)
 *
 * Nothing is checked: wrong files are what it is for.
 */
#ifndef ULLAGE_TESTS_ONNX_MAKE_H
#define ULLAGE_TESTS_ONNX_MAKE_H

#include <stddef.h>
#include <stdint.h>

#include "onnx.pb-c.h"

struct make;

struct make *make_new(int64_t opset);
/* Dimensions: numbers, or names of open ones. type: of TensorProto. */
void make_input(struct make *m, const char *name, int type, const char *dims);
/* f32, with 0, 1/8, 2/8, ... */
Onnx__TensorProto *make_weight(struct make *m, const char *name, const char *dims);
/* i64 of rank 1. */
void make_list(struct make *m, const char *name, const char *numbers);
/* f32 of rank 0. */
void make_number(struct make *m, const char *name, double number);
/* Names separated by commas. */
Onnx__NodeProto *make_node(struct make *m, const char *type, const char *inputs, const char *outputs);
void make_int(struct make *m, Onnx__NodeProto *node, const char *name, int64_t number);
void make_ints(struct make *m, Onnx__NodeProto *node, const char *name, const char *numbers);
void make_output(struct make *m, const char *name);
/* Memory that goes with it. */
void *make_room(struct make *m, size_t size);
char *make_text(struct make *m, const char *text);
Onnx__ModelProto *make_model(struct make *m);
uint8_t *make_bytes(struct make *m, size_t *size);

#endif
