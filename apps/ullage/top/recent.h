/*
 * recent.h: what a job or process held at the last samples, and which way that goes.
 *
 * A verdict over a minute of samples is a hint, not a finding: a program that warms up grows too. It says
 * "growing", never "leak"; `ullage report` judges a whole record.
 */
#ifndef ULLAGE_TOP_RECENT_H
#define ULLAGE_TOP_RECENT_H

#include <stdbool.h>
#include <stdint.h>

enum { TREND_POINTS = 60, TREND_LEVELS = 8 };

enum trend_verdict { TREND_TOO_SHORT, TREND_SHRINKING, TREND_STEADY, TREND_CACHE, TREND_GROWING };

struct trend {
    uint64_t values[TREND_POINTS]; /* bytes, oldest first */
    int count;
    uint64_t seen; /* values ever added */
    enum trend_verdict verdict;
};

void trend_add(struct trend *trend, uint64_t bytes);

/*
 * By the test that `ullage report` makes of a record (src/analyze/trend.h): growing is a rise that goes on, a cache one
 * that has ended, shrinking a fall that goes on. Too short: fewer than ten samples, or too few ups and downs.
 */
enum trend_verdict trend_verdict(const struct trend *trend);
/* "", "shrinking", "steady", "cache", "growing". */
const char *trend_verdict_name(enum trend_verdict verdict);

/*
 * Heights for a line of `width` columns, the newest last: 1 to TREND_LEVELS, 0 for nothing yet or nothing
 * held. Several samples share a column if there are more than columns, the highest counts; a sample stays in
 * its column as the line moves. From lowest to highest of what is shown, unless they differ by under 2 %.
 */
void trend_line(const struct trend *trend, int width, unsigned char *heights);

#endif
