/* unpickle_ops.c: what each opcode of a pickle does, of those that build data. */
#include <inttypes.h>
#include <string.h>

#include "unpickle_machine.h"

/* --- the stack ---------------------------------------------------------------------------------------- */

static inline size_t reachable(const struct machine *m)
{
    return m->depth - (m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0);
}

static inline bool push(struct machine *m, ull__pickled value)
{
    if (value == ULL_PICKLED_MISSING ||
        (m->depth == m->stack_capacity &&
         !ull__pickle_room(m->pickle, &m->stack, sizeof value, m->depth + 1, &m->stack_capacity)))
        return ull__machine_no_room(m);
    m->stack[m->depth++] = value;
    return true;
}

/* The last `count` values can be taken. */
static inline bool has(struct machine *m, size_t count)
{
    return reachable(m) >= count ||
           ull__machine_broken(m, "takes %zu values from a stack that has %zu", count, reachable(m));
}

/* Where what came after the last mark begins; the mark is gone. */
static bool to_mark(struct machine *m, size_t *first)
{
    if (m->mark_count == 0)
        return ull__machine_broken(m, "has no mark on the stack to begin at");
    *first = m->marks[--m->mark_count];
    return true;
}

/* The value below `first`, to which what is above is added. */
static bool target(struct machine *m, size_t first, enum ull__pickled_kind kind, ull__pickled *to)
{
    size_t floor = m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0;
    if (first <= floor || ull__pickled_kind(m->stack[first - 1]) != kind)
        return ull__machine_broken(m, "adds to something that is no %s",
                                   kind == ULL_PICKLED_LIST ? "list" : "dict");
    *to = m->stack[first - 1];
    return true;
}

/* --- constants and numbers ---------------------------------------------------------------------------- */

bool ull__op_mark(struct machine *m)
{
    if (m->mark_count == m->mark_capacity && !ull__pickle_room(m->pickle, &m->marks, sizeof *m->marks,
                                                               m->mark_count + 1, &m->mark_capacity))
        return ull__machine_no_room(m);
    m->marks[m->mark_count++] = m->depth;
    return true;
}

bool ull__op_stop(struct machine *m)
{
    if (m->depth != 1 || m->mark_count != 0)
        return ull__machine_broken(
            m, "the pickle ends with %zu values and %zu marks on its stack instead of one value",
            m->depth, m->mark_count);
    m->pickle->root = m->stack[0];
    m->stopped = true;
    return true;
}

bool ull__op_none(struct machine *m)
{
    return push(m, VALUE_NONE);
}

bool ull__op_newtrue(struct machine *m)
{
    return push(m, VALUE_TRUE);
}

bool ull__op_newfalse(struct machine *m)
{
    return push(m, VALUE_FALSE);
}

bool ull__op_binint(struct machine *m)
{
    uint64_t bits;
    return ull__machine_number(m, 4, &bits) &&
           push(m, ull__pickle_int(m->pickle, (int32_t)(uint32_t)bits));
}

bool ull__op_binint1(struct machine *m)
{
    uint64_t bits;
    return ull__machine_number(m, 1, &bits) && push(m, ull__pickle_unsigned(m->pickle, bits));
}

bool ull__op_binint2(struct machine *m)
{
    uint64_t bits;
    return ull__machine_number(m, 2, &bits) && push(m, ull__pickle_unsigned(m->pickle, bits));
}

/* Two's complement in `size` bytes; an address of 2^63 or more takes nine, the highest of them 0. */
static bool push_long(struct machine *m, uint64_t size)
{
    if (size == 0)
        return push(m, ull__pickle_unsigned(m->pickle, 0));
    if (size > 9)
        return ull__machine_broken(
            m, "an integer of %" PRIu64 " bytes: at most 64 bits are expected", size);
    if (!ull__machine_need(m, size))
        return false;
    const unsigned char *at = m->at;
    m->at += size;
    uint64_t bits = ull__machine_little(at, size < 8 ? size : 8);
    if (size == 9) {
        if (at[8] == 0xff && bits >> 63)
            return push(m, ull__pickle_int(m->pickle, (int64_t)bits));
        if (at[8] != 0)
            return ull__machine_broken(m, "an integer that does not fit in 64 bits");
        return push(m, ull__pickle_unsigned(m->pickle, bits));
    }
    if (size < 8 && at[size - 1] & 0x80)
        bits |= ~UINT64_C(0) << (8 * size);
    return push(m, ull__pickle_int(m->pickle, (int64_t)bits));
}

bool ull__op_long1(struct machine *m)
{
    uint64_t size;
    return ull__machine_number(m, 1, &size) && push_long(m, size);
}

bool ull__op_long4(struct machine *m)
{
    uint64_t size;
    return ull__machine_number(m, 4, &size) && push_long(m, size);
}

bool ull__op_binfloat(struct machine *m)
{
    if (!ull__machine_need(m, 8))
        return false;
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | m->at[i];
    m->at += 8;
    double value;
    memcpy(&value, &bits, sizeof value);
    return push(m, ull__pickle_float(m->pickle, value));
}

/* --- texts -------------------------------------------------------------------------------------------- */

static bool push_text(struct machine *m, uint64_t size)
{
    if (size > ULL_PICKLE_TEXT)
        return ull__machine_broken(m, "a text of %" PRIu64 " bytes: at most %d are expected", size,
                                   ULL_PICKLE_TEXT);
    if (size > ULL_PICKLE_SHARED_TEXT) {
        struct text *text = ull__pickle_long_text(m->pickle, size);
        if (!text)
            return ull__machine_no_room(m);
        return ull__machine_bytes(m, text->bytes, size) && push(m, ull__pickled_tag(text, TAG_TEXT));
    }
    if (!ull__machine_need(m, size))
        return false;
    const char *at = (const char *)m->at;
    m->at += size;
    return push(m, ull__pickle_add_text(m->pickle, at, size));
}

bool ull__op_short_binunicode(struct machine *m)
{
    uint64_t size;
    return ull__machine_number(m, 1, &size) && push_text(m, size);
}

bool ull__op_binunicode(struct machine *m)
{
    uint64_t size;
    return ull__machine_number(m, 4, &size) && push_text(m, size);
}

bool ull__op_binunicode8(struct machine *m)
{
    uint64_t size;
    return ull__machine_number(m, 8, &size) && push_text(m, size);
}

/* --- containers --------------------------------------------------------------------------------------- */

static bool append_from(struct machine *m, size_t first)
{
    ull__pickled list = ULL_PICKLED_MISSING;
    if (!target(m, first, ULL_PICKLED_LIST, &list))
        return false;
    if (!ull__pickle_append(m->pickle, list, m->stack + first, m->depth - first))
        return ull__machine_no_room(m);
    m->depth = first;
    return true;
}

static bool set_in(struct machine *m, ull__pickled dict, size_t first)
{
    size_t count = m->depth - first;
    if (count % 2 != 0)
        return ull__machine_broken(m, "a key without a value");
    for (size_t i = first; i < m->depth; i += 2) {
        enum ull__pickled_kind kind = ull__pickled_kind(m->stack[i]);
        if (kind == ULL_PICKLED_LIST || kind == ULL_PICKLED_DICT)
            return ull__machine_broken(m, "a list or dict as the key of a dict");
    }
    if (!ull__pickle_room(m->pickle, &m->keys, sizeof *m->keys, count / 2, &m->key_capacity) ||
        !ull__pickle_set(m->pickle, dict, m->stack + first, count / 2, m->keys))
        return ull__machine_no_room(m);
    m->depth = first;
    return true;
}

bool ull__op_empty_list(struct machine *m)
{
    return push(m, ull__pickle_container(m->pickle, TAG_LIST));
}

bool ull__op_empty_dict(struct machine *m)
{
    return push(m, ull__pickle_container(m->pickle, TAG_DICT));
}

bool ull__op_append(struct machine *m)
{
    return has(m, 2) && append_from(m, m->depth - 1);
}

bool ull__op_appends(struct machine *m)
{
    size_t first = 0;
    return to_mark(m, &first) && append_from(m, first);
}

bool ull__op_setitem(struct machine *m)
{
    ull__pickled dict = ULL_PICKLED_MISSING;
    return has(m, 3) && target(m, m->depth - 2, ULL_PICKLED_DICT, &dict) &&
           set_in(m, dict, m->depth - 2);
}

bool ull__op_setitems(struct machine *m)
{
    size_t first = 0;
    ull__pickled dict = ULL_PICKLED_MISSING;
    return to_mark(m, &first) && target(m, first, ULL_PICKLED_DICT, &dict) && set_in(m, dict, first);
}

bool ull__op_list(struct machine *m)
{
    size_t first = 0;
    if (!to_mark(m, &first))
        return false;
    ull__pickled list = ull__pickle_container(m->pickle, TAG_LIST);
    if (list == ULL_PICKLED_MISSING ||
        !ull__pickle_append(m->pickle, list, m->stack + first, m->depth - first))
        return ull__machine_no_room(m);
    m->depth = first;
    return push(m, list);
}

bool ull__op_dict(struct machine *m)
{
    size_t first = 0;
    if (!to_mark(m, &first))
        return false;
    ull__pickled dict = ull__pickle_container(m->pickle, TAG_DICT);
    if (dict == ULL_PICKLED_MISSING)
        return ull__machine_no_room(m);
    return set_in(m, dict, first) && push(m, dict);
}

static bool push_tuple(struct machine *m, size_t first)
{
    ull__pickled tuple = ull__pickle_tuple(m->pickle, m->stack + first, m->depth - first);
    if (tuple == ULL_PICKLED_MISSING)
        return ull__machine_no_room(m);
    m->depth = first;
    return push(m, tuple);
}

bool ull__op_tuple(struct machine *m)
{
    size_t first = 0;
    return to_mark(m, &first) && push_tuple(m, first);
}

bool ull__op_empty_tuple(struct machine *m)
{
    return push_tuple(m, m->depth);
}

bool ull__op_tuple1(struct machine *m)
{
    return has(m, 1) && push_tuple(m, m->depth - 1);
}

bool ull__op_tuple2(struct machine *m)
{
    return has(m, 2) && push_tuple(m, m->depth - 2);
}

bool ull__op_tuple3(struct machine *m)
{
    return has(m, 3) && push_tuple(m, m->depth - 3);
}

/* --- what is referred to again ------------------------------------------------------------------------ */

/* Whoever numbers objects from 0 up has written at least a byte for each, so a higher number is nonsense. */
static bool memo_put(struct machine *m, uint64_t index)
{
    if (!has(m, 1))
        return false;
    if (index > ull__machine_position(m))
        return ull__machine_broken(m, "object number %" PRIu64 " so early in the file", index);
    if (index >= m->memo_capacity &&
        !ull__pickle_room(m->pickle, &m->memo, sizeof *m->memo, index + 1, &m->memo_capacity))
        return ull__machine_no_room(m);
    while (m->memo_end <= index)
        m->memo[m->memo_end++] = ULL_PICKLED_MISSING;
    m->memo_count += m->memo[index] == ULL_PICKLED_MISSING;
    m->memo[index] = m->stack[m->depth - 1];
    return true;
}

static bool memo_get(struct machine *m, uint64_t index)
{
    if (index >= m->memo_end || m->memo[index] == ULL_PICKLED_MISSING)
        return ull__machine_broken(
            m, "refers to object number %" PRIu64 ", which the file did not name", index);
    return push(m, m->memo[index]);
}

bool ull__op_memoize(struct machine *m)
{
    return memo_put(m, m->memo_count);
}

bool ull__op_binput(struct machine *m)
{
    uint64_t index;
    return ull__machine_number(m, 1, &index) && memo_put(m, index);
}

bool ull__op_long_binput(struct machine *m)
{
    uint64_t index;
    return ull__machine_number(m, 4, &index) && memo_put(m, index);
}

bool ull__op_binget(struct machine *m)
{
    uint64_t index;
    return ull__machine_number(m, 1, &index) && memo_get(m, index);
}

bool ull__op_long_binget(struct machine *m)
{
    uint64_t index;
    return ull__machine_number(m, 4, &index) && memo_get(m, index);
}

/* --- around it ------------------------------------------------------------------------------------------ */

bool ull__op_proto(struct machine *m)
{
    uint64_t protocol;
    if (!ull__machine_number(m, 1, &protocol))
        return false;
    if (m->offset != 0)
        return ull__machine_broken(m, "a second beginning in the middle of a pickle");
    if (protocol < LOWEST_PROTOCOL || protocol > HIGHEST_PROTOCOL)
        return ull__machine_broken(m, "pickle protocol %" PRIu64 ": %d to %d are understood",
                                   protocol, LOWEST_PROTOCOL, HIGHEST_PROTOCOL);
    return true;
}

/* Frames tell a reader how much to read ahead, which this one does anyway. */
bool ull__op_frame(struct machine *m)
{
    uint64_t size;
    return ull__machine_number(m, 8, &size);
}
