/* course.h: follows one figure over time: peaks and averages. Internal to analyze. */
#ifndef ULLAGE_COURSE_H
#define ULLAGE_COURSE_H

#include "figures.h"

struct ull__follow {
    uint64_t held, live, since_ns; /* since when it is so */
    double held_ns, live_ns;       /* byte nanoseconds */
    uint64_t busy_ns;              /* when anything was held */
};

/* It is `totals` from `now_ns` on, after event `at`. */
void ull__course_follow(struct ull__course *course, struct ull__follow *follow,
                        const struct ull__totals *totals, uint64_t now_ns, size_t at);
void ull__course_finish(struct ull__course *course, struct ull__follow *follow, uint64_t end_ns);

#endif
