/* folder.c: the names of saves in their folder. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "save_private.h"

void ull__save_name_make(uint64_t step, uint64_t again, struct ull__save_name *name)
{
    *name = (struct ull__save_name){.step = step, .again = again};
    int used = snprintf(name->text, sizeof name->text, "step-%08" PRIu64, step);
    if (again)
        snprintf(name->text + used, sizeof name->text - (size_t)used, ".%" PRIu64, again);
}

bool ull__save_name_parse(const char *text, struct ull__save_name *name)
{
    char *end;
    if (strncmp(text, "step-", 5) != 0 || !isdigit((unsigned char)text[5]))
        return false;
    errno = 0;
    uint64_t step = strtoull(text + 5, &end, 10), again = 0;
    if (*end == '.' && isdigit((unsigned char)end[1]))
        again = strtoull(end + 1, &end, 10);
    if (*end || errno)
        return false;
    struct ull__save_name made;
    ull__save_name_make(step, again, &made);
    if (strcmp(made.text, text) != 0)
        return false;
    *name = made;
    return true;
}

static int newest_first(const void *a, const void *b)
{
    const struct ull__save_name *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return x->again > y->again ? -1 : x->again < y->again;
}

ull_status ull__save_list(int folder, const char *path, struct ull__save_name **names,
                          size_t *count, struct ull_error *err)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (!directory) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return ull__fail(err, ULL_E_SYSTEM, "cannot read the folder '%.300s': %s", path,
                         strerror(error));
    }
    struct ull__save_name *list = NULL;
    size_t used = 0, capacity = 0;
    ull_status status = ULL_OK;
    for (struct dirent *entry; status == ULL_OK && (entry = readdir(directory));) {
        struct ull__save_name name;
        if (!ull__save_name_parse(entry->d_name, &name))
            continue;
        if (used == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            struct ull__save_name *grown = realloc(list, capacity * sizeof *list);
            if (!grown) {
                status = ull__fail(err, ULL_E_NO_MEMORY, "no memory for a list of saves");
                break;
            }
            list = grown;
        }
        list[used++] = name;
    }
    closedir(directory);
    if (status != ULL_OK) {
        free(list);
        return status;
    }
    if (used)
        qsort(list, used, sizeof *list, newest_first);
    *names = list;
    *count = used;
    return ULL_OK;
}

bool ull__save_remove(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (!directory) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        errno = error;
        return error == ENOENT;
    }
    bool good = true;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            good = unlinkat(dirfd(directory), entry->d_name, 0) == 0 && good;
    int error = errno;
    closedir(directory);
    errno = error;
    return good && unlinkat(folder, name, AT_REMOVEDIR) == 0;
}

void ull__save_remove_all(int folder, const char *prefix)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (!directory) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            ull__save_remove(folder, entry->d_name);
    closedir(directory);
}
