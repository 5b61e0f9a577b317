/*
 * adapt.h: when a training takes a larger or smaller micro-batch, because what is free has changed.
 *
 * Use is what everyone has in use of what the device can give, never a program's own share of its budget: a training that
 * fills its own budget is as it should be. Pure; the clock is the caller's.
 */
#ifndef ULLAGE_TRAIN_ADAPT_H
#define ULLAGE_TRAIN_ADAPT_H

#include <stdint.h>

enum ull__adapt { ULL_ADAPT_KEEP, ULL_ADAPT_HALVE, ULL_ADAPT_DOUBLE };

struct ull__adapt_input {
    double now, changed_at; /* seconds; changed_at: of the last change of plan */
    uint64_t used_bytes;    /* by everyone, this training included */
    uint64_t total_bytes;   /* that the device can give */
    uint64_t own_bytes;     /* the peak of the plan in force */
    uint64_t doubled_bytes; /* that of a plan with twice the micro-batch; 0: there is none */
    int64_t micro_batch, least, most; /* bounds; 0: none */
};

#define ULL_ADAPT_HIGH 0.9
#define ULL_ADAPT_LOW 0.7
#define ULL_ADAPT_PAUSE 5.0

/*
 * HALVE where use is above 0.9; DOUBLE where it is below 0.7 and stays at most 0.9 with the doubled plan; neither within 5 s
 * of the last change, nor beyond the bounds.
 */
enum ull__adapt ull__adapt(const struct ull__adapt_input *input);

#endif
