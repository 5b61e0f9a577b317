/*
 * offsets_parts.c: checks an offset problem and cuts it into instances (offsets_private.h), with lower bounds.
 *
 * Lifetimes are cut where nothing is live. With a predicate the parts are the connected components of the graph of
 * conflicts, which is asked for pair by pair and kept as a matrix of bits. Buffers that take no room are in no part.
 */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "offsets_private.h"

static const uint64_t total_most = UINT64_C(1) << 62;

static ull_status no_memory(struct ull_error *err, size_t count)
{
    return ull__fail(err, ULL_E_SYSTEM, "no memory to place %zu buffers", count);
}

static void *array(size_t count, size_t size)
{
    return calloc(count ? count : 1, size);
}

/* --- checks --------------------------------------------------------------------------------------------- */

static uint64_t alignment_of(const struct ull__buffer *buffer)
{
    return buffer->alignment ? buffer->alignment : 1;
}

static ull_status check_buffer(const struct ull__offsets_problem *problem, size_t i,
                               struct ull_error *err, uint64_t *total)
{
    const struct ull__buffer *buffer = &problem->buffers[i];
    uint64_t align = alignment_of(buffer);
    uint64_t top = buffer->size;
    if (align & (align - 1))
        return ull__fail(err, ULL_E_INVALID, "buffer %zu has alignment %llu: expected a power of two",
                         i, (unsigned long long)align);
    if (!problem->conflict && buffer->lower >= buffer->upper)
        return ull__fail(err, ULL_E_INVALID,
                         "buffer %zu is live from %lld to %lld: expected an end after the start", i,
                         (long long)buffer->lower, (long long)buffer->upper);
    if (buffer->pinned && buffer->offset & (align - 1))
        return ull__fail(err, ULL_E_INVALID,
                         "buffer %zu is pinned to offset %llu: expected a multiple of %llu", i,
                         (unsigned long long)buffer->offset, (unsigned long long)align);
    if (align >= total_most || top >= total_most || (buffer->pinned && buffer->offset >= total_most) ||
        (*total += top + align - 1 + (buffer->pinned ? buffer->offset : 0)) >= total_most)
        return ull__fail(err, ULL_E_INVALID,
                         "buffer %zu has size %llu: all sizes, paddings and pinned offsets must "
                         "stay below 2^62 in sum",
                         i, (unsigned long long)top);
    return ULL_OK;
}

static ull_status check_problem(const struct ull__offsets_problem *problem, struct ull_error *err)
{
    uint64_t total = 0;
    if (problem->count > UINT32_MAX / 4)
        return ull__fail(err, ULL_E_INVALID, "%zu buffers: expected at most %u", problem->count,
                         UINT32_MAX / 4);
    if (problem->conflict && problem->count > ULL__OFFSETS_PREDICATE_MOST)
        return ull__fail(err, ULL_E_INVALID,
                         "%zu buffers with a predicate: expected at most %d; lifetimes have no "
                         "such limit",
                         problem->count, ULL__OFFSETS_PREDICATE_MOST);
    for (size_t i = 0; i < problem->count; i++) {
        ull_status status = check_buffer(problem, i, err, &total);
        if (status != ULL_OK)
            return status;
    }
    return ULL_OK;
}

/* --- one instance -------------------------------------------------------------------------------------------- */

static void instance_finish(struct ull__instance *in)
{
    free(in->id);
    free(in->size);
    free(in->spare);
    free(in->align);
    free(in->pin);
    free(in->length);
    free(in->first);
    free(in->end);
    free(in->rows);
    free(in->section_from);
    free(in->section_member);
    free(in->section_load);
    free(in->busiest);
}

static bool instance_init(struct ull__instance *in, const struct ull__offsets_problem *problem,
                          const uint32_t *ids, size_t count, uint64_t unit)
{
    *in = (struct ull__instance){
        .count = count,
        .id = array(count, sizeof *in->id),
        .size = array(count, sizeof *in->size),
        .spare = array(count, sizeof *in->spare),
        .align = array(count, sizeof *in->align),
        .pin = array(count, sizeof *in->pin),
        .length = array(count, sizeof *in->length),
        .busiest = array(count, sizeof *in->busiest),
        .unit = unit,
    };
    if (!in->id || !in->size || !in->spare || !in->align || !in->pin || !in->length || !in->busiest)
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct ull__buffer *buffer = &problem->buffers[ids[i]];
        in->id[i] = ids[i];
        in->size[i] = (buffer->size + unit - 1) / unit;
        in->spare[i] = in->size[i] * unit - buffer->size;
        in->align[i] = alignment_of(buffer) / unit;
        in->pin[i] = buffer->pinned ? buffer->offset / unit : ULL__UNPINNED;
    }
    return true;
}

/*
 * What must lie above each other needs the sum of the sizes, all but the topmost rounded up. The smallest end that
 * this leaves is taken: that of the one with the most padding.
 */
static uint64_t section_bound(const struct ull__instance *in, uint64_t load, uint64_t most_spare)
{
    return load * in->unit - most_spare;
}

static void bound_by_pins(struct ull__instance *in)
{
    for (size_t i = 0; i < in->count; i++) {
        uint64_t at = in->pin[i] == ULL__UNPINNED ? 0 : in->pin[i];
        uint64_t end = ull__end_bytes(in, i, at);
        in->lower_bound = end > in->lower_bound ? end : in->lower_bound;
    }
}

/* --- lifetimes ------------------------------------------------------------------------------------------------ */

static int ascending(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

static uint32_t find_time(const int64_t *times, size_t count, int64_t time)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (times[middle] < time)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

/*
 * Between two moments there is a raw section. Only those are kept that begin where something begins and end where
 * something ends: what is live in the others is live in a neighbour too.
 */
static bool number_sections(struct ull__instance *in, const struct ull__offsets_problem *problem)
{
    size_t n = in->count, moments = 0;
    int64_t *times = array(2 * n, sizeof *times);
    uint8_t *marks = array(2 * n, sizeof *marks);
    uint32_t *kept = array(2 * n + 1, sizeof *kept);
    in->first = array(n, sizeof *in->first);
    in->end = array(n, sizeof *in->end);
    bool ok = times && marks && kept && in->first && in->end;
    if (ok) {
        for (size_t i = 0; i < n; i++) {
            times[2 * i] = problem->buffers[in->id[i]].lower;
            times[2 * i + 1] = problem->buffers[in->id[i]].upper;
        }
        qsort(times, 2 * n, sizeof *times, ascending);
        for (size_t i = 0; i < 2 * n; i++)
            if (i == 0 || times[i] != times[moments - 1])
                times[moments++] = times[i];
        for (size_t i = 0; i < n; i++) {
            const struct ull__buffer *buffer = &problem->buffers[in->id[i]];
            in->length[i] = (uint64_t)buffer->upper - (uint64_t)buffer->lower;
            in->first[i] = find_time(times, moments, buffer->lower);
            in->end[i] = find_time(times, moments, buffer->upper);
            marks[in->first[i]] |= 1;
            marks[in->end[i]] |= 2;
        }
        for (size_t s = 0; s + 1 < moments; s++)
            kept[s + 1] = kept[s] + ((marks[s] & 1) && (marks[s + 1] & 2));
        in->sections = kept[moments - 1];
        for (size_t i = 0; i < n; i++) {
            in->first[i] = kept[in->first[i]];
            in->end[i] = kept[in->end[i]];
        }
    }
    free(times);
    free(marks);
    free(kept);
    return ok;
}

static bool load_sections(struct ull__instance *in)
{
    uint64_t *spare = array(in->sections, sizeof *spare);
    in->section_load = array(in->sections + 1, sizeof *in->section_load);
    if (!spare || !in->section_load) {
        free(spare);
        return false;
    }
    for (size_t i = 0; i < in->count; i++) {
        in->section_load[in->first[i]] += in->size[i];
        in->section_load[in->end[i]] -= in->size[i];
        for (size_t s = in->first[i]; in->spare[i] && s < in->end[i]; s++)
            spare[s] = in->spare[i] > spare[s] ? in->spare[i] : spare[s];
    }
    for (size_t s = 0; s < in->sections; s++) {
        in->section_load[s + 1] += in->section_load[s];
        uint64_t bound = section_bound(in, in->section_load[s], spare[s]);
        in->lower_bound = bound > in->lower_bound ? bound : in->lower_bound;
    }
    for (size_t i = 0; i < in->count; i++) {
        for (size_t s = in->first[i]; s < in->end[i]; s++)
            if (in->section_load[s] > in->busiest[i])
                in->busiest[i] = in->section_load[s];
    }
    free(spare);
    return true;
}

struct start {
    int64_t lower;
    uint32_t id;
};

static int by_lower(const void *left, const void *right)
{
    const struct start *a = left, *b = right;
    if (a->lower != b->lower)
        return a->lower < b->lower ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static bool add_part(struct ull__parts *parts, const struct ull__offsets_problem *problem,
                     const uint32_t *ids, size_t count, uint64_t unit)
{
    struct ull__instance *more = realloc(parts->parts, (parts->count + 1) * sizeof *parts->parts);
    if (!more)
        return false;
    parts->parts = more;
    struct ull__instance *in = &parts->parts[parts->count++];
    if (!instance_init(in, problem, ids, count, unit))
        return false;
    bool ok = problem->conflict ? ull__cliques(in, problem)
                                : number_sections(in, problem) && load_sections(in);
    bound_by_pins(in);
    return ok;
}

/* `ids` are those that take room, by their start; `starts` has the same in the same order. */
static bool cut_lifetimes(struct ull__parts *parts, const struct ull__offsets_problem *problem,
                          uint32_t *ids, size_t count, uint64_t unit)
{
    struct start *starts = array(count, sizeof *starts);
    bool ok = starts != NULL;
    for (size_t i = 0; ok && i < count; i++)
        starts[i] = (struct start){problem->buffers[ids[i]].lower, ids[i]};
    if (ok)
        qsort(starts, count, sizeof *starts, by_lower);
    for (size_t i = 0; ok && i < count; i++)
        ids[i] = starts[i].id;
    free(starts);
    for (size_t from = 0, to; ok && from < count; from = to) {
        int64_t upper = problem->buffers[ids[from]].upper;
        for (to = from + 1; to < count && problem->buffers[ids[to]].lower < upper; to++) {
            if (problem->buffers[ids[to]].upper > upper)
                upper = problem->buffers[ids[to]].upper;
        }
        ok = add_part(parts, problem, ids + from, to - from, unit);
    }
    return ok;
}

/* Flood fill over the predicate: what conflicts with something in the part is moved behind it. */
static bool cut_conflicts(struct ull__parts *parts, const struct ull__offsets_problem *problem,
                          uint32_t *ids, size_t count, uint64_t unit)
{
    for (size_t from = 0, to; from < count; from = to) {
        to = from + 1;
        for (size_t next = from; next < to; next++) {
            for (size_t i = to; i < count; i++) {
                if (!ull__ask(problem, ids[next], ids[i]))
                    continue;
                uint32_t id = ids[i];
                ids[i] = ids[to];
                ids[to++] = id;
            }
        }
        if (!add_part(parts, problem, ids + from, to - from, unit))
            return false;
    }
    return true;
}

/* --- the whole ------------------------------------------------------------------------------------------------ */

/* Two pinned buffers may lie where they conflict. */
static ull_status check_pins(const struct ull__instance *in, struct ull_error *err)
{
    for (size_t i = 0; i < in->count; i++) {
        for (size_t j = i + 1; in->pin[i] != ULL__UNPINNED && j < in->count; j++) {
            if (in->pin[j] != ULL__UNPINNED && ull__in_conflict(in, i, j) &&
                in->pin[i] < in->pin[j] + in->size[j] && in->pin[j] < in->pin[i] + in->size[i])
                return ull__fail(err, ULL_E_INVALID,
                                 "buffers %u and %u are pinned to offsets where they overlap",
                                 in->id[i], in->id[j]);
        }
    }
    return ULL_OK;
}

ull_status ull__parts_init(const struct ull__offsets_problem *problem, struct ull_error *err,
                           struct ull__parts *parts)
{
    ull_status status = check_problem(problem, err);
    if (status != ULL_OK)
        return status;
    struct ull__parts made = {0};
    uint32_t *ids = array(problem->count, sizeof *ids);
    if (!ids)
        return no_memory(err, problem->count);
    size_t count = 0;
    uint64_t unit = 0;
    for (size_t i = 0; i < problem->count; i++) {
        uint64_t align = alignment_of(&problem->buffers[i]);
        if (problem->buffers[i].size == 0)
            continue;
        ids[count++] = (uint32_t)i;
        unit = unit == 0 || align < unit ? align : unit;
    }
    bool ok = problem->conflict ? cut_conflicts(&made, problem, ids, count, unit)
                                : cut_lifetimes(&made, problem, ids, count, unit);
    free(ids);
    status = ok ? ULL_OK : no_memory(err, problem->count);
    for (size_t i = 0; status == ULL_OK && i < made.count; i++) {
        status = check_pins(&made.parts[i], err);
        if (made.parts[i].lower_bound > made.lower_bound)
            made.lower_bound = made.parts[i].lower_bound;
    }
    if (status == ULL_OK)
        *parts = made;
    else
        ull__parts_finish(&made);
    return status;
}

void ull__parts_finish(struct ull__parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        instance_finish(&parts->parts[i]);
    free(parts->parts);
    *parts = (struct ull__parts){0};
}
