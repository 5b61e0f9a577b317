/* walk.c: see walk.h. All figures are sums over shares, one a process and device; only shares are clamped. */
#include "walk.h"

#include <stdlib.h>
#include <string.h>

#include "blockmap.h"

struct ull__walk_books {
    struct ull__blockmap map;
    struct ull__totals **shares; /* by process: by device, and one more for no device; NULL: none */
    bool inside;                 /* the event at `at` has more steps */
    bool begun, failed;
};

static struct ull__totals none;

static size_t device_slot(const struct ull__walk *walk, uint32_t device)
{
    return device < walk->history->device_count ? device : walk->history->device_count;
}

static struct ull__totals *share_of(struct ull__walk *walk, uint32_t process, uint32_t device)
{
    struct ull__totals **shares = &walk->books->shares[process];
    if (!*shares)
        *shares = calloc(walk->history->device_count + 1, sizeof **shares);
    if (!*shares) {
        walk->books->failed = true;
        return NULL;
    }
    return &(*shares)[device_slot(walk, device)];
}

const struct ull__totals *ull__walk_share(const struct ull__walk *walk, uint32_t process,
                                          uint32_t device)
{
    const struct ull__totals *shares = walk->books->shares[process];
    return shares ? &shares[device_slot(walk, device)] : &none;
}

/* --- books ------------------------------------------------------------------------------------------ */

struct change {
    int64_t held, live, chunks;
    int blocks;
    uint8_t class;
};

/* Of a damaged file any number may come, so that signs are changed in unsigned numbers, which wrap. */
static int64_t signed_of(uint64_t value, int sign)
{
    return (int64_t)(sign < 0 ? 0 - value : value);
}

static int64_t clamp(uint64_t value, int64_t change)
{
    return change < 0 && 0 - (uint64_t)change > value ? signed_of(value, -1) : change;
}

static void add(struct ull__totals *totals, const struct change *change)
{
    totals->held += (uint64_t)change->held;
    totals->by_class[change->class] += (uint64_t)change->held;
    totals->live += (uint64_t)change->live;
    totals->chunks += (uint64_t)change->chunks;
    totals->blocks += (uint32_t)change->blocks;
}

static void book(struct ull__walk *walk, uint32_t process, uint32_t device, struct change change)
{
    struct ull__totals *share = share_of(walk, process, device);
    if (!share)
        return;
    change.held = clamp(share->by_class[change.class], change.held);
    change.live = clamp(share->live, change.live);
    change.chunks = clamp(share->chunks, change.chunks);
    add(share, &change);
    add(&walk->all, &change);
    add(&walk->processes[process], &change);
    add(&walk->devices[device_slot(walk, device)], &change);
}

/* `charged` may differ from the block's own at its end: small blocks share a page, which the last one gives back. */
static void book_block(struct ull__walk *walk, const struct ull__block *block, int sign,
                       uint64_t charged)
{
    const struct ull__process_facts *process = &walk->facts->processes[block->process];
    struct change change = {.class = block->class};
    bool chunk = block->layer == ULL_LAYER_CHUNK;
    /* An allocator whose driver calls are not recorded holds what its chunks take. */
    if (!chunk || !process->driver)
        change.held = signed_of(charged, sign);
    if (chunk)
        change.chunks = signed_of(charged, sign);
    if (ull__block_is_live(walk->facts, block)) {
        change.live = signed_of(block->size, sign);
        change.blocks = sign;
    }
    book(walk, block->process, block->device, change);
}

static void refresh(struct ull__walk *walk)
{
    walk->blocks = walk->books->map.blocks;
    walk->place_count = walk->books->map.place_count;
    walk->block_count = walk->books->map.count;
}

/* --- steps ------------------------------------------------------------------------------------------ */

static bool came(struct ull__walk *walk, const struct ull__block *block)
{
    walk->block = *block;
    walk->place = ull__blockmap_add(&walk->books->map, block);
    if (walk->place == ULL_NO_PLACE) {
        walk->books->failed = true;
        return false;
    }
    refresh(walk);
    book_block(walk, block, 1, block->charged);
    walk->step = ULL_STEP_CAME;
    return true;
}

static void went(struct ull__walk *walk, uint32_t place, enum ull__step step)
{
    walk->block = walk->books->map.blocks[place];
    walk->place = place;
    ull__blockmap_remove(&walk->books->map, place);
    refresh(walk);
    uint64_t charged = walk->block.charged;
    if (step == ULL_STEP_FREED)
        charged = walk->event->charged > 0 ? (uint64_t)walk->event->charged : 0;
    book_block(walk, &walk->block, -1, charged);
    walk->step = step;
}

/* The place of what is at the event's address, or ULL_NO_PLACE. */
static uint32_t find(const struct ull__walk *walk, const struct ull__block *like)
{
    const struct ull__blockmap *map = &walk->books->map;
    uint32_t brought = walk->facts->found[walk->at];
    uint32_t place = brought ? ull__blockmap_of_event(map, brought - 1) : ULL_NO_PLACE;
    return place != ULL_NO_PLACE ? place : ull__blockmap_before(map, like);
}

static struct ull__block block_of(const struct ull__walk *walk)
{
    const struct ull__event *event = walk->event;
    return (struct ull__block){.address = event->address,
                               .size = event->size,
                               .charged = event->charged > 0 ? (uint64_t)event->charged : 0,
                               .since_ns = event->time_ns,
                               .event = walk->at,
                               .process = event->process,
                               .device = event->device,
                               .class = event->class,
                               .layer = (uint8_t)ull__event_layer(event)};
}

static void do_alloc(struct ull__walk *walk)
{
    struct ull__block block = block_of(walk);
    if (walk->event->result != 0) {
        walk->step = ULL_STEP_REFUSED;
        return;
    }
    uint32_t place = find(walk, &block);
    if (place != ULL_NO_PLACE) {
        went(walk, place, ULL_STEP_REPLACED);
        walk->books->inside = true;
        return;
    }
    came(walk, &block);
}

static void do_free(struct ull__walk *walk)
{
    struct ull__block block = block_of(walk);
    uint32_t place = walk->event->result == 0 ? find(walk, &block) : ULL_NO_PLACE;
    if (place == ULL_NO_PLACE)
        walk->step = ULL_STEP_STRAY;
    else
        went(walk, place, ULL_STEP_FREED);
}

/* What is left in a dead process's books was charged without a block. */
static void clear_shares(struct ull__walk *walk, uint32_t process)
{
    const struct ull__totals *shares = walk->books->shares[process];
    for (uint32_t d = 0; shares && d <= walk->history->device_count; d++) {
        for (int c = 0; c < ULL_CLASSES; c++)
            book(walk, process, d,
                 (struct change){.held = signed_of(shares[d].by_class[c], -1), .class = (uint8_t)c});
        book(walk, process, d,
             (struct change){.live = signed_of(shares[d].live, -1),
                             .chunks = signed_of(shares[d].chunks, -1)});
    }
}

static void do_end(struct ull__walk *walk)
{
    uint32_t process = walk->event->process;
    uint32_t place = walk->books->map.first[process];
    if (place != ULL_NO_PLACE) {
        went(walk, place, ULL_STEP_LEFT);
        walk->books->inside = true;
        return;
    }
    clear_shares(walk, process);
    walk->step = ULL_STEP_ENDED;
}

static void do_event(struct ull__walk *walk)
{
    const struct ull__event *event = walk->event;
    walk->step = ULL_STEP_OTHER;
    walk->books->inside = false;
    switch ((enum ull__event_kind)event->kind) {
    case ULL_EVENT_ALLOC:
    case ULL_EVENT_CHUNK_ALLOC:
        do_alloc(walk);
        break;
    case ULL_EVENT_FREE:
    case ULL_EVENT_CHUNK_FREE:
        do_free(walk);
        break;
    case ULL_EVENT_CHARGE:
        book(walk, event->process, event->device,
             (struct change){.held = event->charged, .class = event->class});
        walk->step = ULL_STEP_CHARGED;
        break;
    case ULL_EVENT_HOST:
        walk->host[event->process] = event->size;
        break;
    case ULL_EVENT_BUDGET:
        if (event->device < walk->history->device_count)
            walk->budgets[event->device] = event->size;
        break;
    case ULL_EVENT_END:
        do_end(walk);
        break;
    default:
        break;
    }
}

bool ull__walk_next(struct ull__walk *walk)
{
    struct ull__walk_books *books = walk->books;
    if (books->failed)
        return false;
    if (!books->inside) {
        size_t next = books->begun ? walk->at + 1 : 0;
        if (next >= walk->history->event_count)
            return false;
        walk->at = next;
        books->begun = true;
    }
    walk->event = &walk->history->events[walk->at];
    do_event(walk);
    return !books->failed;
}

bool ull__walk_failed(const struct ull__walk *walk)
{
    return walk->books->failed;
}

bool ull__walk_through(struct ull__walk *walk, size_t at)
{
    while (!walk->books->begun || walk->at < at || walk->books->inside) {
        if (!ull__walk_next(walk))
            return false;
    }
    return true;
}

/* --- beginning and end -------------------------------------------------------------------------------- */

static bool begin(struct ull__walk *walk)
{
    const struct ull__history *history = walk->history;
    for (uint32_t d = 0; d < history->device_count; d++)
        walk->budgets[d] = history->devices[d].budget_bytes;
    for (size_t i = 0; i < walk->facts->before_count; i++) {
        if (!came(walk, &walk->facts->before[i]))
            return false;
    }
    walk->step = ULL_STEP_OTHER;
    return true;
}

struct ull__walk *ull__walk_create(const struct ull__facts *facts)
{
    const struct ull__history *history = facts->history;
    struct ull__walk *walk = calloc(1, sizeof *walk);
    struct ull__walk_books *books = calloc(1, sizeof *books);
    if (!walk || !books) {
        free(walk);
        free(books);
        return NULL;
    }
    walk->books = books;
    walk->history = history;
    walk->facts = facts;
    walk->devices = calloc(history->device_count + 1, sizeof *walk->devices);
    walk->processes = calloc(history->process_count + 1, sizeof *walk->processes);
    walk->budgets = calloc(history->device_count + 1, sizeof *walk->budgets);
    walk->host = calloc(history->process_count + 1, sizeof *walk->host);
    books->shares = calloc(history->process_count + 1, sizeof(struct ull__totals *));
    if (!walk->devices || !walk->processes || !walk->budgets || !walk->host || !books->shares ||
        !ull__blockmap_init(&books->map, history) || !begin(walk)) {
        ull__walk_destroy(walk);
        return NULL;
    }
    return walk;
}

void ull__walk_destroy(struct ull__walk *walk)
{
    if (!walk)
        return;
    struct ull__walk_books *books = walk->books;
    for (uint32_t i = 0; books->shares && i < walk->history->process_count; i++)
        free(books->shares[i]);
    free(books->shares);
    ull__blockmap_finish(&books->map);
    free(books);
    free(walk->devices);
    free(walk->processes);
    free(walk->budgets);
    free(walk->host);
    free(walk);
}
