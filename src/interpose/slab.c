/*
 * slab.c: small blocks side by side in one piece of memory, as the driver packs them: the first place that is
 * large enough, in units of 512 bytes. What is where lies in host memory only.
 */
#include <stdlib.h>
#include <string.h>

#include "suspend.h"

struct ull__slab {
    uint32_t units, used;
    uint32_t from;    /* no free unit lies before it */
    uint16_t *length; /* in units: of the block that begins there; 0: none does */
    uint64_t *taken;  /* a bit a unit */
};

struct ull__slab *ull__slab_create(uint64_t bytes)
{
    struct ull__slab *slab = calloc(1, sizeof *slab);
    if (!slab)
        return NULL;
    slab->units = (uint32_t)(bytes / SLAB_UNIT);
    slab->length = calloc(slab->units, sizeof *slab->length);
    slab->taken = calloc(slab->units / 64, sizeof *slab->taken);
    if (slab->length && slab->taken)
        return slab;
    ull__slab_destroy(slab);
    return NULL;
}

void ull__slab_destroy(struct ull__slab *slab)
{
    if (!slab)
        return;
    free(slab->length);
    free(slab->taken);
    free(slab);
}

static bool is_taken(const struct ull__slab *slab, uint32_t unit)
{
    return slab->taken[unit / 64] >> (unit % 64) & 1;
}

static void mark(struct ull__slab *slab, uint32_t from, uint32_t count, bool taken)
{
    for (uint32_t u = from; u < from + count; u++) {
        if (taken)
            slab->taken[u / 64] |= 1ull << (u % 64);
        else
            slab->taken[u / 64] &= ~(1ull << (u % 64));
    }
}

/* The first free unit at or after one, or `units`; whole words that are taken are skipped. */
static uint32_t next_free(const struct ull__slab *slab, uint32_t unit)
{
    while (unit < slab->units) {
        uint64_t open = ~slab->taken[unit / 64] >> (unit % 64);
        if (open)
            return unit + (uint32_t)__builtin_ctzll(open);
        unit = (unit / 64 + 1) * 64;
    }
    return slab->units;
}

uint64_t ull__slab_take(struct ull__slab *slab, uint64_t bytes)
{
    uint32_t wanted = (uint32_t)((bytes + SLAB_UNIT - 1) / SLAB_UNIT);
    if (bytes == 0 || bytes > (uint64_t)slab->units * SLAB_UNIT || wanted > slab->units - slab->used)
        return UINT64_MAX;
    slab->from = next_free(slab, slab->from);
    for (uint32_t at = slab->from; at + wanted <= slab->units;) {
        uint32_t end = at;
        while (end < at + wanted && !is_taken(slab, end))
            end++;
        if (end == at + wanted) {
            mark(slab, at, wanted, true);
            slab->length[at] = (uint16_t)wanted;
            slab->used += wanted;
            return (uint64_t)at * SLAB_UNIT;
        }
        at = next_free(slab, end + 1);
    }
    return UINT64_MAX;
}

bool ull__slab_drop(struct ull__slab *slab, uint64_t offset)
{
    uint32_t at = (uint32_t)(offset / SLAB_UNIT);
    mark(slab, at, slab->length[at], false);
    slab->used -= slab->length[at];
    slab->length[at] = 0;
    if (at < slab->from)
        slab->from = at;
    return slab->used == 0;
}

bool ull__slab_find(const struct ull__slab *slab, uint64_t offset, uint64_t *start, uint64_t *bytes)
{
    uint32_t unit = (uint32_t)(offset / SLAB_UNIT), at = unit;
    if (unit >= slab->units || !is_taken(slab, unit))
        return false;
    while (slab->length[at] == 0)
        at--; /* a taken unit lies in a block that begins before it */
    *start = (uint64_t)at * SLAB_UNIT;
    *bytes = (uint64_t)slab->length[at] * SLAB_UNIT;
    return true;
}
