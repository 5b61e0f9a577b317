/*
 * load.c: the newest save that is whole.
 *
 * Reading may happen while another process saves, and that may remove what was just listed. Such a save
 * is not damaged: the folder is looked at again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "file.h"
#include "save_private.h"

enum { MOST_STATE = 64 << 20, ATTEMPTS = 8 };

static ull_status join(char path[ULL_SAVE_PATH], const char *folder, const char *name,
                       struct ull_error *err)
{
    if (snprintf(path, ULL_SAVE_PATH, "%s/%s", folder, name) < ULL_SAVE_PATH)
        return ULL_OK;
    return ull__fail(err, ULL_E_INVALID, "the path of '%.200s' is too long", folder);
}

/* That the file is what the state says of it. */
static ull_status check_file(const char *path, struct ull__save_file wanted, struct ull_error *err)
{
    uint64_t size = 0;
    uint32_t checksum = 0;
    ull_status status = ull__safetensors_checksum(path, &size, &checksum, err);
    if (status != ULL_OK)
        return status;
    if (size != wanted.bytes)
        return ull__fail(err, ULL_E_FORMAT, "'%.300s' has %llu bytes, expected %llu", path,
                         (unsigned long long)size, (unsigned long long)wanted.bytes);
    if (checksum != wanted.checksum)
        return ull__fail(err, ULL_E_FORMAT, "'%.300s' has the checksum %08x, expected %08x", path,
                         checksum, wanted.checksum);
    return ULL_OK;
}

static ull_status open_tensors(const char *folder, const char *name, struct ull__save_file wanted,
                               struct ull__safetensors **file, struct ull_error *err)
{
    char path[ULL_SAVE_PATH];
    ull_status status = join(path, folder, name, err);
    if (status == ULL_OK)
        status = check_file(path, wanted, err);
    return status == ULL_OK ? ull__safetensors_open(path, file, err) : status;
}

static ull_status read_state(const char *folder, struct ull__saved *saved,
                             struct ull__save_file files[2], struct ull_error *err)
{
    char path[ULL_SAVE_PATH], *text;
    size_t size;
    struct ull_error why = {""};
    ull_status status = join(path, folder, ULL_SAVE_STATE, err);
    if (status != ULL_OK || (status = ull__file_read(path, MOST_STATE, &text, &size, err)) != ULL_OK)
        return status;
    status = ull__save_state_read(text, size, &saved->state, &files[0], &files[1], &saved->own, &why);
    free(text);
    if (status != ULL_OK)
        return ull__fail(err, status, "'%.250s': %.220s", path, why.message);
    return ULL_OK;
}

ull_status ull__save_verify(const char *path, struct ull__saved *out, struct ull_error *err)
{
    struct ull__saved saved = {.model = NULL};
    struct ull__save_file files[2];
    snprintf(saved.folder, sizeof saved.folder, "%s", path);
    ull_status status = read_state(path, &saved, files, err);
    if (status == ULL_OK)
        status = open_tensors(path, ULL_SAVE_MODEL, files[0], &saved.model, err);
    if (status == ULL_OK)
        status = open_tensors(path, ULL_SAVE_REST, files[1], &saved.rest, err);
    if (status == ULL_OK)
        *out = saved;
    else
        ull__saved_close(&saved);
    return status;
}

static bool exists(const char *folder, const char *name)
{
    char path[ULL_SAVE_PATH];
    return join(path, folder, name, NULL) == ULL_OK && access(path, F_OK) == 0;
}

/* One look at the folder. ULL_E_STARTED: it changed meanwhile. */
static ull_status load_newest(const char *folder, void (*warn)(void *context, const char *message),
                              void *context, struct ull__saved *saved, struct ull_error *err)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ull__fail(err, errno == EACCES ? ULL_E_PERMISSION : ULL_E_NOT_FOUND,
                         "no saves at '%.300s': %s", folder, strerror(errno));
    struct ull__save_name *names;
    size_t count;
    ull_status status = ull__save_list(fd, folder, &names, &count, err);
    close(fd);
    if (status != ULL_OK)
        return status;
    status = ull__fail(err, ULL_E_NOT_FOUND,
                       count ? "every save in '%.300s' is damaged" : "no saves in '%.300s'", folder);
    for (size_t i = 0; i < count; i++) {
        char path[ULL_SAVE_PATH];
        struct ull_error why;
        ull_status one = join(path, folder, names[i].text, &why);
        if (one == ULL_OK)
            one = ull__save_verify(path, saved, &why);
        if (one == ULL_OK) {
            status = ULL_OK;
            break;
        }
        if (!exists(folder, names[i].text)) {
            status = ULL_E_STARTED;
            break;
        }
        char message[600];
        snprintf(message, sizeof message, "a save is damaged, the one before is taken: %.500s",
                 why.message);
        if (warn)
            warn(context, message);
    }
    free(names);
    return status;
}

ull_status ull__save_load(const char *folder, void (*warn)(void *context, const char *message),
                          void *context, struct ull__saved *saved, struct ull_error *err)
{
    if (exists(folder, ULL_SAVE_STATE))
        return ull__save_verify(folder, saved, err);
    ull_status status = ULL_E_STARTED;
    for (int i = 0; i < ATTEMPTS && status == ULL_E_STARTED; i++)
        status = load_newest(folder, warn, context, saved, err);
    if (status == ULL_E_STARTED)
        return ull__fail(err, ULL_E_SYSTEM,
                         "the saves in '%.300s' change faster than they are read", folder);
    return status;
}

void ull__saved_close(struct ull__saved *saved)
{
    ull__safetensors_close(saved->model);
    ull__safetensors_close(saved->rest);
    ull__save_state_free(saved->own);
    *saved = (struct ull__saved){.model = NULL};
}
