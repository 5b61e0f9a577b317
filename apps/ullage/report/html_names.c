/*
 * html_names.c: see html.h. Stacks become a tree from the outermost frame down, in which what many stacks have in
 * common is there once, and which a flame graph draws as it is.
 */
#include <stdlib.h>
#include <string.h>

#include "html.h"

enum { TEXT_MOST = 300, NOT_YET = UINT32_MAX };

struct node {
    uint32_t parent, frame;
};

struct html_names {
    const struct ull__history *history;
    const struct html_limits *limits;
    uint32_t *texts, *stacks; /* by the history's numbers; NOT_YET */
    uint32_t *text_list;      /* the history's, by the page's number */
    size_t text_count, text_bytes;
    uint32_t left_out; /* the page's number of "..."; NOT_YET */
    struct ull__frame *frames;
    size_t frame_count;
    uint32_t *frame_slots; /* number + 1 */
    struct node *nodes;    /* 0 is the root */
    size_t node_count;
    uint32_t *node_slots; /* number, 0: empty */
    size_t slot_mask;     /* of both: a frame comes with a node */
};

static uint32_t *numbers(size_t count)
{
    uint32_t *array = malloc((count + 1) * sizeof *array);
    if (array)
        memset(array, 0xff, (count + 1) * sizeof *array);
    return array;
}

struct html_names *html_names_create(const struct ull__history *history,
                                     const struct html_limits *limits)
{
    struct html_names *names = calloc(1, sizeof *names);
    size_t slots = 256;
    if (!names)
        return NULL;
    while (slots < limits->nodes * 2 + 4)
        slots *= 2;
    names->history = history;
    names->limits = limits;
    names->left_out = NOT_YET;
    names->texts = numbers(history->text_count);
    names->stacks = numbers(history->stack_count);
    names->text_list = numbers((size_t)history->text_count + 1);
    names->frames = calloc(limits->nodes + 1, sizeof *names->frames);
    names->nodes = calloc(limits->nodes + 1, sizeof *names->nodes);
    names->frame_slots = calloc(slots, sizeof *names->frame_slots);
    names->node_slots = calloc(slots, sizeof *names->node_slots);
    names->slot_mask = slots - 1;
    if (!names->texts || !names->stacks || !names->text_list || !names->frames || !names->nodes ||
        !names->frame_slots || !names->node_slots) {
        html_names_destroy(names);
        return NULL;
    }
    names->texts[0] = 0;
    names->text_list[names->text_count++] = 0;
    names->stacks[0] = 0;
    names->node_count = 1;
    return names;
}

void html_names_destroy(struct html_names *names)
{
    if (!names)
        return;
    free(names->texts);
    free(names->stacks);
    free(names->text_list);
    free(names->frames);
    free(names->nodes);
    free(names->frame_slots);
    free(names->node_slots);
    free(names);
}

uint32_t html_names_text(struct html_names *names, uint32_t text)
{
    uint32_t *number = &names->texts[text];
    if (*number != NOT_YET)
        return *number;
    size_t size = strlen(ull__history_string(names->history, text));
    size = size > TEXT_MOST ? TEXT_MOST : size;
    if (names->text_bytes + size > names->limits->text_bytes) {
        if (names->left_out == NOT_YET) {
            names->left_out = (uint32_t)names->text_count;
            names->text_list[names->text_count++] = NOT_YET;
        }
        return *number = names->left_out;
    }
    names->text_bytes += size + 3;
    names->text_list[names->text_count] = text;
    return *number = (uint32_t)names->text_count++;
}

/* --- the tree ------------------------------------------------------------------------------------------- */

static size_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t hash = (a * 0x9e3779b97f4a7c15ull ^ b) * 0xbf58476d1ce4e5b9ull ^ c;
    hash = (hash ^ hash >> 31) * 0x94d049bb133111ebull;
    return (size_t)(hash ^ hash >> 29);
}

/* There are never more frames than nodes, so there is room. */
static uint32_t find_frame(struct html_names *names, const struct ull__frame *frame)
{
    struct ull__frame wanted = {.function = html_names_text(names, frame->function),
                                .file = html_names_text(names, frame->file),
                                .line = frame->line};
    size_t at = mix(wanted.function, wanted.file, wanted.line) & names->slot_mask;
    for (; names->frame_slots[at]; at = (at + 1) & names->slot_mask) {
        const struct ull__frame *there = &names->frames[names->frame_slots[at] - 1];
        if (memcmp(there, &wanted, sizeof wanted) == 0)
            return names->frame_slots[at] - 1;
    }
    if (names->frame_count > names->limits->nodes)
        return NOT_YET;
    names->frames[names->frame_count] = wanted;
    names->frame_slots[at] = (uint32_t)++names->frame_count;
    return (uint32_t)names->frame_count - 1;
}

/* The child of a node for a frame; NOT_YET: it does not fit. */
static uint32_t find_node(struct html_names *names, uint32_t parent, uint32_t frame)
{
    size_t at = mix(parent, frame, 7) & names->slot_mask;
    for (; names->node_slots[at]; at = (at + 1) & names->slot_mask) {
        const struct node *there = &names->nodes[names->node_slots[at]];
        if (there->parent == parent && there->frame == frame)
            return names->node_slots[at];
    }
    if (names->node_count > names->limits->nodes)
        return NOT_YET;
    names->nodes[names->node_count] = (struct node){parent, frame};
    names->node_slots[at] = (uint32_t)names->node_count;
    return (uint32_t)names->node_count++;
}

uint32_t html_names_stack(struct html_names *names, uint32_t number)
{
    uint32_t *node = &names->stacks[number];
    const struct ull__stack *stack = &names->history->stacks[number];
    if (*node != NOT_YET)
        return *node;
    *node = 0;
    for (uint32_t i = stack->count; i-- > 0;) {
        uint32_t frame = find_frame(names, &names->history->frames[stack->first + i]);
        uint32_t child = frame == NOT_YET ? NOT_YET : find_node(names, *node, frame);
        if (child == NOT_YET)
            break;
        *node = child;
    }
    return *node;
}

/* --- writing -------------------------------------------------------------------------------------------- */

void html_names_write(const struct html_names *names, struct ull_json *json)
{
    ull__json_key(json, "texts");
    ull__json_array(json);
    for (size_t i = 0; i < names->text_count; i++) {
        uint32_t text = names->text_list[i];
        const char *string =
            text == NOT_YET ? "\xe2\x80\xa6" : ull__history_string(names->history, text);
        size_t size = strlen(string);
        if (size > TEXT_MOST) {
            size = TEXT_MOST;
            while (size > 0 && ((unsigned char)string[size] & 0xc0) == 0x80)
                size--; /* not in the middle of a character */
        }
        ull__json_bytes(json, string, size);
    }
    ull__json_array_end(json);
    ull__json_key(json, "frames"); /* function, file, line */
    ull__json_array(json);
    for (size_t i = 0; i < names->frame_count; i++) {
        ull__json_u64(json, names->frames[i].function);
        ull__json_u64(json, names->frames[i].file);
        ull__json_u64(json, names->frames[i].line);
    }
    ull__json_array_end(json);
    ull__json_key(json, "nodes"); /* parent, frame; the first is number 1 */
    ull__json_array(json);
    for (size_t i = 1; i < names->node_count; i++) {
        ull__json_u64(json, names->nodes[i].parent);
        ull__json_u64(json, names->nodes[i].frame);
    }
    ull__json_array_end(json);
}
