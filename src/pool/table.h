/*
 * table.h: chunks in use by their address.
 *
 * A hash table of buckets of one cache line: seven chunks, and a word with a byte for each of them that has 7 bits of its
 * hash (0x80 with it, so that 0 is an empty place). All seven are compared at once, so a look takes no branch that
 * depends on what else is there, and hardly ever touches a chunk that is not the one. The eighth byte of the word
 * counts those that had to go on to the next bucket. Once it is full it stays so, and looks go on for nothing.
 *
 * A table has no more than four chunks a bucket, so a bucket in fifty is full. It grows before an operation begins, so
 * that nothing fails halfway through one. Fronts have tables of their own, under their locks.
 */
#ifndef ULLAGE_POOL_TABLE_H
#define ULLAGE_POOL_TABLE_H

#include <stddef.h>

#include "chunk.h"

enum { ULL_WAYS = 7, ULL_LOAD = 4, ULL_TAGS_OVER = 8 * ULL_WAYS, ULL_OVER_FULL = 255 };

struct ull__bucket {
    uint64_t tags;
    struct ull__chunk *chunk[ULL_WAYS];
};

struct ull__table {
    struct ull__bucket *buckets; /* mask + 1 of them, or none */
    uint64_t count, most;        /* most: it has to grow beyond */
    uint64_t mask;
    unsigned int shift; /* the bits of a hash above are the number of a bucket */
};

/* Makes it larger; false if the host has no memory. */
bool ull__table_grow(struct ull__table *table);

/* Room for `further` entries. */
static inline bool ull__table_ensure(struct ull__table *table, uint64_t further)
{
    while (table->count + further > table->most) {
        if (!ull__table_grow(table))
            return false;
    }
    return true;
}

/* The shift in it: else addresses at some equal distances would all fall into few buckets. */
static inline uint64_t ull__hash(uint64_t address)
{
    uint64_t units = address >> 8;
    return (units ^ units >> 13) * 0x9e3779b97f4a7c15ull;
}

static inline uint64_t ull__tag(uint64_t hash)
{
    return (hash >> 20 & 0x7f) | 0x80;
}

/* 0x80 in each byte of a place that may have the tag; in the lowest such byte it surely is. */
static inline uint64_t ull__tags_like(uint64_t tags, uint64_t tag)
{
    uint64_t x = tags ^ tag * 0x0001010101010101ull;
    return (x - 0x0001010101010101ull) & ~x & 0x0080808080808080ull;
}

static inline void ull__table_add(struct ull__table *table, struct ull__chunk *c)
{
    uint64_t hash = ull__hash(c->address), at = hash >> table->shift, empty;
    struct ull__bucket *b = &table->buckets[at];
    table->count++;
    while (__builtin_expect((empty = ~b->tags & 0x0080808080808080ull) == 0, 0)) {
        if (b->tags >> ULL_TAGS_OVER < ULL_OVER_FULL)
            b->tags += (uint64_t)1 << ULL_TAGS_OVER;
        at = (at + 1) & table->mask;
        b = &table->buckets[at];
    }
    unsigned int bit = (unsigned int)__builtin_ctzll(empty) - 7;
    b->tags |= ull__tag(hash) << bit;
    b->chunk[bit / 8] = c;
}

/* What lies at the address, in *bucket at *place; or NULL. */
static inline struct ull__chunk *ull__table_look(const struct ull__table *table, uint64_t address,
                                                 struct ull__bucket **bucket, unsigned int *place)
{
    uint64_t hash = ull__hash(address), at = hash >> table->shift;
    for (uint64_t steps = 0; steps <= table->mask; steps++) {
        struct ull__bucket *b = &table->buckets[at];
        for (uint64_t like = ull__tags_like(b->tags, ull__tag(hash)); like; like &= like - 1) {
            unsigned int way = (unsigned int)__builtin_ctzll(like) / 8;
            struct ull__chunk *c = b->chunk[way];
            if (__builtin_expect(c->address == address, 1)) {
                *bucket = b;
                *place = way;
                return c;
            }
        }
        if (b->tags >> ULL_TAGS_OVER == 0)
            return NULL;
        at = (at + 1) & table->mask;
    }
    return NULL;
}

static inline struct ull__chunk *ull__table_find(const struct ull__table *table, uint64_t address)
{
    struct ull__bucket *bucket;
    unsigned int place;
    return table->count ? ull__table_look(table, address, &bucket, &place) : NULL;
}

/* Takes out what lies at the address; NULL: nothing. */
static inline struct ull__chunk *ull__table_take(struct ull__table *table, uint64_t address)
{
    struct ull__bucket *bucket;
    unsigned int place;
    struct ull__chunk *c = table->count ? ull__table_look(table, address, &bucket, &place) : NULL;
    if (!c)
        return NULL;
    table->count--;
    bucket->tags &= ~((uint64_t)0xff << 8 * place);
    uint64_t at = ull__hash(address) >> table->shift;
    for (struct ull__bucket *b; (b = &table->buckets[at]) != bucket; at = (at + 1) & table->mask) {
        if (b->tags >> ULL_TAGS_OVER < ULL_OVER_FULL)
            b->tags -= (uint64_t)1 << ULL_TAGS_OVER;
    }
    return c;
}

/* An address will be looked for, or added. Also without the lock: whatever is fetched does no harm. */
static inline void ull__table_prefetch(const struct ull__table *table, uint64_t address)
{
    const struct ull__bucket *buckets = __atomic_load_n(&table->buckets, __ATOMIC_RELAXED);
    unsigned int shift = __atomic_load_n(&table->shift, __ATOMIC_RELAXED);
    __builtin_prefetch((const char *)buckets + (ull__hash(address) >> shift) * sizeof *buckets, 1);
}

#endif
