/* safetensors_read.c: the head of a file, checked, and tensors into where they go. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <zlib.h>

#include "error.h"
#include "safetensors_private.h"

struct place {
    struct ull__save_tensor tensor; /* its name is owned */
    uint64_t begin, end;            /* after the head */
};

struct ull__safetensors {
    int fd;
    char *path;
    uint64_t data; /* where the bytes begin */
    struct place *places;
    size_t count;
    const struct place **by_name;
    json_t *texts;
};

static bool get_bytes(int fd, void *to, uint64_t size, uint64_t offset)
{
    unsigned char *at = to;
    while (size > 0) {
        size_t now = size < (1u << 30) ? (size_t)size : 1u << 30;
        ssize_t got = pread(fd, at, now, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got ? errno : ENODATA;
            return false;
        }
        at += got;
        offset += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return true;
}

static bool read_whole(json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool read_type(json_t *value, enum ull__save_type *type)
{
    const char *text = json_string_value(value);
    for (int i = 0; text && i < ULL_SAVE_TYPES; i++) {
        if (strcmp(text, ull__save_type_text((enum ull__save_type)i)) != 0)
            continue;
        *type = (enum ull__save_type)i;
        return true;
    }
    return false;
}

/* One member of the head; what is wrong with it is returned, or NULL. */
static const char *read_place(json_t *object, struct place *place)
{
    struct ull__save_tensor *tensor = &place->tensor;
    json_t *shape = json_object_get(object, "shape"),
           *offsets = json_object_get(object, "data_offsets");
    if (json_object_size(object) != 3 || !json_is_array(shape) || json_array_size(offsets) != 2)
        return "has not dtype, shape and data_offsets and nothing else";
    if (!read_type(json_object_get(object, "dtype"), &tensor->type))
        return "has a dtype that is not known here (F64, I64, F32, I32, F16, BF16 and U8 are)";
    if (json_array_size(shape) > ULL_SAVE_RANK)
        return "has more than 8 dimensions";
    tensor->rank = (int)json_array_size(shape);
    for (int i = 0; i < tensor->rank; i++) {
        uint64_t side;
        if (!read_whole(json_array_get(shape, (size_t)i), &side))
            return "has a shape that is not of whole numbers";
        tensor->shape[i] = (int64_t)side;
    }
    uint64_t bytes;
    if (!read_whole(json_array_get(offsets, 0), &place->begin) ||
        !read_whole(json_array_get(offsets, 1), &place->end) || place->end < place->begin)
        return "has data_offsets that are no range";
    if (!ull__save_tensor_bytes(tensor, &bytes) || bytes != place->end - place->begin)
        return "has not as many bytes as its shape";
    return NULL;
}

static int by_begin(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int places_by_name(const void *a, const void *b)
{
    return strcmp((*(const struct place *const *)a)->tensor.name,
                  (*(const struct place *const *)b)->tensor.name);
}

/* Every byte belongs to exactly one tensor. */
static ull_status check_places(struct ull__safetensors *file, uint64_t size, struct ull_error *err)
{
    uint64_t at = 0;
    qsort(file->places, file->count, sizeof *file->places, by_begin);
    for (size_t i = 0; i < file->count; i++) {
        const struct place *place = &file->places[i];
        if (place->begin != at)
            return ull__fail(
                err, ULL_E_FORMAT,
                "'%.200s': '%.100s' begins at byte %llu of the data: expected %llu, the "
                "end of what is before it",
                file->path, place->tensor.name, (unsigned long long)place->begin,
                (unsigned long long)at);
        at = place->end;
    }
    if (at != size)
        return ull__fail(err, ULL_E_FORMAT,
                         "'%.200s' has %llu bytes of data, its head says %llu: it is %s",
                         file->path, (unsigned long long)size, (unsigned long long)at,
                         size < at ? "cut off" : "too long");
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->places[i];
    qsort(file->by_name, file->count, sizeof *file->by_name, places_by_name);
    return ULL_OK;
}

static ull_status read_head(struct ull__safetensors *file, json_t *head, struct ull_error *err)
{
    size_t members = json_object_size(head);
    file->places = calloc(members + 1, sizeof *file->places);
    file->by_name = calloc(members + 1, sizeof(struct place *));
    if (!file->places || !file->by_name)
        return ull__save_no_memory(err, file->path);
    const char *key;
    json_t *value;
    json_object_foreach(head, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            if (!json_is_object(value))
                return ull__fail(err, ULL_E_FORMAT, "'%.300s': __metadata__ is no object",
                                 file->path);
            file->texts = json_incref(value);
            continue;
        }
        struct place *place = &file->places[file->count];
        const char *wrong = json_is_object(value) ? read_place(value, place) : "is no object";
        if (!ull__save_is_name(key))
            wrong = "is no name";
        if (wrong)
            return ull__fail(err, ULL_E_FORMAT, "'%.200s': the tensor '%.100s' %s", file->path, key,
                             wrong);
        place->tensor.name = strdup(key);
        if (!place->tensor.name)
            return ull__save_no_memory(err, file->path);
        file->count++;
    }
    return ULL_OK;
}

static ull_status parse(struct ull__safetensors *file, uint64_t size, struct ull_error *err)
{
    unsigned char length[8];
    uint64_t head_size = 0;
    if (size < 8 || !get_bytes(file->fd, length, 8, 0))
        return ull__fail(err, ULL_E_FORMAT, "'%.300s' is too short to hold tensors", file->path);
    for (int i = 0; i < 8; i++)
        head_size |= (uint64_t)length[i] << (8 * i);
    if (head_size < 2 || head_size > ULL_SAVE_MOST_HEAD || head_size > size - 8)
        return ull__fail(
            err, ULL_E_FORMAT,
            "'%.300s' is no safetensors file, or cut off: its head would have %llu bytes",
            file->path, (unsigned long long)head_size);
    char *text = malloc(head_size);
    if (!text)
        return ull__save_no_memory(err, file->path);
    if (!get_bytes(file->fd, text, head_size, 8)) {
        free(text);
        return ull__save_fail(err, errno, "read", file->path);
    }
    json_error_t error;
    json_t *head = json_loadb(text, head_size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    ull_status status = ULL_OK;
    file->data = 8 + head_size;
    if (!json_is_object(head))
        status = ull__fail(err, ULL_E_FORMAT, "'%.200s' has no sound head: %.200s", file->path,
                           head ? "it is no object" : error.text);
    else
        status = read_head(file, head, err);
    json_decref(head);
    return status == ULL_OK ? check_places(file, size - file->data, err) : status;
}

ull_status ull__safetensors_open(const char *path, struct ull__safetensors **out,
                                 struct ull_error *err)
{
    struct ull__safetensors *file = calloc(1, sizeof *file);
    if (!file)
        return ull__save_no_memory(err, path);
    file->path = strdup(path);
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat info;
    ull_status status = ULL_OK;
    if (!file->path)
        status = ull__save_no_memory(err, path);
    else if (file->fd < 0 || fstat(file->fd, &info) != 0)
        status = ull__save_fail(err, errno, "read", path);
    else if (!S_ISREG(info.st_mode))
        status = ull__fail(err, ULL_E_FORMAT, "'%.300s' is no file", path);
    else
        status = parse(file, (uint64_t)info.st_size, err);
    if (status == ULL_OK)
        *out = file;
    else
        ull__safetensors_close(file);
    return status;
}

void ull__safetensors_close(struct ull__safetensors *file)
{
    if (!file)
        return;
    for (size_t i = 0; i < file->count; i++)
        free((char *)(uintptr_t)file->places[i].tensor.name);
    if (file->fd >= 0)
        close(file->fd);
    json_decref(file->texts);
    free(file->places);
    free(file->by_name);
    free(file->path);
    free(file);
}

size_t ull__safetensors_count(const struct ull__safetensors *file)
{
    return file->count;
}

const struct ull__save_tensor *ull__safetensors_at(const struct ull__safetensors *file, size_t i)
{
    return i < file->count ? &file->places[i].tensor : NULL;
}

static const struct place *find(const struct ull__safetensors *file, const char *name)
{
    const struct place wanted = {.tensor = {.name = name}}, *key = &wanted;
    const struct place **found =
        bsearch(&key, file->by_name, file->count, sizeof *file->by_name, places_by_name);
    return found ? *found : NULL;
}

const struct ull__save_tensor *ull__safetensors_find(const struct ull__safetensors *file,
                                                     const char *name)
{
    const struct place *place = find(file, name);
    return place ? &place->tensor : NULL;
}

const char *ull__safetensors_text(const struct ull__safetensors *file, const char *key)
{
    return json_string_value(json_object_get(file->texts, key));
}

/* F32[3,4] */
static void shape_text(const struct ull__save_tensor *tensor, char *text, size_t size)
{
    int used = snprintf(text, size, "%s[", ull__save_type_text(tensor->type));
    for (int i = 0; i < tensor->rank && used > 0 && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, "%s%lld", i ? "," : "",
                         (long long)tensor->shape[i]);
    if (used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, "]");
}

static ull_status fits(const struct ull__safetensors *file, const struct ull__save_tensor *tensor,
                       const struct place **out, struct ull_error *err)
{
    const struct place *place = find(file, tensor->name);
    if (!place)
        return ull__fail(err, ULL_E_NOT_FOUND, "'%.200s' has no tensor '%.200s'", file->path,
                         tensor->name);
    const struct ull__save_tensor *has = &place->tensor;
    bool same = has->type == tensor->type && has->rank == tensor->rank;
    for (int i = 0; same && i < has->rank; i++)
        same = has->shape[i] == tensor->shape[i];
    *out = place;
    if (same)
        return ULL_OK;
    char there[64], here[64];
    shape_text(has, there, sizeof there);
    shape_text(tensor, here, sizeof here);
    return ull__fail(err, ULL_E_FORMAT,
                     "'%.150s': '%.100s' is %s, expected %s: it is of another model", file->path,
                     tensor->name, there, here);
}

static ull_status read_data(const struct ull__safetensors *file, const struct place *place,
                            void *data, struct ull_error *err)
{
    if (!get_bytes(file->fd, data, place->end - place->begin, file->data + place->begin))
        return ull__save_fail(err, errno, "read", file->path);
    return ULL_OK;
}

ull_status ull__safetensors_read(const struct ull__safetensors *file,
                                 const struct ull__save_tensor *tensor, struct ull_error *err)
{
    const struct place *place;
    ull_status status = fits(file, tensor, &place, err);
    return status == ULL_OK ? read_data(file, place, tensor->data, err) : status;
}

ull_status ull__safetensors_read_all(const struct ull__safetensors *file,
                                     const struct ull__save_tensor *tensors, size_t count,
                                     bool exact, struct ull_error *err)
{
    const struct place *place;
    ull_status status = ULL_OK;
    for (size_t i = 0; i < count && status == ULL_OK; i++)
        status = fits(file, &tensors[i], &place, err);
    if (status == ULL_OK && exact && file->count != count)
        status = ull__fail(err, ULL_E_FORMAT,
                           "'%.200s' has %zu tensors, expected %zu: it is of another model",
                           file->path, file->count, count);
    for (size_t i = 0; i < count && status == ULL_OK; i++)
        status = ull__safetensors_read(file, &tensors[i], err);
    return status;
}

ull_status ull__safetensors_checksum(const char *path, uint64_t *size, uint32_t *checksum,
                                     struct ull_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return ull__save_fail(err, errno, "read", path);
    unsigned char *chunk = malloc(ULL_SAVE_CHUNK);
    uint64_t total = 0;
    uLong sum = crc32(0, NULL, 0);
    ssize_t got = chunk ? 1 : -1;
    while (got > 0) {
        got = read(fd, chunk, ULL_SAVE_CHUNK);
        if (got < 0 && errno == EINTR) {
            got = 1;
            continue;
        }
        if (got > 0) {
            sum = crc32(sum, chunk, (unsigned int)got);
            total += (uint64_t)got;
        }
    }
    int error = chunk ? errno : ENOMEM;
    free(chunk);
    close(fd);
    if (got < 0)
        return ull__save_fail(err, error, "read", path);
    *size = total;
    *checksum = (uint32_t)sum;
    return ULL_OK;
}
