/*
 * save.c: see save.h. Everything is written into FOLDER/.saving, file by file, each flushed, then that
 * folder, then it is renamed, then FOLDER is flushed. What is to be removed is renamed first, so that no
 * name of a save ever has less than all of it.
 */
#include "save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "file.h"
#include "safetensors_private.h"
#include "save_private.h"

#define SAVING ".saving"
#define REMOVING ".removing"
#define DAMAGED ".damaged-"

struct ull__save {
    char path[ULL_SAVE_PATH];
    int folder, lock;
    bool has_any;    /* a whole save */
    uint64_t newest; /* its step */
    void (*warn)(void *context, const char *message);
    void *context;
};

static void tell(const struct ull__save *save, const char *what, const char *name)
{
    char message[600];
    snprintf(message, sizeof message, "%.400s '%.150s'", what, name);
    if (save->warn)
        save->warn(save->context, message);
}

/* ---- opening ----------------------------------------------------------------------------------- */

static ull_status take_lock(struct ull__save *save, struct ull_error *err)
{
    char text[32] = "";
    save->lock = openat(save->folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (save->lock < 0)
        return ull__save_fail(err, errno, "save into", save->path);
    if (flock(save->lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK)
            return ull__save_fail(err, errno, "lock", save->path);
        ssize_t got = pread(save->lock, text, sizeof text - 1, 0);
        text[got > 0 ? strspn(text, "0123456789") : 0] = 0;
        return ull__fail(
            err, ULL_E_STARTED,
            "another process%s%s%s saves into '%.300s': wait for its end, or take another "
            "folder",
            text[0] ? " (pid " : "", text, text[0] ? ")" : "", save->path);
    }
    snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(save->lock, 0) != 0 || pwrite(save->lock, text, strlen(text), 0) < 0)
        return ULL_OK; /* only a help for people */
    return ULL_OK;
}

/* Saves that are damaged leave the row, so that they are neither taken nor kept instead of a good one. */
static void set_aside(struct ull__save *save, const char *name)
{
    char aside[96];
    snprintf(aside, sizeof aside, DAMAGED "%s", name);
    ull__save_remove(save->folder, aside);
    if (renameat(save->folder, name, save->folder, aside) != 0)
        tell(save, "cannot rename the damaged save", name);
}

static ull_status find_newest(struct ull__save *save, struct ull_error *err)
{
    struct ull__save_name *names;
    size_t count, damaged = 0;
    ull_status status = ull__save_list(save->folder, save->path, &names, &count, err);
    if (status != ULL_OK)
        return status;
    struct ull__saved saved;
    struct ull_error why = {""};
    for (; damaged < count; damaged++) {
        char path[ULL_SAVE_PATH + 64];
        snprintf(path, sizeof path, "%s/%s", save->path, names[damaged].text);
        if (ull__save_verify(path, &saved, &why) == ULL_OK) {
            ull__saved_close(&saved);
            save->has_any = true;
            save->newest = names[damaged].step;
            break;
        }
        char message[600];
        snprintf(message, sizeof message, "a save is damaged, the one before is taken: %.500s",
                 why.message);
        if (save->warn)
            save->warn(save->context, message);
    }
    if (count && !save->has_any)
        status =
            ull__fail(err, ULL_E_FORMAT,
                      "every save in '%.200s' is damaged: look into it, or take another folder "
                      "(%.200s)",
                      save->path, why.message);
    for (size_t i = 0; save->has_any && i < damaged; i++)
        set_aside(save, names[i].text);
    free(names);
    return status;
}

ull_status ull__save_open(const char *folder, void (*warn)(void *context, const char *message),
                          void *context, struct ull__save **out, uint64_t *newest,
                          struct ull_error *err)
{
    if (!folder[0] || strlen(folder) >= ULL_SAVE_PATH - 100)
        return ull__fail(err, ULL_E_INVALID, "the path of the folder to save into is %s",
                         folder[0] ? "too long" : "empty");
    struct stat info;
    ull_status status = ULL_OK;
    if (stat(folder, &info) != 0)
        status = ull__folder_create(folder, err);
    else if (!S_ISDIR(info.st_mode))
        status = ull__fail(err, ULL_E_INVALID, "'%.300s' is no folder to save into", folder);
    if (status != ULL_OK)
        return status;
    struct ull__save *save = calloc(1, sizeof *save);
    if (!save)
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to save with");
    snprintf(save->path, sizeof save->path, "%s", folder);
    save->warn = warn;
    save->context = context;
    save->lock = -1;
    save->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (save->folder < 0)
        status = ull__save_fail(err, errno, "open", folder);
    if (status == ULL_OK && (status = take_lock(save, err)) == ULL_OK &&
        (status = find_newest(save, err)) == ULL_OK) {
        ull__save_remove(save->folder, SAVING);
        ull__save_remove(save->folder, REMOVING);
        *newest = save->has_any ? save->newest : UINT64_MAX;
        *out = save;
        return ULL_OK;
    }
    ull__save_close(save);
    return status;
}

void ull__save_close(struct ull__save *save)
{
    if (!save)
        return;
    if (save->lock >= 0)
        close(save->lock);
    if (save->folder >= 0)
        close(save->folder);
    free(save);
}

/* ---- writing ----------------------------------------------------------------------------------- */

/* Some file systems have no fsync for folders; there is nothing more to do there. */
static bool flush(int fd)
{
    return fsync(fd) == 0 || errno == EINVAL || errno == EROFS;
}

/* Flushes and closes, whatever came before; the first error counts. */
static ull_status finish_file(int fd, const char *name, ull_status status, struct ull_error *err)
{
    if (status == ULL_OK && fsync(fd) != 0)
        status = ull__save_fail(err, errno, "write", name);
    if (close(fd) != 0 && status == ULL_OK)
        status = ull__save_fail(err, errno, "write", name);
    return status;
}

static ull_status create(int saving, const char *name, int *fd, struct ull_error *err)
{
    *fd = openat(saving, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return *fd < 0 ? ull__save_fail(err, errno, "create", name) : ULL_OK;
}

static ull_status write_tensors(int saving, const char *name, const struct ull__save_tensor *tensors,
                                size_t count, struct ull__save_file *file, struct ull_error *err)
{
    static const struct ull__save_text texts[] = {{"format", "pt"}};
    int fd;
    ull_status status = create(saving, name, &fd, err);
    if (status != ULL_OK)
        return status;
    status = ull__safetensors_write(fd, name, tensors, count, texts, 1, &file->bytes,
                                    &file->checksum, err);
    return finish_file(fd, name, status, err);
}

static ull_status write_text(int saving, const char *name, const char *text, struct ull_error *err)
{
    int fd;
    ull_status status = create(saving, name, &fd, err);
    if (status != ULL_OK)
        return status;
    for (size_t size = strlen(text), done = 0; done < size && status == ULL_OK;) {
        ssize_t wrote = write(fd, text + done, size - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            status = ull__save_fail(err, wrote ? errno : ENOSPC, "write", name);
        else
            done += (size_t)wrote;
    }
    return finish_file(fd, name, status, err);
}

/* All of a save in the folder that is not yet one. */
static ull_status fill(int saving, const struct ull__save_state *state,
                       const struct ull__save_tensor *model, size_t model_count,
                       const struct ull__save_tensor *rest, size_t rest_count, struct ull_error *err)
{
    struct ull__save_file files[2] = {{0, 0}, {0, 0}};
    char *text = NULL;
    ull_status status = write_tensors(saving, ULL_SAVE_MODEL, model, model_count, &files[0], err);
    if (status == ULL_OK)
        status = write_tensors(saving, ULL_SAVE_REST, rest, rest_count, &files[1], err);
    if (status == ULL_OK)
        status = ull__save_state_write(state, files[0], files[1], &text, err);
    if (status == ULL_OK)
        status = write_text(saving, ULL_SAVE_STATE, text, err);
    free(text);
    if (status == ULL_OK && !flush(saving))
        status = ull__save_fail(err, errno, "write", SAVING);
    return status;
}

/* A name that no save of this step has. */
static ull_status choose_name(const struct ull__save *save, uint64_t step,
                              struct ull__save_name *name, struct ull_error *err)
{
    struct ull__save_name *names;
    size_t count;
    ull_status status = ull__save_list(save->folder, save->path, &names, &count, err);
    if (status != ULL_OK)
        return status;
    uint64_t again = 0;
    for (size_t i = 0; i < count; i++)
        if (names[i].step == step && names[i].again >= again)
            again = names[i].again + 1;
    free(names);
    ull__save_name_make(step, again, name);
    return ULL_OK;
}

static void remove_one(struct ull__save *save, const char *name)
{
    if (!ull__save_remove(save->folder, REMOVING) ||
        renameat(save->folder, name, save->folder, REMOVING) != 0 ||
        !ull__save_remove(save->folder, REMOVING))
        tell(save, "cannot remove the older save", name);
}

/* All but the last two, of which the second is of another step, and those that were damaged. */
static void prune(struct ull__save *save)
{
    struct ull__save_name *names;
    size_t count, kept = 0;
    ull__save_remove_all(save->folder, DAMAGED);
    if (ull__save_list(save->folder, save->path, &names, &count, NULL) != ULL_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        bool same = i > 0 && names[i].step == names[i - 1].step;
        if (same || kept == ULL_SAVE_KEPT)
            remove_one(save, names[i].text);
        else
            kept++;
    }
    free(names);
}

/* Into a folder that is not yet a save, which then becomes one. */
static ull_status write_save(struct ull__save *save, const char *name,
                             const struct ull__save_state *state,
                             const struct ull__save_tensor *model, size_t model_count,
                             const struct ull__save_tensor *rest, size_t rest_count,
                             struct ull_error *err)
{
    if (!ull__save_remove(save->folder, SAVING) || mkdirat(save->folder, SAVING, 0777) != 0)
        return ull__save_fail(err, errno, "create", SAVING);
    int saving = openat(save->folder, SAVING, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (saving < 0)
        return ull__save_fail(err, errno, "open", SAVING);
    ull_status status = fill(saving, state, model, model_count, rest, rest_count, err);
    close(saving);
    if (status == ULL_OK &&
        (renameat(save->folder, SAVING, save->folder, name) != 0 || !flush(save->folder)))
        status = ull__save_fail(err, errno, "rename", SAVING);
    return status;
}

ull_status ull__save_write(struct ull__save *save, const struct ull__save_state *state,
                           const struct ull__save_tensor *model, size_t model_count,
                           const struct ull__save_tensor *rest, size_t rest_count,
                           struct ull_error *err)
{
    struct ull__save_name name;
    if (save->has_any && save->newest > state->step)
        return ull__fail(
            err, ULL_E_INVALID,
            "'%.200s' has a save of step %llu, this one is of step %llu: it is of another "
            "training; resume that one, or take another folder",
            save->path, (unsigned long long)save->newest, (unsigned long long)state->step);
    struct ull_error why = {""};
    ull_status status = choose_name(save, state->step, &name, &why);
    if (status == ULL_OK)
        status = write_save(save, name.text, state, model, model_count, rest, rest_count, &why);
    if (status != ULL_OK) {
        ull__save_remove(save->folder, SAVING);
        return ull__fail(err, status, "step %llu is not saved into '%.180s': %.250s",
                         (unsigned long long)state->step, save->path, why.message);
    }
    save->has_any = true;
    save->newest = state->step;
    prune(save);
    return ULL_OK;
}
