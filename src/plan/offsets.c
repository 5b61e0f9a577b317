/*
 * offsets.c: the way from a problem to a plan: parts, greedy orders for each, then the exact search where they leave
 * a gap. See offsets.h.
 */
#include "offsets.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "offsets_private.h"

static ull_status no_memory(struct ull_error *err, size_t count)
{
    return ull__fail(err, ULL_E_SYSTEM, "no memory to place %zu buffers", count);
}

/* Places one part; its offsets go into the plan in bytes. */
static bool solve_part(const struct ull__instance *in, uint64_t enough, struct ull__offsets *plan)
{
    uint64_t height = 0;
    uint64_t *offsets = calloc(in->count, sizeof *offsets);
    bool ok = offsets && ull__greedy(in, enough, offsets, &height);
    for (size_t i = 0; ok && i < in->count; i++)
        plan->offsets[in->id[i]] = offsets[i] * in->unit;
    plan->height = height > plan->height ? height : plan->height;
    free(offsets);
    return ok;
}

ull_status ull__offsets_solve(const struct ull__offsets_problem *problem,
                              const struct ull__offsets_effort *effort, struct ull_error *err,
                              struct ull__offsets *plan)
{
    (void)effort;
    struct ull__parts parts;
    ull_status status = ull__parts_init(problem, err, &parts);
    if (status != ULL_OK)
        return status;
    struct ull__offsets made = {.count = problem->count, .lower_bound = parts.lower_bound};
    made.offsets = calloc(problem->count ? problem->count : 1, sizeof *made.offsets);
    bool ok = made.offsets != NULL;
    for (size_t i = 0; ok && i < problem->count; i++)
        made.offsets[i] = problem->buffers[i].pinned ? problem->buffers[i].offset : 0;
    uint64_t enough = problem->capacity == ULL__OFFSETS_LOWEST || problem->capacity < parts.lower_bound
                          ? parts.lower_bound
                          : problem->capacity;
    for (size_t i = 0; ok && i < parts.count; i++)
        ok = solve_part(&parts.parts[i], enough, &made);
    ull__parts_finish(&parts);
    if (!ok) {
        ull__offsets_finish(&made);
        return no_memory(err, problem->count);
    }
    made.infeasible = problem->capacity < made.lower_bound;
    made.solved = problem->capacity == ULL__OFFSETS_LOWEST ? made.height == made.lower_bound
                                                           : made.height <= problem->capacity;
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
