/* model.c: a model by a name of the zoo, or a file. See model.h. */
#include "model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "error.h"
#include "file.h"
#include "onnx.h"
#include "zoo.h"

enum { SIZES = 16 };

/* Where the arguments of a file begin: behind the last colon, if they look like some; else at the end. */
static size_t path_length(const char *text)
{
    struct stat info;
    const char *colon = strrchr(text, ':');
    bool arguments = colon != NULL && strchr(colon, '/') == NULL && strchr(colon, '=') != NULL;
    return !arguments || stat(text, &info) == 0 ? strlen(text) : (size_t)(colon - text);
}

bool model_is_file(const char *text)
{
    struct stat info;
    char path[ULL_FILE_PATH];
    size_t length = path_length(text);
    for (int i = 0; ull__zoo[i].name != NULL; ++i) {
        size_t name = strlen(ull__zoo[i].name);
        if (strncmp(text, ull__zoo[i].name, name) == 0 && (text[name] == '\0' || text[name] == ':')) {
            return false;
        }
    }
    if (length >= sizeof(path)) {
        return true;
    }
    memcpy(path, text, length);
    path[length] = '\0';
    return strchr(path, '/') != NULL || strstr(path, ".onnx") != NULL ||
           (stat(path, &info) == 0 && !S_ISDIR(info.st_mode));
}

static ull_status read_loss(const char *value, struct ull__onnx_options *options,
                            struct ull_error *err)
{
    if (strcmp(value, "mse") == 0) {
        options->loss = ULL_ONNX_LOSS_MSE;
    } else if (strcmp(value, "cross-entropy") == 0) {
        options->loss = ULL_ONNX_LOSS_CROSS_ENTROPY;
    } else {
        return ull__fail(err, ULL_E_INVALID, "loss=%.40s: expected cross-entropy or mse", value);
    }
    return ULL_OK;
}

/* "time=128,loss=mse". `text` is taken apart. */
static ull_status read_arguments(char *text, struct ull__onnx_options *options,
                                 struct ull__onnx_size *sizes, struct ull_error *err)
{
    char *rest = NULL;
    for (char *one = strtok_r(text, ",", &rest); one != NULL; one = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(one, '='), *end;
        if (value == NULL || value == one || (size_t)(value - one) >= sizeof(sizes[0].name)) {
            return ull__fail(err, ULL_E_INVALID,
                             "'%.60s': expected the name of a size, = and a number", one);
        }
        *value++ = '\0';
        if (strcmp(one, "loss") == 0) {
            ull_status status = read_loss(value, options, err);
            if (status != ULL_OK) {
                return status;
            }
            continue;
        }
        struct ull__onnx_size *size = &sizes[options->size_count];
        size->value = strtoll(value, &end, 10);
        if (options->size_count == SIZES || end == value || *end != '\0' || size->value < 1 ||
            size->value > INT64_C(1) << 40) {
            return ull__fail(err, ULL_E_INVALID, "%.60s=%.40s: expected a number of at least 1",
                             one, value);
        }
        strcpy(size->name, one);
        options->size_count += 1;
    }
    return ULL_OK;
}

ull_status model_build(const char *text, bool values, struct ull__graph **graph, struct ull_error *err)
{
    if (!model_is_file(text)) {
        return ull__zoo_build(text, graph, err);
    }
    struct ull__onnx_size sizes[SIZES + 1];
    struct ull__onnx_options options = {.values = values, .sizes = sizes};
    char *path = strdup(text);
    if (path == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a name");
    }
    size_t length = path_length(text);
    ull_status status = ULL_OK;
    if (path[length] == ':') {
        path[length] = '\0';
        status = read_arguments(path + length + 1, &options, sizes, err);
    }
    if (status == ULL_OK) {
        status = ull__onnx_read(path, &options, graph, err);
    }
    free(path);
    return status;
}
