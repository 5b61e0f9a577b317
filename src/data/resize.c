/*
 * resize.c: see resize.h. Rows first, then columns of the one row that came out: that way the first
 * pass runs along memory, and only one row of floats lies between the two.
 */
#include "resize.h"

#include <math.h>
#include <stdlib.h>

/* Pixels first … first + taps - 1 with these weights, which sum up to one. */
static void weigh(int begin, int length, int out_length, int taps, int *firsts, float *weights)
{
    const double scale = (double)length / out_length, reach = scale > 1 ? scale : 1;
    for (int i = 0; i < out_length; i++) {
        double middle = (i + 0.5) * scale, sum = 0;
        int first = (int)floor(middle - reach);
        if (first + taps > length)
            first = length - taps;
        if (first < 0)
            first = 0;
        float *row = weights + (size_t)i * (size_t)taps;
        for (int k = 0; k < taps; k++) {
            double weight = 0;
            if (first + k < length)
                weight = 1 - fabs(first + k + 0.5 - middle) / reach;
            weight = weight > 0 ? weight : 0;
            row[k] = (float)weight;
            sum += weight;
        }
        for (int k = 0; k < taps; k++)
            row[k] = (float)(row[k] / sum);
        firsts[i] = begin + first;
    }
}

static int count_taps(int length, int out_length)
{
    double scale = (double)length / out_length, reach = scale > 1 ? scale : 1;
    int taps = (int)ceil(2 * reach) + 1;
    return taps < length ? taps : length;
}

/* row = the weighted sum of `taps` rows of bytes, `stride` apart. */
static void sum_rows(const uint8_t *restrict bytes, size_t stride, int taps,
                     const float *restrict weights, size_t size, float *restrict row)
{
    for (size_t i = 0; i < size; i++)
        row[i] = weights[0] * (float)bytes[i];
    for (int k = 1; k < taps; k++) {
        const uint8_t *restrict line = bytes + (size_t)k * stride;
        const float weight = weights[k];
        if (weight == 0)
            continue;
        for (size_t i = 0; i < size; i++)
            row[i] += weight * (float)line[i];
    }
}

ull_status ull__resize(struct ull__resize *resize, const uint8_t *pixels, int width, int channels,
                       struct ull__box box, bool mirrored, const float *scale, const float *offset,
                       int out_width, int out_height, float *out)
{
    const int taps_x = count_taps(box.width, out_width), taps_y = count_taps(box.height, out_height);
    const size_t row_size = (size_t)box.width * (size_t)channels;
    const size_t need = (size_t)out_width * (size_t)(taps_x + 1) +
                        (size_t)out_height * (size_t)(taps_y + 1) + row_size;
    if (need > resize->size) {
        free(resize->memory);
        resize->size = 0;
        resize->memory = malloc(need * sizeof(float));
        if (!resize->memory)
            return ULL_E_NO_MEMORY;
        resize->size = need;
    }
    float *weights_x = resize->memory, *weights_y = weights_x + out_width * (size_t)taps_x;
    float *row = weights_y + out_height * (size_t)taps_y;
    int *first_x = (int *)(row + row_size), *first_y = first_x + out_width;
    weigh(0, box.width, out_width, taps_x, first_x, weights_x);
    weigh(box.y, box.height, out_height, taps_y, first_y, weights_y);

    const size_t stride = (size_t)width * (size_t)channels;
    const size_t plane = (size_t)out_width * (size_t)out_height;
    for (int y = 0; y < out_height; y++) {
        const uint8_t *from = pixels + (size_t)first_y[y] * stride + (size_t)box.x * (size_t)channels;
        sum_rows(from, stride, taps_y, weights_y + (size_t)y * (size_t)taps_y, row_size, row);
        float *to = out + (size_t)y * (size_t)out_width;
        for (int x = 0; x < out_width; x++) {
            const float *weights = weights_x + (size_t)x * (size_t)taps_x;
            const float *at = row + (size_t)first_x[x] * (size_t)channels;
            const int put = mirrored ? out_width - 1 - x : x;
            if (channels == 3) {
                float red = 0, green = 0, blue = 0;
                for (int k = 0; k < taps_x; k++, at += 3) {
                    red += weights[k] * at[0];
                    green += weights[k] * at[1];
                    blue += weights[k] * at[2];
                }
                to[put] = red * scale[0] + offset[0];
                to[put + plane] = green * scale[1] + offset[1];
                to[put + 2 * plane] = blue * scale[2] + offset[2];
            } else {
                float sum = 0;
                for (int k = 0; k < taps_x; k++)
                    sum += weights[k] * at[k];
                to[put] = sum * scale[0] + offset[0];
            }
        }
    }
    return ULL_OK;
}
