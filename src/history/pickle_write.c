/* pickle_write.c: see pickle_write.h. */
#include "pickle_write.h"

#include <string.h>

enum { BATCH = 2000 /* even: keys and values */, LONGEST_SHORT = 255 };

static void put(struct ull__pickler *p, int byte)
{
    putc_unlocked(byte, p->out);
}

static void put_little(struct ull__pickler *p, uint64_t number, int size)
{
    for (int i = 0; i < size; i++, number >>= 8)
        put(p, (int)(number & 0xff));
}

static void end_batch(struct ull__pickler *p)
{
    if (p->levels[p->depth - 1].items > 0)
        put(p, p->levels[p->depth - 1].is_dict ? 'u' : 'e');
    p->levels[p->depth - 1].items = 0;
}

/*
 * Before each item, keys too: a mark, if there is none since the last batch. A batch ends here and not after its
 * last item, which may still be kept.
 */
static void begin_item(struct ull__pickler *p)
{
    if (p->depth == 0)
        return;
    if (p->levels[p->depth - 1].items == BATCH)
        end_batch(p);
    if (p->levels[p->depth - 1].items++ == 0)
        put(p, '(');
}

void ull__pickler_init(struct ull__pickler *pickler, FILE *out, uint32_t *words)
{
    *pickler = (struct ull__pickler){.out = out, .words = words};
    put(pickler, 0x80);
    put(pickler, 4);
}

void ull__pickler_finish(struct ull__pickler *pickler)
{
    put(pickler, '.');
}

static void open_level(struct ull__pickler *p, bool is_dict)
{
    begin_item(p);
    put(p, is_dict ? '}' : ']');
    if (p->depth == ULL_PICKLE_DEPTH)
        return; /* no caller nests so deep */
    p->levels[p->depth].is_dict = is_dict;
    p->levels[p->depth].items = 0;
    p->depth++;
}

void ull__pickler_list(struct ull__pickler *pickler)
{
    open_level(pickler, false);
}

void ull__pickler_dict(struct ull__pickler *pickler)
{
    open_level(pickler, true);
}

void ull__pickler_close(struct ull__pickler *pickler)
{
    end_batch(pickler);
    pickler->depth--;
}

void ull__pickler_int(struct ull__pickler *pickler, int64_t number)
{
    begin_item(pickler);
    if (number >= 0 && number <= 0xff) {
        put(pickler, 'K');
        put_little(pickler, (uint64_t)number, 1);
    } else if (number >= 0 && number <= 0xffff) {
        put(pickler, 'M');
        put_little(pickler, (uint64_t)number, 2);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        put(pickler, 'J');
        put_little(pickler, (uint64_t)number, 4);
    } else {
        int size = 5; /* the fewest bytes whose highest bit is the sign */
        while (size < 8 && (number >> (8 * size - 1)) != (number < 0 ? -1 : 0))
            size++;
        put(pickler, 0x8a);
        put(pickler, size);
        put_little(pickler, (uint64_t)number, size);
    }
}

void ull__pickler_bool(struct ull__pickler *pickler, bool value)
{
    begin_item(pickler);
    put(pickler, value ? 0x88 : 0x89);
}

void ull__pickler_pair(struct ull__pickler *pickler, unsigned char a, unsigned char b)
{
    begin_item(pickler);
    put(pickler, 'K');
    put(pickler, a);
    put(pickler, 'K');
    put(pickler, b);
    put(pickler, 0x86);
}

/* How long the UTF-8 sequence at `text` is; 0: there is none. */
static size_t sequence(const unsigned char *text)
{
    static const struct {
        unsigned char mask, lead, low, high; /* of the second byte */
        size_t size;
    } forms[] = {
        {0x80, 0x00, 0x00, 0xff, 1}, {0xff, 0xe0, 0xa0, 0xbf, 3}, {0xff, 0xed, 0x80, 0x9f, 3},
        {0xff, 0xf0, 0x90, 0xbf, 4}, {0xff, 0xf4, 0x80, 0x8f, 4}, {0xe0, 0xc0, 0x80, 0xbf, 2},
        {0xf0, 0xe0, 0x80, 0xbf, 3}, {0xf8, 0xf0, 0x80, 0xbf, 4},
    };
    if (*text == 0xc0 || *text == 0xc1 || *text > 0xf4)
        return 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if ((*text & forms[i].mask) != forms[i].lead)
            continue;
        for (size_t at = 1; at < forms[i].size; at++)
            if ((text[at] & 0xc0) != 0x80 ||
                (at == 1 && (text[1] < forms[i].low || text[1] > forms[i].high)))
                return 0;
        return forms[i].size;
    }
    return 0;
}

static const char replacement[] = "\xef\xbf\xbd";

static size_t utf8_size(const unsigned char *text)
{
    size_t size = 0;
    while (*text) {
        size_t length = sequence(text);
        size += length ? length : sizeof replacement - 1;
        text += length ? length : 1;
    }
    return size;
}

void ull__pickler_text(struct ull__pickler *pickler, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t size = utf8_size(at);
    begin_item(pickler);
    put(pickler, size <= LONGEST_SHORT ? 0x8c : 'X');
    put_little(pickler, size, size <= LONGEST_SHORT ? 1 : 4);
    while (*at) {
        size_t length = sequence(at);
        if (length)
            fwrite(at, 1, length, pickler->out);
        else
            fwrite(replacement, 1, sizeof replacement - 1, pickler->out);
        at += length ? length : 1;
    }
}

void ull__pickler_word(struct ull__pickler *pickler, uint32_t number, const char *text)
{
    if (pickler->words[number]) {
        ull__pickler_again(pickler, pickler->words[number] - 1);
        return;
    }
    ull__pickler_text(pickler, text);
    pickler->words[number] = ull__pickler_keep(pickler) + 1;
}

uint32_t ull__pickler_keep(struct ull__pickler *pickler)
{
    put(pickler, 0x94);
    return pickler->kept++;
}

void ull__pickler_again(struct ull__pickler *pickler, uint32_t kept)
{
    begin_item(pickler);
    put(pickler, kept <= 0xff ? 'h' : 'j');
    put_little(pickler, kept, kept <= 0xff ? 1 : 4);
}
