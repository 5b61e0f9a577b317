/* order.h: an order to translate nodes in. */
#ifndef ULLAGE_ONNX_ORDER_H
#define ULLAGE_ONNX_ORDER_H

#include "onnx_private.h"

/* Places of nodes in the file, each after what it reads, else as in the file. NULL and an error: a cycle, or a name
 * that nobody makes. */
int *order_of_nodes(struct reader *r);

#endif
