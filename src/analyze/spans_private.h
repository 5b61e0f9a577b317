/* spans_private.h: what spans.c and spans_fold.c share. */
#ifndef ULLAGE_SPANS_PRIVATE_H
#define ULLAGE_SPANS_PRIVATE_H

#include "spans.h"

struct ull__moments {
    uint64_t *at;
    size_t count, capacity;
};

/* Room for one more item of `size` bytes in an array that doubles, up to 2^31 items. */
bool ull__spans_room(void *array, size_t size, size_t count, size_t *capacity);

/*
 * Keeps the `most` spans that cover most and makes the others changes without a block, which happen at one of
 * `pieces` equal steps of time or at a moment of `moments`, whichever is next. False without memory; then the spans
 * can only be destroyed.
 */
bool ull__spans_fold(struct ull__spans *spans, size_t most, size_t pieces,
                     struct ull__moments *moments);

#endif
