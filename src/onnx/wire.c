/*
 * wire.c: looks at the bytes of a message before protobuf-c does, which follows any nesting with the stack and makes a
 * structure of a hundred bytes of two.
 */
#include <string.h>

#include "error.h"
#include "onnx_private.h"

struct scan {
    const uint8_t *data;
    size_t size, at;
    int messages;
};

static bool varint(struct scan *scan, uint64_t *number)
{
    *number = 0;
    for (int shift = 0; shift < 70 && scan->at < scan->size; shift += 7) {
        uint8_t byte = scan->data[scan->at++];
        *number |= shift < 64 ? (uint64_t)(byte & 0x7f) << shift : 0;
        if (byte < 0x80) {
            return true;
        }
    }
    return false;
}

/* The type of the message that a field holds; NULL: it holds none. */
static const ProtobufCMessageDescriptor *message_of(const ProtobufCMessageDescriptor *type,
                                                    uint64_t field)
{
    for (unsigned i = 0; i < type->n_fields; ++i) {
        if (type->fields[i].id == field) {
            return type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE ? type->fields[i].descriptor
                                                                   : NULL;
        }
    }
    return NULL;
}

/* Returns what is wrong, or NULL. */
static const char *scan_message(struct scan *scan, const ProtobufCMessageDescriptor *type,
                                size_t end, int depth)
{
    if (depth > NESTING) {
        return "its messages are nested too deeply";
    }
    if (++scan->messages > MESSAGES) {
        return "it has too many parts";
    }
    while (scan->at < end) {
        uint64_t tag, length = 0;
        if (!varint(scan, &tag)) {
            return "it ends within a number";
        }
        switch (tag & 7) {
        case 0:
            if (!varint(scan, &length)) {
                return "it ends within a number";
            }
            length = 0;
            break;
        case 1:
            length = 8;
            break;
        case 2:
            if (!varint(scan, &length)) {
                return "it ends within a number";
            }
            break;
        case 5:
            length = 4;
            break;
        default:
            return "it has a field of a kind that there is not";
        }
        if (scan->at > end || length > end - scan->at) {
            return "it is cut off, or a length in it is wrong";
        }
        const ProtobufCMessageDescriptor *inner = (tag & 7) == 2 ? message_of(type, tag >> 3) : NULL;
        size_t after = scan->at + (size_t)length;
        const char *wrong = inner != NULL ? scan_message(scan, inner, after, depth + 1) : NULL;
        if (wrong != NULL) {
            return wrong;
        }
        scan->at = after;
    }
    return NULL;
}

ull_status ull__onnx_scan(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                          struct ull_error *err)
{
    struct scan scan = {.data = data, .size = size};
    const char *wrong = size == 0 ? "it is empty" : scan_message(&scan, type, size, 1);
    return wrong == NULL ? ULL_OK : ull__fail(err, ULL_E_FORMAT, "%s", wrong);
}
