/*
 * table.c: the memory of chunks, and the chunks in use by their address.
 *
 * Chunks come in slabs that are kept until the pool ends. The table is open addressing with linear
 * probing, at most half full; removal moves the followers back, so there are no marks for the removed.
 * Both grow before an operation begins, so that nothing fails halfway through one. Fronts have tables of their own.
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
    free(pool->live.entries);
}

/* --- by address ------------------------------------------------------------------------------------ */

/*
 * An entry is the chunk's address on the host, of which the upper 16 bits and the lower 6 are always 0, with
 * the upper 22 bits of the hash in their place. So a look at an entry tells whether it can be the one,
 * and where it belongs, without a look at the chunk.
 */
enum { LOW_BITS = 6, HIGH_SHIFT = 48, TAG_BITS = 64 - HIGH_SHIFT + LOW_BITS };
#define TAG_MASK (UINT64_MAX << HIGH_SHIFT | (((uint64_t)1 << LOW_BITS) - 1))

static uint64_t hash_of(uint64_t address)
{
    return (address >> ULL_UNIT_SHIFT) * 0x9e3779b97f4a7c15ull;
}

/* The upper bits of the hash where an entry has them: 16 above, then 6 below. */
static uint64_t tag_of(uint64_t hash)
{
    return (hash & UINT64_MAX << HIGH_SHIFT) |
           (hash >> (HIGH_SHIFT - LOW_BITS) & (((uint64_t)1 << LOW_BITS) - 1));
}

static struct ull__chunk *chunk_of(uint64_t entry)
{
    return (struct ull__chunk *)(uintptr_t)(entry & ~TAG_MASK); // NOLINT(performance-no-int-to-ptr)
}

static uint64_t home_of_hash(const struct ull__table *table, uint64_t hash)
{
    return hash >> (64 - table->bits);
}

static uint64_t home_of_entry(const struct ull__table *table, uint64_t entry)
{
    if (table->bits > TAG_BITS)
        return home_of_hash(table, hash_of(chunk_of(entry)->address));
    uint64_t low = entry & (((uint64_t)1 << LOW_BITS) - 1);
    return ((entry >> HIGH_SHIFT) << LOW_BITS | low) >> (TAG_BITS - table->bits);
}

static void enter(struct ull__table *table, uint64_t entry, uint64_t at)
{
    while (table->entries[at])
        at = (at + 1) & (table->capacity - 1);
    table->entries[at] = entry;
}

bool ull__table_grow(struct ull__table *table)
{
    uint64_t old_capacity = table->capacity, *old = table->entries;
    uint64_t capacity = old_capacity ? old_capacity * 2 : (uint64_t)1 << FIRST_TABLE_SHIFT;
    uint64_t *entries = calloc(capacity, sizeof *entries);
    if (!entries)
        return false;
    table->entries = entries;
    table->capacity = capacity;
    table->bits = (unsigned int)__builtin_ctzll(capacity);
    for (uint64_t i = 0; i < old_capacity; i++) {
        if (old[i])
            enter(table, old[i], home_of_entry(table, old[i]));
    }
    free(old);
    return true;
}

void ull__table_add(struct ull__table *table, struct ull__chunk *c)
{
    uint64_t hash = hash_of(c->address);
    enter(table, (uint64_t)(uintptr_t)c | tag_of(hash), home_of_hash(table, hash));
    table->count++;
}

/* Where the address is in the table, or an empty place. */
static uint64_t place_of(const struct ull__table *table, uint64_t address)
{
    uint64_t hash = hash_of(address), tag = tag_of(hash), at = home_of_hash(table, hash), entry;
    while ((entry = table->entries[at]) != 0) {
        if ((entry & TAG_MASK) == tag && chunk_of(entry)->address == address)
            break;
        at = (at + 1) & (table->capacity - 1);
    }
    return at;
}

void ull__table_prefetch(const struct ull__table *table, uint64_t address)
{
    __builtin_prefetch(&table->entries[home_of_hash(table, hash_of(address))], 1);
}

struct ull__chunk *ull__table_find(const struct ull__table *table, uint64_t address)
{
    return table->count ? chunk_of(table->entries[place_of(table, address)]) : NULL;
}

struct ull__chunk *ull__table_take(struct ull__table *table, uint64_t address)
{
    if (!table->count)
        return NULL;
    uint64_t mask = table->capacity - 1, hole = place_of(table, address), entry;
    struct ull__chunk *c = chunk_of(table->entries[hole]);
    if (!c)
        return NULL;
    for (uint64_t at = (hole + 1) & mask; (entry = table->entries[at]) != 0; at = (at + 1) & mask) {
        /* An entry may move back to the hole unless its home lies behind the hole. */
        uint64_t home = home_of_entry(table, entry);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            table->entries[hole] = entry;
            hole = at;
        }
    }
    table->entries[hole] = 0;
    table->count--;
    return c;
}
