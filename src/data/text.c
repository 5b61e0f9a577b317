/*
 * text.c: text files as characters or bytes.
 *
 * One file, or all .txt files of a folder one after the other in the order of their names (train.txt
 * beside val.txt, eval.txt or test.txt: those two parts). The vocabulary is the set of characters in
 * them, sorted by code point; what is not UTF-8 is cut into bytes. The last 5 % (split=) are held out.
 * Text is kept in memory in as few bytes a character as the vocabulary allows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data_private.h"
#include "file.h"
#include "windows.h"

enum { CODE_POINTS = 0x110000 };

struct text {
    struct ull__sequence parts[ULL_DATA_PARTS];
    void *ids;
    bool bytes;
    uint32_t *vocabulary; /* sorted */
    size_t size;
};

/* All text of one row, while it is opened. */
struct raw {
    char *bytes;
    size_t size;
    size_t cut;      /* where evaluation begins; 0: nowhere yet */
    char first[300]; /* a name for messages */
};

static ull_status append(const char *path, struct raw *raw, struct ull_error *err)
{
    char *bytes;
    size_t size;
    ull_status status = ull__file_read(path, (size_t)1 << 40, &bytes, &size, err);
    if (status != ULL_OK)
        return status;
    if (!raw->size) {
        free(raw->bytes);
        raw->bytes = bytes;
        raw->size = size;
        snprintf(raw->first, sizeof raw->first, "%s", path);
        return ULL_OK;
    }
    char *grown = realloc(raw->bytes, raw->size + size + 1);
    if (grown) {
        memcpy(grown + raw->size, bytes, size);
        raw->bytes = grown;
        raw->size += size;
    }
    free(bytes);
    return grown ? ULL_OK : ull__data_no_memory(err, raw->size + size, "text");
}

/* 1: for training, 2: for evaluation, 0: any text. */
static int part_of_name(const char *name)
{
    static const char *const names[] = {"train.txt", "val.txt", "validation.txt", "eval.txt",
                                        "test.txt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return i ? 2 : 1;
    return 0;
}

static ull_status read_folder(const char *folder, struct raw *raw, struct ull_error *err)
{
    char **names;
    size_t count, texts = 0, of[3] = {0, 0, 0};
    ull_status status = ull__data_list(folder, &names, &count, err);
    if (status != ULL_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        of[part_of_name(names[i])]++;
    bool named = of[1] && of[2];
    if (named && of[2] > 1)
        status =
            ull__fail(err, ULL_E_FORMAT, "'%.300s' has several files to evaluate: keep one", folder);
    for (int pass = 0; pass < (named ? 2 : 1) && status == ULL_OK; pass++) {
        for (size_t i = 0; i < count && status == ULL_OK; i++) {
            char path[ULL_DATA_PATH + 256];
            if (!ull__data_is_named(names[i], ".txt") ||
                (named && part_of_name(names[i]) != pass + 1))
                continue;
            snprintf(path, sizeof path, "%s/%s", folder, names[i]);
            texts++;
            status = append(path, raw, err);
        }
        if (named && pass == 0)
            raw->cut = raw->size;
    }
    ull__data_list_free(names, count);
    if (status == ULL_OK && !texts)
        status = ull__fail(err, ULL_E_FORMAT, "'%.300s' has no .txt file", folder);
    return status;
}

/* The code point at text[at] and its length; 0: none. */
static size_t code_point(const struct raw *raw, size_t at, uint32_t *code)
{
    const unsigned char *text = (const unsigned char *)raw->bytes + at;
    size_t length = ull__utf8_length(text, raw->size - at);
    if (!length)
        return 0;
    uint32_t value = length == 1 ? text[0] : text[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        value = value << 6 | (text[i] & 0x3fu);
    *code = value;
    return length;
}

static size_t next_unit(const struct raw *raw, size_t at, bool bytes, uint32_t *code)
{
    if (!bytes)
        return code_point(raw, at, code);
    *code = (unsigned char)raw->bytes[at];
    return 1;
}

/* Whether it is UTF-8; if not, *where says from which byte on it is not. */
static bool is_utf8(const struct raw *raw, size_t *where)
{
    uint32_t code;
    for (size_t at = 0, length; at < raw->size; at += length) {
        length = code_point(raw, at, &code);
        *where = at;
        if (!length)
            return false;
    }
    return true;
}

static ull_status choose_unit(struct ull__data *data, const struct ull__data_want *want,
                              const struct raw *raw, struct ull_error *err)
{
    struct text *text = data->own;
    enum ull__data_unit unit = data->spec.unit;
    const char *known = json_string_value(json_object_get(data->like, "unit"));
    if (known)
        unit = strcmp(known, "bytes") == 0 ? ULL_DATA_BYTES : ULL_DATA_CHARACTERS;
    size_t where = 0;
    text->bytes = unit == ULL_DATA_BYTES;
    if (text->bytes || is_utf8(raw, &where))
        return ULL_OK;
    if (unit == ULL_DATA_CHARACTERS)
        return ull__fail(err, ULL_E_FORMAT,
                         "'%.300s' is not UTF-8 from byte %zu on: expected that, or unit=bytes",
                         data->spec.path, where);
    ull__data_tell(want, "'%.300s' is not UTF-8 from byte %zu on: it is cut into bytes",
                   data->spec.path, where);
    text->bytes = true;
    return ULL_OK;
}

/* The vocabulary that was kept, or what the text has; `place` becomes the id of each, or -1. */
static ull_status make_vocabulary(struct ull__data *data, const struct raw *raw, int32_t *place,
                                  struct ull_error *err)
{
    struct text *text = data->own;
    json_t *known = json_object_get(data->like, "vocabulary");
    for (size_t i = 0; i < json_array_size(known); i++) {
        json_int_t code = json_integer_value(json_array_get(known, i));
        if (code < 0 || code >= CODE_POINTS)
            return ull__fail(err, ULL_E_FORMAT, "the vocabulary of the training is damaged");
        place[code] = 0;
    }
    uint32_t code = 0;
    for (size_t at = 0, length; !known && at < raw->size; at += length) {
        length = next_unit(raw, at, text->bytes, &code);
        place[code] = 0;
    }
    for (size_t i = 0; i < CODE_POINTS; i++)
        if (place[i] == 0)
            place[i] = (int32_t)text->size++;
    text->vocabulary = malloc((text->size + 1) * sizeof *text->vocabulary);
    if (!text->vocabulary)
        return ull__data_no_memory(err, text->size, "a vocabulary");
    for (uint32_t i = 0; i < CODE_POINTS; i++)
        if (place[i] >= 0)
            text->vocabulary[place[i]] = i;
    return ULL_OK;
}

static ull_status unknown_unit(const char *path, size_t at, uint32_t code, bool bytes,
                               struct ull_error *err)
{
    return ull__fail(err, ULL_E_FORMAT,
                     "'%.300s': %s%04X at byte %zu is not in the vocabulary of the training", path,
                     bytes ? "byte 0x" : "U+", code, at);
}

static void put_id(void *ids, int width, uint64_t at, uint32_t id)
{
    memcpy((char *)ids + at * (uint64_t)width, &id, (size_t)width); /* little-endian */
}

/* Replaces the text by ids. The cut for evaluation becomes a number of units. */
static ull_status translate(struct ull__data *data, const struct raw *raw, const int32_t *place,
                            struct ull_error *err)
{
    struct text *text = data->own;
    struct ull__sequence *train = &text->parts[ULL_DATA_TRAIN];
    uint64_t units = 0, cut = 0;
    uint32_t code = 0;
    for (size_t at = 0; at < raw->size; at += next_unit(raw, at, text->bytes, &code))
        units++;
    int width = text->size <= 256 ? 1 : text->size <= 65536 ? 2 : 4;
    text->ids = malloc(units * (uint64_t)width + 1);
    if (!text->ids)
        return ull__data_no_memory(err, units * (uint64_t)width, "text");
    uint64_t unit = 0;
    for (size_t at = 0, length; at < raw->size; at += length) {
        length = next_unit(raw, at, text->bytes, &code);
        cut = at < raw->cut ? unit + 1 : cut;
        if (place[code] < 0)
            return unknown_unit(raw->first, at, code, text->bytes, err);
        put_id(text->ids, width, unit++, (uint32_t)place[code]);
    }
    *train = (struct ull__sequence){.ids = text->ids, .fd = -1, .length = units, .width = width};
    if (raw->cut) {
        text->parts[ULL_DATA_EVAL] = *train;
        text->parts[ULL_DATA_EVAL].begin = cut;
        text->parts[ULL_DATA_EVAL].length = units - cut;
        train->length = cut;
    } else {
        ull__windows_split(data->spec.split < 0 ? 0.05 : data->spec.split, text->parts);
    }
    data->info.resident_bytes = units * (uint64_t)width + text->size * sizeof *text->vocabulary;
    return ULL_OK;
}

static ull_status open_raw(struct ull__data *data, const struct ull__data_want *want,
                           const struct raw *raw, struct ull_error *err)
{
    struct text *text = data->own;
    if (!raw->size)
        return ull__fail(err, ULL_E_FORMAT, "'%.300s' is empty", data->spec.path);
    ull_status status = choose_unit(data, want, raw, err);
    if (status != ULL_OK)
        return status;
    int32_t *place = malloc(CODE_POINTS * sizeof *place);
    if (!place)
        return ull__data_no_memory(err, CODE_POINTS * sizeof *place, "a vocabulary");
    memset(place, 0xff, CODE_POINTS * sizeof *place);
    status = make_vocabulary(data, raw, place, err);
    if (status == ULL_OK && want->classes && (int64_t)text->size > want->classes)
        status = ull__fail(err, ULL_E_INVALID,
                           "'%.300s' has %zu different %s: the model has a vocabulary of %lld",
                           data->spec.path, text->size, text->bytes ? "bytes" : "characters",
                           (long long)want->classes);
    if (status == ULL_OK)
        status = translate(data, raw, place, err);
    free(place);
    return status;
}

static ull_status open_text(struct ull__data *data, const struct ull__data_want *want,
                            struct ull_error *err)
{
    struct text *text = data->own = calloc(1, sizeof *text);
    if (!text)
        return ull__data_no_memory(err, sizeof *text, "the data");
    struct raw raw = {.bytes = NULL};
    bool folder = ull__data_is_folder(data->spec.path) == 1;
    ull_status status =
        folder ? read_folder(data->spec.path, &raw, err) : append(data->spec.path, &raw, err);
    if (status == ULL_OK && raw.cut && data->spec.split > 0)
        status = ull__fail(err, ULL_E_INVALID,
                           "'split=' is nothing for '%.300s', which has a part for evaluation",
                           data->spec.path);
    if (status == ULL_OK)
        status = open_raw(data, want, &raw, err);
    free(raw.bytes);
    if (status != ULL_OK)
        return status;
    data->info.classes = (int64_t)text->size;
    for (int p = 0; p < ULL_DATA_PARTS; p++) {
        struct ull__sequence *part = &text->parts[p];
        uint64_t width = (uint64_t)part->width;
        uint64_t hash =
            ull__data_hash(part->length, text->vocabulary, text->size * sizeof *text->vocabulary);
        data->info.identity[p] =
            ull__data_hash(hash, (char *)text->ids + part->begin * width, part->length * width);
    }
    return ull__windows_info(data, want, text->parts, err);
}

static void close_text(struct ull__data *data)
{
    struct text *text = data->own;
    if (!text)
        return;
    free(text->ids);
    free(text->vocabulary);
    free(text);
}

static ull_status sample_text(const struct ull__data *data, uint64_t index,
                              const struct ull__turn *turn, struct ull__scratch *scratch, void *x,
                              int32_t *targets)
{
    const struct text *text = data->own;
    return ull__windows_sample(&text->parts[turn->part], data->info.window, -1, index, turn, x,
                               targets, &scratch->error);
}

static uint64_t valid_text(const struct ull__data *data, uint64_t index, const struct ull__turn *turn)
{
    const struct text *text = data->own;
    return ull__windows_valid(&text->parts[turn->part], data->info.window, -1, index, turn);
}

static void describe_text(const struct ull__data *data, struct ull_json *json)
{
    const struct text *text = data->own;
    ull__json_key(json, "unit");
    ull__json_string(json, text->bytes ? "bytes" : "characters");
    ull__json_key(json, "vocabulary");
    ull__json_array(json);
    for (size_t i = 0; i < text->size; i++)
        ull__json_u64(json, text->vocabulary[i]);
    ull__json_array_end(json);
}

static int64_t find_id(const struct text *text, uint32_t code)
{
    size_t low = 0, high = text->size;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (text->vocabulary[mid] < code)
            low = mid + 1;
        else
            high = mid;
    }
    return low < text->size && text->vocabulary[low] == code ? (int64_t)low : -1;
}

ull_status ull__data_encode(const struct ull__data *data, const char *bytes, size_t size,
                            int32_t *tokens, size_t capacity, size_t *count, struct ull_error *err)
{
    if (data->info.format != ULL_DATA_TEXT)
        return ull__fail(err, ULL_E_INVALID, "data of format %s have no characters",
                         ull__data_format_text(data->info.format));
    const struct text *text = data->own;
    const struct raw raw = {.bytes = (char *)(uintptr_t)bytes, .size = size};
    size_t used = 0;
    for (size_t at = 0, length; at < size && used < capacity; at += length) {
        uint32_t code = 0;
        length = next_unit(&raw, at, text->bytes, &code);
        if (!length)
            return ull__fail(err, ULL_E_INVALID, "the text is not UTF-8 from byte %zu on", at);
        int64_t id = find_id(text, code);
        if (id < 0)
            return ull__fail(
                err, ULL_E_INVALID,
                "%s%04X at byte %zu of the text is not in the vocabulary of the training",
                text->bytes ? "byte 0x" : "U+", code, at);
        tokens[used++] = (int32_t)id;
    }
    *count = used;
    return ULL_OK;
}

size_t ull__data_decode(const struct ull__data *data, int32_t token, char bytes[4])
{
    if (data->info.format != ULL_DATA_TEXT || token < 0 || token >= data->info.classes)
        return 0;
    const struct text *text = data->own;
    uint32_t code = text->vocabulary[token];
    if (text->bytes || code < 0x80) {
        bytes[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)((0xf00u >> length & 0xffu) | code);
    return length;
}

const struct ull__source ull__source_text = {
    .open = open_text,
    .close = close_text,
    .sample = sample_text,
    .valid = valid_text,
    .describe = describe_text,
};
