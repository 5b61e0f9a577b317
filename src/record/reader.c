/*
 * reader.c: see reader.h.
 *
 * What is at a position is decided in this order: a whole block whose checks are right; the beginning of one,
 * if a right head begins before its end (torn: its writer was killed, and others went on); the beginning of one,
 * if the file ends there (cut, or still being written); else damage. A right head that only looks like one inside
 * of a torn block would need its own checksum to be right by chance.
 *
 * The file is read through a window of two blocks, so that memory does not grow with it.
 */
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"

enum { WINDOW = 2 * (ULL_BLOCK_HEAD + ULL_BLOCK_MOST) };

struct ull__reader {
    int fd;
    uint64_t offset; /* of window[begin] in the file */
    size_t begin, end;
    uint64_t torn;
    bool at_end, truncated;
    uint8_t window[WINDOW];
};

/* --- the window ---------------------------------------------------------------------------------------- */

/* Makes at least `size` bytes available from the position on, unless the file ends before. */
static ull_status fill(struct ull__reader *reader, size_t size, struct ull_error *err)
{
    if (reader->end - reader->begin >= size || reader->at_end)
        return ULL_OK;
    memmove(reader->window, reader->window + reader->begin, reader->end - reader->begin);
    reader->end -= reader->begin;
    reader->begin = 0;
    while (reader->end < WINDOW) {
        ssize_t got = read(reader->fd, reader->window + reader->end, WINDOW - reader->end);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ull__fail(err, ULL_E_SYSTEM, "cannot read the record: %s", strerror(errno));
        if (got == 0) {
            reader->at_end = true;
            break;
        }
        reader->end += (size_t)got;
    }
    return ULL_OK;
}

static void step(struct ull__reader *reader, size_t size)
{
    reader->begin += size;
    reader->offset += size;
}

/* --- opening --------------------------------------------------------------------------------------------- */

static ull_status check_beginning(struct ull__reader *reader, const char *path, struct ull_error *err)
{
    ull_status status = fill(reader, ULL_BLOCK_HEAD, err);
    const uint8_t *at = reader->window + reader->begin;
    if (status != ULL_OK)
        return status;
    if (reader->end == 0)
        return ull__fail(err, ULL_E_FORMAT,
                         "'%.300s' is empty: expected a record, as `ullage run --record` writes it",
                         path);
    size_t known = reader->end < 8 ? reader->end : 8;
    if (memcmp(at, ULL_RECORD_MAGIC, known) != 0)
        return ull__fail(err, ULL_E_FORMAT,
                         "'%.300s' is no record: at offset 0 it has bytes %02x %02x %02x %02x, "
                         "expected 89 55 4c 52, as `ullage run --record` writes them",
                         path, at[0], at[known > 1 ? 1 : 0], at[known > 2 ? 2 : 0],
                         at[known > 3 ? 3 : 0]);
    unsigned int version = reader->end < 10 ? ULL_RECORD_VERSION : (unsigned)(at[8] | at[9] << 8);
    if (version > ULL_RECORD_VERSION)
        return ull__fail(
            err, ULL_E_FORMAT,
            "'%.300s' is a record in format %u, and this ullage reads formats up to %d: "
            "use the version that wrote it, or a newer one",
            path, version, ULL_RECORD_VERSION);
    return ULL_OK;
}

ull_status ull__reader_open(const char *path, struct ull__reader **out, struct ull_error *err)
{
    struct ull__reader *reader = malloc(sizeof *reader);
    if (!reader)
        return ull__fail(err, ULL_E_SYSTEM, "no memory to read '%.300s'", path);
    memset(reader, 0, offsetof(struct ull__reader, window));
    reader->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (reader->fd < 0) {
        ull_status status = errno == ENOENT || errno == ENOTDIR ? ULL_E_NOT_FOUND
                            : errno == EACCES || errno == EPERM ? ULL_E_PERMISSION
                                                                : ULL_E_SYSTEM;
        ull__fail(err, status, "cannot read the record '%.300s': %s", path, strerror(errno));
        free(reader);
        return status;
    }
    ull_status status = check_beginning(reader, path, err);
    if (status != ULL_OK) {
        ull__reader_close(reader);
        return status;
    }
    *out = reader;
    return ULL_OK;
}

void ull__reader_close(struct ull__reader *reader)
{
    if (!reader)
        return;
    close(reader->fd);
    free(reader);
}

/* --- blocks ---------------------------------------------------------------------------------------------- */

/* Where the next right head is, from 1 to `most` bytes after the position; 0: nowhere. */
static size_t next_head(const struct ull__reader *reader, size_t most)
{
    const uint8_t *from = reader->window + reader->begin;
    size_t have = reader->end - reader->begin;
    struct ull__block_head head;
    for (size_t at = 1; at <= most && at + ULL_BLOCK_HEAD <= have; at++) {
        const uint8_t *found =
            memchr(from + at, (unsigned char)ULL_RECORD_MAGIC[0], have - ULL_BLOCK_HEAD + 1 - at);
        if (!found)
            return 0;
        at = (size_t)(found - from);
        if (at <= most && ull__head_get(found, &head))
            return at;
    }
    return 0;
}

static bool all_zero(const uint8_t *at, size_t size)
{
    while (size > 0 && *at == 0)
        at++, size--;
    return size == 0;
}

static ull_status damaged(const struct ull__reader *reader, struct ull_error *err)
{
    return ull__fail(
        err, ULL_E_FORMAT,
        "the record is damaged at offset %llu: the bytes there are no block of ullage's, "
        "and none that was cut off",
        (unsigned long long)reader->offset);
}

/* No whole block is here. `most`: how long a block here might be; 0: no head can be read. */
static ull_status what_else(struct ull__reader *reader, size_t most, struct ull_error *err)
{
    const uint8_t *at = reader->window + reader->begin;
    size_t have = reader->end - reader->begin;
    size_t known = have < 8 ? have : 8;
    size_t next = next_head(reader, (most ? most : ULL_BLOCK_HEAD) - 1);
    size_t magic = next && next < known ? next : known;
    bool begins = memcmp(at, ULL_RECORD_MAGIC, magic) == 0;
    if (next && begins) {
        reader->torn++;
        step(reader, next);
        return ULL_OK;
    }
    /* After a crash of the machine a file may end in zeros that were never written. */
    if (!(begins && have < (most ? most : ULL_BLOCK_HEAD)) && !(reader->at_end && all_zero(at, have)))
        return damaged(reader, err);
    reader->truncated = true;
    return ULL_E_NOT_FOUND;
}

ull_status ull__reader_next(struct ull__reader *reader, struct ull__block_view *block,
                            struct ull_error *err)
{
    for (;;) {
        struct ull__block_head head;
        ull_status status = fill(reader, WINDOW / 2, err);
        size_t have = reader->end - reader->begin;
        const uint8_t *at = reader->window + reader->begin;
        if (status != ULL_OK)
            return status;
        if (have == 0 || reader->truncated)
            return ULL_E_NOT_FOUND;
        size_t whole = 0;
        if (have >= ULL_BLOCK_HEAD && ull__head_get(at, &head)) {
            if (head.version > ULL_RECORD_VERSION || head.payload > ULL_BLOCK_MOST)
                return damaged(reader, err);
            whole = ULL_BLOCK_HEAD + head.payload;
        }
        if (whole && whole <= have && ull__crc(0, at + ULL_BLOCK_HEAD, head.payload) == head.check) {
            *block = (struct ull__block_view){
                .offset = reader->offset, .head = head, .payload = at + ULL_BLOCK_HEAD};
            step(reader, whole);
            if (head.type == ULL_BLOCK_ITEMS)
                return ULL_OK;
            continue;
        }
        status = what_else(reader, whole, err);
        if (status != ULL_OK)
            return status;
    }
}

uint64_t ull__reader_torn(const struct ull__reader *reader)
{
    return reader->torn;
}

bool ull__reader_truncated(const struct ull__reader *reader, uint64_t *offset)
{
    if (reader->truncated)
        *offset = reader->offset;
    return reader->truncated;
}

/* --- items ------------------------------------------------------------------------------------------------ */

int ull__next_item(struct ull__cursor *payload, struct ull__deltas *last, struct ull__event *event,
                   struct ull__item *item)
{
    if (payload->failed)
        return '!';
    if (payload->at == payload->end)
        return 0;
    if (*payload->at < ULL_ITEM_TEXT)
        return ull__get_event(payload, event, last) ? 'e' : '!';
    item->kind = *payload->at++;
    uint64_t size = ull__get_number(payload);
    if (payload->failed || size > (uint64_t)(payload->end - payload->at))
        return '!';
    item->body = (struct ull__cursor){.at = payload->at, .end = payload->at + size};
    payload->at += size;
    return 'i';
}
