/* holders.c: see figures_private.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "figures_private.h"
#include "kinds.h"
#include "size.h"
#include "suspects.h"

enum { KINDS_MOST = 1 << 16 };

/* Without a name and a stack the size is what tells one kind of block from another. */
static uint64_t size_key(const struct ull__holder *holder)
{
    return holder->tag == 0 && holder->stack == 0 ? holder->largest : 0;
}

#define BY(field)                                                                                  \
    if (a->field != b->field)                                                                      \
    return a->field < b->field ? -1 : 1

static int by_kind(const void *left, const void *right)
{
    const struct ull__holder *a = left, *b = right;
    BY(process);
    BY(layer);
    BY(class);
    BY(tag);
    BY(stack);
    return size_key(a) < size_key(b) ? -1 : size_key(a) > size_key(b);
}

static int by_bytes(const void *left, const void *right)
{
    const struct ull__holder *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return by_kind(left, right);
}

static struct ull__holder holder_of(const struct ull__walk *walk, const struct ull__block *block)
{
    const struct ull__event *event =
        block->event == ULL_NO_EVENT ? NULL : &walk->history->events[block->event];
    return (struct ull__holder){.bytes = block->size,
                                .count = 1,
                                .largest = block->size,
                                .since_ns = block->since_ns,
                                .tag = event ? event->tag : 0,
                                .stack = event ? event->stack : 0,
                                .process = block->process,
                                .device = block->device,
                                .class = block->class,
                                .layer = block->layer};
}

/* Kinds of blocks, largest first, at most KINDS_MOST; of what is beyond that only the sum is known. */
struct collection {
    struct ull__holder *holders;
    size_t count, capacity;
    uint64_t beyond;
    struct ull__kinds kinds;
    uint32_t *places; /* by kind: of its holder */
    uint32_t place_capacity;
};

static bool append(struct collection *all, const struct ull__holder *holder)
{
    if (all->count == all->capacity) {
        size_t wanted = all->capacity ? all->capacity * 2 : 256;
        struct ull__holder *grown = realloc(all->holders, wanted * sizeof *grown);
        if (!grown)
            return false;
        all->holders = grown;
        all->capacity = wanted;
    }
    all->holders[all->count++] = *holder;
    return true;
}

static void join(struct ull__holder *into, const struct ull__holder *holder)
{
    into->bytes += holder->bytes;
    into->count += holder->count;
    if (holder->largest > into->largest)
        into->largest = holder->largest;
    if (holder->since_ns < into->since_ns)
        into->since_ns = holder->since_ns;
}

static bool add_block(struct collection *all, const struct ull__walk *walk,
                      const struct ull__block *block)
{
    struct ull__holder holder = holder_of(walk, block);
    uint32_t kind;
    if (block->event == ULL_NO_EVENT)
        return append(all, &holder);
    if (!ull__kinds_of(&all->kinds, block->event, &kind))
        return false;
    if (kind == ULL_NO_KIND) {
        all->beyond += holder.bytes;
        return true;
    }
    if (kind >= all->place_capacity) {
        uint32_t wanted = kind < 256 ? 512 : kind * 2;
        uint32_t *grown = realloc(all->places, wanted * sizeof *grown);
        if (!grown)
            return false;
        for (uint32_t i = all->place_capacity; i < wanted; i++)
            grown[i] = UINT32_MAX;
        all->places = grown;
        all->place_capacity = wanted;
    }
    if (all->places[kind] != UINT32_MAX) {
        join(&all->holders[all->places[kind]], &holder);
        return true;
    }
    all->places[kind] = (uint32_t)all->count;
    return append(all, &holder);
}

/* What existed before has no event, so that it is put together here. */
static void merge_kinds(struct collection *all)
{
    size_t kept = 0;
    if (all->count == 0)
        return;
    qsort(all->holders, all->count, sizeof *all->holders, by_kind);
    for (size_t i = 0; i < all->count; i++) {
        if (kept > 0 && by_kind(&all->holders[kept - 1], &all->holders[i]) == 0)
            join(&all->holders[kept - 1], &all->holders[i]);
        else
            all->holders[kept++] = all->holders[i];
    }
    all->count = kept;
    qsort(all->holders, all->count, sizeof *all->holders, by_bytes);
}

/* Of the blocks that `takes` accepts. False without memory; the caller frees the holders. */
typedef bool takes_fn(const struct ull__walk *walk, const struct ull__block *block, const void *data);

static bool collect(const struct ull__walk *walk, takes_fn *takes, const void *data,
                    struct collection *all)
{
    *all = (struct collection){0};
    bool good = ull__kinds_init(&all->kinds, walk->history, false, KINDS_MOST);
    for (uint32_t i = 0; good && i < walk->place_count; i++) {
        const struct ull__block *block = &walk->blocks[i];
        if (block->layer != ULL_LAYER_NONE && ull__block_is_live(walk->facts, block) &&
            takes(walk, block, data))
            good = add_block(all, walk, block);
    }
    if (good)
        merge_kinds(all);
    ull__kinds_finish(&all->kinds);
    free(all->places);
    return good;
}

/* --- at the peak ---------------------------------------------------------------------------------------- */

static bool on_device(const struct ull__walk *walk, const struct ull__block *block, const void *data)
{
    (void)walk;
    return block->device == (uint32_t) * (const int *)data;
}

/*
 * What of the device's held bytes is in blocks. Chunks lie in an allocator's blocks, or, in a record that a pool
 * wrote by itself, in memory that it only told the sum of: so of each process the layer that has more counts.
 */
static bool sum_blocks(const struct ull__walk *walk, uint32_t device, uint64_t *sum)
{
    uint64_t(*layers)[2] = calloc(walk->history->process_count + 1, sizeof *layers);
    if (!layers)
        return false;
    for (uint32_t i = 0; i < walk->place_count; i++) {
        const struct ull__block *block = &walk->blocks[i];
        if (block->layer != ULL_LAYER_NONE && block->device == device)
            layers[block->process][block->layer == ULL_LAYER_CHUNK] += block->charged;
    }
    *sum = 0;
    for (uint32_t p = 0; p < walk->history->process_count; p++)
        *sum += layers[p][0] > layers[p][1] ? layers[p][0] : layers[p][1];
    free(layers);
    return true;
}

static bool fill(const struct ull__walk *walk, struct ull__figures *figures)
{
    struct collection all;
    uint64_t charged = 0, held = walk->devices[figures->main].held;
    bool good = collect(walk, on_device, &figures->main, &all);
    figures->rest_bytes = all.beyond;
    for (size_t i = 0; i < all.count; i++) {
        if (i < ULL_HOLDERS)
            figures->holders[figures->holder_count++] = all.holders[i];
        else
            figures->rest_bytes += all.holders[i].bytes;
    }
    free(all.holders);
    good &= sum_blocks(walk, (uint32_t)figures->main, &charged);
    figures->charged_bytes = held > charged ? held - charged : 0;
    return good;
}

ull_status ull__figures_holders(const struct ull__facts *facts, struct ull__figures *figures,
                                struct ull_error *err)
{
    if (figures->main < 0)
        return ULL_OK;
    const struct ull__course *course = &figures->devices[figures->main].course;
    struct ull__walk *walk = ull__walk_create(facts);
    bool good = walk != NULL;
    if (good && course->live_peak_event != ULL_NO_EVENT) {
        good = ull__walk_through(walk, course->live_peak_event);
        figures->holder_ns = course->live_peak_ns;
    }
    good = good && fill(walk, figures);
    ull__walk_destroy(walk);
    return good ? ULL_OK : ull__fail(err, ULL_E_SYSTEM, "no memory for the peak's contents");
}

/* --- what is kept ------------------------------------------------------------------------------------------ */

struct wanted {
    uint32_t process;
    uint64_t from_ns, to_ns;
};

static bool came_between(const struct ull__walk *walk, const struct ull__block *block,
                         const void *data)
{
    const struct wanted *wanted = data;
    (void)walk;
    return block->process == wanted->process && block->since_ns >= wanted->from_ns &&
           block->since_ns <= wanted->to_ns;
}

/* As it is when the process has done what it did up to `to_ns` plus a little, so that what came last could be freed:
 * at its last allocation, after which there is only its end. */
int ull__suspects_find(const struct ull__facts *facts, uint32_t process, uint64_t from_ns,
                       uint64_t to_ns, struct ull__holder *suspects, int most)
{
    struct wanted wanted = {process, from_ns, to_ns};
    struct collection all = {0};
    struct ull__walk *walk = ull__walk_create(facts);
    bool good = walk != NULL;
    if (good && facts->processes[process].any_granted)
        good = ull__walk_through(walk, facts->processes[process].last_granted) &&
               collect(walk, came_between, &wanted, &all);
    ull__walk_destroy(walk);
    int kept = all.count < (size_t)most ? (int)all.count : most;
    if (kept > 0)
        memcpy(suspects, all.holders, (size_t)kept * sizeof *suspects);
    free(all.holders);
    return good ? kept : -1;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* "libx.so+0x12", where there is no name of a function, has the file already. */
static bool names_file(const char *function, const char *file)
{
    size_t length = strlen(file);
    return strncmp(function, file, length) == 0 && function[length] == '+';
}

void ull__stack_describe(const struct ull__history *history, uint32_t number, uint32_t frames,
                         char *text, size_t size)
{
    const struct ull__stack *stack = &history->stacks[number];
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < stack->count && i < frames && used < size; i++) {
        const struct ull__frame *frame = &history->frames[stack->first + i];
        const char *function = ull__history_string(history, frame->function);
        const char *file = base_name(ull__history_string(history, frame->file));
        char line[16] = "";
        if (frame->line)
            snprintf(line, sizeof line, ":%u", frame->line);
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " < " : "",
                                 function[0] ? function : "?");
        if (file[0] && used < size && !names_file(function, file))
            used += (size_t)snprintf(text + used, size - used, " (%s%s)", file, line);
    }
}

void ull__holder_describe(const struct ull__history *history, const struct ull__holder *holder,
                          char *text, size_t size)
{
    char bytes[ULL_SIZE_TEXT];
    size_t used = 0;
    bool alike = holder->largest * holder->count == holder->bytes;
    used += (size_t)snprintf(text, size, "%llu block%s%s%s%s", (unsigned long long)holder->count,
                             holder->count == 1 ? "" : "s", alike ? " of " : ", ",
                             ull__size_text(alike ? holder->largest : holder->bytes, bytes),
                             alike ? "" : " together");
    if (holder->tag && used < size)
        used += (size_t)snprintf(text + used, size - used, ", tag '%.60s'",
                                 ull__history_string(history, holder->tag));
    if (holder->stack && used + 5 < size) {
        used += (size_t)snprintf(text + used, size - used, ", by ");
        ull__stack_describe(history, holder->stack, 3, text + used, size - used);
    }
}
