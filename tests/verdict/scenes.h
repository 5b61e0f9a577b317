/* scenes.h: programs to be judged, and what is true of them. */
#ifndef ULLAGE_SCENES_H
#define ULLAGE_SCENES_H

#include "history.h"
#include "verdict.h"

/* Verdicts that are right, as bits. */
#define IS(kind) (1u << ULL_VERDICT_##kind)

struct scene {
    const char *name;
    struct ull__history *(*play)(uint64_t seed);
    unsigned int device, host; /* 0: not asked */
    uint32_t leaker;           /* process of a leak */
    bool varies; /* sizes do, so a simple allocator's reserve may grow: a cache, if it is recorded */
};

extern const struct scene scenes[];
extern const int scene_count;

#endif
