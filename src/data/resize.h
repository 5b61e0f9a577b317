/*
 * resize.h: a part of a picture of bytes becomes planes of f32 of another size.
 *
 * Bilinear with antialiasing: each value is the mean of the pixels below it, weighted by a triangle as
 * wide as the scale (and never narrower than one pixel), so a picture made smaller does not flicker and
 * one of the same size keeps its values exactly. The part is cut out first: pixels outside it have no
 * weight. Then value * scale + offset, a number each per channel, and mirrored if asked.
 */
#ifndef ULLAGE_DATA_RESIZE_H
#define ULLAGE_DATA_RESIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/status.h"

/* The memory it works in, kept between pictures. Zeroed at first. */
struct ull__resize {
    float *memory;
    size_t size; /* in floats */
};

struct ull__box {
    int x, y, width, height; /* in pixels, inside the picture */
};

/*
 * pixels: rows of `width` pixels of `channels` (1 or 3) bytes each. out: [channels][height][width] of
 * out_height x out_width. scale and offset: one number a channel. ULL_E_NO_MEMORY.
 */
ull_status ull__resize(struct ull__resize *resize, const uint8_t *pixels, int width, int channels,
                       struct ull__box box, bool mirrored, const float *scale, const float *offset,
                       int out_width, int out_height, float *out);

#endif
