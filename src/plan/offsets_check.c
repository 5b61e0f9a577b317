/*
 * offsets_check.c: is this plan right? Every pair is looked at, with nothing but the problem as it was given, and
 * nothing that the solver uses. Square in the number of buffers: a second for some 30,000.
 */
#include "error.h"
#include "offsets.h"

static bool may_not_share(const struct ull__offsets_problem *problem, size_t left, size_t right)
{
    const struct ull__buffer *a = &problem->buffers[left], *b = &problem->buffers[right];
    if (problem->conflict)
        return problem->conflict(problem->context, left, right);
    return a->lower < b->upper && b->lower < a->upper;
}

static ull_status check_one(const struct ull__offsets_problem *problem, size_t i, uint64_t offset,
                            struct ull_error *err)
{
    const struct ull__buffer *buffer = &problem->buffers[i];
    if (buffer->pinned && offset != buffer->offset)
        return ull__fail(err, ULL_E_INVALID,
                         "buffer %zu is at offset %llu: expected %llu, where it is pinned", i,
                         (unsigned long long)offset, (unsigned long long)buffer->offset);
    if (buffer->alignment && offset % buffer->alignment)
        return ull__fail(err, ULL_E_INVALID,
                         "buffer %zu is at offset %llu: expected a multiple of %llu", i,
                         (unsigned long long)offset, (unsigned long long)buffer->alignment);
    if (offset > UINT64_MAX - buffer->size ||
        (buffer->size && problem->capacity != ULL__OFFSETS_LOWEST &&
         offset + buffer->size > problem->capacity))
        return ull__fail(err, ULL_E_INVALID,
                         "buffer %zu of %llu bytes is at offset %llu: it ends above the capacity",
                         i, (unsigned long long)buffer->size, (unsigned long long)offset);
    return ULL_OK;
}

ull_status ull__offsets_check(const struct ull__offsets_problem *problem, const uint64_t *offsets,
                              struct ull_error *err, uint64_t *height)
{
    uint64_t highest = 0;
    for (size_t i = 0; i < problem->count; i++) {
        uint64_t size = problem->buffers[i].size;
        ull_status status = check_one(problem, i, offsets[i], err);
        if (status != ULL_OK)
            return status;
        if (size && offsets[i] + size > highest)
            highest = offsets[i] + size;
    }
    for (size_t j = 1; j < problem->count; j++) {
        uint64_t begin = offsets[j], end = begin + problem->buffers[j].size;
        for (size_t i = 0; i < j; i++) {
            if (offsets[i] < end && begin < offsets[i] + problem->buffers[i].size && begin < end &&
                problem->buffers[i].size && may_not_share(problem, i, j))
                return ull__fail(err, ULL_E_INVALID,
                                 "buffers %zu and %zu overlap, at offsets %llu and %llu, and "
                                 "are both needed at one time",
                                 i, j, (unsigned long long)offsets[i], (unsigned long long)begin);
        }
    }
    *height = highest;
    return ULL_OK;
}
