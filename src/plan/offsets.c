/*
 * offsets.c: the way from a problem to a plan: parts, greedy orders for each, then the exact search where they leave
 * a gap. See offsets.h.
 */
#include "offsets.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "offsets_private.h"
#include "offsets_search.h"

static ull_status no_memory(struct ull_error *err, size_t count)
{
    return ull__fail(err, ULL_E_SYSTEM, "no memory to place %zu buffers", count);
}

/* One part being placed. */
struct part_plan {
    const struct ull__instance *in;
    uint64_t *offsets, *found; /* the lowest so far; of a search */
    uint64_t height;           /* bytes */
    uint64_t bound;            /* no plan is lower, as far as known */
};

static uint64_t height_of(const struct ull__instance *in, const uint64_t *offsets)
{
    uint64_t height = 0;
    for (size_t b = 0; b < in->count; b++) {
        uint64_t end = ull__end_bytes(in, b, offsets[b]);
        height = end > height ? end : height;
    }
    return height;
}

/* One search; what it finds or shows is noted. */
static enum ull__offsets_search_end search_once(struct part_plan *part,
                                                const struct ull__offsets_space *space,
                                                uint64_t capacity, uint64_t nodes,
                                                unsigned int threads, uint64_t *used)
{
    uint64_t spent = 0;
    enum ull__offsets_search_end end =
        ull__offsets_search(space, capacity, nodes, threads, part->found, &spent);
    *used += spent;
    if (end == ULL__OFFSETS_SEARCH_FOUND) {
        memcpy(part->offsets, part->found, part->in->count * sizeof *part->offsets);
        part->height = height_of(part->in, part->offsets);
    } else if (end == ULL__OFFSETS_SEARCH_NONE) {
        part->bound = capacity + 1;
    }
    return end;
}

/*
 * Down to `enough`: that is tried first, with half of the nodes. Then, if anything lower is welcome, what is between
 * the bound and the height is halved again and again, each time with half of the nodes that are left.
 */
static bool search_part(struct part_plan *part, const struct ull__offsets_space *space,
                        uint64_t enough, bool lowest, const struct ull__offsets_effort *effort,
                        uint64_t *used)
{
    uint64_t low = enough; /* the next to try; below is hopeless, or was tried in vain */
    uint64_t capacity = enough;
    while (part->height > low && *used < effort->nodes) {
        uint64_t left = effort->nodes - *used;
        uint64_t nodes = lowest && left > 1 ? left - left / 2 : left;
        enum ull__offsets_search_end end =
            search_once(part, space, capacity, nodes, effort->threads, used);
        if (end == ULL__OFFSETS_SEARCH_FAILED)
            return false;
        if (end != ULL__OFFSETS_SEARCH_FOUND)
            low = capacity + 1;
        if (!lowest)
            break;
        if (part->height > low)
            capacity = low + (part->height - 1 - low) / 2;
    }
    return true;
}

/* Places one part; its offsets go into the plan in bytes. */
static bool solve_part(const struct ull__instance *in, const struct ull__offsets_problem *problem,
                       uint64_t enough, const struct ull__offsets_effort *effort,
                       struct ull__offsets *plan, uint64_t *bound)
{
    bool lowest = problem->capacity == ULL__OFFSETS_LOWEST;
    bool quick = lowest && effort->nodes == 0;
    struct part_plan part = {.in = in,
                             .offsets = calloc(in->count, sizeof *part.offsets),
                             .found = calloc(in->count, sizeof *part.found),
                             .bound = in->lower_bound};
    struct ull__offsets_space space = {0};
    bool ok =
        part.offsets && part.found && ull__greedy(in, enough, quick, part.offsets, &part.height);
    if (ok && part.height > enough && effort->nodes > plan->nodes &&
        in->count <= ULL__OFFSETS_SEARCH_MOST && problem->capacity >= plan->lower_bound) {
        ok = ull__offsets_space_init(&space, in) &&
             search_part(&part, &space, enough, lowest, effort, &plan->nodes);
        ull__offsets_space_finish(&space);
    }
    for (size_t i = 0; ok && i < in->count; i++)
        plan->offsets[in->id[i]] = part.offsets[i] * in->unit;
    plan->height = part.height > plan->height ? part.height : plan->height;
    *bound = part.bound > *bound ? part.bound : *bound;
    free(part.offsets);
    free(part.found);
    return ok;
}

ull_status ull__offsets_solve(const struct ull__offsets_problem *problem,
                              const struct ull__offsets_effort *effort, struct ull_error *err,
                              struct ull__offsets *plan)
{
    struct ull__parts parts;
    ull_status status = ull__parts_init(problem, err, &parts);
    if (status != ULL_OK)
        return status;
    struct ull__offsets made = {.count = problem->count, .lower_bound = parts.lower_bound};
    made.offsets = calloc(problem->count ? problem->count : 1, sizeof *made.offsets);
    bool ok = made.offsets != NULL, lowest = problem->capacity == ULL__OFFSETS_LOWEST;
    for (size_t i = 0; ok && i < problem->count; i++)
        made.offsets[i] = problem->buffers[i].pinned ? problem->buffers[i].offset : 0;
    uint64_t bound = parts.lower_bound; /* as far as the search knows */
    for (size_t i = 0; ok && i < parts.count; i++) {
        uint64_t enough = lowest || problem->capacity < bound ? bound : problem->capacity;
        ok = solve_part(&parts.parts[i], problem, enough, effort, &made, &bound);
    }
    ull__parts_finish(&parts);
    if (!ok) {
        ull__offsets_finish(&made);
        return no_memory(err, problem->count);
    }
    made.infeasible = problem->capacity < bound;
    made.solved = lowest ? made.height == bound : made.height <= problem->capacity;
    *plan = made;
    return ULL_OK;
}

ull_status ull__offsets_lower_bound(const struct ull__offsets_problem *problem,
                                    struct ull_error *err, uint64_t *lower_bound)
{
    struct ull__parts parts;
    ull_status status = ull__parts_init(problem, err, &parts);
    if (status != ULL_OK)
        return status;
    *lower_bound = parts.lower_bound;
    ull__parts_finish(&parts);
    return ULL_OK;
}

void ull__offsets_finish(struct ull__offsets *plan)
{
    free(plan->offsets);
    *plan = (struct ull__offsets){0};
}
