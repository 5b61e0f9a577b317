/* idx_file.c: see idx_file.h. */
#include "idx_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data_private.h"

/* zlib packs at best 1,032 bytes into one. */
enum { MOST_PACKED = 1040 };

static ull_status ends_early(const struct ull__idx *file, const char *after, struct ull_error *err)
{
    int code = Z_OK;
    const char *why = gzerror(file->stream, &code);
    if (code != Z_OK && code != Z_BUF_ERROR)
        return ull__fail(err, ULL_E_FORMAT, "'%.300s' is damaged %s: %.100s", file->path, after, why);
    return ull__fail(err, ULL_E_FORMAT, "'%.300s' ends %s: it is cut off; fetch it again",
                     file->path, after);
}

static ull_status read_header(struct ull__idx *file, struct ull_error *err)
{
    unsigned char head[4], size[4];
    if (gzread(file->stream, head, 4) != 4)
        return ends_early(file, "within its first four bytes", err);
    if (head[0] || head[1] || head[3] < 1 || head[3] > 4)
        return ull__fail(
            err, ULL_E_FORMAT,
            "'%.300s' begins with %02x %02x %02x %02x: expected 00 00, a type and 1 to 4 "
            "dimensions, as IDX files do",
            file->path, head[0], head[1], head[2], head[3]);
    file->type = head[2];
    file->dimensions = head[3];
    for (int i = 0; i < head[3]; i++) {
        if (gzread(file->stream, size, 4) != 4)
            return ends_early(file, "within its dimensions", err);
        file->size[i] = (uint32_t)size[0] << 24 | (uint32_t)size[1] << 16 | (uint32_t)size[2] << 8 |
                        (uint32_t)size[3];
    }
    return ULL_OK;
}

ull_status ull__idx_open(const char *path, struct ull__idx *file, struct ull_error *err)
{
    errno = 0;
    *file = (struct ull__idx){.path = path, .stream = gzopen(path, "rbe")};
    if (!file->stream)
        return ull__fail(err, errno == EACCES ? ULL_E_PERMISSION : ULL_E_SYSTEM,
                         "cannot read '%.300s': %s", path, strerror(errno ? errno : ENOMEM));
    gzbuffer(file->stream, 1 << 18);
    ull_status status = read_header(file, err);
    if (status != ULL_OK)
        gzclose(file->stream);
    return status;
}

ull_status ull__idx_read(struct ull__idx *file, uint64_t items, uint64_t item, const char *names,
                         void **out, struct ull_error *err)
{
    uint64_t total = items * item, done = 0;
    struct stat info;
    if (stat(file->path, &info) == 0 && total / MOST_PACKED > (uint64_t)info.st_size)
        return ull__fail(
            err, ULL_E_FORMAT,
            "'%.300s' has a head that says %llu %s: it is cut off or damaged, since they "
            "cannot be in %lld bytes",
            file->path, (unsigned long long)items, names, (long long)info.st_size);
    char *bytes = malloc(total ? total : 1);
    if (!bytes)
        return ull__data_no_memory(err, total, file->path);
    while (done < total) {
        uint64_t left = total - done;
        int got = gzread(file->stream, bytes + done, left < (1u << 30) ? (unsigned)left : 1u << 30);
        if (got <= 0)
            break;
        done += (uint64_t)got;
    }
    if (done < total) {
        char after[100];
        snprintf(after, sizeof after, "after %llu of %llu %s", (unsigned long long)(done / item),
                 (unsigned long long)items, names);
        free(bytes);
        return ends_early(file, after, err);
    }
    char more;
    int got = gzread(file->stream, &more, 1), code = Z_OK;
    gzerror(file->stream, &code);
    if (got == 0 && code == Z_OK) {
        *out = bytes;
        return ULL_OK;
    }
    free(bytes);
    if (got <= 0) /* the checksum of a gzipped file comes last */
        return ends_early(file, "within its last bytes", err);
    return ull__fail(err, ULL_E_FORMAT, "'%.300s' goes on after the %llu %s that its head says",
                     file->path, (unsigned long long)items, names);
}

void ull__idx_swap(void *bytes, uint64_t count)
{
    uint32_t word;
    for (uint64_t i = 0; i < count; i++) {
        memcpy(&word, (char *)bytes + 4 * i, 4);
        word = __builtin_bswap32(word);
        memcpy((char *)bytes + 4 * i, &word, 4);
    }
}

void ull__idx_close(struct ull__idx *file)
{
    gzclose(file->stream);
}
