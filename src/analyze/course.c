/* course.c: see course.h. */
#include "course.h"

#include <math.h>
#include <string.h>

static void pass(struct ull__follow *follow, uint64_t now_ns)
{
    uint64_t passed = now_ns > follow->since_ns ? now_ns - follow->since_ns : 0;
    if (follow->held > 0) {
        follow->held_ns += (double)follow->held * (double)passed;
        follow->live_ns += (double)follow->live * (double)passed;
        follow->busy_ns += passed;
    }
    follow->since_ns += passed;
}

void ull__course_follow(struct ull__course *course, struct ull__follow *follow,
                        const struct ull__totals *totals, uint64_t now_ns, size_t at)
{
    pass(follow, now_ns);
    follow->held = totals->held;
    follow->live = totals->live;
    if (totals->held > course->peak_bytes) {
        course->peak_bytes = totals->held;
        course->peak_ns = now_ns;
        course->peak_event = at;
        memcpy(course->peak_by_class, totals->by_class, sizeof course->peak_by_class);
    }
    if (totals->live > course->live_peak_bytes) {
        course->live_peak_bytes = totals->live;
        course->live_peak_ns = now_ns;
        course->live_peak_event = at;
    }
}

static uint64_t mean(double byte_ns, uint64_t ns, uint64_t peak)
{
    double bytes = byte_ns / (double)ns;
    return bytes < (double)peak ? (uint64_t)bytes : peak;
}

void ull__course_finish(struct ull__course *course, struct ull__follow *follow, uint64_t end_ns)
{
    pass(follow, end_ns);
    course->peak_to_average = (double)NAN;
    if (follow->busy_ns == 0)
        return;
    course->average_bytes = mean(follow->held_ns, follow->busy_ns, course->peak_bytes);
    course->live_average_bytes = mean(follow->live_ns, follow->busy_ns, course->live_peak_bytes);
    if (course->average_bytes > 0)
        course->peak_to_average = (double)course->peak_bytes / (double)course->average_bytes;
}
