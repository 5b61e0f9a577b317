/* safetensors_write.c: tensors into a file, from where they lie. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "error.h"
#include "json.h"
#include "safetensors_private.h"

struct sink {
    int fd;
    uint64_t size;
    uint32_t checksum;
};

static bool put(struct sink *sink, const void *bytes, uint64_t size)
{
    const unsigned char *at = bytes;
    while (size > 0) {
        size_t now = size < ULL_SAVE_CHUNK ? (size_t)size : ULL_SAVE_CHUNK;
        sink->checksum = (uint32_t)crc32(sink->checksum, at, (unsigned int)now);
        for (size_t done = 0; done < now;) {
            ssize_t wrote = write(sink->fd, at + done, now - done);
            if (wrote < 0 && errno == EINTR)
                continue;
            if (wrote <= 0) {
                errno = wrote ? errno : ENOSPC;
                return false;
            }
            done += (size_t)wrote;
        }
        sink->size += now;
        at += now;
        size -= now;
    }
    return true;
}

/* A tensor on its way into a file. */
struct entry {
    const struct ull__save_tensor *tensor;
    uint64_t bytes, begin;
    size_t place; /* as it was given */
};

/* Wide types first, so that everything is aligned to its type; otherwise as given. */
static int by_width(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    unsigned int width_x = ull__save_type_bytes(x->tensor->type),
                 width_y = ull__save_type_bytes(y->tensor->type);
    if (width_x != width_y)
        return width_x > width_y ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static int by_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

static ull_status order(struct entry *entries, const struct ull__save_tensor *tensors, size_t count,
                        const char *path, struct ull_error *err)
{
    for (size_t i = 0; i < count; i++) {
        entries[i] = (struct entry){.tensor = &tensors[i], .place = i};
        if (!ull__save_is_name(tensors[i].name))
            return ull__fail(
                err, ULL_E_INVALID,
                "'%.100s' is no name for a tensor in '%.200s': expected 1 to %d bytes of "
                "UTF-8",
                tensors[i].name ? tensors[i].name : "", path, ULL_SAVE_NAME - 1);
        if (!ull__save_tensor_bytes(&tensors[i], &entries[i].bytes))
            return ull__fail(err, ULL_E_INVALID, "the tensor '%.200s' has no possible shape",
                             tensors[i].name);
    }
    qsort(entries, count, sizeof *entries, by_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(entries[i - 1].tensor->name, entries[i].tensor->name) == 0)
            return ull__fail(err, ULL_E_INVALID, "two tensors for '%.200s' are called '%.200s'",
                             path, entries[i].tensor->name);
    qsort(entries, count, sizeof *entries, by_width);
    uint64_t begin = 0;
    for (size_t i = 0; i < count; i++) {
        entries[i].begin = begin;
        begin += entries[i].bytes;
        if (begin >> 62)
            return ull__fail(err, ULL_E_INVALID, "the tensors for '%.200s' are too large", path);
    }
    return ULL_OK;
}

static void write_entry(struct ull_json *json, const struct entry *entry)
{
    const struct ull__save_tensor *tensor = entry->tensor;
    ull__json_key(json, tensor->name);
    ull__json_object(json);
    ull__json_key(json, "dtype");
    ull__json_string(json, ull__save_type_text(tensor->type));
    ull__json_key(json, "shape");
    ull__json_array(json);
    for (int i = 0; i < tensor->rank; i++)
        ull__json_i64(json, tensor->shape[i]);
    ull__json_array_end(json);
    ull__json_key(json, "data_offsets");
    ull__json_array(json);
    ull__json_u64(json, entry->begin);
    ull__json_u64(json, entry->begin + entry->bytes);
    ull__json_array_end(json);
    ull__json_object_end(json);
}

static bool make_head(struct ull_json *json, const struct entry *entries, size_t count,
                      const struct ull__save_text *texts, size_t text_count)
{
    ull__json_init(json, NULL);
    json->compact = true;
    ull__json_object(json);
    if (text_count) {
        ull__json_key(json, "__metadata__");
        ull__json_object(json);
        for (size_t i = 0; i < text_count; i++) {
            ull__json_key(json, texts[i].key);
            ull__json_string(json, texts[i].value);
        }
        ull__json_object_end(json);
    }
    for (size_t i = 0; i < count; i++)
        write_entry(json, &entries[i]);
    ull__json_object_end(json);
    return ull__json_finish(json);
}

static bool put_file(struct sink *sink, const struct ull_json *head, const struct entry *entries,
                     size_t count)
{
    size_t size = head->size - 1; /* without the newline */
    uint64_t padded = (size + 7) & ~(uint64_t)7;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(padded >> (8 * i));
    bool good =
        put(sink, length, 8) && put(sink, head->text, size) && put(sink, "       ", padded - size);
    for (size_t i = 0; i < count && good; i++)
        good = put(sink, entries[i].tensor->data, entries[i].bytes);
    return good;
}

ull_status ull__safetensors_write(int fd, const char *path, const struct ull__save_tensor *tensors,
                                  size_t count, const struct ull__save_text *texts, size_t text_count,
                                  uint64_t *size, uint32_t *checksum, struct ull_error *err)
{
    struct entry *entries = malloc((count + 1) * sizeof *entries);
    if (!entries)
        return ull__save_no_memory(err, path);
    ull_status status = order(entries, tensors, count, path, err);
    struct ull_json head = {.text = NULL};
    if (status == ULL_OK && !make_head(&head, entries, count, texts, text_count))
        status = ull__save_no_memory(err, path);
    struct sink sink = {.fd = fd, .checksum = (uint32_t)crc32(0, NULL, 0)};
    if (status == ULL_OK && head.size > ULL_SAVE_MOST_HEAD)
        status = ull__fail(err, ULL_E_INVALID, "the names of %zu tensors are too long for '%.200s'",
                           count, path);
    if (status == ULL_OK && !put_file(&sink, &head, entries, count))
        status = ull__save_fail(err, errno, "write", path);
    ull__json_free(&head);
    free(entries);
    if (status != ULL_OK)
        return status;
    *size = sink.size;
    *checksum = sink.checksum;
    return ULL_OK;
}
