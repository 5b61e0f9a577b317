/*
 * slotset.c: a set of slots as bits, 64 to a word, with a bit a word in the level above, so that up to
 * 2^24 slots need four levels and the last member before a place is found in four steps.
 */
#include <stdlib.h>

#include "pool_private.h"

bool ull__slotset_init(struct ull__slotset *set, uint32_t count)
{
    *set = (struct ull__slotset){0};
    uint64_t words = count;
    do {
        words = (words + 63) / 64;
        set->level[set->levels] = calloc(words, sizeof(uint64_t));
        if (!set->level[set->levels++])
            return false;
    } while (words > 1 && set->levels < 4);
    return words == 1;
}

void ull__slotset_finish(struct ull__slotset *set)
{
    for (unsigned int i = 0; i < set->levels; i++)
        free(set->level[i]);
    *set = (struct ull__slotset){0};
}

void ull__slotset_add(struct ull__slotset *set, uint32_t slot)
{
    for (unsigned int i = 0; i < set->levels; i++) {
        uint64_t *word = &set->level[i][slot / 64], old = *word;
        *word = old | (uint64_t)1 << (slot % 64);
        if (old)
            break;
        slot /= 64;
    }
}

void ull__slotset_remove(struct ull__slotset *set, uint32_t slot)
{
    for (unsigned int i = 0; i < set->levels; i++) {
        if (set->level[i][slot / 64] &= ~((uint64_t)1 << (slot % 64)))
            break;
        slot /= 64;
    }
}

uint32_t ull__slotset_last(const struct ull__slotset *set, uint32_t slot)
{
    /* Up until a word has a member at or before the place, then down along the last ones. */
    unsigned int i = 0;
    uint64_t word;
    for (;; i++) {
        if (i == set->levels)
            return UINT32_MAX;
        word = set->level[i][slot / 64] & (UINT64_MAX >> (63 - slot % 64));
        if (word)
            break;
        if (slot / 64 == 0)
            return UINT32_MAX;
        slot = slot / 64 - 1;
    }
    for (;; i--) {
        slot = slot / 64 * 64 + 63 - (uint32_t)__builtin_clzll(word);
        if (i == 0)
            return slot;
        word = set->level[i - 1][slot];
        slot = slot * 64;
    }
}

uint32_t ull__slotset_next(const struct ull__slotset *set, uint32_t slot, uint32_t end)
{
    while (slot < end) {
        uint64_t word = set->level[0][slot / 64] >> (slot % 64);
        if (word) {
            slot += (uint32_t)__builtin_ctzll(word);
            return slot < end ? slot : end;
        }
        slot = slot / 64 * 64 + 64;
    }
    return end;
}
