/*
 * onednn.h: a convolution of oneDNN for some samples, called by each thread for its own.
 *
 * Of oneDNN 2.x and 3.x, whichever headers this was compiled with. Only its generated code is taken: implementations that lower
 * to products of matrices pack them in memory of their own, and its reference is slower than plain loops.
 */
#ifndef ULLAGE_CPU_ONEDNN_H
#define ULLAGE_CPU_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>

#include "conv.h"

struct ull__cpu_library;
struct ull__dnnl_conv;

/*
 * For `samples` samples of a convolution, f32. NULL: oneDNN is not there, or has nothing fast for it. bias: of the forward direction,
 * f32, a vector.
 */
struct ull__dnnl_conv *ull__dnnl_conv_create(const struct ull__cpu_library *library,
                                             const struct ull__conv *conv, int64_t samples,
                                             bool bias);
void ull__dnnl_conv_destroy(struct ull__dnnl_conv *conv);

const char *ull__dnnl_conv_name(const struct ull__dnnl_conv *conv);
/* Of the weights as it wants them, and of what it needs while it runs, for each thread. */
size_t ull__dnnl_conv_weights_bytes(const struct ull__dnnl_conv *conv);
size_t ull__dnnl_conv_scratch_bytes(const struct ull__dnnl_conv *conv);

/* Weights by rows [oc, ic / groups, kh, kw] into the form that it wants, or its result into rows. */
void ull__dnnl_conv_pack(struct ull__dnnl_conv *conv, int thread, const float *rows, float *packed);
void ull__dnnl_conv_unpack(struct ull__dnnl_conv *conv, int thread, const float *packed, float *rows);

/* big, small: the pictures (conv.h); which of them and the weights are written is the direction's. */
void ull__dnnl_conv_run(struct ull__dnnl_conv *conv, int thread, const float *big,
                        const float *packed, const float *bias, const float *small, void *scratch);

#endif
