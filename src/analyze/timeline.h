/*
 * timeline.h: what was held and live over time, with as many points as can be drawn.
 *
 * Time is cut into equal pieces; of each the points are kept where held and live were highest and lowest, so
 * that no peak is lost however short it was: nothing in a piece is higher or lower than its points.
 */
#ifndef ULLAGE_TIMELINE_H
#define ULLAGE_TIMELINE_H

#include "walk.h"

enum { ULL_TIMELINE_ALL = -1 };

struct ull__point {
    uint64_t time_ns;
    uint64_t held, live;
    uint64_t by_class[ULL_CLASSES]; /* of held */
    size_t event;                   /* after which it was so */
};

struct ull__timeline {
    struct ull__point *points; /* by time; at least one */
    size_t count;
    uint64_t end_ns;
};

/*
 * Of one device of the history, or all together (ULL_TIMELINE_ALL). At most `most` points, at least 16.
 * ULL_E_SYSTEM without memory. The caller destroys.
 */
ull_status ull__timeline_create(const struct ull__facts *facts, int device, size_t most,
                                struct ull__timeline **timeline, struct ull_error *err);
void ull__timeline_destroy(struct ull__timeline *timeline);

#endif
