/*
 * kept.c: see kept.h. A leak that is small beside what comes and goes cannot be seen in sums; that all of one kind
 * stay while others are freed can.
 */
#include "kept.h"

#include <math.h>
#include <stdlib.h>

#include "kinds.h"
#include "walk.h"

enum { KINDS_MOST = 1 << 17, LEAST = 10 };

struct kind {
    uint64_t count, bytes, freed;
    double moment; /* sum of when they came, 0 to 1 */
    double last;
};

struct work {
    const uint64_t *allocs; /* by process: in all */
    uint64_t *so_far;
    struct ull__kinds kinds;
    struct kind *items;
    uint32_t capacity;
};

static struct kind *item(struct work *work, size_t event, bool *good)
{
    uint32_t number;
    *good = ull__kinds_of(&work->kinds, event, &number);
    if (!*good || number == ULL_NO_KIND)
        return NULL;
    if (number >= work->capacity) {
        uint32_t wanted = work->capacity ? work->capacity * 2 : 1024;
        struct kind *grown = realloc(work->items, wanted * sizeof *grown);
        *good = grown != NULL;
        if (!grown)
            return NULL;
        for (uint32_t i = work->capacity; i < wanted; i++)
            grown[i] = (struct kind){0};
        work->items = grown;
        work->capacity = wanted;
    }
    return &work->items[number];
}

static bool take_step(struct work *work, const struct ull__walk *walk)
{
    bool good = true;
    const struct ull__block *block = &walk->block;
    bool came = walk->step == ULL_STEP_CAME;
    bool went = walk->step == ULL_STEP_FREED || walk->step == ULL_STEP_REPLACED;
    if ((!came && !went) || block->event == ULL_NO_EVENT || !ull__block_is_live(walk->facts, block))
        return true;
    uint64_t *so_far = &work->so_far[block->process], all = work->allocs[block->process];
    struct kind *kind = item(work, block->event, &good);
    *so_far += came;
    if (!kind)
        return good;
    double at = all ? (double)*so_far / (double)all : 1;
    if (went) {
        kind->freed += *so_far < all; /* else it is the program's end */
    } else if (at > 0.1) {
        kind->count++;
        kind->bytes += block->size;
        kind->moment += (at - 0.1) / 0.9;
        kind->last = at;
    }
    return true;
}

static bool is_kept(const struct kind *kind)
{
    double n = (double)kind->count;
    return kind->count >= LEAST && kind->freed == 0 && kind->last > 0.9 &&
           (kind->moment / n - 0.5) * sqrt(12 * n) > -1.64;
}

static void choose(const struct work *work, struct ull__kept *kept)
{
    for (uint32_t k = 0; k < work->kinds.count; k++) {
        const struct kind *kind = &work->items[k];
        size_t event = work->kinds.events[k];
        struct ull__kept *best = &kept[work->kinds.history->events[event].process];
        if (is_kept(kind) && kind->bytes > best->bytes)
            *best = (struct ull__kept){kind->count, kind->bytes, event};
    }
}

struct ull__kept *ull__kept_find(const struct ull__facts *facts, const uint64_t *allocs)
{
    size_t processes = facts->history->process_count + 1;
    struct ull__kept *kept = calloc(processes, sizeof *kept);
    struct work work = {.allocs = allocs, .so_far = calloc(processes, sizeof *work.so_far)};
    struct ull__walk *walk = ull__walk_create(facts);
    bool good = kept && work.so_far && walk &&
                ull__kinds_init(&work.kinds, facts->history, false, KINDS_MOST);
    while (good && ull__walk_next(walk))
        good = take_step(&work, walk);
    good = good && !ull__walk_failed(walk);
    if (good)
        choose(&work, kept);
    ull__walk_destroy(walk);
    ull__kinds_finish(&work.kinds);
    free(work.so_far);
    free(work.items);
    if (good)
        return kept;
    free(kept);
    return NULL;
}
