/*
 * facts.h: what has to be known of a whole history before it can be gone through from its beginning.
 *
 * One pass finds it, and every walk over the same history uses it. The history must be finished, and outlive
 * the facts.
 */
#ifndef ULLAGE_FACTS_H
#define ULLAGE_FACTS_H

#include "history.h"

/* Who handed a block out. */
enum ull__layer { ULL_LAYER_NONE, ULL_LAYER_DRIVER, ULL_LAYER_CHUNK };

/* A block at an address; what it is not told by the event that brought it is in history->events[event]. */
struct ull__block {
    uint64_t address;
    uint64_t size; /* as asked for */
    uint64_t charged; /* what it added to the books when it came, or for a chunk takes of the layer below */
    uint64_t since_ns;
    size_t event;            /* that brought it; ULL_NO_EVENT: it existed before the record began */
    uint32_t previous, next; /* of the same process; the walk's own */
    uint16_t process;
    uint8_t device, class;
    uint8_t layer; /* enum ull__layer; NONE: this place holds no block */
};
#define ULL_NO_EVENT ((size_t)-1)

struct ull__process_facts {
    bool driver; /* it has allocations or charges of the driver */
    bool chunks; /* it has chunks of an allocator above the driver, so that these are what is live */
    bool any_granted;
    size_t last_granted;        /* event of the last allocation that succeeded */
    uint64_t first_ns, last_ns; /* of its memory events */
};

struct ull__facts {
    const struct ull__history *history;
    struct ull__process_facts *processes;
    /*
     * By event, of an allocation or free that succeeded: the event that brought the block which is at its address then,
     * plus one; 0: there is none, or it existed before.
     */
    uint32_t *found;
    /* Freed without having been allocated: they existed before. Empty where events were dropped, since then
     * the allocation may have been one of those. */
    struct ull__block *before;
    size_t before_count;
    uint64_t stray_frees; /* frees of blocks that are not known, `before` included */
    size_t allocs;        /* granted, both layers */
    size_t refusals;
};

/* NULL without memory. */
struct ull__facts *ull__facts_create(const struct ull__history *history);
void ull__facts_destroy(struct ull__facts *facts);

/* The program went on after the refused request `event`: it was granted something later. */
bool ull__facts_survived(const struct ull__facts *facts, size_t event);

/* Of which layer an event tells; NONE for what is neither an allocation nor a free. */
enum ull__layer ull__event_layer(const struct ull__event *event);
static inline bool ull__is_alloc(const struct ull__event *event)
{
    return event->kind == ULL_EVENT_ALLOC || event->kind == ULL_EVENT_CHUNK_ALLOC;
}
static inline bool ull__is_free(const struct ull__event *event)
{
    return event->kind == ULL_EVENT_FREE || event->kind == ULL_EVENT_CHUNK_FREE;
}

#endif
