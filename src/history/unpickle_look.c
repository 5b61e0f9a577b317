/* unpickle_look.c: the tree of unpickle.h as its readers see it. */
#include "unpickle_private.h"

ull__pickled ull__pickle_root(const struct ull__pickle *pickle)
{
    return pickle->root;
}

size_t ull__pickle_bytes(const struct ull__pickle *pickle)
{
    return pickle->bytes;
}

enum ull__pickled_kind ull__pickled_kind(ull__pickled value)
{
    static const unsigned char kinds[] = {
        [TAG_INT] = ULL_PICKLED_INT,     [TAG_WIDE] = ULL_PICKLED_INT,
        [TAG_FLOAT] = ULL_PICKLED_FLOAT, [TAG_TEXT] = ULL_PICKLED_TEXT,
        [TAG_LIST] = ULL_PICKLED_LIST,   [TAG_DICT] = ULL_PICKLED_DICT,
        [TAG_TUPLE] = ULL_PICKLED_TUPLE,
    };
    if (value == ULL_PICKLED_MISSING)
        return ULL_PICKLED_NOTHING;
    if ((value & TAG_MASK) == TAG_CONSTANT)
        return value == VALUE_NONE ? ULL_PICKLED_NONE : ULL_PICKLED_BOOL;
    return kinds[value & TAG_MASK];
}

bool ull__pickled_u64(ull__pickled value, uint64_t *out)
{
    if ((value & TAG_MASK) == TAG_INT)
        *out = (uint64_t)((int64_t)value >> 3);
    else if ((value & TAG_MASK) == TAG_WIDE)
        *out = ((const struct wide *)ull__pickled_pointer(value))->bits;
    else
        return false;
    return true;
}

bool ull__pickled_i64(ull__pickled value, int64_t *out)
{
    uint64_t bits;
    if (!ull__pickled_u64(value, &bits))
        return false;
    if ((value & TAG_MASK) == TAG_WIDE &&
        ((const struct wide *)ull__pickled_pointer(value))->is_unsigned && bits > INT64_MAX)
        return false;
    *out = (int64_t)bits;
    return true;
}

bool ull__pickled_bool(ull__pickled value, bool *out)
{
    if (value != VALUE_FALSE && value != VALUE_TRUE)
        return false;
    *out = value == VALUE_TRUE;
    return true;
}

bool ull__pickled_float(ull__pickled value, double *out)
{
    if ((value & TAG_MASK) != TAG_FLOAT)
        return false;
    *out = *(const double *)ull__pickled_pointer(value);
    return true;
}

bool ull__pickled_string(ull__pickled value, const char **text, size_t *size)
{
    if ((value & TAG_MASK) != TAG_TEXT)
        return false;
    const struct text *found = ull__pickled_pointer(value);
    *text = found->bytes;
    *size = found->size;
    return true;
}

ull__pickled ull__pickled_get(ull__pickled dict, ull__pickled key)
{
    if ((dict & TAG_MASK) != TAG_DICT || key == ULL_PICKLED_MISSING)
        return ULL_PICKLED_MISSING;
    const struct run *last = ull__pickled_last(ull__pickled_pointer(dict));
    ull__pickled found = ULL_PICKLED_MISSING;
    const struct run *run = last;
    do {
        if (!run)
            break;
        run = run->next;
        for (uint64_t i = 0; i < run->shape->count; i++)
            if (run->shape->keys[i] == key)
                found = run->items[i];
    } while (run != last);
    return found;
}

uint64_t ull__pickled_content(ull__pickled value)
{
    if ((value & TAG_MASK) != TAG_LIST)
        return value;
    const struct run *last = ull__pickled_last(ull__pickled_pointer(value));
    return last && last->next == last ? (uint64_t)(uintptr_t)last : value;
}

void ull__pickled_walk(struct ull__pickled_walk *walk, ull__pickled of)
{
    *walk = (struct ull__pickled_walk){.of = of};
    unsigned int tag = of & TAG_MASK;
    if (tag == TAG_TUPLE) {
        walk->run = walk->last = ull__pickled_pointer(of);
    } else if (tag == TAG_LIST || tag == TAG_DICT) {
        walk->last = ull__pickled_last(ull__pickled_pointer(of));
        walk->run = walk->last ? ((const struct run *)walk->last)->next : NULL;
    }
}

bool ull__pickled_next(struct ull__pickled_walk *walk, ull__pickled *value)
{
    ull__pickled key;
    return ull__pickled_next_pair(walk, &key, value);
}

bool ull__pickled_next_pair(struct ull__pickled_walk *walk, ull__pickled *key, ull__pickled *value)
{
    unsigned int tag = walk->of & TAG_MASK;
    if (!walk->run)
        return false;
    if (tag == TAG_TUPLE) {
        const struct tuple *tuple = walk->run;
        if (walk->index >= tuple->count)
            return false;
        *key = ULL_PICKLED_MISSING;
        *value = tuple->items[walk->index++];
        return true;
    }
    const struct run *run = walk->run;
    *key = tag == TAG_DICT ? run->shape->keys[walk->index] : ULL_PICKLED_MISSING;
    *value = run->items[walk->index++];
    if (walk->index >= (tag == TAG_DICT ? run->shape->count : run->count)) { /* runs are not empty */
        walk->run = run == walk->last ? NULL : run->next;
        walk->index = 0;
    }
    return true;
}
