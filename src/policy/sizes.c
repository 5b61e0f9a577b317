/*
 * sizes.c: a table from addresses to what an adaptor knows of them. Open addressing with linear probing
 * and deletion by moving entries back, so that it needs no marks of the dead. It grows and never shrinks.
 */
#include <stdlib.h>

#include "policy_private.h"

static size_t home(const struct ull__sizes *sizes, uint64_t address)
{
    /* Addresses are multiples of 256: the upper half of a product mixes them. */
    return (size_t)((address * 0x9e3779b97f4a7c15u) >> 32) & (sizes->capacity - 1);
}

static void put(struct ull__sizes *sizes, const struct ull__size_entry *entry)
{
    size_t i = home(sizes, entry->address);
    while (sizes->entries[i].address)
        i = (i + 1) & (sizes->capacity - 1);
    sizes->entries[i] = *entry;
}

static bool grow(struct ull__sizes *sizes)
{
    size_t capacity = sizes->capacity ? sizes->capacity * 2 : 64;
    struct ull__sizes larger = {.capacity = capacity, .count = sizes->count};
    larger.entries = calloc(capacity, sizeof *larger.entries);
    if (!larger.entries)
        return false;
    for (size_t i = 0; i < sizes->capacity; i++) {
        if (sizes->entries[i].address)
            put(&larger, &sizes->entries[i]);
    }
    free(sizes->entries);
    *sizes = larger;
    return true;
}

bool ull__sizes_promise(struct ull__sizes *sizes)
{
    if ((sizes->count + 1) * 4 > sizes->capacity * 3 && !grow(sizes))
        return false;
    sizes->count++;
    return true;
}

void ull__sizes_unpromise(struct ull__sizes *sizes)
{
    sizes->count--;
}

void ull__sizes_add(struct ull__sizes *sizes, const struct ull__size_entry *entry)
{
    put(sizes, entry);
}

bool ull__sizes_take(struct ull__sizes *sizes, void *address, struct ull__size_entry *entry)
{
    uint64_t wanted = (uintptr_t)address;
    if (sizes->capacity == 0 || wanted == 0)
        return false;
    size_t mask = sizes->capacity - 1, i = home(sizes, wanted);
    while (sizes->entries[i].address != wanted) {
        if (sizes->entries[i].address == 0)
            return false;
        i = (i + 1) & mask;
    }
    *entry = sizes->entries[i];
    for (size_t next = (i + 1) & mask; sizes->entries[next].address; next = (next + 1) & mask) {
        size_t from = home(sizes, sizes->entries[next].address);
        if (((next - from) & mask) < ((next - i) & mask))
            continue; /* its home is behind the gap */
        sizes->entries[i] = sizes->entries[next];
        i = next;
    }
    sizes->entries[i].address = 0;
    sizes->count--;
    return true;
}

void ull__sizes_finish(struct ull__sizes *sizes)
{
    free(sizes->entries);
    *sizes = (struct ull__sizes){0};
}
