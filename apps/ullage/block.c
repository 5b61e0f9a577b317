/* block.c: see block.h. */
#include "block.h"

#include <stdlib.h>

enum { GRAIN = 256 };

struct block_piece {
    uint64_t size;
    uint32_t before;
    uint32_t after;
    bool taken;
};

static uint32_t new_piece(struct block *block)
{
    if (block->spare != BLOCK_NONE) {
        uint32_t piece = block->spare;
        block->spare = block->pieces[piece].after;
        return piece;
    }
    if (block->count == block->capacity) {
        uint32_t capacity = block->capacity ? block->capacity * 2 : 1024;
        struct block_piece *grown = realloc(block->pieces, capacity * sizeof *grown);
        if (!grown)
            return BLOCK_NONE;
        block->pieces = grown;
        block->capacity = capacity;
    }
    return block->count++;
}

bool block_init(struct block *block, uint64_t size)
{
    *block = (struct block){.spare = BLOCK_NONE, .free_bytes = size};
    if (new_piece(block) == BLOCK_NONE)
        return false;
    block->pieces[0] = (struct block_piece){size, BLOCK_NONE, BLOCK_NONE, false};
    return true;
}

void block_finish(struct block *block)
{
    free(block->pieces);
    block->pieces = NULL;
}

uint32_t block_take(struct block *block, uint64_t size)
{
    uint64_t need = (size + GRAIN - 1) / GRAIN * GRAIN;
    uint32_t best = BLOCK_NONE;
    for (uint32_t i = 0; i != BLOCK_NONE; i = block->pieces[i].after) {
        const struct block_piece *piece = &block->pieces[i];
        if (!piece->taken && piece->size >= need &&
            (best == BLOCK_NONE || piece->size < block->pieces[best].size))
            best = i;
    }
    if (best == BLOCK_NONE)
        return BLOCK_NONE;
    if (block->pieces[best].size > need) {
        uint32_t rest = new_piece(block);
        if (rest == BLOCK_NONE)
            return BLOCK_NONE;
        struct block_piece *piece = &block->pieces[best];
        block->pieces[rest] = (struct block_piece){piece->size - need, best, piece->after, false};
        if (piece->after != BLOCK_NONE)
            block->pieces[piece->after].before = rest;
        piece->after = rest;
        piece->size = need;
    }
    block->pieces[best].taken = true;
    block->free_bytes -= need;
    return best;
}

/* Joins a piece with the one behind it. */
static void absorb_next(struct block *block, uint32_t at)
{
    struct block_piece *piece = &block->pieces[at];
    uint32_t gone = piece->after;
    piece->size += block->pieces[gone].size;
    piece->after = block->pieces[gone].after;
    if (piece->after != BLOCK_NONE)
        block->pieces[piece->after].before = at;
    block->pieces[gone].after = block->spare;
    block->spare = gone;
}

void block_give(struct block *block, uint32_t at)
{
    struct block_piece *piece = &block->pieces[at];
    piece->taken = false;
    block->free_bytes += piece->size;
    if (piece->after != BLOCK_NONE && !block->pieces[piece->after].taken)
        absorb_next(block, at);
    if (piece->before != BLOCK_NONE && !block->pieces[piece->before].taken)
        absorb_next(block, piece->before);
}
