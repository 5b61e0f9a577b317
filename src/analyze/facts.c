/* facts.c: see facts.h. */
#include "facts.h"

#include <stdlib.h>

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

/* --- what is at an address ----------------------------------------------------------------------------------- */

/*
 * The last allocation at each address that there ever was. Nothing is taken out, so a table with open addressing needs
 * neither tombstones nor moves; an entry holds enough of the hash to look at an event only where it is the one. */
struct entry {
    uint32_t event; /* plus one; 0: empty */
    uint32_t mark : 31, freed : 1;
};

struct addresses {
    const struct ull__history *history;
    struct entry *entries;
    size_t mask, count;
    size_t *ended; /* by process: events before this one brought nothing that is still there */
};

static uint64_t hash(const struct ull__event *event)
{
    uint64_t x = event->address + ((uint64_t)event->process << 48) +
                 ((uint64_t)event->device << 40 | (uint64_t)ull__event_layer(event) << 32) *
                     0x9e3779b97f4a7c15ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    return x ^ x >> 32;
}

static uint32_t mark_of(uint64_t hash)
{
    return (uint32_t)(hash >> 33);
}

static bool same_place(const struct ull__event *a, const struct ull__event *b)
{
    return a->address == b->address && a->process == b->process && a->device == b->device &&
           ull__event_layer(a) == ull__event_layer(b);
}

/* At most half full after one more. */
static bool ensure_room(struct addresses *all)
{
    size_t capacity = all->entries ? all->mask + 1 : 0;
    if ((all->count + 1) * 2 <= capacity)
        return true;
    size_t wanted = capacity ? capacity * 2 : 1024;
    struct entry *grown = calloc(wanted, sizeof *grown);
    if (!grown)
        return false;
    for (size_t i = 0; i < capacity; i++) {
        if (!all->entries[i].event)
            continue;
        size_t at = hash(&all->history->events[all->entries[i].event - 1]) & (wanted - 1);
        while (grown[at].event)
            at = (at + 1) & (wanted - 1);
        grown[at] = all->entries[i];
    }
    free(all->entries);
    all->entries = grown;
    all->mask = wanted - 1;
    return true;
}

/* The entry for the address of `event`, an empty one if there is none. */
static struct entry *entry_of(const struct addresses *all, const struct ull__event *event)
{
    uint64_t hashed = hash(event);
    size_t at = (size_t)hashed & all->mask;
    while (all->entries[at].event &&
           (all->entries[at].mark != mark_of(hashed) ||
            !same_place(&all->history->events[all->entries[at].event - 1], event)))
        at = (at + 1) & all->mask;
    return &all->entries[at];
}

/* What is there, as in facts->found; then the allocation or free itself is entered. */
static uint32_t pass(struct addresses *all, const struct ull__event *event, size_t at)
{
    struct entry *entry = entry_of(all, event);
    bool there = entry->event && !entry->freed && entry->event - 1u >= all->ended[event->process];
    uint32_t found = there ? entry->event : 0;
    if (ull__is_alloc(event)) {
        all->count += entry->event == 0;
        *entry = (struct entry){.event = (uint32_t)at + 1, .mark = mark_of(hash(event))};
    } else {
        entry->freed = 1;
    }
    return found;
}

/* --- one pass ----------------------------------------------------------------------------------------------------- */

static void note_process(struct ull__process_facts *process, const struct ull__event *event)
{
    bool chunk = ull__event_layer(event) == ULL_LAYER_CHUNK;
    if (!process->driver && !process->chunks)
        process->first_ns = event->time_ns;
    process->last_ns = event->time_ns;
    process->driver |= !chunk;
    process->chunks |= chunk;
}

/* Without memory false. */
static bool look_at(struct ull__facts *facts, struct addresses *all, size_t at, size_t *capacity)
{
    const struct ull__event *event = &facts->history->events[at];
    struct ull__process_facts *process = &facts->processes[event->process];
    enum ull__layer layer = ull__event_layer(event);
    if (event->kind == ULL_EVENT_END)
        all->ended[event->process] = at;
    if (layer == ULL_LAYER_NONE && event->kind != ULL_EVENT_CHARGE)
        return true;
    note_process(process, event);
    if (layer == ULL_LAYER_NONE)
        return true;
    if (event->result != 0) {
        facts->refusals += ull__is_alloc(event);
        return true;
    }
    if (!ensure_room(all))
        return false;
    facts->found[at] = pass(all, event, at);
    if (ull__is_alloc(event)) {
        facts->allocs++;
        process->any_granted = true;
        process->last_granted = at;
        return true;
    }
    if (facts->found[at])
        return true;
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
    struct addresses all = {.history = history};
    size_t capacity = 0;
    if (!facts)
        return NULL;
    facts->history = history;
    facts->processes = calloc(history->process_count + 1, sizeof *facts->processes);
    facts->found = calloc(history->event_count + 1, sizeof *facts->found);
    all.ended = calloc(history->process_count + 1ul, sizeof *all.ended);
    bool good = facts->processes && facts->found && all.ended && history->event_count < UINT32_MAX;
    for (size_t i = 0; good && i < history->event_count; i++)
        good = look_at(facts, &all, i, &capacity);
    free(all.entries);
    free(all.ended);
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
    free(facts->found);
    free(facts);
}

bool ull__facts_survived(const struct ull__facts *facts, size_t event)
{
    const struct ull__process_facts *process =
        &facts->processes[facts->history->events[event].process];
    return process->any_granted && process->last_granted > event;
}
