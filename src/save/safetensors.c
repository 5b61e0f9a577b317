/* safetensors.c: see safetensors.h. What writing and reading share. */
#include "safetensors.h"

#include <errno.h>
#include <string.h>

#include "error.h"
#include "json.h"
#include "safetensors_private.h"

static const struct {
    const char *text;
    unsigned int bytes;
} types[ULL_SAVE_TYPES] = {
#define X(name, text, bytes) {text, bytes},
    ULL_SAVE_TYPE_MAP(X)
#undef X
};

const char *ull__save_type_text(enum ull__save_type type)
{
    return type < ULL_SAVE_TYPES ? types[type].text : "?";
}

bool ull__save_tensor_bytes(const struct ull__save_tensor *tensor, uint64_t *bytes)
{
    if (tensor->rank < 0 || tensor->rank > ULL_SAVE_RANK || tensor->type >= ULL_SAVE_TYPES)
        return false;
    uint64_t size = types[tensor->type].bytes;
    bool empty = false;
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0)
            return false;
        empty = empty || tensor->shape[i] == 0;
    }
    for (int i = 0; i < tensor->rank && !empty; i++)
        if (__builtin_mul_overflow(size, (uint64_t)tensor->shape[i], &size) || size >> 62)
            return false;
    *bytes = empty ? 0 : size;
    return true;
}

ull_status ull__save_fail(struct ull_error *err, int error, const char *what, const char *path)
{
    ull_status status = error == ENOENT || error == ENOTDIR                   ? ULL_E_NOT_FOUND
                        : error == EACCES || error == EPERM || error == EROFS ? ULL_E_PERMISSION
                                                                              : ULL_E_SYSTEM;
    return ull__fail(err, status, "cannot %s '%.300s': %s", what, path, strerror(error));
}

ull_status ull__save_no_memory(struct ull_error *err, const char *path)
{
    return ull__fail(err, ULL_E_NO_MEMORY, "no memory for the head of '%.300s'", path);
}

bool ull__save_is_name(const char *name)
{
    size_t length = name ? strlen(name) : 0;
    if (length < 1 || length >= ULL_SAVE_NAME || strcmp(name, "__metadata__") == 0)
        return false;
    for (size_t i = 0, step; i < length; i += step) {
        step = ull__utf8_length((const unsigned char *)name + i, length - i);
        if (!step)
            return false;
    }
    return true;
}

unsigned int ull__save_type_bytes(enum ull__save_type type)
{
    return types[type].bytes;
}
