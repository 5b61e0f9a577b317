/*
 * torch_text.c: the texts, call stacks and tags of a snapshot. A stack that many entries share is translated
 * once.
 */
#include <stdio.h>
#include <string.h>

#include "torch_private.h"

enum { MOST_FRAMES = 1024, LONGEST_TAG = 256 };

uint32_t ull__torch_text(struct torch *t, ull__pickled value)
{
    const char *text;
    size_t size;
    if (!ull__pickled_string(value, &text, &size))
        return 0;
    uint32_t known = ull__map_get(&t->names, value);
    if (known != ULL_MAP_NONE)
        return known;
    known = ull__history_text(t->history, text, size);
    if (known == UINT32_MAX || !ull__map_put(&t->names, value, known))
        return UINT32_MAX;
    return known;
}

static uint32_t add_stack(struct torch *t, ull__pickled frames)
{
    struct ull__frame stack[MOST_FRAMES];
    uint32_t count = 0;
    struct ull__pickled_walk walk;
    ull__pickled frame;
    for (ull__pickled_walk(&walk, frames); count < MOST_FRAMES && ull__pickled_next(&walk, &frame);) {
        int64_t line = 0;
        ull__pickled_i64(ull__torch_at(frame, t->keys.line), &line);
        struct ull__frame *to = &stack[count++];
        to->function = ull__torch_text(t, ull__torch_at(frame, t->keys.name));
        to->file = ull__torch_text(t, ull__torch_at(frame, t->keys.filename));
        to->line = line > 0 && line <= UINT32_MAX ? (uint32_t)line : 0;
        if (to->function == UINT32_MAX || to->file == UINT32_MAX)
            return UINT32_MAX;
    }
    return ull__history_stack(t->history, stack, count);
}

uint32_t ull__torch_stack(struct torch *t, ull__pickled frames)
{
    enum ull__pickled_kind kind = ull__pickled_kind(frames);
    if (kind != ULL_PICKLED_LIST && kind != ULL_PICKLED_TUPLE)
        return 0;
    uint64_t content = ull__pickled_content(frames);
    uint32_t known = ull__map_get(&t->stacks, content);
    if (known != ULL_MAP_NONE)
        return known;
    known = add_stack(t, frames);
    if (known == UINT32_MAX || !ull__map_put(&t->stacks, content, known))
        return UINT32_MAX;
    return known;
}

/* --- tags --------------------------------------------------------------------------------------------- */

struct line {
    char text[LONGEST_TAG];
    size_t size;
};

static void append(struct line *line, const char *text, size_t size)
{
    size_t room = sizeof line->text - 1 - line->size;
    size = size < room ? size : room;
    memcpy(line->text + line->size, text, size);
    line->size += size;
}

static void append_value(struct line *line, ull__pickled value)
{
    const char *text;
    size_t size;
    int64_t number;
    char digits[24];
    if (ull__pickled_string(value, &text, &size))
        append(line, text, size);
    else if (ull__pickled_i64(value, &number))
        append(line, digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)number));
    else
        append(line, "?", 1);
}

/* "key=value, key=value" of a dict of the user's. */
static uint32_t dict_text(struct torch *t, ull__pickled dict)
{
    struct line line = {.size = 0};
    struct ull__pickled_walk walk;
    ull__pickled key, value;
    for (ull__pickled_walk(&walk, dict); ull__pickled_next_pair(&walk, &key, &value);) {
        if (line.size > 0)
            append(&line, ", ", 2);
        append_value(&line, key);
        append(&line, "=", 1);
        append_value(&line, value);
        if (line.size == sizeof line.text - 1)
            break;
    }
    return ull__history_text(t->history, line.text, line.size);
}

/* What PyTorch writes where there is nothing to say. */
static bool says_nothing(ull__pickled value)
{
    return ull__torch_is_text(value, "") || ull__torch_is_text(value, "N/A") ||
           ull__torch_is_text(value, "unknown");
}

uint32_t ull__torch_tag(struct torch *t, ull__pickled entry)
{
    const ull__pickled keys[] = {t->keys.category, t->keys.user_metadata, t->keys.compile_context};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        ull__pickled value = ull__torch_at(entry, keys[i]);
        enum ull__pickled_kind kind = ull__pickled_kind(value);
        if (kind == ULL_PICKLED_DICT)
            return dict_text(t, value);
        if (kind == ULL_PICKLED_TEXT && !says_nothing(value))
            return ull__torch_text(t, value);
    }
    return 0;
}
