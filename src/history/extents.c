/* extents.c: see extents.h. The C library's balanced tree, where ranges count as equal that overlap. */
#include "extents.h"

#include <search.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const struct ull__extent *left = a, *right = b;
    return left->end <= right->begin ? -1 : left->begin >= right->end ? 1 : 0;
}

bool ull__extents_add(struct ull__extents *extents, const struct ull__extent *extent)
{
    struct ull__extent *copy = malloc(sizeof *copy);
    if (!copy)
        return false;
    *copy = *extent;
    struct ull__extent **there = tsearch(copy, &extents->root, compare);
    if (there && *there == copy)
        return true;
    free(copy);
    return false;
}

struct ull__extent *ull__extents_find(const struct ull__extents *extents, uint64_t begin, uint64_t end)
{
    struct ull__extent wanted = {.begin = begin, .end = end};
    struct ull__extent **there = tfind(&wanted, &extents->root, compare);
    return there ? *there : NULL;
}

bool ull__extents_take(struct ull__extents *extents, uint64_t begin, uint64_t end,
                       struct ull__extent *taken)
{
    struct ull__extent *found = ull__extents_find(extents, begin, end);
    if (!found)
        return false;
    *taken = *found;
    tdelete(taken, &extents->root, compare);
    free(found);
    return true;
}

bool ull__extents_pop(struct ull__extents *extents, struct ull__extent *taken)
{
    return ull__extents_take(extents, 0, UINT64_MAX, taken);
}

void ull__extents_finish(struct ull__extents *extents)
{
    tdestroy(extents->root, free);
    extents->root = NULL;
}
