/*
 * recognize.c: what lies at a path: names and first bytes only.
 *
 * A folder with IDX files, with token files, with text files, or with folders of pictures is told by the
 * names in it. Two of these at once are refused rather than guessed about.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data_private.h"

bool ull__data_is_named(const char *name, const char *ending)
{
    size_t length = strlen(name), wanted = strlen(ending);
    return length > wanted && strcasecmp(name + length - wanted, ending) == 0;
}

bool ull__data_is_picture(const char *name)
{
    return ull__data_is_named(name, ".jpg") || ull__data_is_named(name, ".jpeg") ||
           ull__data_is_named(name, ".png");
}

bool ull__data_is_idx(const char *name)
{
    size_t length = strlen(name);
    if (ull__data_is_named(name, ".gz"))
        length -= 3;
    for (size_t i = 1; i + 4 < length; i++)
        if (strncmp(name + i, "idx", 3) == 0 && name[i + 3] >= '1' && name[i + 3] <= '4' &&
            (name[i - 1] == '-' || name[i - 1] == '.') && name[i + 4] == '-')
            return true;
    return false;
}

static bool is_tokens(const char *name)
{
    return ull__data_is_named(name, ".bin") || ull__data_is_named(name, ".u16") ||
           ull__data_is_named(name, ".u32") || ull__data_is_named(name, ".tokens");
}

int ull__data_is_folder(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return -1;
    return S_ISDIR(info.st_mode) ? 1 : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void ull__data_list_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

ull_status ull__data_list(const char *folder, char ***names, size_t *count, struct ull_error *err)
{
    DIR *directory = opendir(folder);
    if (!directory)
        return ull__fail(err,
                         errno == EACCES   ? ULL_E_PERMISSION
                         : errno == ENOENT ? ULL_E_NOT_FOUND
                                           : ULL_E_SYSTEM,
                         "cannot read the folder '%.300s': %s", folder, strerror(errno));
    char **list = NULL;
    size_t used = 0, capacity = 0;
    int error = 0;
    while (!error) {
        errno = 0;
        struct dirent *entry = readdir(directory);
        if (!entry) {
            error = errno;
            break;
        }
        if (entry->d_name[0] == '.')
            continue;
        if (used == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            char **grown = realloc(list, capacity * sizeof *list);
            if (!grown) {
                error = ENOMEM;
                break;
            }
            list = grown;
        }
        list[used] = strdup(entry->d_name);
        if (list[used])
            used++;
        else
            error = ENOMEM;
    }
    closedir(directory);
    if (error) {
        ull__data_list_free(list, used);
        return ull__fail(err, error == ENOMEM ? ULL_E_NO_MEMORY : ULL_E_SYSTEM,
                         "cannot read the folder '%.300s': %s", folder, strerror(error));
    }
    if (used)
        qsort(list, used, sizeof *list, by_name);
    *names = list;
    *count = used;
    return ULL_OK;
}

/* Whether there is a picture or, one below, a folder with one. */
static bool has_picture(const char *folder, int depth)
{
    char **names, path[ULL_DATA_PATH];
    size_t count;
    if (ull__data_list(folder, &names, &count, NULL) != ULL_OK)
        return false;
    bool found = false;
    for (size_t i = 0; i < count && !found; i++) {
        if (ull__data_is_picture(names[i]))
            found = true;
        else if (depth > 0 &&
                 snprintf(path, sizeof path, "%s/%s", folder, names[i]) < (int)sizeof path &&
                 ull__data_is_folder(path) == 1)
            found = has_picture(path, depth - 1);
    }
    ull__data_list_free(names, count);
    return found;
}

/* What was seen of each format: the first name, or NULL. */
struct seen {
    const char *of[ULL_DATA_FORMATS];
    const char *folder; /* the first folder, with pictures or not */
};

static void look_at(const char *folder, const char *name, struct seen *seen)
{
    char path[ULL_DATA_PATH];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return;
    enum ull__data_format format = ULL_DATA_AUTO;
    if (ull__data_is_folder(path) == 1) {
        seen->folder = seen->folder ? seen->folder : name;
        if (has_picture(path, 1))
            format = ULL_DATA_IMAGES;
    } else if (ull__data_is_picture(name)) {
        format = ULL_DATA_IMAGES;
    } else if (ull__data_is_idx(name)) {
        format = ULL_DATA_IDX;
    } else if (is_tokens(name)) {
        format = ULL_DATA_TOKENS;
    } else if (ull__data_is_named(name, ".txt")) {
        format = ULL_DATA_TEXT;
    }
    if (format != ULL_DATA_AUTO && !seen->of[format])
        seen->of[format] = name;
}

static ull_status recognize_folder(const char *path, enum ull__data_format *format,
                                   struct ull_error *err)
{
    char **names;
    size_t count;
    ull_status status = ull__data_list(path, &names, &count, err);
    if (status != ULL_OK)
        return status;
    struct seen seen = {.folder = NULL};
    for (size_t i = 0; i < count; i++)
        look_at(path, names[i], &seen);
    int first = 0, second = 0;
    for (int i = 1; i < ULL_DATA_FORMATS; i++) {
        if (!seen.of[i])
            continue;
        if (!first)
            first = i;
        else if (!second)
            second = i;
    }
    if (second)
        status =
            ull__fail(err, ULL_E_FORMAT,
                      "'%.200s' holds mixed data: '%.60s' is of format %s, '%.60s' of format %s; "
                      "separate them, or say format=",
                      path, seen.of[first], ull__data_format_text((enum ull__data_format)first),
                      seen.of[second], ull__data_format_text((enum ull__data_format)second));
    else if (first)
        *format = (enum ull__data_format)first;
    else if (!count)
        status = ull__fail(err, ULL_E_FORMAT,
                           "the folder '%.300s' is empty: expected IDX files, a folder of pictures "
                           "for each class, .txt files or .bin files of tokens",
                           path);
    else
        status =
            ull__fail(err, ULL_E_FORMAT,
                      "nothing in '%.200s' is known (the first name in it is '%.60s'): expected "
                      "IDX files, a folder of .jpg or .png for each class, .txt files or .bin "
                      "files of tokens",
                      path, names[0]);
    ull__data_list_free(names, count);
    return status;
}

static ull_status recognize_file(const char *path, enum ull__data_format *format,
                                 struct ull_error *err)
{
    if (ull__data_is_idx(path))
        return ull__fail(
            err, ULL_E_INVALID,
            "'%.300s' is one file of IDX data: give the folder that has it and its labels", path);
    if (ull__data_is_picture(path))
        return ull__fail(err, ULL_E_INVALID,
                         "'%.300s' is one picture: give a folder that has a folder for each class",
                         path);
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return ull__fail(
            err, ULL_E_INVALID,
            "'%.300s' is neither a file nor a folder: say format=text to read text from it", path);
    *format = is_tokens(path) ? ULL_DATA_TOKENS : ULL_DATA_TEXT;
    if (*format == ULL_DATA_TOKENS)
        return ULL_OK;
    unsigned char bytes[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, bytes, sizeof bytes) : -1;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return ull__fail(err, error == EACCES ? ULL_E_PERMISSION : ULL_E_SYSTEM,
                         "cannot read '%.300s': %s", path, strerror(error));
    if (memchr(bytes, 0, (size_t)got))
        return ull__fail(err, ULL_E_FORMAT,
                         "'%.300s' is no text: say format=tokens if it holds token ids, or "
                         "format=text,unit=bytes to train on its bytes",
                         path);
    return ULL_OK;
}

ull_status ull__data_recognize(const char *path, enum ull__data_format *format, struct ull_error *err)
{
    int folder = ull__data_is_folder(path);
    if (folder < 0)
        return ull__fail(err,
                         errno == EACCES                       ? ULL_E_PERMISSION
                         : errno == ENOENT || errno == ENOTDIR ? ULL_E_NOT_FOUND
                                                               : ULL_E_SYSTEM,
                         "no data at '%.300s': %s", path, strerror(errno));
    return folder ? recognize_folder(path, format, err) : recognize_file(path, format, err);
}
