/*
 * unpickle_tree.c: the tree of values of unpickle.h: its memory, and its sharing of texts, keys and items. Everything lies in blocks that are freed together.
 */
#include <stdlib.h>
#include <string.h>

#include "unpickle_private.h"

enum { BLOCK = 256 << 10 };

/* --- memory ------------------------------------------------------------------------------------------- */

static bool charge(struct ull__pickle *pickle, size_t size)
{
    if (size > pickle->most || pickle->bytes > pickle->most - size) {
        pickle->refused = true;
        return false;
    }
    pickle->bytes += size;
    return true;
}

static void *add_block(struct ull__pickle *pickle, size_t size)
{
    if (size > SIZE_MAX - sizeof(struct block) || !charge(pickle, size + sizeof(struct block)))
        return NULL;
    struct block *block = malloc(sizeof *block + size);
    if (!block) {
        pickle->bytes -= size + sizeof *block;
        return NULL;
    }
    *block = (struct block){.next = pickle->blocks, .size = size};
    pickle->blocks = block;
    return block + 1;
}

void *ull__pickle_take(struct ull__pickle *pickle, size_t size)
{
    if (size > SIZE_MAX - 8)
        return NULL;
    size = (size + 7) & ~(size_t)7;
    if (size > (size_t)(pickle->end - pickle->at)) {
        if (size > BLOCK / 8)
            return add_block(pickle, size);
        char *block = add_block(pickle, BLOCK);
        if (!block)
            return NULL;
        pickle->at = block;
        pickle->end = block + BLOCK;
    }
    void *taken = pickle->at;
    pickle->at += size;
    return taken;
}

bool ull__pickle_room(struct ull__pickle *pickle, void *array, size_t size, size_t wanted,
                      size_t *capacity)
{
    void **items = array;
    if (wanted <= *capacity)
        return true;
    size_t grown = *capacity ? *capacity : 64;
    while (grown < wanted) {
        if (grown > SIZE_MAX / 2 / size) {
            pickle->refused = true;
            return false;
        }
        grown *= 2;
    }
    if (!charge(pickle, (grown - *capacity) * size))
        return false;
    void *moved = realloc(*items, grown * size);
    if (!moved) {
        pickle->bytes -= (grown - *capacity) * size;
        return false;
    }
    *items = moved;
    *capacity = grown;
    return true;
}

void ull__pickle_drop(struct ull__pickle *pickle, void *array, size_t size, size_t capacity)
{
    free(array);
    pickle->bytes -= size * capacity;
}

void ull__pickle_destroy(struct ull__pickle *pickle)
{
    if (!pickle)
        return;
    while (pickle->blocks) {
        struct block *next = pickle->blocks->next;
        free(pickle->blocks);
        pickle->blocks = next;
    }
    free(pickle->texts.slots);
    free(pickle->shapes.slots);
    free(pickle->runs.slots);
    free(pickle->tuples.slots);
    free(pickle);
}

/* --- sets of what is kept once ------------------------------------------------------------------------ */

enum { SHARED_ITEMS = 1024 }; /* longer lists are not looked for */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 29;
}

static uint32_t hash_text(const char *bytes, size_t size)
{
    uint64_t hash = size;
    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = mix(hash, word);
    }
    uint64_t rest = 0;
    memcpy(&rest, bytes, size);
    hash = mix(hash, rest);
    return (uint32_t)(hash ^ hash >> 32);
}

static uint64_t hash_items(const ull__pickled *items, uint64_t count)
{
    uint64_t hash = count;
    for (uint64_t i = 0; i < count; i++)
        hash = mix(hash, items[i]);
    return hash ^ hash >> 32;
}

static uint64_t hash_of(const struct ull__pickle *pickle, const struct set *set, const void *item)
{
    const struct run *run = item;
    const struct tuple *tuple = item;
    if (set == &pickle->texts)
        return ((const struct text *)item)->hash;
    if (set == &pickle->shapes)
        return ((const struct shape *)item)->hash;
    if (set == &pickle->runs)
        return hash_items(run->items, run->count);
    return hash_items(tuple->items, tuple->count);
}

static void set_put(struct set *set, uint64_t hash, void *item)
{
    size_t at = hash & (set->capacity - 1);
    while (set->slots[at])
        at = (at + 1) & (set->capacity - 1);
    set->slots[at] = item;
}

static bool set_ensure(struct ull__pickle *pickle, struct set *set)
{
    if (set->count * 2 + 2 <= set->capacity)
        return true;
    struct set grown = {.capacity = set->capacity ? set->capacity * 2 : 256, .count = set->count};
    if (!charge(pickle, (grown.capacity - set->capacity) * sizeof *grown.slots))
        return false;
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < set->capacity; i++)
        if (set->slots[i])
            set_put(&grown, hash_of(pickle, set, set->slots[i]), set->slots[i]);
    free(set->slots);
    *set = grown;
    return true;
}

static void set_add(struct set *set, uint64_t hash, void *item)
{
    set_put(set, hash, item);
    set->count++;
}

static struct text *find_text(const struct ull__pickle *pickle, const char *bytes, size_t size,
                              uint32_t hash)
{
    const struct set *set = &pickle->texts;
    for (size_t at = hash; set->capacity; at++) {
        struct text *text = set->slots[at & (set->capacity - 1)];
        if (!text ||
            (text->hash == hash && text->size == size && memcmp(text->bytes, bytes, size) == 0))
            return text;
    }
    return NULL;
}

/* --- building ----------------------------------------------------------------------------------------- */

ull__pickled ull__pickle_unsigned(struct ull__pickle *pickle, uint64_t number)
{
    if (number < UINT64_C(1) << 60)
        return number << 3 | TAG_INT;
    struct wide *wide = ull__pickle_take(pickle, sizeof *wide);
    if (!wide)
        return ULL_PICKLED_MISSING;
    *wide = (struct wide){.bits = number, .is_unsigned = true};
    return ull__pickled_tag(wide, TAG_WIDE);
}

ull__pickled ull__pickle_int(struct ull__pickle *pickle, int64_t number)
{
    if (number >= 0)
        return ull__pickle_unsigned(pickle, (uint64_t)number);
    if (number >= -(INT64_C(1) << 60))
        return (uint64_t)number << 3 | TAG_INT;
    struct wide *wide = ull__pickle_take(pickle, sizeof *wide);
    if (!wide)
        return ULL_PICKLED_MISSING;
    *wide = (struct wide){.bits = (uint64_t)number};
    return ull__pickled_tag(wide, TAG_WIDE);
}

ull__pickled ull__pickle_float(struct ull__pickle *pickle, double number)
{
    double *place = ull__pickle_take(pickle, sizeof *place);
    if (!place)
        return ULL_PICKLED_MISSING;
    *place = number;
    return ull__pickled_tag(place, TAG_FLOAT);
}

struct text *ull__pickle_long_text(struct ull__pickle *pickle, size_t size)
{
    struct text *text = ull__pickle_take(pickle, sizeof *text + size + 1);
    if (!text)
        return NULL;
    text->size = (uint32_t)size;
    text->hash = 0;
    text->bytes[size] = '\0';
    return text;
}

ull__pickled ull__pickle_add_text(struct ull__pickle *pickle, const char *bytes, size_t size)
{
    uint32_t hash = hash_text(bytes, size);
    struct text *text = find_text(pickle, bytes, size, hash);
    if (text)
        return ull__pickled_tag(text, TAG_TEXT);
    if (!set_ensure(pickle, &pickle->texts))
        return ULL_PICKLED_MISSING;
    text = ull__pickle_long_text(pickle, size);
    if (!text)
        return ULL_PICKLED_MISSING;
    memcpy(text->bytes, bytes, size);
    text->hash = hash;
    set_add(&pickle->texts, hash, text);
    return ull__pickled_tag(text, TAG_TEXT);
}

ull__pickled ull__pickle_container(struct ull__pickle *pickle, unsigned int tag)
{
    struct container *container = ull__pickle_take(pickle, sizeof *container);
    if (!container)
        return ULL_PICKLED_MISSING;
    container->last = 0;
    return ull__pickled_tag(container, tag);
}

static bool same(const ull__pickled *a, uint64_t a_count, const ull__pickled *b, uint64_t b_count)
{
    return a_count == b_count && memcmp(a, b, a_count * sizeof *a) == 0;
}

ull__pickled ull__pickle_tuple(struct ull__pickle *pickle, const ull__pickled *items, size_t count)
{
    if (!set_ensure(pickle, &pickle->tuples))
        return ULL_PICKLED_MISSING;
    uint64_t hash = hash_items(items, count);
    struct set *set = &pickle->tuples;
    struct tuple *tuple;
    for (size_t at = hash; (tuple = set->slots[at & (set->capacity - 1)]) != NULL; at++)
        if (tuple->count == count && (count == 0 || same(tuple->items, count, items, count)))
            return ull__pickled_tag(tuple, TAG_TUPLE);
    tuple = ull__pickle_take(pickle, sizeof *tuple + count * sizeof *items);
    if (!tuple)
        return ULL_PICKLED_MISSING;
    tuple->count = count;
    if (count > 0)
        memcpy(tuple->items, items, count * sizeof *items);
    set_add(set, hash, tuple);
    return ull__pickled_tag(tuple, TAG_TUPLE);
}

static struct run *new_run(struct ull__pickle *pickle, size_t count)
{
    struct run *run = ull__pickle_take(pickle, sizeof *run + count * sizeof(ull__pickled));
    if (run)
        run->next = run;
    return run;
}

/* Behind those that are there, none of which is shared. */
static void add_run(struct container *container, struct run *run)
{
    struct run *last = ull__pickled_last(container);
    if (last) {
        run->next = last->next;
        last->next = run;
    }
    container->last = (uintptr_t)run;
}

static struct run *list_run(struct ull__pickle *pickle, const ull__pickled *items, size_t count)
{
    struct run *run = new_run(pickle, count);
    if (!run)
        return NULL;
    run->count = count;
    memcpy(run->items, items, count * sizeof *items);
    return run;
}

/* An empty list's first items: those of a list that began alike, if there is one. */
static bool first_items(struct ull__pickle *pickle, struct container *list,
                        const ull__pickled *items, size_t count)
{
    struct set *set = &pickle->runs;
    if (!set_ensure(pickle, set))
        return false;
    uint64_t hash = hash_items(items, count);
    struct run *run;
    for (size_t at = hash; (run = set->slots[at & (set->capacity - 1)]) != NULL; at++)
        if (same(run->items, run->count, items, count))
            break;
    if (!run) {
        run = list_run(pickle, items, count);
        if (!run)
            return false;
        set_add(set, hash, run);
    }
    list->last = (uintptr_t)run | LAST_IS_SHARED;
    return true;
}

bool ull__pickle_append(struct ull__pickle *pickle, ull__pickled of, const ull__pickled *items,
                        size_t count)
{
    struct container *list = ull__pickled_pointer(of);
    if (count == 0)
        return true;
    if (!list->last && count <= SHARED_ITEMS)
        return first_items(pickle, list, items, count);
    if (list->last & LAST_IS_SHARED) {
        const struct run *shared = ull__pickled_last(list);
        struct run *own = list_run(pickle, shared->items, shared->count);
        if (!own)
            return false;
        list->last = (uintptr_t)own;
    }
    struct run *run = list_run(pickle, items, count);
    if (!run)
        return false;
    add_run(list, run);
    return true;
}

static const struct shape *find_shape(struct ull__pickle *pickle, const ull__pickled *keys,
                                      size_t count)
{
    const struct shape *recent = pickle->recent;
    if (recent && same(recent->keys, recent->count, keys, count))
        return recent;
    if (!set_ensure(pickle, &pickle->shapes))
        return NULL;
    uint64_t hash = hash_items(keys, count);
    struct set *set = &pickle->shapes;
    struct shape *shape;
    for (size_t at = hash; (shape = set->slots[at & (set->capacity - 1)]) != NULL; at++)
        if (same(shape->keys, shape->count, keys, count))
            return pickle->recent = shape;
    shape = ull__pickle_take(pickle, sizeof *shape + count * sizeof *keys);
    if (!shape)
        return NULL;
    *shape = (struct shape){.hash = hash, .count = count};
    memcpy(shape->keys, keys, count * sizeof *keys);
    set_add(set, hash, shape);
    return pickle->recent = shape;
}

bool ull__pickle_set(struct ull__pickle *pickle, ull__pickled dict, const ull__pickled *items,
                     size_t pairs, ull__pickled *scratch)
{
    if (pairs == 0)
        return true;
    for (size_t i = 0; i < pairs; i++)
        scratch[i] = items[2 * i];
    const struct shape *shape = find_shape(pickle, scratch, pairs);
    struct run *run = shape ? new_run(pickle, pairs) : NULL;
    if (!run)
        return false;
    run->shape = shape;
    for (size_t i = 0; i < pairs; i++)
        run->items[i] = items[2 * i + 1];
    add_run(ull__pickled_pointer(dict), run);
    return true;
}

ull__pickled ull__pickle_text(const struct ull__pickle *pickle, const char *text)
{
    size_t size = strlen(text);
    const struct text *found = find_text(pickle, text, size, hash_text(text, size));
    return found ? ull__pickled_tag(found, TAG_TEXT) : ULL_PICKLED_MISSING;
}
