/*
 * diff.h: what grew from one history to another, at their peaks, by whatever can be compared between two runs:
 * tags, stacks (by their texts), sizes, processes (by command) and classes.
 */
#ifndef ULLAGE_DIFF_H
#define ULLAGE_DIFF_H

#include "figures.h"

enum ull__diff_by {
    ULL_DIFF_TAG,
    ULL_DIFF_STACK,
    ULL_DIFF_SIZE,
    ULL_DIFF_PROCESS,
    ULL_DIFF_CLASS,
    ULL_DIFF_WAYS,
};

struct ull__diff_row {
    char *name; /* of the tag, the stack's innermost frames, the size class ... */
    uint64_t before_bytes, after_bytes;
    uint64_t before_count, after_count;
};

struct ull__diff {
    struct ull__diff_row *rows[ULL_DIFF_WAYS]; /* what changed most first, growth before shrinking */
    size_t counts[ULL_DIFF_WAYS];
};

/* ULL_E_SYSTEM without memory. The caller destroys. */
ull_status ull__diff_create(const struct ull__facts *before,
                            const struct ull__figures *before_figures,
                            const struct ull__facts *after, const struct ull__figures *after_figures,
                            struct ull__diff **diff, struct ull_error *err);
void ull__diff_destroy(struct ull__diff *diff);

/* "tag", "stack" and so on. */
const char *ull__diff_way(enum ull__diff_by way);

#endif
