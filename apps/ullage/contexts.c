/* contexts.c: see contexts.h. */
#include "contexts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

/*
 * A bare context took 526 MiB on an H200 (driver 580). Smaller cards have fewer processors and take
 * less, so that on a card of a few GiB the guess is an eighth of it (the size of a context grows with
 * the card): too high a guess would refuse contexts that fit, too low a one is corrected at once when
 * the context is measured.
 */
#define DEFAULT_BYTES (528ull << 20)
#define LINE_FORMAT "%63s %" SCNu64
enum { FILE_LIMIT = 1 << 20 };

static uint64_t default_guess(const struct ull__device_spec *device)
{
    uint64_t share = device->total_bytes / 8;
    return device->total_bytes == 0 || share > DEFAULT_BYTES ? DEFAULT_BYTES : share;
}

static bool file_path(char *path, size_t size)
{
    char folder[ULL_FILE_PATH];
    return ull__state_folder(folder) && snprintf(path, size, "%s/contexts", folder) < (int)size;
}

/* The remembered size of a device in the text of the file, or 0. */
static uint64_t look_up(const char *text, const char *uuid)
{
    while (text && *text) {
        char name[ULL_UUID_TEXT];
        uint64_t bytes;
        if (sscanf(text, LINE_FORMAT, name, &bytes) == 2 && strcmp(name, uuid) == 0)
            return bytes;
        text = strchr(text, '\n');
        if (text)
            text++;
    }
    return 0;
}

static char *read_file(void)
{
    char path[ULL_FILE_PATH + 16], *text;
    size_t size;
    if (!file_path(path, sizeof path) ||
        ull__file_read(path, FILE_LIMIT, &text, &size, NULL) != ULL_OK)
        return NULL;
    return text;
}

void contexts_recall(struct ull__job_spec *job)
{
    char *text = read_file();
    for (int i = 0; i < job->device_count; i++) {
        struct ull__device_spec *device = &job->devices[i];
        uint64_t bytes = look_up(text, device->uuid);
        /* What is larger than half a card is no context: somebody edited the file. */
        bool plausible = bytes > 0 && (device->total_bytes == 0 || bytes <= device->total_bytes / 2);
        device->context_bytes = plausible ? bytes : default_guess(device);
    }
    free(text);
}

static bool is_job_device(const struct ull__job_spec *job, const char *uuid)
{
    for (int i = 0; i < job->device_count; i++) {
        if (strcmp(job->devices[i].uuid, uuid) == 0)
            return true;
    }
    return false;
}

/* The lines of other devices stay; those of this job are written anew. */
static void write_file(const char *old, const struct ull__job_spec *job, const uint64_t *sizes)
{
    char path[ULL_FILE_PATH + 16], folder[ULL_FILE_PATH];
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return;
    for (const char *line = old; line && *line;) {
        char name[ULL_UUID_TEXT];
        uint64_t bytes;
        if (sscanf(line, LINE_FORMAT, name, &bytes) == 2 && !is_job_device(job, name))
            fprintf(out, "%s %" PRIu64 "\n", name, bytes);
        line = strchr(line, '\n');
        if (line)
            line++;
    }
    for (int i = 0; i < job->device_count; i++) {
        if (sizes[i])
            fprintf(out, "%s %" PRIu64 "\n", job->devices[i].uuid, sizes[i]);
    }
    if (fclose(out) == 0 && ull__state_folder(folder) && file_path(path, sizeof path) &&
        ull__folder_create(folder, NULL) == ULL_OK)
        ull__file_write(path, text, size, NULL);
    free(text);
}

void contexts_remember(struct ull__ledger *ledger)
{
    const struct ull__job_spec *job = ull__ledger_spec(ledger);
    uint64_t sizes[ULL_MAX_DEVICES];
    bool changed = false;
    char *old = read_file();
    for (int i = 0; i < job->device_count; i++) {
        uint64_t known = look_up(old, job->devices[i].uuid);
        sizes[i] = ull__ledger_context_bytes(ledger, i);
        /* An unmeasured context still has the guess, which is not worth keeping. */
        if (sizes[i] == job->devices[i].context_bytes)
            sizes[i] = known;
        changed = changed || sizes[i] != known;
    }
    if (changed)
        write_file(old, job, sizes);
    free(old);
}
