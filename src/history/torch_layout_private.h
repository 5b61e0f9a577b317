/* torch_layout_private.h: the two passes of torch_layout.h share where an event's block would like to lie. */
#ifndef ULLAGE_TORCH_LAYOUT_PRIVATE_H
#define ULLAGE_TORCH_LAYOUT_PRIVATE_H

#include "torch_layout.h"

enum { ULL_LAYOUT_ROUNDING = 512, ULL_LAYOUT_PROCESS_SHIFT = 48 };

static inline uint64_t ull__layout_round_up(uint64_t size)
{
    return (size + ULL_LAYOUT_ROUNDING - 1) / ULL_LAYOUT_ROUNDING * ULL_LAYOUT_ROUNDING;
}

static inline uint64_t ull__layout_charged(const struct ull__event *event)
{
    return event->charged > 0 ? (uint64_t)event->charged : 0;
}

/* Bytes asked for, as far as that is known. */
static inline uint64_t ull__layout_wanted(const struct ull__event *event)
{
    return event->size > 0 ? event->size : ull__layout_charged(event);
}

/* What it takes where it lies. */
static inline uint64_t ull__layout_taken(const struct ull__event *event)
{
    uint64_t size = ull__layout_wanted(event);
    return ull__layout_charged(event) >= size ? ull__layout_charged(event)
                                              : ull__layout_round_up(size);
}

/* Where it would lie if nothing else was there; false: nowhere. */
static inline bool ull__layout_natural(const struct ull__event *event, uint64_t *begin)
{
    uint64_t size = ull__layout_taken(event);
    if (event->address >> ULL_LAYOUT_PROCESS_SHIFT == 0)
        *begin = event->address | (uint64_t)event->process << ULL_LAYOUT_PROCESS_SHIFT;
    else if (event->process == 0)
        *begin = event->address;
    else
        return false;
    return size > 0 && *begin <= UINT64_MAX - size;
}

/* Which driver's blocks have chunks in them, and what processes have; false without memory. */
bool ull__layout_find_hosts(struct ull__layout *layout);

#endif
