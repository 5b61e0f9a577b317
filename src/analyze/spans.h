/*
 * spans.h: a history as blocks with a beginning and an end, from which the books of any moment can be made again
 * without a walk: for a page or a trace viewer, which have no history at hand.
 *
 * Each change of the books has a moment of its own: its time, or a nanosecond after the change before it where
 * that is not earlier. So a moment alone says which changes have happened.
 *
 * With too many blocks to show, those that cover most of a plot (bytes by time) stay, and the others are only
 * summed up: as changes of the books without a block, which are right at the peaks and at `pieces` moments besides.
 */
#ifndef ULLAGE_SPANS_H
#define ULLAGE_SPANS_H

#include "figures.h"

#define ULL_NEVER UINT64_MAX

/* Blocks that are alike in all but size and time. */
struct ull__span_kind {
    uint32_t tag, stack;
    uint16_t process;
    uint8_t device, class;
    uint8_t layer; /* enum ull__layer */
    bool live;     /* its blocks count as live */
    bool held;     /* and as held */
    bool before;   /* they existed before the record began */
};

struct ull__span {
    uint64_t from, to; /* moments; to: ULL_NEVER */
    uint64_t size;     /* as asked for: what is live */
    uint64_t held;     /* what is held for it; 0 if its kind is not */
    uint32_t kind;
};

/* A change of the books without a block of its own. */
struct ull__adjust {
    int64_t held, live;
    uint16_t process;
    uint8_t device; /* ULL_EVENT_NO_DEVICE: none */
    uint8_t class;
};

enum ull__change_what {
    ULL_CHANGE_CAME,
    ULL_CHANGE_WENT, /* it was freed */
    ULL_CHANGE_LEFT, /* it went with its process, or its free was lost */
    ULL_CHANGE_ADJUSTED,
};

struct ull__change {
    uint64_t moment;
    uint32_t number; /* of the span, or the adjust */
    uint32_t what;
};

struct ull__spans {
    struct ull__span *spans; /* by `from` */
    struct ull__span_kind *kinds;
    struct ull__adjust *adjusts;
    struct ull__change *changes; /* by moment */
    size_t span_count, kind_count, adjust_count, change_count;
    uint64_t end;          /* after the last change, and not before the history's end */
    uint64_t folded;       /* blocks that are only summed up */
    uint64_t folded_bytes; /* their sizes */
};

/*
 * At most `most` spans (0: all of them). ULL_E_SYSTEM without memory, or for more than 2^31 changes. The caller
 * destroys.
 */
ull_status ull__spans_create(const struct ull__facts *facts, const struct ull__figures *figures,
                             size_t most, size_t pieces, struct ull__spans **spans,
                             struct ull_error *err);
void ull__spans_destroy(struct ull__spans *spans);

#endif
