/*
 * windows.h: samples of t tokens out of one long row of them, in memory or in a file.
 *
 * In training the windows of an epoch do not overlap; shuffled, they begin a little later each epoch (by
 * seed and epoch, less than a window), so that not always the same tokens lie at the seams. What is left
 * at the ends is not seen in that epoch. In evaluation every token but the first is predicted once: the
 * last window is filled up with ignored targets.
 */
#ifndef ULLAGE_DATA_WINDOWS_H
#define ULLAGE_DATA_WINDOWS_H

#include "data_private.h"

struct ull__sequence {
    const void *ids; /* in memory; NULL: in the file */
    int fd;
    uint64_t begin, length; /* in tokens */
    int width;              /* bytes of a token: 1, 2 or 4 */
};

/* `count` tokens from `at` on as int32_t. ULL_E_SYSTEM: the file cannot be read. */
ull_status ull__sequence_fetch(const struct ull__sequence *sequence, uint64_t at, size_t count,
                               int32_t *out, struct ull_error *err);
/* How many of `count` tokens from `at` on are not `ignore`. */
uint64_t ull__sequence_valid(const struct ull__sequence *sequence, int64_t ignore, uint64_t at,
                             uint64_t count);

/* How many windows of `window` tokens; 0: it is shorter than window + 1 (in evaluation, than 2). */
uint64_t ull__windows_count(const struct ull__sequence *sequence, enum ull__data_part part,
                            int64_t window);

/* Tokens that are `ignore` are no targets; -1: all are. ULL_E_SYSTEM: the file cannot be read. */
ull_status ull__windows_sample(const struct ull__sequence *sequence, int64_t window, int64_t ignore,
                               uint64_t index, const struct ull__turn *turn, int32_t *x,
                               int32_t *targets, struct ull_error *err);
uint64_t ull__windows_valid(const struct ull__sequence *sequence, int64_t window, int64_t ignore,
                            uint64_t index, const struct ull__turn *turn);

/* Cuts one row into a part for training and the last share for evaluation. */
void ull__windows_split(double share, struct ull__sequence parts[ULL_DATA_PARTS]);
/* Fills in the numbers of samples; ULL_E_FORMAT: too short for the window. */
ull_status ull__windows_info(struct ull__data *data, const struct ull__data_want *want,
                             const struct ull__sequence parts[ULL_DATA_PARTS], struct ull_error *err);

#endif
