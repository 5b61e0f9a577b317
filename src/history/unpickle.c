/*
 * unpickle.c: see unpickle.h. A stack machine, as a pickle is a program for one; this one has only the
 * instructions that build data.
 */
#include "unpickle.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "unpickle_private.h"

enum { BUFFER = 256 << 10, LOWEST_PROTOCOL = 2, HIGHEST_PROTOCOL = 5 };

struct machine {
    /* What was read and not used yet; `before` is the offset in the file of buffer[0]. */
    const unsigned char *at, *end, *start;
    unsigned char *buffer;
    uint64_t before;
    int fd; /* -1: all of it is there */

    struct ull__pickle *pickle;
    ull__pickled *stack;
    size_t depth, stack_capacity;
    size_t *marks; /* depths; what is below the last one is out of reach */
    size_t mark_count, mark_capacity;
    ull__pickled *memo;
    size_t memo_count, memo_end, memo_capacity; /* set; highest number + 1 */
    ull__pickled *keys;
    size_t key_capacity;

    uint64_t offset; /* of the opcode that runs */
    bool stopped;
    ull_status status;
    struct ull_error *err;
};

typedef bool op_fn(struct machine *m);

/* --- failures ----------------------------------------------------------------------------------------- */

static uint64_t position(const struct machine *m)
{
    return m->before + (uint64_t)(m->at - m->start);
}

static bool broken(struct machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool broken(struct machine *m, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    m->status = ull__fail(m->err, ULL_E_FORMAT, "offset %" PRIu64 ": %s", m->offset, what);
    return false;
}

static bool no_room(struct machine *m)
{
    if (m->pickle->refused)
        return broken(
            m,
            "this pickle unfolds to more than %zu MiB, which is far more than its length: "
            "it is damaged, or made to fill memory",
            m->pickle->most >> 20);
    m->status = ull__fail(m->err, ULL_E_SYSTEM, "no memory after %zu MiB of a pickle's values",
                          m->pickle->bytes >> 20);
    return false;
}

/* --- input -------------------------------------------------------------------------------------------- */

static bool read_more(struct machine *m)
{
    size_t left = (size_t)(m->end - m->at);
    if (m->fd < 0)
        return false;
    m->before = position(m);
    memmove(m->buffer, m->at, left);
    m->start = m->at = m->buffer;
    ssize_t got;
    do
        got = read(m->fd, m->buffer + left, BUFFER - left);
    while (got < 0 && errno == EINTR);
    m->end = m->buffer + left + (got > 0 ? (size_t)got : 0);
    if (got < 0)
        m->status = ull__fail(m->err, ULL_E_SYSTEM, "cannot read on at offset %" PRIu64 ": %s",
                              m->before + left, strerror(errno));
    m->pickle->most = ULL_PICKLE_ROOM + 4 * (size_t)(m->before + left + (got > 0 ? (size_t)got : 0));
    return got > 0;
}

static bool truncated(struct machine *m)
{
    if (m->status != ULL_OK)
        return false;
    m->offset = m->before + (uint64_t)(m->end - m->start);
    return broken(m, "the file ends here, in the middle of a pickle: it is truncated");
}

/* At least `count` bytes, no more than BUFFER, at m->at. */
static inline bool need(struct machine *m, size_t count)
{
    while ((size_t)(m->end - m->at) < count)
        if (!read_more(m))
            return truncated(m);
    return true;
}

static inline uint64_t little(const unsigned char *bytes, size_t size)
{
    uint64_t number = 0;
    for (size_t i = size; i-- > 0;)
        number = number << 8 | bytes[i];
    return number;
}

static inline bool number(struct machine *m, size_t size, uint64_t *out)
{
    if (!need(m, size))
        return false;
    *out = little(m->at, size);
    m->at += size;
    return true;
}

static bool bytes(struct machine *m, char *to, size_t size)
{
    while (size > 0) {
        if (!need(m, 1))
            return false;
        size_t part = (size_t)(m->end - m->at);
        part = part < size ? part : size;
        memcpy(to, m->at, part);
        m->at += part;
        to += part;
        size -= part;
    }
    return true;
}

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
        return no_room(m);
    m->stack[m->depth++] = value;
    return true;
}

/* The last `count` values can be taken. */
static inline bool has(struct machine *m, size_t count)
{
    return reachable(m) >= count ||
           broken(m, "takes %zu values from a stack that has %zu", count, reachable(m));
}

/* Where what came after the last mark begins; the mark is gone. */
static bool to_mark(struct machine *m, size_t *first)
{
    if (m->mark_count == 0)
        return broken(m, "has no mark on the stack to begin at");
    *first = m->marks[--m->mark_count];
    return true;
}

/* The value below `first`, to which what is above is added. */
static bool target(struct machine *m, size_t first, enum ull__pickled_kind kind, ull__pickled *to)
{
    size_t floor = m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0;
    if (first <= floor || ull__pickled_kind(m->stack[first - 1]) != kind)
        return broken(m, "adds to something that is no %s",
                      kind == ULL_PICKLED_LIST ? "list" : "dict");
    *to = m->stack[first - 1];
    return true;
}

/* --- constants and numbers ---------------------------------------------------------------------------- */

static bool op_mark(struct machine *m)
{
    if (m->mark_count == m->mark_capacity && !ull__pickle_room(m->pickle, &m->marks, sizeof *m->marks,
                                                               m->mark_count + 1, &m->mark_capacity))
        return no_room(m);
    m->marks[m->mark_count++] = m->depth;
    return true;
}

static bool op_stop(struct machine *m)
{
    if (m->depth != 1 || m->mark_count != 0)
        return broken(
            m, "the pickle ends with %zu values and %zu marks on its stack instead of one value",
            m->depth, m->mark_count);
    m->pickle->root = m->stack[0];
    m->stopped = true;
    return true;
}

static bool op_none(struct machine *m)
{
    return push(m, VALUE_NONE);
}

static bool op_newtrue(struct machine *m)
{
    return push(m, VALUE_TRUE);
}

static bool op_newfalse(struct machine *m)
{
    return push(m, VALUE_FALSE);
}

static bool op_binint(struct machine *m)
{
    uint64_t bits;
    return number(m, 4, &bits) && push(m, ull__pickle_int(m->pickle, (int32_t)(uint32_t)bits));
}

static bool op_binint1(struct machine *m)
{
    uint64_t bits;
    return number(m, 1, &bits) && push(m, ull__pickle_unsigned(m->pickle, bits));
}

static bool op_binint2(struct machine *m)
{
    uint64_t bits;
    return number(m, 2, &bits) && push(m, ull__pickle_unsigned(m->pickle, bits));
}

/* Two's complement in `size` bytes; an address of 2^63 or more takes nine, the highest of them 0. */
static bool push_long(struct machine *m, uint64_t size)
{
    if (size == 0)
        return push(m, ull__pickle_unsigned(m->pickle, 0));
    if (size > 9)
        return broken(m, "an integer of %" PRIu64 " bytes: at most 64 bits are expected", size);
    if (!need(m, size))
        return false;
    const unsigned char *at = m->at;
    m->at += size;
    uint64_t bits = little(at, size < 8 ? size : 8);
    if (size == 9) {
        if (at[8] == 0xff && bits >> 63)
            return push(m, ull__pickle_int(m->pickle, (int64_t)bits));
        if (at[8] != 0)
            return broken(m, "an integer that does not fit in 64 bits");
        return push(m, ull__pickle_unsigned(m->pickle, bits));
    }
    if (size < 8 && at[size - 1] & 0x80)
        bits |= ~UINT64_C(0) << (8 * size);
    return push(m, ull__pickle_int(m->pickle, (int64_t)bits));
}

static bool op_long1(struct machine *m)
{
    uint64_t size;
    return number(m, 1, &size) && push_long(m, size);
}

static bool op_long4(struct machine *m)
{
    uint64_t size;
    return number(m, 4, &size) && push_long(m, size);
}

static bool op_binfloat(struct machine *m)
{
    if (!need(m, 8))
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
        return broken(m, "a text of %" PRIu64 " bytes: at most %d are expected", size,
                      ULL_PICKLE_TEXT);
    if (size > ULL_PICKLE_SHARED_TEXT) {
        struct text *text = ull__pickle_long_text(m->pickle, size);
        if (!text)
            return no_room(m);
        return bytes(m, text->bytes, size) && push(m, ull__pickled_tag(text, TAG_TEXT));
    }
    if (!need(m, size))
        return false;
    const char *at = (const char *)m->at;
    m->at += size;
    return push(m, ull__pickle_add_text(m->pickle, at, size));
}

static bool op_short_binunicode(struct machine *m)
{
    uint64_t size;
    return number(m, 1, &size) && push_text(m, size);
}

static bool op_binunicode(struct machine *m)
{
    uint64_t size;
    return number(m, 4, &size) && push_text(m, size);
}

static bool op_binunicode8(struct machine *m)
{
    uint64_t size;
    return number(m, 8, &size) && push_text(m, size);
}

/* --- containers --------------------------------------------------------------------------------------- */

static bool append_from(struct machine *m, size_t first)
{
    ull__pickled list = ULL_PICKLED_MISSING;
    if (!target(m, first, ULL_PICKLED_LIST, &list))
        return false;
    if (!ull__pickle_append(m->pickle, list, m->stack + first, m->depth - first))
        return no_room(m);
    m->depth = first;
    return true;
}

static bool set_in(struct machine *m, ull__pickled dict, size_t first)
{
    size_t count = m->depth - first;
    if (count % 2 != 0)
        return broken(m, "a key without a value");
    for (size_t i = first; i < m->depth; i += 2) {
        enum ull__pickled_kind kind = ull__pickled_kind(m->stack[i]);
        if (kind == ULL_PICKLED_LIST || kind == ULL_PICKLED_DICT)
            return broken(m, "a list or dict as the key of a dict");
    }
    if (!ull__pickle_room(m->pickle, &m->keys, sizeof *m->keys, count / 2, &m->key_capacity) ||
        !ull__pickle_set(m->pickle, dict, m->stack + first, count / 2, m->keys))
        return no_room(m);
    m->depth = first;
    return true;
}

static bool op_empty_list(struct machine *m)
{
    return push(m, ull__pickle_container(m->pickle, TAG_LIST));
}

static bool op_empty_dict(struct machine *m)
{
    return push(m, ull__pickle_container(m->pickle, TAG_DICT));
}

static bool op_append(struct machine *m)
{
    return has(m, 2) && append_from(m, m->depth - 1);
}

static bool op_appends(struct machine *m)
{
    size_t first = 0;
    return to_mark(m, &first) && append_from(m, first);
}

static bool op_setitem(struct machine *m)
{
    ull__pickled dict = ULL_PICKLED_MISSING;
    return has(m, 3) && target(m, m->depth - 2, ULL_PICKLED_DICT, &dict) &&
           set_in(m, dict, m->depth - 2);
}

static bool op_setitems(struct machine *m)
{
    size_t first = 0;
    ull__pickled dict = ULL_PICKLED_MISSING;
    return to_mark(m, &first) && target(m, first, ULL_PICKLED_DICT, &dict) && set_in(m, dict, first);
}

static bool op_list(struct machine *m)
{
    size_t first = 0;
    if (!to_mark(m, &first))
        return false;
    ull__pickled list = ull__pickle_container(m->pickle, TAG_LIST);
    if (list == ULL_PICKLED_MISSING ||
        !ull__pickle_append(m->pickle, list, m->stack + first, m->depth - first))
        return no_room(m);
    m->depth = first;
    return push(m, list);
}

static bool op_dict(struct machine *m)
{
    size_t first = 0;
    if (!to_mark(m, &first))
        return false;
    ull__pickled dict = ull__pickle_container(m->pickle, TAG_DICT);
    if (dict == ULL_PICKLED_MISSING)
        return no_room(m);
    return set_in(m, dict, first) && push(m, dict);
}

static bool push_tuple(struct machine *m, size_t first)
{
    ull__pickled tuple = ull__pickle_tuple(m->pickle, m->stack + first, m->depth - first);
    if (tuple == ULL_PICKLED_MISSING)
        return no_room(m);
    m->depth = first;
    return push(m, tuple);
}

static bool op_tuple(struct machine *m)
{
    size_t first = 0;
    return to_mark(m, &first) && push_tuple(m, first);
}

static bool op_empty_tuple(struct machine *m)
{
    return push_tuple(m, m->depth);
}

static bool op_tuple1(struct machine *m)
{
    return has(m, 1) && push_tuple(m, m->depth - 1);
}

static bool op_tuple2(struct machine *m)
{
    return has(m, 2) && push_tuple(m, m->depth - 2);
}

static bool op_tuple3(struct machine *m)
{
    return has(m, 3) && push_tuple(m, m->depth - 3);
}

/* --- what is referred to again ------------------------------------------------------------------------ */

/* Whoever numbers objects from 0 up has written at least a byte for each, so a higher number is nonsense. */
static bool memo_put(struct machine *m, uint64_t index)
{
    if (!has(m, 1))
        return false;
    if (index > position(m))
        return broken(m, "object number %" PRIu64 " so early in the file", index);
    if (index >= m->memo_capacity &&
        !ull__pickle_room(m->pickle, &m->memo, sizeof *m->memo, index + 1, &m->memo_capacity))
        return no_room(m);
    while (m->memo_end <= index)
        m->memo[m->memo_end++] = ULL_PICKLED_MISSING;
    m->memo_count += m->memo[index] == ULL_PICKLED_MISSING;
    m->memo[index] = m->stack[m->depth - 1];
    return true;
}

static bool memo_get(struct machine *m, uint64_t index)
{
    if (index >= m->memo_end || m->memo[index] == ULL_PICKLED_MISSING)
        return broken(m, "refers to object number %" PRIu64 ", which the file did not name", index);
    return push(m, m->memo[index]);
}

static bool op_memoize(struct machine *m)
{
    return memo_put(m, m->memo_count);
}

static bool op_binput(struct machine *m)
{
    uint64_t index;
    return number(m, 1, &index) && memo_put(m, index);
}

static bool op_long_binput(struct machine *m)
{
    uint64_t index;
    return number(m, 4, &index) && memo_put(m, index);
}

static bool op_binget(struct machine *m)
{
    uint64_t index;
    return number(m, 1, &index) && memo_get(m, index);
}

static bool op_long_binget(struct machine *m)
{
    uint64_t index;
    return number(m, 4, &index) && memo_get(m, index);
}

/* --- running ------------------------------------------------------------------------------------------ */

static bool op_proto(struct machine *m)
{
    uint64_t protocol;
    if (!number(m, 1, &protocol))
        return false;
    if (m->offset != 0)
        return broken(m, "a second beginning in the middle of a pickle");
    if (protocol < LOWEST_PROTOCOL || protocol > HIGHEST_PROTOCOL)
        return broken(m, "pickle protocol %" PRIu64 ": %d to %d are understood", protocol,
                      LOWEST_PROTOCOL, HIGHEST_PROTOCOL);
    return true;
}

/* Frames tell a reader how much to read ahead, which this one does anyway. */
static bool op_frame(struct machine *m)
{
    uint64_t size;
    return number(m, 8, &size);
}

struct opcode {
    const char *name;
    op_fn *run;
};

static const struct opcode opcodes[256] = {
#define OPCODE(code, text, fn) [code] = {#text, fn},
#include "pickle_opcodes.def"
#undef OPCODE
};

static bool refuse(struct machine *m, unsigned char code)
{
    if (!opcodes[code].name)
        return broken(m, "byte 0x%02x is no opcode of a pickle", code);
    return broken(
        m,
        "opcode %s (0x%02x): only plain data is read here (numbers, texts, lists, dicts), "
        "and nothing is run",
        opcodes[code].name, code);
}

static bool run(struct machine *m)
{
    if (!need(m, 1))
        return false;
    if (*m->at != 0x80)
        return broken(m, "byte 0x%02x: a pickle of protocol %d to %d begins with 0x80", *m->at,
                      LOWEST_PROTOCOL, HIGHEST_PROTOCOL);
    while (!m->stopped) {
        if (!need(m, 1))
            return false;
        m->offset = position(m);
        unsigned char code = *m->at++;
        if (!opcodes[code].run)
            return refuse(m, code);
        if (!opcodes[code].run(m))
            return false;
    }
    return true;
}

static ull_status build(struct machine *m, struct ull__pickle **pickle)
{
    m->pickle = calloc(1, sizeof *m->pickle);
    if (!m->pickle)
        return ull__fail(m->err, ULL_E_SYSTEM, "no memory to read a pickle");
    m->pickle->most = ULL_PICKLE_ROOM + 4 * (size_t)(m->end - m->at);
    bool good = run(m);
    struct ull__pickle *p = m->pickle;
    ull__pickle_drop(p, m->stack, sizeof *m->stack, m->stack_capacity);
    ull__pickle_drop(p, m->marks, sizeof *m->marks, m->mark_capacity);
    ull__pickle_drop(p, m->memo, sizeof *m->memo, m->memo_capacity);
    ull__pickle_drop(p, m->keys, sizeof *m->keys, m->key_capacity);
    if (!good) {
        ull__pickle_destroy(p);
        return m->status;
    }
    *pickle = p;
    return ULL_OK;
}

ull_status ull__unpickle_bytes(const void *data, size_t size, struct ull__pickle **pickle,
                               struct ull_error *err)
{
    struct machine m = {.at = data, .start = data, .fd = -1, .err = err};
    m.end = m.start + size;
    return build(&m, pickle);
}

ull_status ull__unpickle(const char *path, struct ull__pickle **pickle, struct ull_error *err)
{
    struct machine m = {.fd = open(path, O_RDONLY | O_CLOEXEC), .err = err};
    if (m.fd < 0) {
        int error = errno;
        ull_status status = error == ENOENT || error == ENOTDIR ? ULL_E_NOT_FOUND
                            : error == EACCES || error == EPERM ? ULL_E_PERMISSION
                                                                : ULL_E_SYSTEM;
        return ull__fail(err, status, "cannot open '%.300s': %s", path, strerror(error));
    }
    m.buffer = malloc(BUFFER);
    m.at = m.end = m.start = m.buffer;
    ull_status status =
        m.buffer ? build(&m, pickle) : ull__fail(err, ULL_E_SYSTEM, "no memory to read a pickle");
    free(m.buffer);
    close(m.fd);
    return status;
}
