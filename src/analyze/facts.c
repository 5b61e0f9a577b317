/* facts.c: see facts.h. */
#include "facts.h"

#include <stdlib.h>

#include "blockmap.h"

enum ull__layer ull__event_layer(const struct ull__event *event)
{
    switch (event->kind) {
    case ULL_EVENT_ALLOC:
    case ULL_EVENT_FREE:
        return ULL_LAYER_DRIVER;
    case ULL_EVENT_CHUNK_ALLOC:
    case ULL_EVENT_CHUNK_FREE:
        return ULL_LAYER_CHUNK;
    default:
        return ULL_LAYER_NONE;
    }
}

static struct ull__block key_of(const struct ull__event *event)
{
    return (struct ull__block){.address = event->address,
                               .process = event->process,
                               .device = event->device,
                               .class = event->class,
                               .layer = (uint8_t)ull__event_layer(event),
                               .event = ULL_NO_EVENT};
}

static bool keep_before(struct ull__facts *facts, const struct ull__event *event, size_t *capacity)
{
    if (facts->before_count == *capacity) {
        size_t wanted = *capacity ? *capacity * 2 : 64;
        struct ull__block *grown = realloc(facts->before, wanted * sizeof *grown);
        if (!grown)
            return false;
        facts->before = grown;
        *capacity = wanted;
    }
    struct ull__block *block = &facts->before[facts->before_count++];
    uint64_t charged = event->charged > 0 ? (uint64_t)event->charged : 0;
    *block = key_of(event);
    block->charged = charged;
    block->size = event->size ? event->size : charged;
    return true;
}

/* Without memory false. */
static bool look_at(struct ull__facts *facts, struct ull__blockmap *map, size_t at, size_t *capacity)
{
    const struct ull__event *event = &facts->history->events[at];
    struct ull__process_facts *process = &facts->processes[event->process];
    enum ull__layer layer = ull__event_layer(event);
    if (event->kind == ULL_EVENT_END) {
        while (map->first[event->process] != ULL_NO_PLACE)
            ull__blockmap_remove(map, map->first[event->process]);
        return true;
    }
    if (layer == ULL_LAYER_NONE && event->kind != ULL_EVENT_CHARGE)
        return true;
    if (!process->driver && !process->chunks)
        process->first_ns = event->time_ns;
    process->last_ns = event->time_ns;
    process->driver |= layer != ULL_LAYER_CHUNK;
    process->chunks |= layer == ULL_LAYER_CHUNK;
    if (layer == ULL_LAYER_NONE)
        return true;
    struct ull__block key = key_of(event);
    if (ull__is_alloc(event) && event->result != 0) {
        facts->refusals++;
        return true;
    }
    uint32_t place = ull__blockmap_find(map, &key);
    if (ull__is_alloc(event)) {
        facts->allocs++;
        process->any_granted = true;
        process->last_granted = at;
        return place != ULL_NO_PLACE || ull__blockmap_add(map, &key) != ULL_NO_PLACE;
    }
    if (event->result != 0)
        return true;
    if (place != ULL_NO_PLACE) {
        ull__blockmap_remove(map, place);
        return true;
    }
    facts->stray_frees++;
    /* A second free of an address that was there before is only that. */
    return facts->history->dropped > 0 || keep_before(facts, event, capacity);
}

static int by_key(const void *left, const void *right)
{
    const struct ull__block *a = left, *b = right;
    if (a->process != b->process)
        return a->process < b->process ? -1 : 1;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return a->address < b->address ? -1 : a->address > b->address;
}

/* One that was freed twice without an allocation in between existed once. */
static void drop_doubles(struct ull__facts *facts)
{
    size_t kept = 0;
    if (facts->before_count == 0)
        return;
    qsort(facts->before, facts->before_count, sizeof *facts->before, by_key);
    for (size_t i = 0; i < facts->before_count; i++) {
        if (kept == 0 || by_key(&facts->before[kept - 1], &facts->before[i]) != 0)
            facts->before[kept++] = facts->before[i];
    }
    facts->before_count = kept;
}

struct ull__facts *ull__facts_create(const struct ull__history *history)
{
    struct ull__facts *facts = calloc(1, sizeof *facts);
    struct ull__blockmap map = {0};
    size_t capacity = 0;
    if (!facts)
        return NULL;
    facts->history = history;
    facts->processes = calloc(history->process_count + 1, sizeof *facts->processes);
    bool good = facts->processes && ull__blockmap_init(&map, history->process_count);
    for (size_t i = 0; good && i < history->event_count; i++)
        good = look_at(facts, &map, i, &capacity);
    ull__blockmap_finish(&map);
    if (!good) {
        ull__facts_destroy(facts);
        return NULL;
    }
    drop_doubles(facts);
    return facts;
}

void ull__facts_destroy(struct ull__facts *facts)
{
    if (!facts)
        return;
    free(facts->processes);
    free(facts->before);
    free(facts);
}

bool ull__facts_survived(const struct ull__facts *facts, size_t event)
{
    const struct ull__process_facts *process =
        &facts->processes[facts->history->events[event].process];
    return process->any_granted && process->last_granted > event;
}
