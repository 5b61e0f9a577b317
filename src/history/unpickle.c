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
#include "unpickle_machine.h"

/* --- failures ----------------------------------------------------------------------------------------- */

bool ull__machine_broken(struct machine *m, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    m->status = ull__fail(m->err, ULL_E_FORMAT, "offset %" PRIu64 ": %s", m->offset, what);
    return false;
}

bool ull__machine_no_room(struct machine *m)
{
    if (m->pickle->refused)
        return ull__machine_broken(
            m,
            "this pickle unfolds to more than %zu MiB, which is far more than its length: "
            "it is damaged, or made to fill memory",
            m->pickle->most >> 20);
    m->status = ull__fail(m->err, ULL_E_SYSTEM, "no memory after %zu MiB of a pickle's values",
                          m->pickle->bytes >> 20);
    return false;
}

/* --- input -------------------------------------------------------------------------------------------- */

bool ull__machine_read(struct machine *m)
{
    size_t left = (size_t)(m->end - m->at);
    if (m->fd < 0)
        return false;
    m->before = ull__machine_position(m);
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

bool ull__machine_truncated(struct machine *m)
{
    if (m->status != ULL_OK)
        return false;
    m->offset = m->before + (uint64_t)(m->end - m->start);
    return ull__machine_broken(m, "the file ends here, in the middle of a pickle: it is truncated");
}

bool ull__machine_bytes(struct machine *m, char *to, size_t size)
{
    while (size > 0) {
        if (!ull__machine_need(m, 1))
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

/* --- running ------------------------------------------------------------------------------------------ */

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
        return ull__machine_broken(m, "byte 0x%02x is no opcode of a pickle", code);
    return ull__machine_broken(
        m,
        "opcode %s (0x%02x): only plain data is read here (numbers, texts, lists, dicts), "
        "and nothing is run",
        opcodes[code].name, code);
}

static bool run(struct machine *m)
{
    if (!ull__machine_need(m, 1))
        return false;
    if (*m->at != 0x80)
        return ull__machine_broken(m, "byte 0x%02x: a pickle of protocol %d to %d begins with 0x80",
                                   *m->at, LOWEST_PROTOCOL, HIGHEST_PROTOCOL);
    while (!m->stopped) {
        if (!ull__machine_need(m, 1))
            return false;
        m->offset = ull__machine_position(m);
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
