/*
 * resize.c: see resize.h. Rows first, then columns of the one row that came out: that way the first
 * pass runs along memory, and only one row of floats lies between the two. Each row of the picture is
 * made floats once. Sums are in the same order on every processor.
 */
#include "resize.h"

#include <math.h>
#include <stdlib.h>

/* Pixels first … first + taps - 1 with these weights, which sum up to one. */
static void weigh(int length, int out_length, int taps, int *firsts, float *weights)
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
        firsts[i] = first;
    }
}

static int count_taps(int length, int out_length)
{
    double scale = (double)length / out_length, reach = scale > 1 ? scale : 1;
    int taps = (int)ceil(2 * reach) + 1;
    return taps < length ? taps : length;
}

/* Four values at any address of floats. */
typedef float four __attribute__((vector_size(16), aligned(4)));

static void widen(const uint8_t *restrict bytes, size_t size, float *restrict row)
{
    for (size_t i = 0; i < size; i++)
        row[i] = (float)bytes[i];
}

/* row = the weighted sum of up to four rows, added to what is there if `more`. */
static void sum_rows(const float *const lines[4], const float weights[4], bool more, size_t size,
                     float *restrict row)
{
    const float *restrict a = lines[0], *restrict b = lines[1];
    const float *restrict c = lines[2], *restrict d = lines[3];
    const float p = weights[0], q = weights[1], r = weights[2], s = weights[3];
    if (more)
        for (size_t i = 0; i < size; i++)
            row[i] += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i]);
    else
        for (size_t i = 0; i < size; i++)
            row[i] = (p * a[i] + q * b[i]) + (r * c[i] + s * d[i]);
}

/* The rows of a picture as floats, the last `count` that were asked for. */
struct lines {
    const uint8_t *pixels;
    size_t stride, size; /* of a row of the picture, and of what is taken of it */
    float *memory;
    int count, next; /* rows below next are there, as far as they fit */
};

static const float *line(struct lines *lines, int y)
{
    for (; lines->next <= y; lines->next++)
        if (lines->next > y - lines->count)
            widen(lines->pixels + (size_t)lines->next * lines->stride, lines->size,
                  lines->memory + (size_t)(lines->next % lines->count) * lines->size);
    return lines->memory + (size_t)(y % lines->count) * lines->size;
}

static void make_row(struct lines *lines, int first, int taps, const float *weights, float *row)
{
    line(lines, first + taps - 1);
    for (int k = 0; k < taps; k += 4) {
        const float *of[4];
        float by[4];
        for (int i = 0; i < 4; i++) {
            bool inside = k + i < taps;
            of[i] = line(lines, first + (inside ? k + i : k));
            by[i] = inside ? weights[k + i] : 0;
        }
        sum_rows(of, by, k > 0, lines->size, row);
    }
}

/* One row of colours: three of each four values are a pixel's, the fourth is the next one's. */
static void spread_colours(const float *row, const int *firsts, int taps, const float *weights,
                           const float *scale, const float *offset, int width, bool mirrored,
                           size_t plane, float *out)
{
    const four by = {scale[0], scale[1], scale[2], 0}, plus = {offset[0], offset[1], offset[2], 0};
    for (int x = 0; x < width; x++, weights += taps) {
        const float *at = row + 3 * (size_t)firsts[x];
        four sum = {0, 0, 0, 0};
        for (int k = 0; k < taps; k++, at += 3)
            sum += weights[k] * *(const four *)at;
        sum = sum * by + plus;
        float *to = out + (mirrored ? width - 1 - x : x);
        to[0] = sum[0];
        to[plane] = sum[1];
        to[2 * plane] = sum[2];
    }
}

static void spread_gray(const float *row, const int *firsts, int taps, const float *weights,
                        float scale, float offset, int width, bool mirrored, float *out)
{
    for (int x = 0; x < width; x++, weights += taps) {
        const float *at = row + firsts[x];
        float sum = 0;
        for (int k = 0; k < taps; k++)
            sum += weights[k] * at[k];
        out[mirrored ? width - 1 - x : x] = sum * scale + offset;
    }
}

ull_status ull__resize(struct ull__resize *resize, const uint8_t *pixels, int width, int channels,
                       struct ull__box box, bool mirrored, const float *scale, const float *offset,
                       int out_width, int out_height, float *out)
{
    const int taps_x = count_taps(box.width, out_width), taps_y = count_taps(box.height, out_height);
    const size_t row_size = (size_t)box.width * (size_t)channels;
    const size_t need = (size_t)out_width * (size_t)(taps_x + 1) +
                        (size_t)out_height * (size_t)(taps_y + 1) +
                        row_size * (size_t)(taps_y + 1) + 4;
    if (need > resize->size) {
        free(resize->memory);
        resize->size = 0;
        resize->memory = malloc(need * sizeof(float));
        if (!resize->memory)
            return ULL_E_NO_MEMORY;
        resize->size = need;
    }
    float *weights_x = resize->memory, *weights_y = weights_x + out_width * (size_t)taps_x;
    float *row = weights_y + out_height * (size_t)taps_y, *memory = row + row_size + 4;
    int *first_x = (int *)(memory + row_size * (size_t)taps_y), *first_y = first_x + out_width;
    row[row_size] = 0; /* read beside the last pixel, and not used */
    weigh(box.width, out_width, taps_x, first_x, weights_x);
    weigh(box.height, out_height, taps_y, first_y, weights_y);

    struct lines lines = {.stride = (size_t)width * (size_t)channels,
                          .size = row_size,
                          .memory = memory,
                          .count = taps_y};
    lines.pixels = pixels + (size_t)box.y * lines.stride + (size_t)box.x * (size_t)channels;
    for (int y = 0; y < out_height; y++) {
        make_row(&lines, first_y[y], taps_y, weights_y + (size_t)y * (size_t)taps_y, row);
        float *to = out + (size_t)y * (size_t)out_width;
        if (channels == 3)
            spread_colours(row, first_x, taps_x, weights_x, scale, offset, out_width, mirrored,
                           (size_t)out_width * (size_t)out_height, to);
        else
            spread_gray(row, first_x, taps_x, weights_x, scale[0], offset[0], out_width, mirrored,
                        to);
    }
    return ULL_OK;
}
