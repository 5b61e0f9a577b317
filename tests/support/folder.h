/* folder.h: a folder for one test, in memory where there is one, and files in it. After cmocka.h. */
#ifndef ULLAGE_TESTS_FOLDER_H
#define ULLAGE_TESTS_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline void folder_make(char path[256])
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, 256, "%s/ullage-test-XXXXXX", base);
    assert_non_null(mkdtemp(path));
}

static inline int folder_remove_one(const char *path, const struct stat *info, int type,
                                    struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

static inline void folder_remove(const char *path)
{
    nftw(path, folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void file_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Caller frees. */
static inline char *file_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    bytes[*size] = 0;
    fclose(file);
    return bytes;
}

#endif
