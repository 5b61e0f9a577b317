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

#include "documents.h"
#include "text_raw.h"

struct text {
    struct ull__sequence parts[ULL_DATA_PARTS];
    void *ids;
    bool bytes;
    bool marked;          /* the vocabulary ends with the mark between documents */
    uint32_t *vocabulary; /* sorted */
    size_t size;
    struct ull__documents_table tables[ULL_DATA_PARTS];
};

/* Whether it is UTF-8; if not, *where says from which byte on it is not. */
static bool is_utf8(const struct ull__raw *raw, size_t *where)
{
    uint32_t code;
    for (size_t at = 0, length; at < raw->size; at += length) {
        length = ull__raw_code_point(raw, at, &code);
        *where = at;
        if (!length)
            return false;
    }
    return true;
}

static ull_status choose_unit(struct ull__data *data, const struct ull__data_want *want,
                              const struct ull__raw *raw, struct ull_error *err)
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
    const char *path = ull__raw_place(raw, &where);
    if (unit == ULL_DATA_CHARACTERS)
        return ull__fail(err, ULL_E_FORMAT,
                         "'%.300s' is not UTF-8 from byte %zu on: expected that, or unit=bytes",
                         path, where);
    ull__data_tell(want, "'%.300s' is not UTF-8 from byte %zu on: it is cut into bytes", path, where);
    text->bytes = true;
    return ULL_OK;
}

/* The vocabulary that was kept, or what the text has; `place` becomes the id of each, or -1. */
static ull_status make_vocabulary(struct ull__data *data, const struct ull__raw *raw,
                                  int32_t *place, struct ull_error *err)
{
    struct text *text = data->own;
    json_t *known = json_object_get(data->like, "vocabulary");
    for (size_t i = 0; i < json_array_size(known); i++) {
        json_int_t code = json_integer_value(json_array_get(known, i));
        if (code < 0 || code >= ULL_CODE_POINTS)
            return ull__fail(err, ULL_E_FORMAT, "the vocabulary of the training is damaged");
        place[code] = 0;
    }
    struct ull__raw_walk walk = {.raw = raw, .bytes = text->bytes, .spec = &data->spec};
    uint32_t code;
    size_t at;
    while (!known && ull__raw_next(&walk, &code, &at))
        place[code] = 0;
    place[ULL_CODE_MARK] = text->marked ? 0 : -1;
    for (size_t i = 0; i <= ULL_CODE_MARK; i++)
        if (place[i] == 0)
            place[i] = (int32_t)text->size++;
    text->vocabulary = malloc((text->size + 1) * sizeof *text->vocabulary);
    if (!text->vocabulary)
        return ull__data_no_memory(err, text->size, "a vocabulary");
    for (uint32_t i = 0; i <= ULL_CODE_MARK; i++)
        if (place[i] >= 0)
            text->vocabulary[place[i]] = i;
    return ULL_OK;
}

static ull_status unknown_unit(const struct ull__raw *raw, size_t at, uint32_t code, bool bytes,
                               struct ull_error *err)
{
    const char *path = ull__raw_place(raw, &at);
    return ull__fail(err, ULL_E_FORMAT,
                     "'%.300s': %s%04X at byte %zu is not in the vocabulary of the training", path,
                     bytes ? "byte 0x" : "U+", code, at);
}

static void put_id(void *ids, int width, uint64_t at, uint32_t id)
{
    memcpy((char *)ids + at * (uint64_t)width, &id, (size_t)width); /* little-endian */
}

/* Replaces the text by ids. The cut for evaluation becomes a number of units. */
static ull_status translate(struct ull__data *data, const struct ull__raw *raw,
                            const int32_t *place, struct ull_error *err)
{
    struct text *text = data->own;
    struct ull__sequence *train = &text->parts[ULL_DATA_TRAIN];
    uint64_t units = 0, cut = 0, unit = 0;
    struct ull__raw_walk walk = {.raw = raw, .bytes = text->bytes, .spec = &data->spec};
    struct ull__raw_walk again = walk;
    uint32_t code;
    size_t at;
    while (ull__raw_next(&walk, &code, &at))
        units++;
    int width = text->size <= 256 ? 1 : text->size <= 65536 ? 2 : 4;
    text->ids = malloc(units * (uint64_t)width + 1);
    if (!text->ids)
        return ull__data_no_memory(err, units * (uint64_t)width, "text");
    while (ull__raw_next(&again, &code, &at)) {
        /* The mark at the end of a file is behind it. */
        cut = at < raw->cut || (at == raw->cut && code == ULL_CODE_MARK) ? unit + 1 : cut;
        if (place[code] < 0)
            return unknown_unit(raw, at, code, text->bytes, err);
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
        if (data->spec.documents != ULL_DOCUMENTS_NONE)
            ull__documents_split(text->parts, (int64_t)text->size - 1, err); /* nothing to read */
    }
    data->info.resident_bytes = units * (uint64_t)width + text->size * sizeof *text->vocabulary;
    return ULL_OK;
}

static ull_status open_raw(struct ull__data *data, const struct ull__data_want *want,
                           const struct ull__raw *raw, struct ull_error *err)
{
    struct text *text = data->own;
    if (!raw->size)
        return ull__fail(err, ULL_E_FORMAT, "'%.300s' is empty", data->spec.path);
    ull_status status = choose_unit(data, want, raw, err);
    if (status != ULL_OK)
        return status;
    size_t places = (ULL_CODE_MARK + 1) * sizeof(int32_t);
    int32_t *place = malloc(places);
    if (!place)
        return ull__data_no_memory(err, places, "a vocabulary");
    memset(place, 0xff, places);
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

/* Documents need a mark in the vocabulary, which a training without them has not. */
static ull_status check_documents(struct ull__data *data, const struct ull__raw *raw,
                                  const struct ull__data_want *want, struct ull_error *err)
{
    struct text *text = data->own;
    const struct ull__data_spec *spec = &data->spec;
    bool documents = spec->documents != ULL_DOCUMENTS_NONE;
    text->marked = data->like ? json_object_get(data->like, "documents") != NULL : documents;
    if (documents && !text->marked)
        return ull__fail(err, ULL_E_INVALID,
                         "'documents=' is nothing for a model that was trained on windows of text: "
                         "it knows no mark between documents ('%.200s')",
                         spec->path);
    if (documents && raw->empty)
        ull__data_tell(want, "'%.200s': %zu files are empty and are left out", spec->path,
                       raw->empty);
    return ULL_OK;
}

static ull_status open_text(struct ull__data *data, const struct ull__data_want *want,
                            struct ull_error *err)
{
    struct text *text = data->own = calloc(1, sizeof *text);
    if (!text)
        return ull__data_no_memory(err, sizeof *text, "the data");
    struct ull__raw raw = {.bytes = NULL};
    ull_status status = ull__raw_read(data->spec.path, &raw, err);
    if (status == ULL_OK && raw.cut && data->spec.split > 0)
        status = ull__fail(err, ULL_E_INVALID,
                           "'split=' is nothing for '%.300s', which has a part for evaluation",
                           data->spec.path);
    if (status == ULL_OK)
        status = check_documents(data, &raw, want, err);
    if (status == ULL_OK)
        status = open_raw(data, want, &raw, err);
    ull__raw_finish(&raw);
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
    bool tell_empty = data->spec.documents == ULL_DOCUMENTS_AT; /* empty lines are as they should be */
    return data->spec.documents == ULL_DOCUMENTS_NONE
               ? ull__windows_info(data, want, text->parts, err)
               : ull__documents_open(data, want, text->parts, (int64_t)text->size - 1, tell_empty,
                                     text->tables, err);
}

static void close_text(struct ull__data *data)
{
    struct text *text = data->own;
    if (!text)
        return;
    for (int p = 0; p < ULL_DATA_PARTS; p++)
        ull__documents_finish(&text->tables[p]);
    free(text->ids);
    free(text->vocabulary);
    free(text);
}

static ull_status sample_text(const struct ull__data *data, uint64_t index,
                              const struct ull__turn *turn, struct ull__scratch *scratch, void *x,
                              int32_t *targets)
{
    const struct text *text = data->own;
    const struct ull__sequence *part = &text->parts[turn->part];
    if (data->info.documents)
        return ull__documents_sample(&text->tables[turn->part], part, data->info.window,
                                     data->info.mark, -1, index, x, targets, &scratch->error);
    return ull__windows_sample(part, data->info.window, -1, index, turn, x, targets, &scratch->error);
}

static uint64_t valid_text(const struct ull__data *data, uint64_t index, const struct ull__turn *turn)
{
    const struct text *text = data->own;
    if (data->info.documents)
        return (uint64_t)ull__documents_length(&text->tables[turn->part], index);
    return ull__windows_valid(&text->parts[turn->part], data->info.window, -1, index, turn);
}

static int64_t length_text(const struct ull__data *data, enum ull__data_part part, uint64_t index)
{
    const struct text *text = data->own;
    return ull__documents_length(&text->tables[part], index);
}

static void describe_text(const struct ull__data *data, struct ull_json *json)
{
    const struct text *text = data->own;
    ull__json_key(json, "unit");
    ull__json_string(json, text->bytes ? "bytes" : "characters");
    ull__json_key(json, "vocabulary");
    ull__json_array(json);
    for (size_t i = 0; i < text->size - text->marked; i++)
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
    const struct ull__raw raw = {.bytes = (char *)(uintptr_t)bytes, .size = size};
    const struct ull__data_spec plain = {.documents = ULL_DOCUMENTS_NONE};
    struct ull__raw_walk walk = {.raw = &raw, .bytes = text->bytes, .spec = &plain};
    size_t used = 0, at;
    while (walk.at < size && used < capacity) {
        uint32_t code = 0;
        if (!ull__raw_next(&walk, &code, &at))
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
    if (code == ULL_CODE_MARK) {
        bool line = data->spec.documents == ULL_DOCUMENTS_LINES;
        memcpy(bytes, "\n\n", 2);
        return line ? 1 : 2;
    }
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
    .length = length_text,
    .describe = describe_text,
};
