/*
 * gaps.c: see figures_private.h. Blocks and chunks are put in order of their addresses and gone through side by
 * side. Blocks without any chunk are left out: they may be another library's. Where an allocator maps physical
 * memory at addresses of its own, a handle is no address, no chunk lies in a block, and nothing is known.
 */
#include <stdlib.h>

#include "figures_private.h"

struct piece {
    uint64_t process, begin, end;
};

static int by_address(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    if (a->process != b->process)
        return a->process < b->process ? -1 : 1;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Often they are in order already, as where nothing is freed. */
static void sort(struct piece *pieces, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (by_address(&pieces[i - 1], &pieces[i]) > 0) {
            qsort(pieces, count, sizeof *pieces, by_address);
            return;
        }
    }
}

/* Blocks of a layer on the device, in order; NULL without memory. */
static struct piece *collect(const struct ull__walk *walk, uint32_t device, enum ull__layer layer,
                             size_t *count)
{
    struct piece *pieces = malloc(((size_t)walk->block_count + 1) * sizeof *pieces);
    *count = 0;
    for (uint32_t i = 0; pieces && i < walk->place_count; i++) {
        const struct ull__block *block = &walk->blocks[i];
        if (block->layer != layer || block->device != device)
            continue;
        uint64_t size = layer == ULL_LAYER_CHUNK && block->charged ? block->charged : block->size;
        pieces[(*count)++] = (struct piece){block->process, block->address, block->address + size};
    }
    if (pieces)
        sort(pieces, *count);
    return pieces;
}

static void add_gap(struct ull__gaps *gaps, uint64_t size)
{
    gaps->free += size;
    if (size > gaps->largest)
        gaps->largest = size;
}

static bool before(const struct piece *chunk, const struct piece *block)
{
    return chunk->process < block->process ||
           (chunk->process == block->process && chunk->begin < block->begin);
}

static bool inside(const struct piece *chunk, const struct piece *block)
{
    return chunk->process == block->process && chunk->begin >= block->begin &&
           chunk->begin < block->end;
}

static void compare(const struct piece *blocks, size_t block_count, const struct piece *chunks,
                    size_t chunk_count, struct ull__gaps *gaps)
{
    size_t next = 0;
    for (size_t i = 0; i < block_count; i++) {
        const struct piece *block = &blocks[i];
        while (next < chunk_count && before(&chunks[next], block))
            next++;
        if (next == chunk_count || !inside(&chunks[next], block))
            continue;
        uint64_t at = block->begin;
        for (; next < chunk_count && inside(&chunks[next], block); next++) {
            if (chunks[next].begin > at)
                add_gap(gaps, chunks[next].begin - at);
            if (chunks[next].end > at)
                at = chunks[next].end;
        }
        if (block->end > at)
            add_gap(gaps, block->end - at);
        gaps->size += block->end - block->begin;
    }
}

bool ull__gaps_measure(const struct ull__walk *walk, uint32_t device, struct ull__gaps *gaps)
{
    size_t block_count, chunk_count;
    *gaps = (struct ull__gaps){0};
    struct piece *blocks = collect(walk, device, ULL_LAYER_DRIVER, &block_count);
    if (!blocks || block_count == 0) {
        free(blocks);
        return blocks != NULL;
    }
    struct piece *chunks = collect(walk, device, ULL_LAYER_CHUNK, &chunk_count);
    if (chunks)
        compare(blocks, block_count, chunks, chunk_count, gaps);
    free(blocks);
    free(chunks);
    return chunks != NULL;
}
