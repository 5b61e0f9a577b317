/*
 * conv_plain.h: one sample of a convolution as products of matrices, for what oneDNN has no fast code for.
 *
 * Some positions of the small picture at a time are laid out as rows of columns [positions, channels * kh * kw] in `columns`,
 * which has room for ull__conv_columns_bytes.
 */
#ifndef ULLAGE_CPU_CONV_PLAIN_H
#define ULLAGE_CPU_CONV_PLAIN_H

#include <stddef.h>

#include "../conv.h"
#include "../kernel.h"

#define ull__conv_columns_bytes ULL_ISA_NAME(ull__conv_columns_bytes)
#define ull__conv_plain_small ULL_ISA_NAME(ull__conv_plain_small)
#define ull__conv_plain_big ULL_ISA_NAME(ull__conv_plain_big)
#define ull__conv_plain_weights ULL_ISA_NAME(ull__conv_plain_weights)

size_t ull__conv_columns_bytes(const struct ull__conv *conv);
void ull__conv_plain_small(const struct ull__cpu_library *library, const struct ull__conv *conv,
                           const float *big, const float *weights, float *small, float *columns);
void ull__conv_plain_big(const struct ull__cpu_library *library, const struct ull__conv *conv,
                         const float *small, const float *weights, float *big, float *columns);
/* Adds to weights. */
void ull__conv_plain_weights(const struct ull__cpu_library *library, const struct ull__conv *conv,
                             const float *big, const float *small, float *weights, float *columns);

#endif
