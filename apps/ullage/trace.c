/*
 * trace.c: see trace.h. Ids may be any numbers, so an open-addressing hash table finds the live ones.
 */
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "error.h"

#define HEADER "time_us,action,id,size,stream"
enum { LINE = 160, MAX_EVENTS = 1 << 28 };
#define MAX_BYTES ((uint64_t)INT64_MAX)

/* One id that was seen; dead ones stay so that chains of probes do not break. */
struct id_entry {
    uint64_t id;
    uint64_t size;
    uint32_t slot;
    bool used;
    bool live;
};

struct reader {
    const char *path;
    struct trace *trace;
    size_t capacity;
    struct id_entry *ids;
    size_t id_count;
    size_t id_capacity; /* a power of two */
    uint32_t *free_slots;
    uint32_t free_count;
    uint64_t live_bytes;
    size_t line;
};

static ull_status fail_line(const struct reader *reader, struct ull_error *err, const char *what,
                            const char *value, const char *expected)
{
    return ull__fail(err, ULL_E_FORMAT, "%.200s line %zu: %s '%.60s': expected %s", reader->path,
                     reader->line, what, value, expected);
}

/* --- ids ---------------------------------------------------------------------------------------- */

static struct id_entry *probe(struct id_entry *ids, size_t capacity, uint64_t id)
{
    size_t at = (size_t)((id * 0x9e3779b97f4a7c15ull) >> 20) & (capacity - 1);
    while (ids[at].used && ids[at].id != id)
        at = (at + 1) & (capacity - 1);
    return &ids[at];
}

static bool grow_ids(struct reader *reader)
{
    size_t capacity = reader->id_capacity ? reader->id_capacity * 2 : 1024;
    struct id_entry *ids = calloc(capacity, sizeof *ids);
    if (!ids)
        return false;
    for (size_t i = 0; i < reader->id_capacity; i++) {
        if (reader->ids[i].used)
            *probe(ids, capacity, reader->ids[i].id) = reader->ids[i];
    }
    free(reader->ids);
    reader->ids = ids;
    reader->id_capacity = capacity;
    return true;
}

static struct id_entry *find_id(struct reader *reader, uint64_t id)
{
    if ((reader->id_count + 1) * 2 > reader->id_capacity && !grow_ids(reader))
        return NULL;
    return probe(reader->ids, reader->id_capacity, id);
}

/* --- lines --------------------------------------------------------------------------------------- */

/* A whole number of at most `most` in the whole text. */
static bool read_number(const char *text, uint64_t most, uint64_t *value)
{
    uint64_t number = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        unsigned int digit = (unsigned int)(*text - '0');
        if (number > (most - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *value = number;
    return true;
}

static bool split_columns(char *line, char *columns[5])
{
    for (int i = 0; i < 5; i++) {
        columns[i] = line;
        char *comma = strchr(line, ',');
        if ((comma == NULL) != (i == 4))
            return false;
        if (comma) {
            *comma = 0;
            line = comma + 1;
        }
    }
    return true;
}

static ull_status add_allocation(struct reader *reader, struct trace_event *event,
                                 struct id_entry *entry, uint64_t id, struct ull_error *err)
{
    struct trace *trace = reader->trace;
    char text[24];
    if (entry->used && entry->live) {
        snprintf(text, sizeof text, "%llu", (unsigned long long)id);
        return fail_line(reader, err, "allocates the live id", text, "an id that is not live");
    }
    if (event->size > MAX_BYTES - reader->live_bytes) {
        snprintf(text, sizeof text, "%llu", (unsigned long long)event->size);
        return fail_line(reader, err, "the live sizes overflow with size", text, "a sum below 8 EiB");
    }
    if (!entry->used)
        reader->id_count++;
    event->slot = reader->free_count ? reader->free_slots[--reader->free_count] : trace->slots++;
    *entry = (struct id_entry){
        .id = id, .size = event->size, .slot = event->slot, .used = true, .live = true};
    reader->live_bytes += event->size;
    if (reader->live_bytes > trace->peak_bytes) {
        trace->peak_bytes = reader->live_bytes;
        trace->peak_event = trace->count;
    }
    return ULL_OK;
}

static ull_status add_free(struct reader *reader, struct trace_event *event, struct id_entry *entry,
                           uint64_t id, struct ull_error *err)
{
    char text[48], expected[48];
    snprintf(text, sizeof text, "%llu", (unsigned long long)id);
    if (!entry->used)
        return fail_line(reader, err, "frees the unknown id", text, "an id allocated before");
    if (!entry->live)
        return fail_line(reader, err, "frees a second time id", text, "an id that is live");
    if (event->size != entry->size) {
        snprintf(text, sizeof text, "%llu", (unsigned long long)event->size);
        snprintf(expected, sizeof expected, "%llu as allocated", (unsigned long long)entry->size);
        return fail_line(reader, err, "frees with another size", text, expected);
    }
    event->slot = entry->slot;
    entry->live = false;
    reader->live_bytes -= entry->size;
    reader->free_slots[reader->free_count++] = entry->slot;
    return ULL_OK;
}

static ull_status reserve_event(struct reader *reader, struct ull_error *err)
{
    struct trace *trace = reader->trace;
    if (trace->count < reader->capacity)
        return ULL_OK;
    if (trace->count >= MAX_EVENTS)
        return ull__fail(err, ULL_E_FORMAT, "%.200s has more than %d lines", reader->path,
                         MAX_EVENTS);
    size_t capacity = reader->capacity ? reader->capacity * 2 : 4096;
    struct trace_event *events = realloc(trace->events, capacity * sizeof *events);
    if (events)
        trace->events = events;
    uint32_t *slots = realloc(reader->free_slots, capacity * sizeof *slots);
    if (slots)
        reader->free_slots = slots;
    if (!events || !slots)
        return ull__fail(err, ULL_E_SYSTEM, "no memory for %zu lines of %.200s", capacity,
                         reader->path);
    reader->capacity = capacity;
    return ULL_OK;
}

static ull_status add_line(struct reader *reader, char *line, struct ull_error *err)
{
    char *columns[5], whole[LINE];
    uint64_t id;
    ull_status status = reserve_event(reader, err);
    if (status != ULL_OK)
        return status;
    struct trace_event *event = &reader->trace->events[reader->trace->count];
    memset(event, 0, sizeof *event);
    snprintf(whole, sizeof whole, "%s", line);
    if (!split_columns(line, columns))
        return fail_line(reader, err, "not five columns:", whole, HEADER);
    if (!read_number(columns[0], MAX_BYTES, &event->time_us))
        return fail_line(reader, err, "time_us is", columns[0], "a whole number from 0");
    event->allocates = strcmp(columns[1], "a") == 0;
    if (!event->allocates && strcmp(columns[1], "f") != 0)
        return fail_line(reader, err, "action is", columns[1], "a (allocate) or f (free)");
    if (!read_number(columns[2], UINT64_MAX, &id))
        return fail_line(reader, err, "id is", columns[2], "a whole number from 0");
    if (!read_number(columns[3], MAX_BYTES, &event->size) || event->size == 0)
        return fail_line(reader, err, "size is", columns[3], "a number of bytes from 1 below 8 EiB");
    if (!read_number(columns[4], UINT64_MAX, &event->stream))
        return fail_line(reader, err, "stream is", columns[4], "a whole number from 0");
    struct id_entry *entry = find_id(reader, id);
    if (!entry)
        return ull__fail(err, ULL_E_SYSTEM, "no memory for the ids of %.200s", reader->path);
    status = event->allocates ? add_allocation(reader, event, entry, id, err)
                              : add_free(reader, event, entry, id, err);
    if (status == ULL_OK)
        reader->trace->count++;
    return status;
}

/* --- files --------------------------------------------------------------------------------------- */

/* zlib reads plain files too; what does not begin like gzip is told apart here. */
static ull_status open_gzip(const char *path, gzFile *file, struct ull_error *err)
{
    unsigned char magic[2] = {0, 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        ull_status status = errno == ENOENT   ? ULL_E_NOT_FOUND
                            : errno == EACCES ? ULL_E_PERMISSION
                                              : ULL_E_SYSTEM;
        return ull__fail(err, status, "cannot read the trace '%.200s': %s", path, strerror(errno));
    }
    ssize_t count = pread(fd, magic, sizeof magic, 0);
    if (count < 0) { /* a pipe, a folder */
        int error = errno;
        close(fd);
        return ull__fail(err, ULL_E_SYSTEM, "cannot read the trace '%.200s': %s: expected a file",
                         path, strerror(error));
    }
    if (count < 2) {
        close(fd);
        return ull__fail(
            err, ULL_E_FORMAT,
            "'%.200s' is too short: expected a trace as gzip CSV with the columns " HEADER, path);
    }
    if (magic[0] != 0x1f || magic[1] != 0x8b) {
        close(fd);
        return ull__fail(err, ULL_E_FORMAT,
                         "'%.200s' is not gzip (begins with %02x %02x): expected a "
                         "trace as gzip CSV with the columns " HEADER,
                         path, magic[0], magic[1]);
    }
    *file = gzdopen(fd, "rb");
    if (!*file) {
        close(fd);
        return ull__fail(err, ULL_E_SYSTEM, "no memory to read '%.200s'", path);
    }
    gzbuffer(*file, 128 << 10);
    return ULL_OK;
}

/* What ended the reading: the end of a whole file, or something broken. */
static ull_status check_end(const struct reader *reader, gzFile file, struct ull_error *err)
{
    int code;
    const char *message = gzerror(file, &code);
    if (code == Z_OK || code == Z_STREAM_END)
        return ULL_OK;
    if (code == Z_BUF_ERROR)
        return ull__fail(err, ULL_E_FORMAT,
                         "%.200s is truncated after line %zu: expected the end of the gzip data",
                         reader->path, reader->line);
    return ull__fail(err, ULL_E_FORMAT, "%.200s is damaged after line %zu: %.100s", reader->path,
                     reader->line, message);
}

static ull_status read_lines(struct reader *reader, gzFile file, struct ull_error *err)
{
    char line[LINE];
    while (gzgets(file, line, sizeof line)) {
        size_t length = strlen(line);
        reader->line++;
        bool whole = length > 0 && line[length - 1] == '\n';
        if (!whole && !gzeof(file)) {
            ull_status status = check_end(reader, file, err);
            return status != ULL_OK
                       ? status
                       : fail_line(reader, err, "too long or with a zero byte:", line, HEADER);
        }
        if (!whole) { /* the last line of a file may lack its newline, unless the file is cut off */
            ull_status status = check_end(reader, file, err);
            if (status != ULL_OK)
                return status;
        }
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
            line[--length] = 0;
        if (reader->line == 1) {
            if (strcmp(line, HEADER) != 0)
                return fail_line(reader, err, "the header is", line, HEADER);
            continue;
        }
        ull_status status = add_line(reader, line, err);
        if (status != ULL_OK)
            return status;
    }
    return check_end(reader, file, err);
}

ull_status trace_load(const char *path, struct trace *trace, struct ull_error *err)
{
    gzFile file;
    struct trace loaded;
    memset(&loaded, 0, sizeof loaded);
    struct reader reader = {.path = path, .trace = &loaded};
    ull_status status = open_gzip(path, &file, err);
    if (status != ULL_OK)
        return status;
    status = read_lines(&reader, file, err);
    gzclose(file);
    free(reader.ids);
    free(reader.free_slots);
    if (status == ULL_OK && loaded.count == 0)
        status = ull__fail(err, ULL_E_FORMAT,
                           "%.200s holds no allocation: expected lines below the "
                           "header " HEADER,
                           path);
    if (status == ULL_OK)
        *trace = loaded;
    else
        free(loaded.events);
    return status;
}

void trace_free(struct trace *trace)
{
    free(trace->events);
    memset(trace, 0, sizeof *trace);
}
