/*
 * block.h: one block of device memory cut into pieces, as a framework's allocator does with what it
 * took at its start. Best fit with coalescing, pieces of 256 bytes, as TensorFlow's BFC allocator
 * (tensorflow/core/common_runtime/bfc_allocator.cc) without its size bins: only addresses are
 * computed, no memory is touched. For `replay --preallocate`; the project's own allocator is another
 * matter.
 */
#ifndef ULLAGE_BLOCK_H
#define ULLAGE_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct block {
    struct block_piece *pieces; /* linked by address; piece 0 is the first */
    uint32_t count;
    uint32_t capacity;
    uint32_t spare; /* list of unused entries */
    uint64_t free_bytes;
};

enum { BLOCK_NONE = 0xffffffffu };

bool block_init(struct block *block, uint64_t size);
void block_finish(struct block *block);
/* The number of the piece, or BLOCK_NONE where no free piece is large enough. */
uint32_t block_take(struct block *block, uint64_t size);
void block_give(struct block *block, uint32_t piece);

#endif
