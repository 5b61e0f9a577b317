/*
 * external.c: weights in a file beside the model, which names it. The name must lead to a plain file below the
 * model's folder: every part of it is opened for itself, without following a symbolic link.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "onnx_private.h"

struct place {
    const char *location;
    int64_t offset, length; /* length -1: not said */
};

static bool number(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    long long read = strtoll(text, &end, 10);
    *value = read;
    return end != text && *end == '\0' && errno == 0 && read >= 0;
}

static ull_status read_place(const Onnx__TensorProto *tensor, struct place *place,
                             struct ull_error *err)
{
    *place = (struct place){.length = -1};
    for (size_t i = 0; i < tensor->n_external_data; ++i) {
        const char *key = tensor->external_data[i]->key, *value = tensor->external_data[i]->value;
        if (key == NULL || value == NULL) {
            continue;
        }
        bool fine = true;
        if (strcmp(key, "location") == 0) {
            place->location = value;
        } else if (strcmp(key, "offset") == 0) {
            fine = number(value, &place->offset);
        } else if (strcmp(key, "length") == 0) {
            fine = number(value, &place->length);
        }
        if (!fine) {
            return ull__fail(err, ULL_E_FORMAT, "%s of data outside is '%s': expected a number",
                             key, shown(value));
        }
    }
    if (place->location == NULL || place->location[0] == '\0') {
        return ull__fail(err, ULL_E_FORMAT, "data outside of the file has no location");
    }
    return ULL_OK;
}

static ull_status open_below(const char *folder, const char *location, int *file,
                             struct ull_error *err)
{
    char path[1024];
    if (location[0] == '/' || strlen(location) >= sizeof(path)) {
        return ull__fail(err, ULL_E_FORMAT,
                         "data lies in '%s': expected a file below the folder of the model",
                         shown(location));
    }
    strcpy(path, location);
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), next = -1;
    char *rest = NULL;
    for (char *part = strtok_r(path, "/", &rest); part != NULL && at >= 0;) {
        char *after = strtok_r(NULL, "/", &rest);
        if (strcmp(part, "..") == 0) {
            close(at);
            return ull__fail(err, ULL_E_FORMAT,
                             "data lies in '%s': expected a file below the folder of the model",
                             shown(location));
        }
        int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
        next = openat(at, part, flags | (after != NULL ? O_DIRECTORY : 0));
        int error = errno;
        close(at);
        errno = error;
        at = next;
        part = after;
    }
    struct stat info;
    if (at < 0) {
        int error = errno;
        return ull__fail(err,
                         error == ENOENT   ? ULL_E_NOT_FOUND
                         : error == EACCES ? ULL_E_PERMISSION
                                           : ULL_E_FORMAT,
                         "data of the model lies in '%s', which %s", shown(location),
                         error == ELOOP || error == ENOTDIR
                             ? "is a symbolic link or no file: copy the file itself there"
                         : error == ENOENT ? "is not in the folder of the model"
                                           : strerror(error));
    }
    if (fstat(at, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(at);
        return ull__fail(err, ULL_E_FORMAT,
                         "data of the model lies in '%s', which is no plain file", shown(location));
    }
    *file = at;
    return ULL_OK;
}

static bool read_all(int file, int64_t offset, char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file, data + done, bytes - done, (off_t)(offset + (int64_t)done));
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return false;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

ull_status ull__onnx_external(const char *folder, const Onnx__TensorProto *tensor, size_t bytes,
                              void **data, struct ull_error *err)
{
    struct place place;
    int file = -1;
    ull_status status = read_place(tensor, &place, err);
    if (status == ULL_OK && folder == NULL) {
        status = ull__fail(err, ULL_E_FORMAT, "data lies outside of the file, which has no folder");
    }
    if (status == ULL_OK && place.length >= 0 && (uint64_t)place.length != bytes) {
        status = ull__fail(err, ULL_E_FORMAT, "data outside has %lld bytes: expected %zu",
                           (long long)place.length, bytes);
    }
    status = status == ULL_OK ? open_below(folder, place.location, &file, err) : status;
    if (status != ULL_OK) {
        return status;
    }
    struct stat info;
    void *read = NULL;
    if (fstat(file, &info) != 0 || place.offset > info.st_size ||
        (uint64_t)(info.st_size - place.offset) < bytes) {
        status = ull__fail(err, ULL_E_FORMAT, "'%s' ends before byte %lld + %zu of it",
                           shown(place.location), (long long)place.offset, bytes);
    } else if ((read = malloc(bytes > 0 ? bytes : 1)) == NULL) {
        status = ull__fail(err, ULL_E_NO_MEMORY, "no memory for %zu bytes of weights", bytes);
    } else if (!read_all(file, place.offset, read, bytes)) {
        status = ull__fail(err, ULL_E_SYSTEM, "'%s' cannot be read", shown(place.location));
        free(read);
    }
    close(file);
    if (status == ULL_OK) {
        *data = read;
    }
    return status;
}
