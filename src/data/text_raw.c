/* text_raw.c: see text_raw.h. */
#include "text_raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

static ull_status note_file(const char *path, struct ull__raw *raw, struct ull_error *err)
{
    if (raw->file_count == raw->file_room) {
        size_t room = raw->file_room ? 2 * raw->file_room : 16;
        struct ull__raw_file *grown = realloc(raw->files, room * sizeof *grown);
        if (!grown)
            return ull__data_no_memory(err, room * sizeof *grown, "a list of files");
        raw->files = grown;
        raw->file_room = room;
    }
    char *copy = strdup(path);
    if (!copy)
        return ull__data_no_memory(err, strlen(path) + 1, "a list of files");
    raw->files[raw->file_count++] = (struct ull__raw_file){copy, raw->size};
    return ULL_OK;
}

static ull_status append(const char *path, struct ull__raw *raw, struct ull_error *err)
{
    char *bytes;
    size_t size;
    ull_status status = ull__file_read(path, (size_t)1 << 40, &bytes, &size, err);
    if (status != ULL_OK)
        return status;
    raw->empty += size == 0;
    if (!raw->size) {
        free(raw->bytes);
        raw->bytes = bytes;
        raw->size = size;
        return note_file(path, raw, err);
    }
    char *grown = realloc(raw->bytes, raw->size + size + 1);
    if (grown) {
        memcpy(grown + raw->size, bytes, size);
        raw->bytes = grown;
        raw->size += size;
    }
    free(bytes);
    return grown ? note_file(path, raw, err) : ull__data_no_memory(err, raw->size + size, "text");
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

static ull_status read_folder(const char *folder, struct ull__raw *raw, struct ull_error *err)
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
            size_t before = raw->size;
            status = append(path, raw, err);
            if (status == ULL_OK && named && raw->size == before)
                status = ull__fail(err, ULL_E_FORMAT, "'%.300s' is empty: expected text to %s",
                                   path, pass ? "evaluate" : "train on");
        }
        if (named && pass == 0)
            raw->cut = raw->size;
    }
    ull__data_list_free(names, count);
    if (status == ULL_OK && !texts)
        status = ull__fail(err, ULL_E_FORMAT, "'%.300s' has no .txt file", folder);
    return status;
}

size_t ull__raw_code_point(const struct ull__raw *raw, size_t at, uint32_t *code)
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

ull_status ull__raw_read(const char *path, struct ull__raw *raw, struct ull_error *err)
{
    return ull__data_is_folder(path) == 1 ? read_folder(path, raw, err) : append(path, raw, err);
}

void ull__raw_finish(struct ull__raw *raw)
{
    for (size_t i = 0; i < raw->file_count; i++)
        free(raw->files[i].path);
    free(raw->files);
    free(raw->bytes);
}

const char *ull__raw_place(const struct ull__raw *raw, size_t *at)
{
    size_t i = 0;
    while (i + 1 < raw->file_count && *at >= raw->files[i].end)
        i++;
    *at -= i > 0 ? raw->files[i - 1].end : 0;
    return raw->files[i].path;
}

/* ---- walking ----------------------------------------------------------------------------------- */

/* A line's end at `at`: its bytes; 0: there is none. */
static size_t line_end(const char *bytes, size_t at, size_t end)
{
    if (at < end && bytes[at] == '\n')
        return 1;
    return at + 1 < end && bytes[at] == '\r' && bytes[at + 1] == '\n' ? 2 : 0;
}

static size_t skip_blanks(const char *bytes, size_t at, size_t end)
{
    while (at < end && (bytes[at] == ' ' || bytes[at] == '\t'))
        at++;
    return at;
}

/* Lines' ends with nothing but blanks between: two at least, of which the beginning and the end of a file are one. */
static size_t gap(const char *bytes, size_t begin, size_t at, size_t end)
{
    size_t lines = at == begin, last = at, i = lines ? skip_blanks(bytes, at, end) : at;
    for (size_t length; (length = line_end(bytes, i, end)) > 0;) {
        last = i + length;
        i = skip_blanks(bytes, last, end);
        last = i == end ? end : last;
        lines += i == end ? 2 : 1;
    }
    return lines > 1 ? last - at : 0;
}

/* The mark, with the line's ends that are directly before and behind it. */
static size_t written_mark(const char *mark, const char *bytes, size_t at, size_t end)
{
    size_t length = strlen(mark), from = at + line_end(bytes, at, end);
    if (end - from < length || memcmp(bytes + from, mark, length) != 0)
        return 0;
    from += length;
    return from + line_end(bytes, from, end) - at;
}

/* How many bytes from here on are between documents. */
static size_t between(const struct ull__raw_walk *walk)
{
    const char *bytes = walk->raw->bytes;
    const struct ull__raw_file *file = &walk->raw->files[walk->file];
    const size_t begin = walk->file > 0 ? file[-1].end : 0, end = file->end;
    switch (walk->spec->documents) {
    case ULL_DOCUMENTS_LINES:
        return line_end(bytes, walk->at, end);
    case ULL_DOCUMENTS_PARAGRAPHS:
        return gap(bytes, begin, walk->at, end);
    case ULL_DOCUMENTS_AT:
        return written_mark(walk->spec->mark, bytes, walk->at, end);
    default:
        return 0;
    }
}

/* A file ends a document too. */
static bool next_mark(struct ull__raw_walk *walk)
{
    const struct ull__raw *raw = walk->raw;
    bool ended = false;
    /* Behind the end: of a character the first bytes were in that file, the rest in the next. */
    while (walk->file < raw->file_count && raw->files[walk->file].end <= walk->at) {
        walk->file++;
        ended = true;
    }
    if (ended && walk->at && !walk->marked)
        return true;
    size_t length = walk->file < raw->file_count ? between(walk) : 0;
    walk->at += length;
    return length > 0;
}

bool ull__raw_next(struct ull__raw_walk *walk, uint32_t *code, size_t *begin)
{
    bool documents = walk->spec->documents != ULL_DOCUMENTS_NONE;
    *begin = walk->at;
    if (documents && next_mark(walk)) {
        walk->marked = true;
        *code = ULL_CODE_MARK;
        return true;
    }
    walk->marked = false;
    if (walk->at >= walk->raw->size)
        return false;
    size_t length = 1;
    *code = (unsigned char)walk->raw->bytes[walk->at];
    if (!walk->bytes)
        length = ull__raw_code_point(walk->raw, walk->at, code);
    walk->at += length;
    return length > 0;
}
