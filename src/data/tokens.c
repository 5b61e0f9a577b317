/*
 * tokens.c: files of token ids: nothing but unsigned little-endian numbers of 16 or 32 bits.
 *
 * One file, of which the last 5 % (split=) are held out, or a folder with a train file and a val, eval
 * or test file (train.bin, val.bin …). Numbers have 16 bits unless the name ends in .u32 or type= says
 * so. Opening reads the files once, to check every id against the vocabulary and to know them again,
 * and once more where documents are to be found (documents=at:ID); afterwards windows are read as they are needed, and nothing stays in memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "documents.h"

enum { CHUNK = 1 << 18 };

struct tokens {
    struct ull__sequence parts[ULL_DATA_PARTS];
    int fds[ULL_DATA_PARTS]; /* -1: none */
    struct ull__documents_table tables[ULL_DATA_PARTS];
};

static bool has_ending(const char *name)
{
    static const char *const endings[] = {".bin", ".u16", ".u32", ".tokens"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ull__data_is_named(name, endings[i]))
            return true;
    return false;
}

static ull_status open_part(struct ull__data *data, enum ull__data_part to, const char *path,
                            struct ull_error *err)
{
    struct tokens *tokens = data->own;
    struct ull__sequence *part = &tokens->parts[to];
    struct stat info;
    int fd = tokens->fds[to] = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &info) != 0)
        return ull__fail(err, errno == EACCES ? ULL_E_PERMISSION : ULL_E_SYSTEM,
                         "cannot read '%.300s': %s", path, strerror(errno));
    int width = data->spec.token_bytes             ? data->spec.token_bytes
                : ull__data_is_named(path, ".u32") ? 4
                                                   : 2;
    if (!S_ISREG(info.st_mode) || info.st_size == 0)
        return ull__fail(err, ULL_E_FORMAT, "'%.300s' is %s: expected a file of token ids", path,
                         S_ISREG(info.st_mode) ? "empty" : "no file");
    if (info.st_size % width)
        return ull__fail(
            err, ULL_E_FORMAT,
            "'%.300s' has %lld bytes, which are no whole number of tokens of %d: it is "
            "cut off, or type=%s is meant",
            path, (long long)info.st_size, width, width == 2 ? "u32" : "u16");
    *part = (struct ull__sequence){
        .fd = fd, .width = width, .length = (uint64_t)info.st_size / (uint64_t)width};
    return ULL_OK;
}

static int part_of_name(const char *name)
{
    size_t length = strcspn(name, ".");
    static const char *const names[] = {"train", "val", "validation", "eval", "test"};
    for (int i = 0; i < 5; i++)
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0)
            return i ? ULL_DATA_EVAL : ULL_DATA_TRAIN;
    return ULL_DATA_PARTS;
}

static ull_status open_folder(struct ull__data *data, struct ull_error *err)
{
    struct tokens *tokens = data->own;
    char **names;
    size_t count;
    ull_status status = ull__data_list(data->spec.path, &names, &count, err);
    if (status != ULL_OK)
        return status;
    for (size_t i = 0; i < count && status == ULL_OK; i++) {
        int part = has_ending(names[i]) ? part_of_name(names[i]) : ULL_DATA_PARTS;
        char path[ULL_DATA_PATH + 256];
        if (part == ULL_DATA_PARTS)
            continue;
        snprintf(path, sizeof path, "%s/%s", data->spec.path, names[i]);
        if (tokens->fds[part] >= 0)
            status = ull__fail(err, ULL_E_FORMAT, "'%.300s' has several files to %s: keep one",
                               data->spec.path, part ? "evaluate" : "train on");
        else
            status = open_part(data, (enum ull__data_part)part, path, err);
    }
    ull__data_list_free(names, count);
    if (status == ULL_OK && tokens->fds[ULL_DATA_TRAIN] < 0)
        status =
            ull__fail(err, ULL_E_FORMAT,
                      "'%.300s' has no train.bin: expected it and val.bin, or give the path of one "
                      "file",
                      data->spec.path);
    return status;
}

/* Reads a part once: the largest id and where it is, and what it is known by. */
static ull_status look_through(const struct ull__sequence *part, uint64_t *highest, uint64_t *where,
                               uint64_t *identity, struct ull_error *err)
{
    uint64_t width = (uint64_t)part->width, at = 0, hash = part->length;
    uint32_t *chunk = malloc(CHUNK * sizeof *chunk);
    if (!chunk)
        return ull__data_no_memory(err, CHUNK * sizeof *chunk, "tokens");
    ull_status status = ULL_OK;
    while (at < part->length && status == ULL_OK) {
        uint64_t left = part->length - at, now = left < CHUNK ? left : CHUNK;
        ssize_t got = pread(part->fd, chunk, now * width, (off_t)((part->begin + at) * width));
        if (got < 0 && errno == EINTR)
            continue;
        now = got > 0 ? (uint64_t)got / width : 0;
        if (!now)
            status = ull__fail(err, ULL_E_SYSTEM, "cannot read tokens: %s",
                               got < 0 ? strerror(errno) : "the file got shorter");
        const uint16_t *narrow = (const uint16_t *)chunk;
        for (uint64_t i = 0; i < now; i++) {
            uint32_t id = width == 2 ? narrow[i] : chunk[i];
            if (id <= *highest)
                continue;
            *highest = id;
            *where = at + i;
        }
        hash = ull__data_hash(hash, chunk, now * width);
        at += now;
    }
    free(chunk);
    *identity = hash;
    return status;
}

static ull_status check_ids(struct ull__data *data, const struct ull__data_want *want,
                            struct ull_error *err)
{
    struct tokens *tokens = data->own;
    int64_t vocabulary = data->spec.vocab ? data->spec.vocab : want->classes;
    if (!vocabulary)
        vocabulary = json_integer_value(json_object_get(data->like, "classes"));
    if (want->classes && data->spec.vocab > want->classes)
        return ull__fail(err, ULL_E_INVALID, "'vocab=%lld': the model has a vocabulary of %lld",
                         (long long)data->spec.vocab, (long long)want->classes);
    uint64_t most = 0;
    for (int p = 0; p < ULL_DATA_PARTS; p++) {
        uint64_t highest = 0, where = 0;
        ull_status status =
            look_through(&tokens->parts[p], &highest, &where, &data->info.identity[p], err);
        if (status != ULL_OK)
            return status;
        if (highest >= (uint64_t)(vocabulary ? vocabulary : INT32_MAX))
            return ull__fail(
                err, ULL_E_FORMAT,
                "'%.200s': token %llu of the %s part is %llu: the vocabulary has ids 0 "
                "to %lld",
                data->spec.path, (unsigned long long)where, p ? "evaluation" : "training",
                (unsigned long long)highest, (long long)(vocabulary ? vocabulary : INT32_MAX) - 1);
        most = highest > most ? highest : most;
    }
    data->info.classes = vocabulary ? vocabulary : (int64_t)most + 1;
    return ULL_OK;
}

/* The token between documents; -1: there are none. */
static ull_status read_mark(const struct ull__data *data, int64_t *mark, struct ull_error *err)
{
    const struct ull__data_spec *spec = &data->spec;
    char *end;
    if (spec->documents == ULL_DOCUMENTS_NONE)
        return ULL_OK;
    errno = 0;
    *mark = strtoll(spec->mark, &end, 10);
    if (spec->documents == ULL_DOCUMENTS_AT && spec->mark[0] >= '0' && spec->mark[0] <= '9' &&
        !*end && !errno && *mark < INT32_MAX)
        return ULL_OK;
    char text[ULL_DATA_MARK + 16];
    ull__data_documents_text(spec, text);
    return ull__fail(
        err, ULL_E_INVALID,
        "'documents=%s' is nothing for tokens ('%.200s'): expected none, or at: and the "
        "number of the token between documents, as at:50256",
        text, spec->path);
}

static ull_status open_tokens(struct ull__data *data, const struct ull__data_want *want,
                              struct ull_error *err)
{
    struct tokens *tokens = data->own = calloc(1, sizeof *tokens);
    if (!tokens)
        return ull__data_no_memory(err, sizeof *tokens, "the data");
    tokens->fds[ULL_DATA_TRAIN] = tokens->fds[ULL_DATA_EVAL] = -1;
    bool folder = ull__data_is_folder(data->spec.path) == 1;
    ull_status status =
        folder ? open_folder(data, err) : open_part(data, ULL_DATA_TRAIN, data->spec.path, err);
    if (status != ULL_OK)
        return status;
    bool own = tokens->fds[ULL_DATA_EVAL] >= 0;
    if (own && data->spec.split > 0)
        return ull__fail(err, ULL_E_INVALID,
                         "'split=' is nothing for '%.300s', which has a part for evaluation",
                         data->spec.path);
    int64_t mark = -1;
    if ((status = read_mark(data, &mark, err)) != ULL_OK)
        return status;
    if (!own) {
        ull__windows_split(data->spec.split < 0 ? 0.05 : data->spec.split, tokens->parts);
        if (mark >= 0)
            status = ull__documents_split(tokens->parts, mark, err);
    }
    if (status != ULL_OK || (status = check_ids(data, want, err)) != ULL_OK)
        return status;
    if (mark >= data->info.classes)
        return ull__fail(err, ULL_E_INVALID, "'documents=at:%lld': the vocabulary has ids 0 to %lld",
                         (long long)mark, (long long)data->info.classes - 1);
    return mark < 0
               ? ull__windows_info(data, want, tokens->parts, err)
               : ull__documents_open(data, want, tokens->parts, mark, true, tokens->tables, err);
}

static void close_tokens(struct ull__data *data)
{
    struct tokens *tokens = data->own;
    for (int p = 0; tokens && p < ULL_DATA_PARTS; p++)
        if (tokens->fds[p] >= 0)
            close(tokens->fds[p]);
    for (int p = 0; tokens && p < ULL_DATA_PARTS; p++)
        ull__documents_finish(&tokens->tables[p]);
    free(tokens);
}

static ull_status sample_tokens(const struct ull__data *data, uint64_t index,
                                const struct ull__turn *turn, struct ull__scratch *scratch, void *x,
                                int32_t *targets)
{
    const struct tokens *tokens = data->own;
    const struct ull__sequence *part = &tokens->parts[turn->part];
    const int64_t window = data->info.window, ignore = data->spec.ignore;
    ull_status status =
        data->info.documents
            ? ull__documents_sample(&tokens->tables[turn->part], part, window, data->info.mark,
                                    ignore, index, x, targets, &scratch->error)
            : ull__windows_sample(part, window, ignore, index, turn, x, targets, &scratch->error);
    if (status != ULL_OK) {
        struct ull_error why = scratch->error;
        ull__fail(&scratch->error, status, "'%.200s': %.250s", data->spec.path, why.message);
    }
    return status;
}

static uint64_t valid_tokens(const struct ull__data *data, uint64_t index,
                             const struct ull__turn *turn)
{
    const struct tokens *tokens = data->own;
    const struct ull__sequence *part = &tokens->parts[turn->part];
    if (data->info.documents)
        return ull__documents_valid(&tokens->tables[turn->part], part, data->info.mark,
                                    data->spec.ignore, index);
    return ull__windows_valid(part, data->info.window, data->spec.ignore, index, turn);
}

static int64_t length_tokens(const struct ull__data *data, enum ull__data_part part, uint64_t index)
{
    const struct tokens *tokens = data->own;
    return ull__documents_length(&tokens->tables[part], index);
}

const struct ull__source ull__source_tokens = {
    .open = open_tokens,
    .close = close_tokens,
    .sample = sample_tokens,
    .valid = valid_tokens,
    .length = length_tokens,
};
