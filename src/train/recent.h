/* recent.h: the middle of the last few times, which one disturbed step does not move. */
#ifndef ULLAGE_TRAIN_RECENT_H
#define ULLAGE_TRAIN_RECENT_H

enum { ULL_RECENT = 9 };

/* Of 1 to ULL_RECENT values, in any order. */
static inline double ull__recent_median(const double *values, int count)
{
    double sorted[ULL_RECENT];
    for (int i = 0; i < count; ++i) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > values[i]; --at) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = values[i];
    }
    return count % 2 != 0 ? sorted[count / 2] : (sorted[count / 2] + sorted[count / 2 - 1]) / 2;
}

#endif
