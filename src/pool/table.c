/*
 * table.c: the memory of chunks, and of the tables of chunks in use (table.h).
 *
 * Chunks come in slabs that are kept until the pool ends. Both grow before an operation begins, so that nothing fails
 * halfway through one.
 */
#include <stdlib.h>
#include <string.h>

#include "pool_private.h"

enum { SLAB = 512, FIRST_BUCKETS = 256 };

struct ull__slab {
    struct ull__slab *next;
    char padding[64 - sizeof(struct ull__slab *)]; /* chunks on cache lines of their own */
    struct ull__chunk chunks[SLAB];
};

bool ull__chunks_ensure(struct ull_pool *pool, uint64_t count)
{
    while (pool->chunk_capacity - pool->chunk_count < count) {
        struct ull__slab *slab = aligned_alloc(64, sizeof *slab);
        if (!slab)
            return false;
        slab->next = pool->slabs;
        pool->slabs = slab;
        for (int i = SLAB - 1; i >= 0; i--) {
            slab->chunks[i].next = pool->spare;
            pool->spare = &slab->chunks[i];
        }
        pool->chunk_capacity += SLAB;
    }
    return true;
}

void ull__chunks_finish(struct ull_pool *pool)
{
    while (pool->slabs) {
        struct ull__slab *slab = pool->slabs;
        pool->slabs = slab->next;
        free(slab);
    }
    free(pool->live.buckets);
}

/* --- by address ------------------------------------------------------------------------------------ */

bool ull__table_grow(struct ull__table *table)
{
    uint64_t old_count = table->buckets ? table->mask + 1 : 0;
    uint64_t count = old_count ? old_count * 2 : FIRST_BUCKETS;
    struct ull__bucket *old = table->buckets;
    struct ull__bucket *buckets = aligned_alloc(sizeof *buckets, count * sizeof *buckets);
    if (!buckets)
        return false;
    memset(buckets, 0, count * sizeof *buckets);
    table->count = 0;
    table->most = count * ULL_LOAD;
    table->mask = count - 1;
    /* Two that may be read without the lock, for a prefetch. */
    __atomic_store_n(&table->buckets, buckets, __ATOMIC_RELAXED);
    __atomic_store_n(&table->shift, 64 - (unsigned int)__builtin_ctzll(count), __ATOMIC_RELAXED);
    for (uint64_t i = 0; i < old_count; i++) {
        for (unsigned int way = 0; way < ULL_WAYS; way++) {
            if (old[i].tags >> 8 * way & 0x80)
                ull__table_add(table, old[i].chunk[way]);
        }
    }
    free(old);
    return true;
}
