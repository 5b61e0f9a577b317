/* conv_plain.c: see conv_plain.h. */
#include "conv_plain.h"

#include <string.h>

#include "../gemm.h"

enum { BLOCK_BYTES = 1 << 18 };

/* Elements of a column: what one position meets. */
static int64_t depth(const struct ull__conv *conv)
{
    return conv->ic / conv->groups * conv->kh * conv->kw;
}

/* Positions that are laid out at a time. */
static int64_t block(const struct ull__conv *conv)
{
    int64_t fits = BLOCK_BYTES / (4 * (depth(conv) + 1)), all = conv->oh * conv->ow;
    fits = fits < 16 ? 16 : fits;
    return fits < all ? fits : all;
}

size_t ull__conv_columns_bytes(const struct ull__conv *conv)
{
    return (size_t)(block(conv) * depth(conv)) * sizeof(float);
}

/* Calls for each element of the big picture that position (y, x) of the small one meets, in the order of the weights. */
#define FOR_EACH_MET(conv, first, y, x, body)                                                        \
    for (int64_t c_ = 0, k = 0; c_ < (conv)->ic / (conv)->groups; ++c_) {                            \
        for (int64_t i_ = 0; i_ < (conv)->kh; ++i_) {                                                \
            for (int64_t j_ = 0; j_ < (conv)->kw; ++j_, ++k) {                                       \
                int64_t h_ = (y) * (conv)->stride[0] + i_ * (conv)->dilation[0] - (conv)->before[0]; \
                int64_t w_ = (x) * (conv)->stride[1] + j_ * (conv)->dilation[1] - (conv)->before[1]; \
                bool inside = h_ >= 0 && h_ < (conv)->ih && w_ >= 0 && w_ < (conv)->iw;              \
                int64_t at = (conv)->big_last                                                        \
                                 ? (h_ * (conv)->iw + w_) * (conv)->ic + (first) + c_                \
                                 : ((first) + c_) * (conv)->ih * (conv)->iw + h_ * (conv)->iw + w_;  \
                body                                                                                 \
            }                                                                                        \
        }                                                                                            \
    }

static void lay_out(const struct ull__conv *conv, int64_t first, const float *big, int64_t begin,
                    int64_t end, float *columns)
{
    int64_t deep = depth(conv);
    for (int64_t p = begin; p < end; ++p) {
        float *column = columns + (p - begin) * deep;
        FOR_EACH_MET(conv, first, p / conv->ow, p % conv->ow, column[k] = inside ? big[at] : 0;)
    }
}

static void add_back(const struct ull__conv *conv, int64_t first, const float *columns,
                     int64_t begin, int64_t end, float *big)
{
    int64_t deep = depth(conv);
    for (int64_t p = begin; p < end; ++p) {
        const float *column = columns + (p - begin) * deep;
        FOR_EACH_MET(
            conv, first, p / conv->ow, p % conv->ow, if (inside) { big[at] += column[k]; })
    }
}

void ull__conv_plain_small(const struct ull__cpu_library *library, const struct ull__conv *conv,
                           const float *big, const float *weights, float *small, float *columns)
{
    int64_t all = conv->oh * conv->ow, step = block(conv), deep = depth(conv);
    int64_t out = conv->oc / conv->groups;
    for (int64_t g = 0; g < conv->groups; ++g) {
        const float *w = weights + g * out * deep;
        for (int64_t begin = 0; begin < all; begin += step) {
            int64_t end = begin + step < all ? begin + step : all;
            lay_out(conv, g * (conv->ic / conv->groups), big, begin, end, columns);
            if (conv->small_last) {
                ull__gemm(library, false, true, end - begin, out, deep, 1, columns, deep, w, deep,
                          0, small + begin * conv->oc + g * out, conv->oc);
            } else {
                ull__gemm(library, false, true, out, end - begin, deep, 1, w, deep, columns, deep,
                          0, small + g * out * all + begin, all);
            }
        }
    }
}

void ull__conv_plain_big(const struct ull__cpu_library *library, const struct ull__conv *conv,
                         const float *small, const float *weights, float *big, float *columns)
{
    int64_t all = conv->oh * conv->ow, step = block(conv), deep = depth(conv);
    int64_t out = conv->oc / conv->groups;
    memset(big, 0, (size_t)(conv->ic * conv->ih * conv->iw) * sizeof(float));
    for (int64_t g = 0; g < conv->groups; ++g) {
        const float *w = weights + g * out * deep;
        for (int64_t begin = 0; begin < all; begin += step) {
            int64_t end = begin + step < all ? begin + step : all;
            if (conv->small_last) {
                ull__gemm(library, false, false, end - begin, deep, out, 1,
                          small + begin * conv->oc + g * out, conv->oc, w, deep, 0, columns, deep);
            } else {
                ull__gemm(library, true, false, end - begin, deep, out, 1,
                          small + g * out * all + begin, all, w, deep, 0, columns, deep);
            }
            add_back(conv, g * (conv->ic / conv->groups), columns, begin, end, big);
        }
    }
}

void ull__conv_plain_weights(const struct ull__cpu_library *library, const struct ull__conv *conv,
                             const float *big, const float *small, float *weights, float *columns)
{
    int64_t all = conv->oh * conv->ow, step = block(conv), deep = depth(conv);
    int64_t out = conv->oc / conv->groups;
    for (int64_t g = 0; g < conv->groups; ++g) {
        float *w = weights + g * out * deep;
        for (int64_t begin = 0; begin < all; begin += step) {
            int64_t end = begin + step < all ? begin + step : all;
            lay_out(conv, g * (conv->ic / conv->groups), big, begin, end, columns);
            if (conv->small_last) {
                ull__gemm(library, true, false, out, deep, end - begin, 1,
                          small + begin * conv->oc + g * out, conv->oc, columns, deep, 1, w, deep);
            } else {
                ull__gemm(library, false, false, out, deep, end - begin, 1,
                          small + g * out * all + begin, all, columns, deep, 1, w, deep);
            }
        }
    }
}
