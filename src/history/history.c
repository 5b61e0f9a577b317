/*
 * history.c: see history.h. Texts and stacks are found again through two hash tables that exist only while the
 * history is filled.
 */
#include "history.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

/* Open addressing; holds numbers of texts or stacks, 0: empty, since number 0 is never looked up. */
struct names {
    uint32_t *slots;
    size_t capacity, count;
};

struct ull__history_index {
    struct names texts, stacks;
};

static uint64_t hash_bytes(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    return hash ^ hash >> 32;
}

/* Room for one more item of `size` bytes in an array that doubles. */
static bool room(void *array, size_t size, size_t count, size_t *capacity, size_t most)
{
    void **items = array;
    if (count < *capacity)
        return true;
    if (count >= most)
        return false;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    void *grown = realloc(*items, wanted * size);
    if (!grown)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

static bool room32(void *array, size_t size, uint32_t count, uint32_t *capacity, uint32_t most)
{
    size_t wide = *capacity;
    if (!room(array, size, count, &wide, most))
        return false;
    *capacity = (uint32_t)wide;
    return true;
}

/* --- hash tables ------------------------------------------------------------------------------------ */

typedef uint64_t hash_fn(const struct ull__history *history, uint32_t number);

static uint64_t hash_text(const struct ull__history *history, uint32_t number)
{
    return hash_bytes(history->texts[number], strlen(history->texts[number]));
}

static uint64_t hash_stack(const struct ull__history *history, uint32_t number)
{
    const struct ull__stack *stack = &history->stacks[number];
    return hash_bytes(history->frames + stack->first, stack->count * sizeof(struct ull__frame));
}

static void names_put(struct names *names, uint64_t hash, uint32_t number)
{
    size_t at = hash & (names->capacity - 1);
    while (names->slots[at])
        at = (at + 1) & (names->capacity - 1);
    names->slots[at] = number;
    names->count++;
}

/* At most half full after one more. */
static bool names_ensure(const struct ull__history *history, struct names *names, hash_fn *hash)
{
    if (names->count * 2 + 2 <= names->capacity)
        return true;
    struct names grown = {.capacity = names->capacity ? names->capacity * 2 : 256};
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < names->capacity; i++)
        if (names->slots[i])
            names_put(&grown, hash(history, names->slots[i]), names->slots[i]);
    free(names->slots);
    *names = grown;
    return true;
}

/* --- filling ------------------------------------------------------------------------------------------ */

struct ull__history *ull__history_create(void)
{
    struct ull__history *history = calloc(1, sizeof *history);
    if (!history)
        return NULL;
    history->index = calloc(1, sizeof *history->index);
    bool good = history->index &&
                room32(&history->texts, sizeof *history->texts, 0, &history->text_capacity, 1) &&
                room32(&history->stacks, sizeof *history->stacks, 0, &history->stack_capacity, 1);
    char *empty = good ? calloc(1, 1) : NULL;
    if (!empty) {
        ull__history_destroy(history);
        return NULL;
    }
    history->texts[history->text_count++] = empty;
    history->stacks[history->stack_count++] = (struct ull__stack){0};
    return history;
}

static void drop_index(struct ull__history *history)
{
    if (!history->index)
        return;
    free(history->index->texts.slots);
    free(history->index->stacks.slots);
    free(history->index);
    history->index = NULL;
}

void ull__history_destroy(struct ull__history *history)
{
    if (!history)
        return;
    drop_index(history);
    for (uint32_t i = 0; i < history->text_count; i++)
        free(history->texts[i]);
    free(history->texts);
    free(history->stacks);
    free(history->frames);
    free(history->processes);
    free(history->devices);
    free(history->events);
    free(history);
}

bool ull__history_add(struct ull__history *history, const struct ull__event *event)
{
    if (!room(&history->events, sizeof *history->events, history->event_count,
              &history->event_capacity, SIZE_MAX))
        return false;
    history->events[history->event_count++] = *event;
    return true;
}

uint32_t ull__history_text(struct ull__history *history, const char *text, size_t size)
{
    struct names *names = &history->index->texts;
    size = strnlen(text, size);
    if (size == 0)
        return 0;
    if (!names_ensure(history, names, hash_text) ||
        !room32(&history->texts, sizeof *history->texts, history->text_count,
                &history->text_capacity, UINT32_MAX))
        return UINT32_MAX;
    uint64_t hash = hash_bytes(text, size);
    size_t at = hash & (names->capacity - 1);
    for (; names->slots[at]; at = (at + 1) & (names->capacity - 1)) {
        const char *there = history->texts[names->slots[at]];
        if (strncmp(there, text, size) == 0 && there[size] == '\0')
            return names->slots[at];
    }
    char *copy = malloc(size + 1);
    if (!copy)
        return UINT32_MAX;
    memcpy(copy, text, size);
    copy[size] = '\0';
    history->texts[history->text_count] = copy;
    names->slots[at] = history->text_count;
    names->count++;
    return history->text_count++;
}

uint32_t ull__history_stack(struct ull__history *history, const struct ull__frame *frames,
                            uint32_t count)
{
    struct names *names = &history->index->stacks;
    size_t bytes = count * sizeof *frames;
    if (count == 0)
        return 0;
    if (!names_ensure(history, names, hash_stack) ||
        !room32(&history->stacks, sizeof *history->stacks, history->stack_count,
                &history->stack_capacity, UINT32_MAX) ||
        history->frame_count > UINT32_MAX - count)
        return UINT32_MAX;
    uint64_t hash = hash_bytes(frames, bytes);
    size_t at = hash & (names->capacity - 1);
    for (; names->slots[at]; at = (at + 1) & (names->capacity - 1)) {
        const struct ull__stack *there = &history->stacks[names->slots[at]];
        if (there->count == count && memcmp(history->frames + there->first, frames, bytes) == 0)
            return names->slots[at];
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!room(&history->frames, sizeof *frames, history->frame_count + i,
                  &history->frame_capacity, UINT32_MAX))
            return UINT32_MAX;
        history->frames[history->frame_count + i] = frames[i];
    }
    history->stacks[history->stack_count] =
        (struct ull__stack){.first = (uint32_t)history->frame_count, .count = count};
    history->frame_count += count;
    names->slots[at] = history->stack_count;
    names->count++;
    return history->stack_count++;
}

uint32_t ull__history_process(struct ull__history *history, const struct ull__history_process *process)
{
    if (history->process_count >= UINT16_MAX ||
        !room32(&history->processes, sizeof *process, history->process_count,
                &history->process_capacity, UINT16_MAX))
        return UINT32_MAX;
    history->processes[history->process_count] = *process;
    return history->process_count++;
}

uint32_t ull__history_device(struct ull__history *history, const struct ull__history_device *device)
{
    if (!room32(&history->devices, sizeof *device, history->device_count, &history->device_capacity,
                ULL_EVENT_NO_DEVICE) ||
        history->device_count >= ULL_EVENT_NO_DEVICE)
        return UINT32_MAX;
    history->devices[history->device_count] = *device;
    return history->device_count++;
}

/* --- finishing ---------------------------------------------------------------------------------------- */

static bool event_is_whole(const struct ull__history *history, const struct ull__event *event)
{
    return event->kind > ULL_EVENT_NONE && event->kind < ULL_EVENT_KINDS &&
           event->class < ULL_CLASSES && event->stack < history->stack_count &&
           event->tag < history->text_count && event->process < history->process_count &&
           (event->device == ULL_EVENT_NO_DEVICE || event->device < history->device_count);
}

static ull_status check(const struct ull__history *history, struct ull_error *err)
{
    for (size_t i = 0; i < history->event_count; i++) {
        if (!event_is_whole(history, &history->events[i]))
            return ull__fail(
                err, ULL_E_FORMAT,
                "event %zu names a process, device, class, stack or text that the file "
                "does not have",
                i);
    }
    for (size_t i = 0; i < history->frame_count; i++) {
        if (history->frames[i].function >= history->text_count ||
            history->frames[i].file >= history->text_count)
            return ull__fail(err, ULL_E_FORMAT,
                             "frame %zu names a text that the file does not have", i);
    }
    return ULL_OK;
}

/*
 * A record is sorted for the most part: each process writes in order, and their blocks follow one another about
 * as they were filled. So the sorted runs that are there are merged with their neighbours, and of two neighbours only
 * the part where they overlap is moved.
 */

/* The first of [from, to) whose time is above `time_ns`, or at it too with `also_at`; `to` if none is. */
static size_t first_above(const struct ull__event *events, size_t from, size_t to, uint64_t time_ns,
                          bool also_at)
{
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (events[middle].time_ns > time_ns || (also_at && events[middle].time_ns == time_ns))
            to = middle;
        else
            from = middle + 1;
    }
    return from;
}

/* Merges [left, middle) with [middle, right); what is equal stays in order. `spare` holds the smaller of them. */
static void merge(struct ull__event *events, size_t left, size_t middle, size_t right,
                  struct ull__event *spare)
{
    left = first_above(events, left, middle, events[middle].time_ns, false);
    if (left == middle)
        return;
    right = first_above(events, middle, right, events[middle - 1].time_ns, true);
    size_t before = middle - left, after = right - middle;
    if (before <= after) {
        memcpy(spare, events + left, before * sizeof *spare);
        for (size_t a = 0, b = middle, to = left; a < before; to++) {
            bool first = b == right || spare[a].time_ns <= events[b].time_ns;
            events[to] = first ? spare[a++] : events[b++];
        }
    } else {
        memcpy(spare, events + middle, after * sizeof *spare);
        for (size_t a = middle, b = after, to = right; b > 0;) {
            bool last = a == left || events[a - 1].time_ns <= spare[b - 1].time_ns;
            events[--to] = last ? spare[--b] : events[--a];
        }
    }
}

/* Where the sorted runs begin, and after them the end. NULL without memory. */
static size_t *find_runs(const struct ull__event *events, size_t count, size_t *runs)
{
    size_t found = 1, at = 1;
    for (size_t i = 1; i < count; i++)
        found += events[i].time_ns < events[i - 1].time_ns;
    size_t *begins = calloc(found + 1, sizeof *begins);
    if (!begins)
        return NULL;
    for (size_t i = 1; i < count; i++)
        if (events[i].time_ns < events[i - 1].time_ns)
            begins[at++] = i;
    begins[found] = count;
    *runs = found;
    return begins;
}

static bool sort_by_time(struct ull__history *history)
{
    size_t count = history->event_count, runs = 1;
    size_t *begins = count ? find_runs(history->events, count, &runs) : NULL;
    struct ull__event *spare = runs > 1 ? malloc(count / 2 * sizeof *spare) : NULL;
    if (count && (!begins || (runs > 1 && !spare))) {
        free(begins);
        return false;
    }
    while (runs > 1) {
        size_t left = 0;
        for (size_t i = 0; i + 1 < runs; i += 2, left++) {
            merge(history->events, begins[i], begins[i + 1], begins[i + 2], spare);
            begins[left] = begins[i];
        }
        if (runs % 2)
            begins[left++] = begins[runs - 1];
        begins[left] = count;
        runs = left;
    }
    free(begins);
    free(spare);
    return true;
}

static uint64_t since(uint64_t time_ns, uint64_t origin_ns)
{
    return time_ns > origin_ns ? time_ns - origin_ns : 0;
}

ull_status ull__history_finish(struct ull__history *history, uint64_t origin_ns, struct ull_error *err)
{
    ull_status status = check(history, err);
    if (status != ULL_OK)
        return status;
    if (!sort_by_time(history))
        return ull__fail(err, ULL_E_SYSTEM, "no memory for %zu events", history->event_count);
    for (size_t i = 0; i < history->event_count; i++)
        history->events[i].time_ns = since(history->events[i].time_ns, origin_ns);
    for (uint32_t i = 0; i < history->process_count; i++) {
        struct ull__history_process *process = &history->processes[i];
        process->begin_ns = since(process->begin_ns, origin_ns);
        process->end_ns = since(process->end_ns, origin_ns);
    }
    history->end_ns = since(history->end_ns, origin_ns);
    if (history->event_count > 0 &&
        history->end_ns < history->events[history->event_count - 1].time_ns)
        history->end_ns = history->events[history->event_count - 1].time_ns;
    drop_index(history);
    return ULL_OK;
}

const char *ull__history_string(const struct ull__history *history, uint32_t text)
{
    return text < history->text_count ? history->texts[text] : "";
}
