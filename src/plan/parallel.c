/*
 * parallel.c: where to cut a model over devices, and what that gives. See parallel.h.
 *
 * For some plans of each variant that one device has (precision, micro-batch, what is recomputed) the cuts are found by what
 * each unit needs for itself, once so that the largest device is as small as possible, and once so that the slowest is as
 * fast. What comes of each is then counted on the schedule.
 */
#include "parallel.h"

#include <stdlib.h>
#include <string.h>

#include "cut.h"
#include "error.h"
#include "plan_private.h"

enum { DECISIONS_OF_A_VARIANT = 6, UNITS_MOST = 2048 };

struct ull__parallel {
    enum ull__parallel_kind kind;
    int devices;
    struct ull__planner *planner;
    struct ull__units *units; /* by variant; of those that were looked at */
    struct ull__parallel_plan *plans;
    int plan_count, plan_room;
};

/* What a unit needs for itself. */
struct unit_need {
    int64_t persistent, kept, passing;
    double seconds;
};

static const char *const kinds[] = {"data", "model", "pipeline"};

const char *ull__parallel_text(enum ull__parallel_kind kind)
{
    return kinds[kind];
}

bool ull__parallel_parse(const char *text, enum ull__parallel_kind *kind)
{
    for (int i = 0; i < 3; ++i) {
        if (strcmp(kinds[i], text) == 0) {
            *kind = (enum ull__parallel_kind)i;
            return true;
        }
    }
    return false;
}

static int in_flight(const struct ull__parallel *made, int device, int64_t accumulation)
{
    int most = made->kind == ULL_PARALLEL_PIPELINE ? made->devices - device : 1;
    return most < accumulation ? most : (int)accumulation;
}

/* --- Cuts --- */

/* What units first to last cost a device, in the measure that is to be level. */
static double cost_of(const struct unit_need *needs, int first, int last, int flying, bool by_time)
{
    int64_t bytes = 0, passing = 0;
    double seconds = 0;
    for (int i = first; i <= last; ++i) {
        bytes += needs[i].persistent + flying * needs[i].kept;
        passing = needs[i].passing > passing ? needs[i].passing : passing;
        seconds += needs[i].seconds;
    }
    return by_time ? seconds : (double)(bytes + passing);
}

/* The last unit of the device that begins with `first`, as far as `limit` goes; at least one, and one left for each after it. */
static int fill(const struct ull__parallel *made, const struct unit_need *needs, int units,
                int first, int device, int64_t accumulation, bool by_time, double limit)
{
    int last = first, most = units - (made->devices - device);
    int flying = in_flight(made, device, accumulation);
    while (last < most && cost_of(needs, first, last + 1, flying, by_time) <= limit) {
        last += 1;
    }
    return device + 1 == made->devices ? units - 1 : last;
}

/* The cost of the device that has most, where all are filled up to the limit. */
static double try_limit(const struct ull__parallel *made, const struct unit_need *needs, int units,
                        int64_t accumulation, bool by_time, double limit, bool *cut)
{
    double most = 0;
    memset(cut, 0, sizeof(*cut) * (size_t)units);
    for (int device = 0, first = 0; device < made->devices; ++device) {
        int last = fill(made, needs, units, first, device, accumulation, by_time, limit);
        double cost = cost_of(needs, first, last, in_flight(made, device, accumulation), by_time);
        most = cost > most ? cost : most;
        cut[last] = true;
        first = last + 1;
    }
    return most;
}

/* Halves the limit's range until the largest is as small as it gets. */
static void find_cuts(const struct ull__parallel *made, const struct unit_need *needs, int units,
                      int64_t accumulation, bool by_time, bool *cut)
{
    double low = 0;
    double high = cost_of(needs, 0, units - 1, in_flight(made, 0, accumulation), by_time),
           best = high;
    for (int i = 0; i < 40; ++i) {
        double middle = (low + high) / 2;
        if (try_limit(made, needs, units, accumulation, by_time, middle, cut) <= middle) {
            best = high = middle;
        } else {
            low = middle;
        }
    }
    try_limit(made, needs, units, accumulation, by_time, best, cut);
}

/* --- What comes of them --- */

static double step_seconds(const struct ull__parallel *made, const struct ull__parallel_plan *plan,
                           double micro_steps)
{
    double link = made->planner->profile.link_per_second, sum = 0, slowest = 0, update = 0;
    for (int i = 0; i < made->devices; ++i) {
        const struct ull__stage *stage = &plan->stages[i];
        double seconds = stage->seconds + (double)stage->sent_bytes / link;
        sum += seconds;
        slowest = seconds > slowest ? seconds : slowest;
        update = stage->update_seconds > update ? stage->update_seconds : update;
    }
    return update + (made->kind == ULL_PARALLEL_PIPELINE ? sum + (micro_steps - 1) * slowest
                                                         : micro_steps * sum);
}

static bool fill_stages(const struct ull__parallel *made, const struct ull__cut_schedule *schedule,
                        bool placed, struct ull__parallel_plan *plan)
{
    plan->peak_bytes = 0;
    for (int i = 0; i < made->devices; ++i) {
        if (!ull__cut_stage(schedule, placed, &plan->stages[i])) {
            return false;
        }
        int64_t peak = plan->stages[i].peak_bytes;
        plan->peak_bytes = peak > plan->peak_bytes ? peak : plan->peak_bytes;
    }
    plan->placed = placed;
    return true;
}

static bool put(struct ull__parallel *made, const struct ull__parallel_plan *plan)
{
    if (made->plan_count == made->plan_room) {
        int room = made->plan_room == 0 ? 64 : 2 * made->plan_room;
        struct ull__parallel_plan *more = realloc(made->plans, sizeof(*more) * (size_t)room);
        if (more == NULL) {
            return false;
        }
        made->plans = more;
        made->plan_room = room;
    }
    made->plans[made->plan_count++] = *plan;
    return true;
}

static void read_cuts(const struct ull__parallel *made, const struct ull__parallel_plan *plan,
                      bool *cut, int units)
{
    memset(cut, 0, sizeof(*cut) * (size_t)units);
    for (int i = 0; i < made->devices; ++i) {
        cut[plan->stages[i].last] = true;
    }
}

static bool try_cuts(struct ull__parallel *made, int source, const bool *cut)
{
    const struct ull__plan *of = &made->planner->plans[source];
    const struct ull__units *units = &made->units[of->variant];
    struct ull__parallel_plan plan = {.source = source};
    struct ull__cut_schedule *schedule =
        ull__cut_create(units, &made->planner->profile, &of->decision, cut);
    for (int unit = 0, device = 0, first = 0; unit < units->count; ++unit) {
        if (cut[unit]) {
            plan.stages[device] = (struct ull__stage){
                .first = first, .last = unit, .in_flight = in_flight(made, device, of->accumulation)};
            device += 1;
            first = unit + 1;
        }
    }
    bool fine = schedule != NULL && fill_stages(made, schedule, false, &plan);
    double full = (double)made->planner->request.batch / (double)of->micro_batch;
    plan.step_seconds = step_seconds(made, &plan, full > 1 ? full : 1);
    ull__cut_destroy(schedule);
    return fine && put(made, &plan);
}

static bool try_source(struct ull__parallel *made, int source)
{
    const struct ull__plan *of = &made->planner->plans[source];
    const struct ull__units *units = &made->units[of->variant];
    struct unit_need *needs = calloc((size_t)units->count, sizeof(*needs));
    bool *cut = calloc((size_t)units->count + 1, sizeof(*cut));
    struct ull__cut_schedule *schedule =
        ull__cut_create(units, &made->planner->profile, &of->decision, NULL);
    bool fine = needs != NULL && cut != NULL && schedule != NULL;
    for (int i = 0; i < units->count && fine; ++i) {
        struct ull__stage stage = {.first = i, .last = i, .in_flight = 2};
        fine = ull__cut_stage(schedule, false, &stage);
        needs[i] = (struct unit_need){stage.persistent_bytes, stage.kept_bytes, stage.passing_bytes,
                                      stage.seconds};
    }
    for (int by_time = 0; by_time < (made->kind == ULL_PARALLEL_PIPELINE ? 2 : 1) && fine; ++by_time) {
        find_cuts(made, needs, units->count, of->accumulation, by_time != 0, cut);
        fine = try_cuts(made, source, cut);
    }
    ull__cut_destroy(schedule);
    free(needs);
    free(cut);
    return fine;
}

/* --- All plans --- */

static int by_time(const void *left, const void *right)
{
    const struct ull__parallel_plan *a = left, *b = right;
    if (a->step_seconds != b->step_seconds) {
        return a->step_seconds < b->step_seconds ? -1 : 1;
    }
    if (a->peak_bytes != b->peak_bytes) {
        return a->peak_bytes < b->peak_bytes ? -1 : 1;
    }
    return a->source - b->source;
}

/* Leaves those that need less than all that are faster. */
static void thin(struct ull__parallel *made)
{
    int kept = 0;
    qsort(made->plans, (size_t)made->plan_count, sizeof(*made->plans), by_time);
    for (int i = 0; i < made->plan_count; ++i) {
        if (kept == 0 || made->plans[i].peak_bytes < made->plans[kept - 1].peak_bytes) {
            made->plans[kept++] = made->plans[i];
        }
    }
    made->plan_count = kept;
}

static ull_status find_units(struct ull__parallel *made, int variant, struct ull_error *err)
{
    const struct ull__plan_variant *of = &made->planner->variants[variant];
    struct ull__units *units = &made->units[variant];
    int64_t values[ULL_SYMBOLS];
    if (units->program != NULL) {
        return ULL_OK;
    }
    ull__graph_values(of->program->graph, of->micro_batch, values);
    if (!ull__units_create(of->program, values, units)) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to cut '%s'", of->program->graph->name);
    }
    if (units->count < made->devices) {
        return ull__fail(
            err, ULL_E_INVALID,
            "'%.60s' has %d parts, too few for %d devices: expected --devices up to %d",
            of->program->graph->name, units->count, made->devices, units->count);
    }
    return ULL_OK;
}

/* Of each variant a few plans, from the largest to the smallest. */
static ull_status try_all(struct ull__parallel *made, struct ull_error *err)
{
    const struct ull__planner *planner = made->planner;
    ull_status status = ULL_OK;
    for (int begin = 0, end; begin < planner->plan_count && status == ULL_OK; begin = end) {
        for (end = begin; end < planner->plan_count &&
                          planner->plans[end].variant == planner->plans[begin].variant;) {
            end += 1;
        }
        int count = end - begin,
            tries = count < DECISIONS_OF_A_VARIANT ? count : DECISIONS_OF_A_VARIANT;
        status = find_units(made, planner->plans[begin].variant, err);
        for (int i = 0; i < tries && status == ULL_OK; ++i) {
            int at = begin + (tries > 1 ? i * (count - 1) / (tries - 1) : 0);
            if (!try_source(made, at)) {
                status = ull__fail(err, ULL_E_NO_MEMORY, "no memory for plans over devices");
            }
        }
    }
    return status;
}

ull_status ull__parallel_create(const struct ull__plan_request *request, enum ull__parallel_kind kind,
                                int devices, struct ull__parallel **parallel, struct ull_error *err)
{
    struct ull__plan_request alone = *request;
    struct ull__parallel *made = calloc(1, sizeof(*made));
    alone.devices = 1;
    alone.host_bytes = 0;
    alone.plain = false;
    alone.each_variant = true;
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for plans over devices");
    }
    made->kind = kind;
    made->devices = devices;
    ull_status status = ULL_OK;
    if (devices < 2 || devices > ULL_STAGES_MOST || kind == ULL_PARALLEL_DATA) {
        status = ull__fail(err, ULL_E_INVALID, "%d devices: expected 2 to %d", devices,
                           (int)ULL_STAGES_MOST);
    } else {
        status = ull__planner_create(&alone, &made->planner, err);
    }
    if (status == ULL_OK) {
        made->units = calloc((size_t)made->planner->variant_count, sizeof(*made->units));
        status = made->units == NULL
                     ? ull__fail(err, ULL_E_NO_MEMORY, "no memory for plans over devices")
                     : try_all(made, err);
    }
    if (status != ULL_OK) {
        ull__parallel_destroy(made);
        return status;
    }
    thin(made);
    *parallel = made;
    return ULL_OK;
}

void ull__parallel_destroy(struct ull__parallel *parallel)
{
    if (parallel == NULL) {
        return;
    }
    for (int i = 0; parallel->units != NULL && i < parallel->planner->variant_count; ++i) {
        ull__units_destroy(&parallel->units[i]);
    }
    ull__planner_destroy(parallel->planner);
    free(parallel->units);
    free(parallel->plans);
    free(parallel);
}

const struct ull__parallel_plan *ull__parallel_plans(const struct ull__parallel *parallel, int *count)
{
    *count = parallel->plan_count;
    return parallel->plans;
}

const struct ull__plan *ull__parallel_source(const struct ull__parallel *parallel, int plan)
{
    return &parallel->planner->plans[parallel->plans[plan].source];
}

/* Gives a plan addresses. False without memory. */
static bool place(struct ull__parallel *made, int plan)
{
    struct ull__parallel_plan *of = &made->plans[plan];
    const struct ull__plan *source = ull__parallel_source(made, plan);
    const struct ull__units *units = &made->units[source->variant];
    bool *cut = calloc((size_t)units->count + 1, sizeof(*cut)), fine = of->placed;
    if (cut != NULL && !fine) {
        read_cuts(made, of, cut, units->count);
        struct ull__cut_schedule *schedule =
            ull__cut_create(units, &made->planner->profile, &source->decision, cut);
        fine = schedule != NULL && fill_stages(made, schedule, true, of);
        ull__cut_destroy(schedule);
    }
    free(cut);
    return fine;
}

int ull__parallel_choose(struct ull__parallel *parallel, int64_t budget)
{
    int64_t room = budget - (int64_t)parallel->planner->profile.outside_bytes;
    for (int i = 0; i < parallel->plan_count; ++i) {
        if (parallel->plans[i].peak_bytes <= room && place(parallel, i) &&
            parallel->plans[i].peak_bytes <= room) {
            return i;
        }
    }
    return ULL_NONE;
}

int ull__parallel_smallest(struct ull__parallel *parallel)
{
    int smallest = ULL_NONE;
    for (int i = parallel->plan_count - 1; i >= 0; --i) {
        bool hopeless = smallest != ULL_NONE &&
                        parallel->plans[i].peak_bytes >= parallel->plans[smallest].peak_bytes;
        if (!hopeless && place(parallel, i) &&
            (smallest == ULL_NONE ||
             parallel->plans[i].peak_bytes < parallel->plans[smallest].peak_bytes)) {
            smallest = i;
        }
    }
    return smallest;
}

const char *ull__parallel_unit(const struct ull__parallel *parallel, int unit)
{
    for (int i = 0; i < parallel->planner->variant_count; ++i) {
        if (parallel->units[i].program != NULL && unit < parallel->units[i].count) {
            return parallel->units[i].names[unit];
        }
    }
    return "";
}
