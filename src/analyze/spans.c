/*
 * spans.c: see spans.h. One walk makes spans and changes. What a step did to the books beyond its block (charges,
 * ends of processes, what was put right after lost events) is found by comparing the walk's books with ones that
 * are kept here from blocks and adjusts alone, so that whoever adds those up gets the walk's figures exactly.
 */
#include "spans.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "spans_private.h"

/* Books as they follow from what was written so far; of one process on one device. */
struct share {
    uint64_t by_class[ULL_CLASSES];
    uint64_t live;
};

struct work {
    const struct ull__facts *facts;
    const struct ull__walk *walk;
    struct ull__spans *spans;
    size_t span_capacity, kind_capacity, adjust_capacity, change_capacity;
    uint32_t *by_place; /* span of the block at a place of the walk */
    size_t place_capacity;
    uint32_t *slots; /* of kinds: number + 1; 0: empty */
    size_t slot_count;
    struct share **shares; /* by process: by device, and one more for no device; NULL: none */
    uint64_t moment;       /* of the last change */
    bool any;              /* there was one */
    bool failed;
};

bool ull__spans_room(void *array, size_t size, size_t count, size_t *capacity)
{
    void **items = array;
    if (count < *capacity)
        return true;
    size_t wanted = *capacity ? *capacity * 2 : 256;
    void *grown = count < INT32_MAX ? realloc(*items, wanted * size) : NULL;
    if (!grown)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

/* --- kinds ---------------------------------------------------------------------------------------------- */

static uint64_t hash_kind(const struct ull__span_kind *kind)
{
    uint64_t hash = (uint64_t)kind->tag << 32 | kind->stack;
    hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9ull;
    hash ^= (uint64_t)kind->process << 24 | (uint64_t)kind->device << 16 |
            (uint64_t)kind->class << 8 | (uint64_t)kind->layer << 1 | kind->before;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebull;
    return hash ^ hash >> 31;
}

static bool same_kind(const struct ull__span_kind *a, const struct ull__span_kind *b)
{
    return a->tag == b->tag && a->stack == b->stack && a->process == b->process &&
           a->device == b->device && a->class == b->class && a->layer == b->layer &&
           a->before == b->before;
}

static void put_slot(struct work *work, uint32_t number)
{
    size_t at = hash_kind(&work->spans->kinds[number]) & (work->slot_count - 1);
    while (work->slots[at])
        at = (at + 1) & (work->slot_count - 1);
    work->slots[at] = number + 1;
}

/* At most half full after one more. */
static bool slots_ensure(struct work *work)
{
    size_t wanted = work->slot_count ? work->slot_count * 2 : 256;
    if (work->spans->kind_count * 2 + 2 <= work->slot_count)
        return true;
    uint32_t *grown = calloc(wanted, sizeof *grown);
    if (!grown)
        return false;
    free(work->slots);
    work->slots = grown;
    work->slot_count = wanted;
    for (uint32_t i = 0; i < work->spans->kind_count; i++)
        put_slot(work, i);
    return true;
}

static struct ull__span_kind kind_of(const struct work *work, const struct ull__block *block)
{
    const struct ull__event *event =
        block->event == ULL_NO_EVENT ? NULL : &work->facts->history->events[block->event];
    bool chunk = block->layer == ULL_LAYER_CHUNK;
    return (struct ull__span_kind){
        .tag = event ? event->tag : 0,
        .stack = event ? event->stack : 0,
        .process = block->process,
        .device = block->device,
        .class = block->class,
        .layer = block->layer,
        .live = ull__block_is_live(work->facts, block),
        .held = !chunk || !work->facts->processes[block->process].driver,
        .before = !event,
    };
}

static uint32_t find_kind(struct work *work, const struct ull__block *block)
{
    struct ull__spans *spans = work->spans;
    struct ull__span_kind kind = kind_of(work, block);
    if (!slots_ensure(work) ||
        !ull__spans_room(&spans->kinds, sizeof kind, spans->kind_count, &work->kind_capacity)) {
        work->failed = true;
        return 0;
    }
    size_t at = hash_kind(&kind) & (work->slot_count - 1);
    for (; work->slots[at]; at = (at + 1) & (work->slot_count - 1)) {
        if (same_kind(&spans->kinds[work->slots[at] - 1], &kind))
            return work->slots[at] - 1;
    }
    spans->kinds[spans->kind_count] = kind;
    work->slots[at] = (uint32_t)++spans->kind_count;
    return (uint32_t)spans->kind_count - 1;
}

/* --- changes -------------------------------------------------------------------------------------------- */

static struct share *share_of(struct work *work, uint32_t process, uint32_t device)
{
    uint32_t devices = work->facts->history->device_count;
    struct share **shares = &work->shares[process];
    if (!*shares)
        *shares = calloc(devices + 1, sizeof **shares);
    if (!*shares) {
        work->failed = true;
        return NULL;
    }
    return &(*shares)[device < devices ? device : devices];
}

static void change(struct work *work, enum ull__change_what what, size_t number)
{
    struct ull__spans *spans = work->spans;
    uint64_t time = work->walk->event ? work->walk->event->time_ns : 0;
    if (!ull__spans_room(&spans->changes, sizeof *spans->changes, spans->change_count,
                         &work->change_capacity)) {
        work->failed = true;
        return;
    }
    work->moment = work->any && time <= work->moment ? work->moment + 1 : time;
    work->any = true;
    spans->changes[spans->change_count++] =
        (struct ull__change){work->moment, (uint32_t)number, what};
}

static void book(struct work *work, const struct ull__span *span, int sign)
{
    const struct ull__span_kind *kind = &work->spans->kinds[span->kind];
    struct share *share = share_of(work, kind->process, kind->device);
    if (!share)
        return;
    share->by_class[kind->class] += (uint64_t)sign * span->held;
    share->live += kind->live ? (uint64_t)sign * span->size : 0;
}

static void came(struct work *work, const struct ull__block *block, uint32_t place)
{
    struct ull__spans *spans = work->spans;
    uint32_t kind = find_kind(work, block);
    while (place >= work->place_capacity && !work->failed)
        work->failed = !ull__spans_room(&work->by_place, sizeof *work->by_place,
                                        work->place_capacity, &work->place_capacity);
    if (work->failed || !ull__spans_room(&spans->spans, sizeof *spans->spans, spans->span_count,
                                         &work->span_capacity)) {
        work->failed = true;
        return;
    }
    struct ull__span *span = &spans->spans[spans->span_count];
    work->by_place[place] = (uint32_t)spans->span_count;
    change(work, ULL_CHANGE_CAME, spans->span_count++);
    *span = (struct ull__span){.from = work->moment,
                               .to = ULL_NEVER,
                               .size = block->size,
                               .held = spans->kinds[kind].held ? block->charged : 0,
                               .kind = kind};
    book(work, span, 1);
}

static void went(struct work *work)
{
    uint32_t number = work->by_place[work->walk->place];
    change(work, work->walk->step == ULL_STEP_FREED ? ULL_CHANGE_WENT : ULL_CHANGE_LEFT, number);
    work->spans->spans[number].to = work->moment;
    book(work, &work->spans->spans[number], -1);
}

static void adjust(struct work *work, struct ull__adjust adjust)
{
    struct ull__spans *spans = work->spans;
    if (!ull__spans_room(&spans->adjusts, sizeof adjust, spans->adjust_count, &work->adjust_capacity)) {
        work->failed = true;
        return;
    }
    spans->adjusts[spans->adjust_count] = adjust;
    change(work, ULL_CHANGE_ADJUSTED, spans->adjust_count++);
}

/* What the walk's books say beyond what was written. */
static void compare(struct work *work, uint32_t process, uint32_t device)
{
    const struct ull__totals *is = ull__walk_share(work->walk, process, device);
    struct share *share = share_of(work, process, device);
    if (!share)
        return;
    for (int c = 0; c < ULL_CLASSES; c++) {
        bool with_live = c == ULL_CLASS_DATA && is->live != share->live;
        if (is->by_class[c] == share->by_class[c] && !with_live)
            continue;
        adjust(work, (struct ull__adjust){
                         .held = (int64_t)(is->by_class[c] - share->by_class[c]),
                         .live = with_live ? (int64_t)(is->live - share->live) : 0,
                         .process = (uint16_t)process,
                         .device = (uint8_t)device,
                         .class = (uint8_t)c,
                     });
        share->by_class[c] = is->by_class[c];
    }
    share->live = is->live;
}

static void take_step(struct work *work)
{
    const struct ull__walk *walk = work->walk;
    switch (walk->step) {
    case ULL_STEP_CAME:
        came(work, &walk->block, walk->place);
        compare(work, walk->block.process, walk->block.device);
        break;
    case ULL_STEP_FREED:
    case ULL_STEP_REPLACED:
    case ULL_STEP_LEFT:
        went(work);
        compare(work, walk->block.process, walk->block.device);
        break;
    case ULL_STEP_CHARGED:
        compare(work, walk->event->process, walk->event->device);
        break;
    case ULL_STEP_ENDED:
        for (uint32_t d = 0; d < walk->history->device_count && !work->failed; d++)
            compare(work, walk->event->process, d);
        if (!work->failed)
            compare(work, walk->event->process, ULL_EVENT_NO_DEVICE);
        break;
    case ULL_STEP_OTHER:
    case ULL_STEP_REFUSED:
    case ULL_STEP_STRAY:
        break;
    }
}

/* --- the walk --------------------------------------------------------------------------------------------- */

/* Where folded sums have to be right. */
struct peaks {
    uint64_t *events; /* in order */
    size_t count, next;
    struct ull__moments moments;
};

static int by_number(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static void list_peaks(struct peaks *peaks, const struct ull__course *course)
{
    if (course->peak_event != ULL_NO_EVENT)
        peaks->events[peaks->count++] = course->peak_event;
    if (course->live_peak_event != ULL_NO_EVENT)
        peaks->events[peaks->count++] = course->live_peak_event;
}

static bool find_peaks(struct peaks *peaks, const struct ull__figures *figures)
{
    size_t courses = 1 + (size_t)figures->device_count + figures->process_count;
    peaks->events = malloc(courses * 2 * sizeof *peaks->events);
    peaks->moments.at = malloc((courses * 2 + 1) * sizeof *peaks->moments.at);
    if (!peaks->events || !peaks->moments.at)
        return false;
    list_peaks(peaks, &figures->all);
    for (uint32_t d = 0; d < figures->device_count; d++)
        list_peaks(peaks, &figures->devices[d].course);
    for (uint32_t p = 0; p < figures->process_count; p++)
        list_peaks(peaks, &figures->processes[p].course);
    qsort(peaks->events, peaks->count, sizeof *peaks->events, by_number);
    return true;
}

/* The moment after all steps of a peak's event: when the event after it comes. */
static void note_peaks(struct work *work, struct peaks *peaks)
{
    for (; peaks->next < peaks->count && peaks->events[peaks->next] < work->walk->at; peaks->next++)
        peaks->moments.at[peaks->moments.count++] = work->moment;
}

static bool fill(struct work *work, struct peaks *peaks)
{
    struct ull__walk *walk = ull__walk_create(work->facts);
    work->walk = walk;
    if (!walk)
        return false;
    for (uint32_t place = 0; place < walk->place_count; place++) {
        if (walk->blocks[place].layer != ULL_LAYER_NONE)
            came(work, &walk->blocks[place], place);
    }
    if (peaks->count > 0) /* before the first event */
        peaks->moments.at[peaks->moments.count++] = work->moment;
    while (!work->failed && ull__walk_next(walk)) {
        note_peaks(work, peaks);
        take_step(work);
    }
    while (peaks->next < peaks->count) { /* in the last event */
        peaks->moments.at[peaks->moments.count++] = work->moment;
        peaks->next++;
    }
    bool good = !work->failed && !ull__walk_failed(walk);
    work->walk = NULL;
    ull__walk_destroy(walk);
    return good;
}

static void finish_work(struct work *work)
{
    for (uint32_t p = 0; work->shares && p < work->facts->history->process_count; p++)
        free(work->shares[p]);
    free(work->shares);
    free(work->by_place);
    free(work->slots);
}

ull_status ull__spans_create(const struct ull__facts *facts, const struct ull__figures *figures,
                             size_t most, size_t pieces, struct ull__spans **out,
                             struct ull_error *err)
{
    const struct ull__history *history = facts->history;
    struct ull__spans *spans = calloc(1, sizeof *spans);
    struct work work = {.facts = facts, .spans = spans};
    struct peaks peaks = {0};
    bool folds = most > 0 && facts->allocs + facts->before_count > most;
    work.shares = calloc((size_t)history->process_count + 1, sizeof(struct share *));
    bool good =
        spans && work.shares && (!folds || find_peaks(&peaks, figures)) && fill(&work, &peaks);
    finish_work(&work);
    if (good) {
        spans->end = work.any && work.moment >= history->end_ns ? work.moment + 1 : history->end_ns;
        good = !folds || ull__spans_fold(spans, most, pieces, &peaks.moments);
    }
    free(peaks.events);
    free(peaks.moments.at);
    if (!good) {
        ull__spans_destroy(spans);
        return ull__fail(err, ULL_E_SYSTEM, "no memory for the blocks of %zu events",
                         history->event_count);
    }
    *out = spans;
    return ULL_OK;
}

void ull__spans_destroy(struct ull__spans *spans)
{
    if (!spans)
        return;
    free(spans->spans);
    free(spans->kinds);
    free(spans->adjusts);
    free(spans->changes);
    free(spans);
}
