/*
 * diff.c: see diff.h. What was live at the peak of live bytes of each history's main device is summed by number
 * (of tags, stacks and so on); the numbers of two histories have nothing to do with each other, so the sums are
 * brought together by their names.
 */
#include "diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "size.h"
#include "suspects.h"

enum { SIZES = 64, FRAMES = 4, NAME = 512 };

struct sum {
    uint64_t bytes, count;
};

struct named {
    char *name;
    struct sum sum;
};

/* One way of looking at one history. */
struct side {
    struct named *items;
    size_t count;
};

struct sums {
    const struct ull__history *history;
    struct sum *by[ULL_DIFF_WAYS];
    size_t counts[ULL_DIFF_WAYS];
};

const char *ull__diff_way(enum ull__diff_by way)
{
    static const char *const names[] = {"tag", "stack", "size", "process", "class"};
    return (unsigned int)way < ULL_DIFF_WAYS ? names[way] : "?";
}

/* --- sums by number ------------------------------------------------------------------------------------- */

static void add(struct sum *sum, uint64_t bytes)
{
    sum->bytes += bytes;
    sum->count++;
}

static void add_block(struct sums *sums, const struct ull__block *block)
{
    const struct ull__event *event =
        block->event == ULL_NO_EVENT ? NULL : &sums->history->events[block->event];
    int size = block->size ? 63 - __builtin_clzll(block->size) : 0;
    add(&sums->by[ULL_DIFF_TAG][event ? event->tag : 0], block->size);
    add(&sums->by[ULL_DIFF_STACK][event ? event->stack : 0], block->size);
    add(&sums->by[ULL_DIFF_SIZE][size], block->size);
    add(&sums->by[ULL_DIFF_PROCESS][block->process], block->size);
}

static bool make_sums(struct sums *sums, const struct ull__facts *facts,
                      const struct ull__figures *figures)
{
    const struct ull__history *history = facts->history;
    const size_t counts[] = {history->text_count, history->stack_count, SIZES,
                             history->process_count, ULL_CLASSES};
    sums->history = history;
    for (int way = 0; way < ULL_DIFF_WAYS; way++) {
        sums->counts[way] = counts[way];
        sums->by[way] = calloc(counts[way] + 1, sizeof *sums->by[way]);
        if (!sums->by[way])
            return false;
    }
    if (figures->main < 0)
        return true;
    const struct ull__course *course = &figures->devices[figures->main].course;
    for (int c = 0; c < ULL_CLASSES; c++)
        sums->by[ULL_DIFF_CLASS][c].bytes = course->peak_by_class[c];
    if (course->live_peak_event == ULL_NO_EVENT)
        return true;
    struct ull__walk *walk = ull__walk_create(facts);
    bool good = walk && ull__walk_through(walk, course->live_peak_event);
    for (uint32_t i = 0; good && i < walk->place_count; i++) {
        const struct ull__block *block = &walk->blocks[i];
        if (block->layer != ULL_LAYER_NONE && block->device == (uint32_t)figures->main &&
            ull__block_is_live(facts, block))
            add_block(sums, block);
    }
    ull__walk_destroy(walk);
    return good;
}

/* --- names ---------------------------------------------------------------------------------------------- */

static void name_of(const struct ull__history *history, enum ull__diff_by way, size_t number,
                    char text[NAME])
{
    char from[ULL_SIZE_TEXT], to[ULL_SIZE_TEXT];
    const char *name = "";
    text[0] = 0;
    switch (way) {
    case ULL_DIFF_TAG:
        name = number ? ull__history_string(history, (uint32_t)number) : "(no tag)";
        break;
    case ULL_DIFF_STACK:
        ull__stack_describe(history, (uint32_t)number, FRAMES, text, NAME);
        name = number ? text : "(no stack)";
        break;
    case ULL_DIFF_SIZE:
        snprintf(text, NAME, "%s to %s", ull__size_text(1ull << number, from),
                 number < 63 ? ull__size_text(1ull << (number + 1), to) : "more");
        return;
    case ULL_DIFF_PROCESS:
        name = ull__history_string(history, history->processes[number].name);
        break;
    default:
        name = ull__class_name((enum ull__class)number);
    }
    if (name != text)
        snprintf(text, NAME, "%s", name);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct named *)left)->name, ((const struct named *)right)->name);
}

static void side_free(struct side *side)
{
    for (size_t i = 0; i < side->count; i++)
        free(side->items[i].name);
    free(side->items);
}

/* Sums that are not 0, by name, each name once. */
static bool make_side(struct side *side, const struct sums *sums, enum ull__diff_by way)
{
    char text[NAME];
    size_t kept = 0;
    side->items = malloc((sums->counts[way] + 1) * sizeof *side->items);
    if (!side->items)
        return false;
    for (size_t i = 0; i < sums->counts[way]; i++) {
        if (sums->by[way][i].bytes == 0)
            continue;
        name_of(sums->history, way, i, text);
        char *name = strdup(text);
        if (!name)
            return false;
        side->items[side->count++] = (struct named){name, sums->by[way][i]};
    }
    qsort(side->items, side->count, sizeof *side->items, by_name);
    for (size_t i = 0; i < side->count; i++) {
        struct named *item = &side->items[i], *last = kept ? &side->items[kept - 1] : NULL;
        if (last && strcmp(last->name, item->name) == 0) {
            last->sum.bytes += item->sum.bytes;
            last->sum.count += item->sum.count;
            free(item->name);
        } else {
            side->items[kept++] = *item;
        }
    }
    side->count = kept;
    return true;
}

/* --- both ------------------------------------------------------------------------------------------------ */

static int by_growth(const void *left, const void *right)
{
    const struct ull__diff_row *a = left, *b = right;
    __int128 grown = (__int128)a->after_bytes - a->before_bytes;
    __int128 other = (__int128)b->after_bytes - b->before_bytes;
    return grown > other ? -1 : grown < other ? 1 : strcmp(a->name, b->name);
}

static bool join(struct ull__diff *diff, enum ull__diff_by way, struct side *before,
                 struct side *after)
{
    struct ull__diff_row *rows = calloc(before->count + after->count + 1, sizeof *rows);
    size_t a = 0, b = 0, count = 0;
    if (!rows)
        return false;
    while (a < before->count || b < after->count) {
        int order = a == before->count  ? 1
                    : b == after->count ? -1
                                        : by_name(&before->items[a], &after->items[b]);
        struct ull__diff_row *row = &rows[count++];
        if (order <= 0) {
            row->before_bytes = before->items[a].sum.bytes;
            row->before_count = before->items[a].sum.count;
        }
        if (order >= 0) {
            row->after_bytes = after->items[b].sum.bytes;
            row->after_count = after->items[b].sum.count;
        }
        char **name = order <= 0 ? &before->items[a].name : &after->items[b].name;
        row->name = *name;
        *name = NULL;
        a += order <= 0;
        b += order >= 0;
    }
    qsort(rows, count, sizeof *rows, by_growth);
    diff->rows[way] = rows;
    diff->counts[way] = count;
    return true;
}

static bool compare(struct ull__diff *diff, const struct sums *before, const struct sums *after)
{
    bool good = true;
    for (int way = 0; good && way < ULL_DIFF_WAYS; way++) {
        struct side left = {0}, right = {0};
        good = make_side(&left, before, (enum ull__diff_by)way) &&
               make_side(&right, after, (enum ull__diff_by)way) &&
               join(diff, (enum ull__diff_by)way, &left, &right);
        side_free(&left);
        side_free(&right);
    }
    return good;
}

ull_status ull__diff_create(const struct ull__facts *before,
                            const struct ull__figures *before_figures,
                            const struct ull__facts *after, const struct ull__figures *after_figures,
                            struct ull__diff **diff, struct ull_error *err)
{
    struct sums left = {0}, right = {0};
    struct ull__diff *made = calloc(1, sizeof *made);
    bool good = made && make_sums(&left, before, before_figures) &&
                make_sums(&right, after, after_figures) && compare(made, &left, &right);
    for (int way = 0; way < ULL_DIFF_WAYS; way++) {
        free(left.by[way]);
        free(right.by[way]);
    }
    if (!good) {
        ull__diff_destroy(made);
        return ull__fail(err, ULL_E_SYSTEM, "no memory to compare two records");
    }
    *diff = made;
    return ULL_OK;
}

void ull__diff_destroy(struct ull__diff *diff)
{
    if (!diff)
        return;
    for (int way = 0; way < ULL_DIFF_WAYS; way++) {
        for (size_t i = 0; i < diff->counts[way]; i++)
            free(diff->rows[way][i].name);
        free(diff->rows[way]);
    }
    free(diff);
}
