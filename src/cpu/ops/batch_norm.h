/*
 * batch_norm.h: how batch norm and its gradient go through a tensor.
 *
 * The samples of a group are cut into slices, as many whatever the number of threads, so that sums come out alike; a thread
 * adds slices in f32 over short blocks and in f64 above, and the sums of a group's slices are added in order. A slice is
 * rows of channels where these are last in memory, several narrow rows at a time; else whole samples, a channel's run at a time.
 */
#ifndef ULLAGE_CPU_OPS_BATCH_NORM_H
#define ULLAGE_CPU_OPS_BATCH_NORM_H

#include "nest.h"

enum {
    SLICES = 16, /* of a group */
    STRIP = 512, /* elements that are worked on at once */
    BLOCK = 64,  /* strips that are added in f32 */
};

struct norm {
    int64_t channels, inner; /* inner: elements from one channel to the next; 1: channels are last */
    int64_t groups, rows;    /* rows of a group; all but the last have that many */
    int64_t all_rows;        /* rows are channels * inner elements */
    int64_t per_row;         /* elements of a channel in a row */
    double *sums;            /* [group][slice][2][channel] */
};

ALWAYS struct norm norm_of(const struct ull__cpu_operand *x, int64_t group, void *workspace)
{
    struct norm norm = {.channels = x->dims[1], .inner = 1, .sums = workspace};
    int64_t samples = x->dims[0], spatial = 1;
    for (int i = 2; i < x->rank; ++i) {
        spatial *= x->dims[i];
    }
    bool last = spatial == 1 || (x->layout == ULL_LAYOUT_CHANNELS_LAST && x->rank == 4);
    norm.inner = last ? 1 : spatial;
    group = group == 0 || group > samples ? samples : group;
    norm.groups = samples == 0 ? 0 : (samples + group - 1) / group;
    norm.rows = last ? group * spatial : group;
    norm.all_rows = last ? samples * spatial : samples;
    norm.per_row = norm.inner;
    return norm;
}

ALWAYS int64_t norm_workspace(const struct norm *norm)
{
    return norm->groups * SLICES * 2 * norm->channels * (int64_t)sizeof(double);
}

ALWAYS double *norm_sums(const struct norm *norm, int64_t group, int64_t slice, int which)
{
    return norm->sums + ((group * SLICES + slice) * 2 + which) * norm->channels;
}

/* The rows of a group that there are. */
ALWAYS int64_t norm_rows(const struct norm *norm, int64_t group)
{
    return least(norm->rows, norm->all_rows - group * norm->rows);
}

/* The rows of a slice, counted over all groups. */
ALWAYS void norm_slice(const struct norm *norm, int64_t group, int64_t slice, int64_t *begin,
                       int64_t *end)
{
    int64_t rows = norm_rows(norm, group);
    *begin = group * norm->rows + rows * slice / SLICES;
    *end = group * norm->rows + rows * (slice + 1) / SLICES;
}

/* Elements of a channel in a group. */
ALWAYS double norm_count(const struct norm *norm, int64_t group)
{
    return (double)norm_rows(norm, group) * (double)norm->per_row;
}

/* Columns [left, left + width) of channels-last rows; where that is all of them, `fold` rows make a strip. */
struct strip {
    int64_t left, width, fold;
};

ALWAYS struct strip norm_strip(const struct norm *norm, int64_t left)
{
    struct strip strip = {.left = left, .width = least(STRIP, norm->channels - left), .fold = 1};
    if (strip.width == norm->channels) {
        strip.fold = STRIP / norm->channels;
    }
    return strip;
}

/* A vector of the strip's columns, once for each row that it has. */
ALWAYS void norm_repeat(const struct strip *strip, float *values)
{
    for (int64_t i = 1; i < strip->fold; ++i) {
        memcpy(values + i * strip->width, values, (size_t)strip->width * sizeof(*values));
    }
}

/* Adds the strip's sums to those of its channels, and zeros them. */
ALWAYS void norm_flush(const struct strip *strip, float *sums, double *to)
{
    for (int64_t i = 0; i < strip->fold; ++i) {
        for (int64_t c = 0; c < strip->width; ++c) {
            to[strip->left + c] += (double)sums[i * strip->width + c];
        }
    }
    memset(sums, 0, (size_t)(strip->fold * strip->width) * sizeof(*sums));
}

/* The sum of a channel's slices, in order. */
ALWAYS double norm_total(const struct norm *norm, int64_t group, int64_t channel, int which)
{
    double total = 0;
    for (int64_t slice = 0; slice < SLICES; ++slice) {
        total += norm_sums(norm, group, slice, which)[channel];
    }
    return total;
}

#endif
