/*
 * conv.h: the shape of a convolution, whichever of its operands is computed.
 *
 * `big` are the pictures before it, [n, ic, ih, iw], `small` those after it, [n, oc, oh, ow]; weights are
 * [oc, ic / groups, kh, kw]. A transposed convolution and the gradient by the input compute `big`.
 */
#ifndef ULLAGE_CPU_CONV_H
#define ULLAGE_CPU_CONV_H

#include <stdbool.h>
#include <stdint.h>

enum ull__conv_direction { ULL_CONV_SMALL, ULL_CONV_BIG, ULL_CONV_WEIGHTS };

struct ull__conv {
    enum ull__conv_direction direction; /* which is computed */
    int64_t n, groups, ic, oc, ih, iw, oh, ow, kh, kw;
    int64_t stride[2], dilation[2], before[2], after[2];
    bool big_last, small_last; /* channels last */
};

#endif
