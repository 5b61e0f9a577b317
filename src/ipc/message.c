/* message.c: see message.h. */
#include "message.h"

#include <string.h>

#include "error.h"

enum { FIELD_HEAD = 4 };

enum tag {
    TAG_JOB = 1,
    TAG_TEXT,
    TAG_STATUS,
    TAG_MOVED,
    TAG_TO_MOVE,
    TAG_NANOSECONDS,
    TAG_DAEMON,
};

static void put(uint8_t *at, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *at, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* --- writing ---------------------------------------------------------------------------------------------- */

static size_t put_field(uint8_t *bytes, size_t at, enum tag tag, const void *value, size_t size)
{
    bytes[at] = (uint8_t)tag;
    bytes[at + 1] = 0;
    put(bytes + at + 2, size, 2);
    memcpy(bytes + at + FIELD_HEAD, value, size);
    return at + FIELD_HEAD + size;
}

static size_t put_text(uint8_t *bytes, size_t at, enum tag tag, const char *text, size_t most)
{
    size_t size = strnlen(text, most - 1);
    return size ? put_field(bytes, at, tag, text, size) : at;
}

static size_t put_number(uint8_t *bytes, size_t at, enum tag tag, uint64_t value)
{
    uint8_t eight[8];
    put(eight, value, sizeof eight);
    return value ? put_field(bytes, at, tag, eight, sizeof eight) : at;
}

_Static_assert(ULL_IPC_HEAD + 7 * (FIELD_HEAD + 8) + ULL_IPC_JOB_TEXT + ULL_IPC_TEXT <= ULL_IPC_MOST,
               "every message fits");

size_t ull__ipc_encode(const struct ull__ipc_message *message, uint8_t bytes[ULL_IPC_MOST])
{
    size_t at = ULL_IPC_HEAD;
    at = put_text(bytes, at, TAG_JOB, message->job, sizeof message->job);
    at = put_text(bytes, at, TAG_TEXT, message->text, sizeof message->text);
    at = put_number(bytes, at, TAG_STATUS, (uint64_t)message->status);
    at = put_number(bytes, at, TAG_MOVED, message->moved_bytes);
    at = put_number(bytes, at, TAG_TO_MOVE, message->to_move_bytes);
    at = put_number(bytes, at, TAG_NANOSECONDS, message->nanoseconds);
    at = put_number(bytes, at, TAG_DAEMON, message->daemon);
    bytes[0] = 'U';
    bytes[1] = 'L';
    bytes[2] = ULL_IPC_VERSION;
    bytes[3] = message->kind;
    put(bytes + 4, message->number, 4);
    put(bytes + 8, at - ULL_IPC_HEAD, 4);
    return at;
}

/* --- reading ---------------------------------------------------------------------------------------------- */

size_t ull__ipc_size(const uint8_t *bytes, size_t count, ull_status *status)
{
    static const uint8_t begin[] = {'U', 'L', ULL_IPC_VERSION};
    size_t look = count < sizeof begin ? count : sizeof begin;
    *status = memcmp(bytes, begin, look) == 0 ? ULL_OK : ULL_E_FORMAT;
    if (*status != ULL_OK || count < ULL_IPC_HEAD)
        return 0;
    uint64_t size = ULL_IPC_HEAD + get(bytes + 8, 4);
    if (size > ULL_IPC_MOST)
        *status = ULL_E_FORMAT;
    return size > ULL_IPC_MOST || size > count ? 0 : (size_t)size;
}

static bool get_text(const uint8_t *value, size_t size, char *text, size_t room)
{
    if (size >= room || memchr(value, 0, size))
        return false;
    memcpy(text, value, size);
    text[size] = 0;
    return true;
}

static bool get_field(struct ull__ipc_message *message, uint8_t tag, const uint8_t *value, size_t size)
{
    uint64_t *number = NULL, status = 0;
    switch (tag) {
    case TAG_JOB:
        return get_text(value, size, message->job, sizeof message->job);
    case TAG_TEXT:
        return get_text(value, size, message->text, sizeof message->text);
    case TAG_STATUS:
        number = &status;
        break;
    case TAG_MOVED:
        number = &message->moved_bytes;
        break;
    case TAG_TO_MOVE:
        number = &message->to_move_bytes;
        break;
    case TAG_NANOSECONDS:
        number = &message->nanoseconds;
        break;
    case TAG_DAEMON:
        number = &message->daemon;
        break;
    default:
        return true; /* of a later version */
    }
    if (size != 8)
        return false;
    *number = get(value, 8);
    if (number == &status)
        message->status = (int64_t)status;
    return true;
}

ull_status ull__ipc_decode(const uint8_t *bytes, size_t size, struct ull__ipc_message *message,
                           struct ull_error *err)
{
    ull_status status;
    struct ull__ipc_message read = {0};
    if (ull__ipc_size(bytes, size, &status) != size || status != ULL_OK || size == 0)
        return ull__fail(
            err, ULL_E_FORMAT,
            "not a message of version %d: expected 'UL', the version, and a size of at "
            "most %d",
            ULL_IPC_VERSION, ULL_IPC_MOST - ULL_IPC_HEAD);
    read.kind = bytes[3];
    read.number = (uint32_t)get(bytes + 4, 4);
    for (size_t at = ULL_IPC_HEAD; at < size;) {
        size_t left = size - at;
        size_t length = left < FIELD_HEAD ? 0 : (size_t)get(bytes + at + 2, 2);
        if (left < FIELD_HEAD || length > left - FIELD_HEAD)
            return ull__fail(err, ULL_E_FORMAT, "a field at byte %zu is longer than its message", at);
        if (!get_field(&read, bytes[at], bytes + at + FIELD_HEAD, length))
            return ull__fail(err, ULL_E_FORMAT, "field %d of %zu bytes is not as expected",
                             bytes[at], length);
        at += FIELD_HEAD + length;
    }
    *message = read;
    return ULL_OK;
}
