/*
 * figures.c: see figures.h. The first walk follows what is held, the second goes to the peak and looks at what
 * is live there (holders.c). Fragmentation is measured at moments spread over the record (gaps.c).
 */
#include "figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "course.h"
#include "error.h"
#include "figures_private.h"

enum {
    MOMENTS = 64,
    MOMENT_BLOCKS = 2000000, /* to be sorted in all */
    EARLY = 16               /* allocations of a process among which it may take most of the card */
};

/* Per process, until it is known which layer tells of the refusals. */
struct refused {
    uint64_t count[2], survived[2], more[2]; /* driver, chunks */
};

struct device_work {
    struct ull__follow follow;
    double fragmentation, free_share;
    unsigned int moments;
    uint64_t needed[2]; /* by what was refused and not survived: driver, chunks */
    bool shared, card_seen;
};

struct work {
    const struct ull__facts *facts;
    struct ull__figures *figures;
    struct ull__walk *walk;
    struct ull__follow all;
    struct device_work *devices;
    struct ull__follow *processes;
    struct refused *refused;
    struct ull__samples driver, chunks, waits;
    unsigned int moment;
    uint64_t moment_blocks;
};

/* --- what is held --------------------------------------------------------------------------------------- */

static void follow(struct work *work, uint32_t process, uint32_t device)
{
    const struct ull__walk *walk = work->walk;
    uint64_t now = walk->event ? walk->event->time_ns : 0;
    size_t at = walk->event ? walk->at : 0;
    ull__course_follow(&work->figures->all, &work->all, &walk->all, now, at);
    ull__course_follow(&work->figures->processes[process].course, &work->processes[process],
                       &walk->processes[process], now, at);
    if (device < work->figures->device_count)
        ull__course_follow(&work->figures->devices[device].course, &work->devices[device].follow,
                           &walk->devices[device], now, at);
}

static void follow_all(struct work *work)
{
    for (uint32_t p = 0; p < work->figures->process_count; p++)
        follow(work, p, UINT32_MAX);
    for (uint32_t d = 0; d < work->figures->device_count && work->figures->process_count > 0; d++)
        follow(work, 0, d);
}

static bool look_for_gaps(struct work *work)
{
    const struct ull__walk *walk = work->walk;
    uint64_t end = walk->history->end_ns;
    uint64_t due = (uint64_t)((double)end * (work->moment + 0.5) / MOMENTS);
    if (work->moment >= MOMENTS || walk->event->time_ns < due)
        return true;
    while (work->moment < MOMENTS &&
           walk->event->time_ns >= (uint64_t)((double)end * (work->moment + 0.5) / MOMENTS))
        work->moment++;
    for (uint32_t d = 0; d < work->figures->device_count; d++) {
        struct ull__gaps gaps;
        if (walk->devices[d].chunks == 0 || work->moment_blocks > MOMENT_BLOCKS)
            continue;
        work->moment_blocks += walk->block_count;
        if (!ull__gaps_measure(walk, d, &gaps))
            return false;
        if (gaps.size == 0)
            continue;
        struct device_work *device = &work->devices[d];
        if (gaps.free > 0)
            device->fragmentation += 1 - (double)gaps.largest / (double)gaps.free;
        device->free_share += (double)gaps.free / (double)gaps.size;
        device->moments++;
    }
    return true;
}

/* --- requests ------------------------------------------------------------------------------------------- */

static bool note_latency(struct work *work, const struct ull__event *event)
{
    struct ull__pressure *pressure = &work->figures->pressure;
    bool chunk = event->kind == ULL_EVENT_CHUNK_ALLOC;
    if (event->wait) {
        pressure->waited++;
        for (int bit = 0; bit < 8; bit++)
            pressure->by_wait[bit] += event->wait >> bit & 1;
        if (!ull__samples_keep(&work->waits, event->latency_ns))
            return false;
    }
    return event->latency_ns == 0 || /* not known */
           ull__samples_keep(chunk ? &work->chunks : &work->driver, event->latency_ns);
}

static void note_refusal(struct work *work, const struct ull__event *event)
{
    const struct ull__walk *walk = work->walk;
    struct refused *refused = &work->refused[event->process];
    int layer = event->kind == ULL_EVENT_CHUNK_ALLOC;
    work->figures->processes[event->process].refusals++;
    refused->count[layer]++;
    if (event->device >= work->figures->device_count)
        return;
    uint64_t need = walk->devices[event->device].held + event->size;
    uint64_t budget = walk->budgets[event->device];
    if (need < event->size)
        return; /* nonsense that overflows: no budget would have done */
    if (ull__facts_survived(work->facts, walk->at)) {
        refused->survived[layer]++;
        if (budget > 0 && need > budget && need - budget > refused->more[layer])
            refused->more[layer] = need - budget;
        return;
    }
    uint64_t *needed = &work->devices[event->device].needed[layer];
    if (need > *needed)
        *needed = need;
}

static void note_size(struct ull__figures *figures, uint64_t size)
{
    int bucket = size > 0 ? 63 - __builtin_clzll(size) : 0;
    bucket = bucket < ULL_SIZE_BUCKETS ? bucket : ULL_SIZE_BUCKETS - 1;
    figures->sizes[bucket]++;
    figures->size_bytes[bucket] += size;
}

static void note_age(struct ull__figures *figures, const struct ull__block *block, uint64_t now_ns)
{
    uint64_t us = (now_ns - block->since_ns) / 1000;
    int bucket = us > 0 ? (63 - __builtin_clzll(us)) / 2 : 0;
    bucket = bucket < ULL_AGE_BUCKETS ? bucket : ULL_AGE_BUCKETS - 1;
    figures->ages[bucket]++;
    figures->age_bytes[bucket] += block->size;
}

static void note_preallocation(struct work *work, const struct ull__event *event)
{
    if (event->kind != ULL_EVENT_ALLOC || event->device >= work->figures->device_count)
        return;
    struct ull__device_figures *device = &work->figures->devices[event->device];
    uint64_t limit = work->walk->budgets[event->device];
    if (limit == 0 || (device->total_bytes > 0 && device->total_bytes < limit))
        limit = device->total_bytes;
    if (limit > 0 && event->size > limit / 2 &&
        work->figures->processes[event->process].allocs <= EARLY)
        device->preallocated = true;
}

static bool came(struct work *work)
{
    const struct ull__walk *walk = work->walk;
    const struct ull__event *event = walk->event;
    work->figures->processes[event->process].allocs++;
    if (ull__block_is_live(work->facts, &walk->block))
        note_size(work->figures, walk->block.size);
    note_preallocation(work, event);
    return note_latency(work, event);
}

static void left(struct work *work)
{
    struct ull__figures *figures = work->figures;
    const struct ull__block *block = &work->walk->block;
    bool live = ull__block_is_live(work->facts, block);
    if (work->walk->step == ULL_STEP_FREED)
        figures->processes[block->process].frees++;
    if (live && work->walk->step == ULL_STEP_FREED) {
        note_age(figures, block, work->walk->event->time_ns);
    } else if (live) {
        figures->never_freed++;
        figures->never_freed_bytes += block->size;
    }
}

/* --- other events ---------------------------------------------------------------------------------------- */

static void other(struct work *work, const struct ull__event *event)
{
    struct ull__process_figures *process = &work->figures->processes[event->process];
    bool on_device = event->device < work->figures->device_count;
    switch (event->kind) {
    case ULL_EVENT_HOST:
        process->host_first = process->host_samples ? process->host_first : event->size;
        process->host_last = event->size;
        if (event->size > process->host_peak)
            process->host_peak = event->size;
        process->host_samples++;
        break;
    case ULL_EVENT_CARD:
        if (on_device) {
            work->devices[event->device].card_seen = true;
            work->devices[event->device].shared |= event->address > 0;
        }
        break;
    case ULL_EVENT_BUDGET:
        if (on_device && event->size > work->figures->devices[event->device].budget_bytes)
            work->figures->devices[event->device].budget_bytes = event->size;
        break;
    default:
        break;
    }
}

static bool take_step(struct work *work)
{
    const struct ull__walk *walk = work->walk;
    const struct ull__event *event = walk->event;
    switch (walk->step) {
    case ULL_STEP_CAME:
        follow(work, walk->block.process, walk->block.device);
        return came(work);
    case ULL_STEP_FREED:
    case ULL_STEP_REPLACED:
    case ULL_STEP_LEFT:
        follow(work, walk->block.process, walk->block.device);
        left(work);
        return true;
    case ULL_STEP_REFUSED:
        note_refusal(work, event);
        return note_latency(work, event);
    case ULL_STEP_CHARGED:
        follow(work, event->process, event->device);
        return true;
    case ULL_STEP_ENDED:
        for (uint32_t d = 0; d < work->figures->device_count; d++)
            follow(work, event->process, d);
        return true;
    case ULL_STEP_OTHER:
        other(work, event);
        return true;
    case ULL_STEP_STRAY:
        break;
    }
    return true;
}

/* --- at the end ------------------------------------------------------------------------------------------ */

static void finish_pressure(struct work *work)
{
    struct ull__pressure *pressure = &work->figures->pressure;
    bool only_chunks = true;
    for (uint32_t p = 0; p < work->figures->process_count; p++) {
        const struct refused *refused = &work->refused[p];
        /* The driver refuses an allocator, which refuses the program: that is one refusal. */
        int layer = refused->count[0] > 0 ? 0 : 1;
        only_chunks &= refused->count[0] == 0;
        work->figures->processes[p].refusals = refused->count[layer];
        pressure->refusals += refused->count[layer];
        pressure->survived += refused->survived[layer];
        if (refused->more[layer] > pressure->more_bytes)
            pressure->more_bytes = refused->more[layer];
    }
    for (uint32_t d = 0; d < work->figures->device_count; d++) {
        struct ull__device_figures *device = &work->figures->devices[d];
        uint64_t needed = work->devices[d].needed[only_chunks ? 1 : 0];
        device->needed_bytes = device->course.peak_bytes;
        if (needed > device->needed_bytes) {
            device->needed_bytes = needed;
            device->stopped_short = true;
        }
    }
    struct ull__samples *usual =
        work->driver.count >= work->chunks.count ? &work->driver : &work->chunks;
    double median = usual->count ? ull__samples_ranked(usual, usual->count / 2) : 0;
    for (size_t i = 0; i < work->waits.count; i++) {
        if (work->waits.values[i] > median)
            pressure->waited_seconds += (work->waits.values[i] - median) / 1e9;
    }
}

static void finish_devices(struct work *work)
{
    struct ull__figures *figures = work->figures;
    for (uint32_t d = 0; d < figures->device_count; d++) {
        struct ull__device_figures *device = &figures->devices[d];
        const struct device_work *done = &work->devices[d];
        ull__course_finish(&device->course, &work->devices[d].follow, work->facts->history->end_ns);
        device->suggested_bytes =
            ull__suggest(device->needed_bytes, device->total_bytes, figures->role);
        device->alone = !done->card_seen ? ULL_ALONE_UNKNOWN
                        : done->shared   ? ULL_ALONE_NO
                                         : ULL_ALONE_YES;
        device->fragmentation = done->moments ? done->fragmentation / done->moments : (double)NAN;
        device->free_share = done->moments ? done->free_share / done->moments : (double)NAN;
        if (device->course.peak_bytes > 0 &&
            (figures->main < 0 ||
             device->course.peak_bytes > figures->devices[figures->main].course.peak_bytes))
            figures->main = (int)d;
    }
}

static void finish(struct work *work)
{
    struct ull__figures *figures = work->figures;
    uint64_t end = work->facts->history->end_ns;
    ull__course_finish(&figures->all, &work->all, end);
    for (uint32_t p = 0; p < figures->process_count; p++)
        ull__course_finish(&figures->processes[p].course, &work->processes[p], end);
    for (uint32_t i = 0; i < work->walk->place_count; i++) {
        const struct ull__block *block = &work->walk->blocks[i];
        if (block->layer != ULL_LAYER_NONE && ull__block_is_live(work->facts, block)) {
            figures->never_freed++;
            figures->never_freed_bytes += block->size;
        }
    }
    finish_pressure(work);
    finish_devices(work);
    ull__samples_describe(&work->driver, &figures->driver);
    ull__samples_describe(&work->chunks, &figures->chunks);
}

/* --- all of it ------------------------------------------------------------------------------------------- */

static void no_course(struct ull__course *course)
{
    course->peak_event = course->live_peak_event = ULL_NO_EVENT;
}

static bool begin(struct work *work)
{
    const struct ull__history *history = work->facts->history;
    struct ull__figures *figures = work->figures;
    figures->main = -1;
    figures->device_count = history->device_count;
    figures->process_count = history->process_count;
    figures->devices = calloc(history->device_count + 1, sizeof *figures->devices);
    figures->processes = calloc(history->process_count + 1, sizeof *figures->processes);
    work->devices = calloc(history->device_count + 1, sizeof *work->devices);
    work->processes = calloc(history->process_count + 1, sizeof *work->processes);
    work->refused = calloc(history->process_count + 1, sizeof *work->refused);
    work->walk = ull__walk_create(work->facts);
    if (!figures->devices || !figures->processes || !work->devices || !work->processes ||
        !work->refused || !work->walk)
        return false;
    no_course(&figures->all);
    for (uint32_t p = 0; p < figures->process_count; p++)
        no_course(&figures->processes[p].course);
    for (uint32_t d = 0; d < figures->device_count; d++) {
        no_course(&figures->devices[d].course);
        figures->devices[d].total_bytes = history->devices[d].total_bytes;
        figures->devices[d].budget_bytes = history->devices[d].budget_bytes;
    }
    follow_all(work);
    return true;
}

static bool go_through(struct work *work)
{
    while (ull__walk_next(work->walk)) {
        if (!take_step(work) || !look_for_gaps(work))
            return false;
    }
    return !ull__walk_failed(work->walk);
}

ull_status ull__figures_create(const struct ull__facts *facts, enum ull__role role,
                               struct ull__figures **figures, struct ull_error *err)
{
    struct work work = {.facts = facts, .figures = calloc(1, sizeof **figures)};
    ull_status status = ULL_OK;
    if (work.figures)
        work.figures->role = role;
    if (!work.figures || !begin(&work) || !go_through(&work))
        status = ull__fail(err, ULL_E_SYSTEM, "no memory for the figures of %zu events",
                           facts->history->event_count);
    if (status == ULL_OK) {
        finish(&work);
        ull__walk_destroy(work.walk); /* the next one takes as much again */
        work.walk = NULL;
        status = ull__figures_holders(facts, work.figures, err);
    }
    ull__walk_destroy(work.walk);
    free(work.devices);
    free(work.processes);
    free(work.refused);
    free(work.driver.values);
    free(work.chunks.values);
    free(work.waits.values);
    if (status == ULL_OK)
        *figures = work.figures;
    else
        ull__figures_destroy(work.figures);
    return status;
}

void ull__figures_destroy(struct ull__figures *figures)
{
    if (!figures)
        return;
    free(figures->devices);
    free(figures->processes);
    free(figures);
}
