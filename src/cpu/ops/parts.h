/* parts.h: a workspace in parts. */
#ifndef ULLAGE_CPU_OPS_PARTS_H
#define ULLAGE_CPU_OPS_PARTS_H

#include "tile.h"

struct part {
    float **at;
    int64_t floats;
};

/* Lays parts from `begin` on, which may be NULL: then it is only counted. Returns all floats, whole lines of a cache. */
ALWAYS int64_t lay_parts(float *begin, const struct part *parts, int count)
{
    int64_t at = 0;
    for (int i = 0; i < count; ++i) {
        *parts[i].at = begin != NULL ? begin + at : NULL;
        at += (parts[i].floats + 15) / 16 * 16;
    }
    return at;
}

#endif
