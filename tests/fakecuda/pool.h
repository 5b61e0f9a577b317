/*
 * pool.h: what pool.c and pool_calls.c share.
 */
#ifndef ULLAGE_FAKE_POOL_H
#define ULLAGE_FAKE_POOL_H

#include "fake.h"

struct CUmemPoolHandle_st {
    struct CUmemPoolHandle_st *next;
    bool live; /* false: destroyed, and gone once its last allocation is */
    bool is_default;
    int card;
    CUdeviceptr base;
    uint64_t step;
    uint64_t step_count, max_steps;
    struct fake_block *steps; /* window NULL: not held */
    struct piece *first;
    void *tree; /* of used pieces */
    size_t used_pieces;
    uint64_t reserved, reserved_high, used, used_high;
    cuuint64_t threshold;
    int reuse[3];
};

CUmemoryPool fake_pool_new(int card, size_t max_size);
bool fake_pool_known(CUmemoryPool pool); /* and not destroyed */
void fake_pool_destroy(CUmemoryPool pool);
CUresult fake_pool_allocate(CUmemoryPool pool, size_t bytes, CUstream stream, CUdeviceptr *out);
CUresult fake_pool_free(CUdeviceptr ptr, CUstream stream); /* NULL: now */
void fake_pool_release(CUmemoryPool pool, uint64_t keep);  /* what nobody uses, down to `keep` */

#endif
