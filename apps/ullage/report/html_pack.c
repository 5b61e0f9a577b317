/*
 * html_pack.c: the changes of the books as bytes in base64, about ten for a block with its beginning and end.
 *
 * Numbers are varints: seven bits a byte, low ones first; "signed" is zigzag. A change is
 *
 *   ticks since the change before it
 *   kind * 4         a block came: size (odd: half of it times 512), and, if its kind is held, signed held - size
 *   back * 4 + 1     a block went: the one that came `back` blocks before the last one that came
 *   back * 4 + 2     the same, but not by a free
 *   3                books changed otherwise: process, device, class, signed held, signed live
 *
 * A tick is a nanosecond, or more where a run is so long that nanoseconds would not fit a double.
 */
#include <stdlib.h>

#include "html.h"

enum { MOST = 80 }; /* bytes of a change */

static unsigned char *put(unsigned char *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (unsigned char)(value | 0x80);
    *at++ = (unsigned char)value;
    return at;
}

static unsigned char *put_signed(unsigned char *at, int64_t value)
{
    return put(at, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

static unsigned char *put_size(unsigned char *at, uint64_t size)
{
    return size % 512 == 0 ? put(at, size / 512 * 2 + 1) : put(at, size << 1);
}

static unsigned char *put_change(unsigned char *at, const struct ull__spans *spans,
                                 const struct ull__change *change, const uint32_t *kinds,
                                 uint32_t *last)
{
    if (change->what == ULL_CHANGE_ADJUSTED) {
        const struct ull__adjust *adjust = &spans->adjusts[change->number];
        at = put(at, ULL_CHANGE_ADJUSTED);
        at = put(at, adjust->process);
        at = put(at, adjust->device);
        at = put(at, adjust->class);
        at = put_signed(at, adjust->held);
        return put_signed(at, adjust->live);
    }
    if (change->what != ULL_CHANGE_CAME)
        return put(at, (uint64_t)(*last - change->number) << 2 | change->what);
    const struct ull__span *span = &spans->spans[change->number];
    *last = change->number;
    at = put(at, (uint64_t)kinds[span->kind] << 2);
    at = put_size(at, span->size);
    if (spans->kinds[span->kind].held)
        at = put_signed(at, (int64_t)(span->held - span->size));
    return at;
}

static char *base64(const unsigned char *bytes, size_t size, size_t *length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc((size + 2) / 3 * 4 + 1), *at = text;
    for (size_t i = 0; text && i < size; i += 3) {
        uint32_t left = (uint32_t)(size - i);
        uint32_t three = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                         (left > 2 ? bytes[i + 2] : 0);
        *at++ = digits[three >> 18];
        *at++ = digits[three >> 12 & 63];
        *at++ = left > 1 ? digits[three >> 6 & 63] : '=';
        *at++ = left > 2 ? digits[three & 63] : '=';
    }
    *length = text ? (size_t)(at - text) : 0;
    return text;
}

/* All changes; the end of what was written, in *bytes, which doubles as needed. NULL without memory. */
static unsigned char *pack(const struct ull__spans *spans, const uint32_t *kinds, uint64_t tick,
                           unsigned char **bytes)
{
    size_t capacity = 4096;
    uint64_t now = 0;
    uint32_t last = 0;
    unsigned char *at = *bytes = malloc(capacity);
    for (size_t i = 0; at && i < spans->change_count; i++) {
        size_t used = (size_t)(at - *bytes);
        if (capacity - used < MOST) {
            unsigned char *grown = realloc(*bytes, capacity *= 2);
            if (!grown)
                return NULL;
            *bytes = grown;
            at = grown + used;
        }
        uint64_t ticks = spans->changes[i].moment / tick;
        at = put(at, ticks - now);
        now = ticks;
        at = put_change(at, spans, &spans->changes[i], kinds, &last);
    }
    return at;
}

void html_pack(struct ull_json *json, const struct ull__spans *spans, const uint32_t *kinds,
               bool *failed)
{
    uint64_t tick = 1;
    size_t length = 0;
    unsigned char *bytes = NULL;
    while (spans->end / tick >> 52)
        tick *= 2;
    const unsigned char *end = pack(spans, kinds, tick, &bytes);
    char *text = end ? base64(bytes, (size_t)(end - bytes), &length) : NULL;
    free(bytes);
    if (!text) {
        *failed = true;
        return;
    }
    ull__json_key(json, "tick");
    ull__json_u64(json, tick);
    ull__json_key(json, "end");
    ull__json_u64(json, spans->end);
    ull__json_key(json, "change_count");
    ull__json_u64(json, spans->change_count);
    ull__json_key(json, "span_count");
    ull__json_u64(json, spans->span_count);
    ull__json_key(json, "folded");
    ull__json_u64(json, spans->folded);
    ull__json_key(json, "folded_bytes");
    ull__json_u64(json, spans->folded_bytes);
    ull__json_key(json, "changes");
    ull__json_bytes(json, text, length);
    free(text);
}
