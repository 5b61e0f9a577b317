/*
 * table.h: a hash table from 64-bit numbers (addresses, handles) to numbers, open addressing.
 *
 * Not thread safe; its owner has a lock. Key 0 is not allowed. Deletion moves later entries of the
 * same run back (Knuth, The Art of Computer Programming, vol. 3, 6.4, algorithm R), so there are no
 * tombstones and a table that is used for hours keeps its speed.
 */
#ifndef ULLAGE_TABLE_H
#define ULLAGE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct ull__table_entry {
    uint64_t key;
    uint64_t value;
};

struct ull__table {
    struct ull__table_entry *entries;
    size_t capacity; /* 0 or a power of two */
    size_t count;
};

static inline size_t ull__table_slot(const struct ull__table *table, uint64_t key)
{
    return (size_t)((key * 0x9e3779b97f4a7c15ull) >> 20) & (table->capacity - 1);
}

static inline struct ull__table_entry *ull__table_find(const struct ull__table *table, uint64_t key)
{
    if (table->capacity == 0)
        return NULL;
    size_t at = ull__table_slot(table, key);
    while (table->entries[at].key != 0) {
        if (table->entries[at].key == key)
            return &table->entries[at];
        at = (at + 1) & (table->capacity - 1);
    }
    return NULL;
}

static inline void ull__table_put(struct ull__table *table, uint64_t key, uint64_t value)
{
    size_t at = ull__table_slot(table, key);
    while (table->entries[at].key != 0)
        at = (at + 1) & (table->capacity - 1);
    table->entries[at] = (struct ull__table_entry){key, value};
    table->count++;
}

static inline bool ull__table_grow(struct ull__table *table)
{
    struct ull__table bigger = {.capacity = table->capacity ? table->capacity * 2 : 256};
    bigger.entries = calloc(bigger.capacity, sizeof *bigger.entries);
    if (!bigger.entries)
        return false;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->entries[i].key != 0)
            ull__table_put(&bigger, table->entries[i].key, table->entries[i].value);
    free(table->entries);
    *table = bigger;
    return true;
}

/* Adds a key that is not there yet. False without memory. */
static inline bool ull__table_add(struct ull__table *table, uint64_t key, uint64_t value)
{
    if (table->count * 2 >= table->capacity && !ull__table_grow(table))
        return false;
    ull__table_put(table, key, value);
    return true;
}

static inline void ull__table_remove(struct ull__table *table, struct ull__table_entry *entry)
{
    size_t mask = table->capacity - 1;
    size_t hole = (size_t)(entry - table->entries);
    size_t at = hole;
    for (;;) {
        at = (at + 1) & mask;
        if (table->entries[at].key == 0)
            break;
        size_t home = ull__table_slot(table, table->entries[at].key);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            table->entries[hole] = table->entries[at];
            hole = at;
        }
    }
    table->entries[hole].key = 0;
    table->count--;
}

#endif
