/*
 * spans_fold.c: see spans_private.h. A folded block counts from the first moment of the grid that is not before its
 * beginning to the first that is not before its end: at the moments of the grid sums are right.
 */
#include <stdlib.h>
#include <string.h>

#include "spans_private.h"

/* A plot's columns: what lives shorter than one covers as much as one. */
enum { COLUMNS = 2000 };

struct fold {
    struct ull__spans *spans;
    const struct ull__moments *grid;
    unsigned char *kept; /* by span */
    /* Net changes at the moment of the grid that is being filled, by process, device and class. */
    struct ull__adjust *sums;
    size_t sum_count, sum_capacity;
    struct ull__adjust *adjusts;
    size_t adjust_count, adjust_capacity;
    struct ull__change *changes;
    size_t change_count, change_capacity;
    bool failed;
};

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static double weight(const struct ull__spans *spans, const struct ull__span *span)
{
    double column = (double)spans->end / COLUMNS;
    double life = (double)((span->to == ULL_NEVER ? spans->end : span->to) - span->from);
    double bytes = (double)(span->size > span->held ? span->size : span->held);
    return (bytes + 1) * (life > column ? life : column);
}

/* Which stay. False without memory. */
static bool choose(struct fold *fold, size_t most)
{
    struct ull__spans *spans = fold->spans;
    double *weights = malloc(spans->span_count * sizeof *weights);
    size_t left = most;
    if (!weights)
        return false;
    for (size_t i = 0; i < spans->span_count; i++)
        weights[i] = weight(spans, &spans->spans[i]);
    qsort(weights, spans->span_count, sizeof *weights, by_value);
    double least = weights[spans->span_count - most];
    free(weights);
    for (size_t i = 0; i < spans->span_count; i++) {
        if (weight(spans, &spans->spans[i]) > least) {
            fold->kept[i] = 1;
            left--;
        }
    }
    for (size_t i = 0; i < spans->span_count && left > 0; i++) { /* of equals, the first */
        if (!fold->kept[i] && weight(spans, &spans->spans[i]) == least) {
            fold->kept[i] = 1;
            left--;
        }
    }
    return true;
}

static int by_moment(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static bool make_grid(const struct ull__spans *spans, size_t pieces, struct ull__moments *moments)
{
    size_t count = moments->count;
    uint64_t *grown = realloc(moments->at, (count + pieces + 1) * sizeof *grown);
    if (!grown)
        return false;
    moments->at = grown;
    for (size_t i = 0; i <= pieces; i++)
        grown[count++] = (uint64_t)((unsigned __int128)spans->end * i / (pieces ? pieces : 1));
    qsort(grown, count, sizeof *grown, by_moment);
    moments->count = count;
    return true;
}

static void put_change(struct fold *fold, struct ull__change change)
{
    if (!ull__spans_room(&fold->changes, sizeof change, fold->change_count, &fold->change_capacity))
        fold->failed = true;
    else
        fold->changes[fold->change_count++] = change;
}

static void put_adjust(struct fold *fold, uint64_t moment, struct ull__adjust adjust)
{
    if (!ull__spans_room(&fold->adjusts, sizeof adjust, fold->adjust_count, &fold->adjust_capacity)) {
        fold->failed = true;
        return;
    }
    fold->adjusts[fold->adjust_count] = adjust;
    put_change(fold,
               (struct ull__change){moment, (uint32_t)fold->adjust_count++, ULL_CHANGE_ADJUSTED});
}

/* Few are added up at a time: those that changed since the last moment of the grid. */
static void sum(struct fold *fold, const struct ull__span *span, int sign)
{
    const struct ull__span_kind *kind = &fold->spans->kinds[span->kind];
    struct ull__adjust *into = NULL;
    for (size_t i = 0; i < fold->sum_count && !into; i++) {
        struct ull__adjust *there = &fold->sums[i];
        if (there->process == kind->process && there->device == kind->device &&
            there->class == kind->class)
            into = there;
    }
    if (!into) {
        if (!ull__spans_room(&fold->sums, sizeof *into, fold->sum_count, &fold->sum_capacity)) {
            fold->failed = true;
            return;
        }
        into = &fold->sums[fold->sum_count++];
        *into = (struct ull__adjust){
            .process = kind->process, .device = kind->device, .class = kind->class};
    }
    uint64_t by = sign < 0 ? UINT64_MAX : 1; /* sums of any bytes at all wrap */
    into->held = (int64_t)((uint64_t)into->held + by * span->held);
    into->live = (int64_t)((uint64_t)into->live + (kind->live ? by * span->size : 0));
}

static void put_sums(struct fold *fold, uint64_t moment)
{
    for (size_t i = 0; i < fold->sum_count; i++) {
        if (fold->sums[i].held != 0 || fold->sums[i].live != 0)
            put_adjust(fold, moment, fold->sums[i]);
    }
    fold->sum_count = 0;
}

static void rewrite(struct fold *fold)
{
    struct ull__spans *spans = fold->spans;
    size_t next = 0;
    for (size_t i = 0; i < spans->change_count && !fold->failed; i++) {
        const struct ull__change *change = &spans->changes[i];
        for (; next < fold->grid->count && fold->grid->at[next] < change->moment; next++)
            put_sums(fold, fold->grid->at[next]);
        if (change->what == ULL_CHANGE_ADJUSTED)
            put_adjust(fold, change->moment, spans->adjusts[change->number]);
        else if (fold->kept[change->number])
            put_change(fold, *change);
        else
            sum(fold, &spans->spans[change->number], change->what == ULL_CHANGE_CAME ? 1 : -1);
    }
    put_sums(fold, spans->end);
}

/* Numbers the spans that stay anew. False without memory. */
static bool renumber(struct fold *fold)
{
    struct ull__spans *spans = fold->spans;
    uint32_t *numbers = malloc(spans->span_count * sizeof *numbers);
    size_t kept = 0;
    if (!numbers)
        return false;
    for (size_t i = 0; i < spans->span_count; i++) {
        numbers[i] = (uint32_t)kept;
        if (fold->kept[i]) {
            spans->spans[kept++] = spans->spans[i];
        } else {
            spans->folded++;
            spans->folded_bytes += spans->spans[i].size;
        }
    }
    spans->span_count = kept;
    for (size_t i = 0; i < fold->change_count; i++) {
        if (fold->changes[i].what != ULL_CHANGE_ADJUSTED)
            fold->changes[i].number = numbers[fold->changes[i].number];
    }
    free(numbers);
    return true;
}

bool ull__spans_fold(struct ull__spans *spans, size_t most, size_t pieces,
                     struct ull__moments *moments)
{
    struct fold fold = {.spans = spans, .grid = moments};
    if (spans->span_count <= most)
        return true;
    fold.kept = calloc(spans->span_count, 1);
    bool good = fold.kept && choose(&fold, most) && make_grid(spans, pieces, moments);
    if (good)
        rewrite(&fold);
    good = good && !fold.failed && renumber(&fold);
    free(fold.kept);
    free(fold.sums);
    if (!good) {
        free(fold.adjusts);
        free(fold.changes);
        return false;
    }
    free(spans->adjusts);
    free(spans->changes);
    spans->adjusts = fold.adjusts;
    spans->adjust_count = fold.adjust_count;
    spans->changes = fold.changes;
    spans->change_count = fold.change_count;
    return true;
}
