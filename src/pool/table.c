/*
 * table.c: the memory of chunks, and the chunks in use by their address.
 *
 * Chunks come in slabs that are kept until the pool ends. The table is open addressing with linear
 * probing, at most half full; removal moves the followers back, so there are no marks for the removed.
 * Both grow before an operation begins, so that nothing fails halfway through one.
 */
#include <stdlib.h>

#include "pool_private.h"

enum { SLAB = 512, FIRST_TABLE_SHIFT = 10 };

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

struct ull__chunk *ull__chunk_new(struct ull_pool *pool)
{
    struct ull__chunk *c = pool->spare;
    pool->spare = c->next;
    pool->chunk_count++;
    return c;
}

void ull__chunk_drop(struct ull_pool *pool, struct ull__chunk *c)
{
    c->next = pool->spare;
    pool->spare = c;
    pool->chunk_count--;
}

void ull__chunks_finish(struct ull_pool *pool)
{
    while (pool->slabs) {
        struct ull__slab *slab = pool->slabs;
        pool->slabs = slab->next;
        free(slab);
    }
    free(pool->table);
}

/* --- by address ------------------------------------------------------------------------------------ */

static uint64_t home_of(const struct ull_pool *pool, uint64_t address)
{
    return ((address >> ULL_UNIT_SHIFT) * 0x9e3779b97f4a7c15ull) >> pool->table_shift;
}

static void enter(struct ull_pool *pool, struct ull__entry entry)
{
    uint64_t at = home_of(pool, entry.address);
    while (pool->table[at].address)
        at = (at + 1) & (pool->table_capacity - 1);
    pool->table[at] = entry;
}

bool ull__table_ensure(struct ull_pool *pool)
{
    if ((pool->table_count + 1) * 2 <= pool->table_capacity)
        return true;
    uint64_t old_capacity = pool->table_capacity;
    uint64_t capacity = old_capacity ? old_capacity * 2 : (uint64_t)1 << FIRST_TABLE_SHIFT;
    struct ull__entry *old = pool->table, *table = calloc(capacity, sizeof *table);
    if (!table)
        return false;
    pool->table = table;
    pool->table_capacity = capacity;
    pool->table_shift = 64 - (unsigned int)__builtin_ctzll(capacity);
    for (uint64_t i = 0; i < old_capacity; i++) {
        if (old[i].address)
            enter(pool, old[i]);
    }
    free(old);
    return true;
}

void ull__table_add(struct ull_pool *pool, struct ull__chunk *c)
{
    enter(pool, (struct ull__entry){.address = c->address, .chunk = c});
    pool->table_count++;
}

/* Where the address is in the table, or an empty place. Address 0 is never in it. */
static uint64_t place_of(const struct ull_pool *pool, uint64_t address)
{
    uint64_t at = home_of(pool, address);
    while (pool->table[at].address && pool->table[at].address != address)
        at = (at + 1) & (pool->table_capacity - 1);
    return at;
}

struct ull__chunk *ull__table_find(const struct ull_pool *pool, uint64_t address)
{
    if (!address)
        return NULL;
    uint64_t at = place_of(pool, address);
    return pool->table[at].address ? pool->table[at].chunk : NULL;
}

struct ull__chunk *ull__table_take(struct ull_pool *pool, uint64_t address)
{
    if (!address)
        return NULL;
    uint64_t mask = pool->table_capacity - 1, hole = place_of(pool, address);
    if (!pool->table[hole].address)
        return NULL;
    struct ull__chunk *c = pool->table[hole].chunk;
    for (uint64_t at = (hole + 1) & mask; pool->table[at].address; at = (at + 1) & mask) {
        /* An entry may move back to the hole unless its home lies behind the hole. */
        uint64_t home = home_of(pool, pool->table[at].address);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            pool->table[hole] = pool->table[at];
            hole = at;
        }
    }
    pool->table[hole].address = 0;
    pool->table_count--;
    return c;
}
