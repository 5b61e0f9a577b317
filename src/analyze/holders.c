/* holders.c: see figures_private.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "figures_private.h"
#include "size.h"
#include "suspects.h"

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

static size_t merge_kinds(struct ull__holder *holders, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || by_kind(&holders[kept - 1], &holders[i]) != 0) {
            holders[kept++] = holders[i];
            continue;
        }
        struct ull__holder *into = &holders[kept - 1];
        into->bytes += holders[i].bytes;
        into->count++;
        if (holders[i].largest > into->largest)
            into->largest = holders[i].largest;
        if (holders[i].since_ns < into->since_ns)
            into->since_ns = holders[i].since_ns;
    }
    return kept;
}

/* Kinds of the blocks that `takes` accepts, largest first; NULL without memory. */
typedef bool takes_fn(const struct ull__walk *walk, const struct ull__block *block, const void *data);

static struct ull__holder *collect(const struct ull__walk *walk, takes_fn *takes, const void *data,
                                   size_t *count)
{
    struct ull__holder *holders = malloc(((size_t)walk->block_count + 1) * sizeof *holders);
    *count = 0;
    if (!holders)
        return NULL;
    for (uint32_t i = 0; i < walk->place_count; i++) {
        const struct ull__block *block = &walk->blocks[i];
        if (block->layer != ULL_LAYER_NONE && ull__block_is_live(walk->facts, block) &&
            takes(walk, block, data))
            holders[(*count)++] = holder_of(walk, block);
    }
    qsort(holders, *count, sizeof *holders, by_kind);
    *count = merge_kinds(holders, *count);
    qsort(holders, *count, sizeof *holders, by_bytes);
    return holders;
}

/* --- at the peak ---------------------------------------------------------------------------------------- */

static bool on_device(const struct ull__walk *walk, const struct ull__block *block, const void *data)
{
    (void)walk;
    return block->device == (uint32_t) * (const int *)data;
}

static bool fill(const struct ull__walk *walk, struct ull__figures *figures)
{
    size_t count;
    struct ull__holder *holders = collect(walk, on_device, &figures->main, &count);
    uint64_t charged = 0, held = walk->devices[figures->main].held;
    if (!holders)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (i < ULL_HOLDERS)
            figures->holders[figures->holder_count++] = holders[i];
        else
            figures->rest_bytes += holders[i].bytes;
    }
    for (uint32_t i = 0; i < walk->place_count; i++) {
        const struct ull__block *block = &walk->blocks[i];
        if (block->layer == ULL_LAYER_DRIVER && block->device == (uint32_t)figures->main)
            charged += block->charged;
    }
    figures->charged_bytes = held > charged ? held - charged : 0;
    free(holders);
    return true;
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
    struct ull__walk *walk = ull__walk_create(facts);
    struct ull__holder *holders = NULL;
    size_t count = 0;
    if (walk && facts->processes[process].any_granted &&
        ull__walk_through(walk, facts->processes[process].last_granted))
        holders = collect(walk, came_between, &wanted, &count);
    bool failed = !walk || ull__walk_failed(walk);
    ull__walk_destroy(walk);
    if (failed)
        return -1;
    int kept = count < (size_t)most ? (int)count : most;
    if (holders)
        memcpy(suspects, holders, (size_t)kept * sizeof *suspects);
    free(holders);
    return kept;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
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
        if (file[0] && used < size)
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
