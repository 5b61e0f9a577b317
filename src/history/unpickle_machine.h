/* unpickle_machine.h: the machine of unpickle.h: its state and input (unpickle.c), its opcodes (unpickle_ops.c). */
#ifndef ULLAGE_UNPICKLE_MACHINE_H
#define ULLAGE_UNPICKLE_MACHINE_H

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

/* Runs an opcode that was read; false when that went wrong, which m->status and m->err say. */
typedef bool op_fn(struct machine *m);

/* Each returns false. */
bool ull__machine_broken(struct machine *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool ull__machine_no_room(struct machine *m);
bool ull__machine_truncated(struct machine *m);

/* More of the file behind what is left; false at its end. */
bool ull__machine_read(struct machine *m);
bool ull__machine_bytes(struct machine *m, char *to, size_t size);

static inline uint64_t ull__machine_position(const struct machine *m)
{
    return m->before + (uint64_t)(m->at - m->start);
}

/* At least `count` bytes, no more than BUFFER, at m->at. */
static inline bool ull__machine_need(struct machine *m, size_t count)
{
    while ((size_t)(m->end - m->at) < count)
        if (!ull__machine_read(m))
            return ull__machine_truncated(m);
    return true;
}

static inline uint64_t ull__machine_little(const unsigned char *bytes, size_t size)
{
    uint64_t number = 0;
    for (size_t i = size; i-- > 0;)
        number = number << 8 | bytes[i];
    return number;
}

static inline bool ull__machine_number(struct machine *m, size_t size, uint64_t *out)
{
    if (!ull__machine_need(m, size))
        return false;
    *out = ull__machine_little(m->at, size);
    m->at += size;
    return true;
}

/* One function for each opcode that is understood. */
op_fn ull__op_mark, ull__op_stop, ull__op_binint, ull__op_binint1, ull__op_binint2, ull__op_none,
    ull__op_binunicode, ull__op_append, ull__op_dict, ull__op_empty_dict, ull__op_appends,
    ull__op_binget, ull__op_long_binget, ull__op_list, ull__op_empty_list, ull__op_binput,
    ull__op_long_binput, ull__op_setitem, ull__op_tuple, ull__op_empty_tuple, ull__op_setitems,
    ull__op_binfloat, ull__op_proto, ull__op_tuple1, ull__op_tuple2, ull__op_tuple3,
    ull__op_newtrue, ull__op_newfalse, ull__op_long1, ull__op_long4, ull__op_short_binunicode,
    ull__op_binunicode8, ull__op_memoize, ull__op_frame;

#endif
