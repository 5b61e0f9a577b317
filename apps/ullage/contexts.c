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
enum { FILE_LIMIT = 1 << 20, DRIVER_TEXT = 64 };

/* What a line of the file says. */
struct remembered {
    char uuid[ULL_UUID_TEXT];
    uint64_t bytes, hidden; /* 0: not known */
    char driver[DRIVER_TEXT];
};

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

/* False if it is no line of ours. */
static bool parse_line(const char *line, struct remembered *one)
{
    memset(one, 0, sizeof *one);
    int fields = sscanf(line, "%63s %" SCNu64 "%*1[ ]%" SCNu64 " %63s", one->uuid, &one->bytes,
                        &one->hidden, one->driver);
    if (fields < 4)
        one->hidden = 0;
    return fields >= 2;
}

/* What is remembered of a device in the text of the file; all 0 if nothing is. */
static void look_up(const char *text, const char *uuid, struct remembered *one)
{
    while (text && *text) {
        if (parse_line(text, one) && strcmp(one->uuid, uuid) == 0)
            return;
        text = strchr(text, '\n');
        if (text)
            text++;
    }
    memset(one, 0, sizeof *one);
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

/* What is larger than half a card is no context: somebody edited the file. */
static bool plausible(const struct remembered *one, const struct ull__device_spec *device)
{
    return one->bytes > 0 && (device->total_bytes == 0 || one->bytes <= device->total_bytes / 2);
}

void contexts_recall(struct ull__job_spec *job, const char *driver)
{
    char *text = read_file();
    for (int i = 0; i < job->device_count; i++) {
        struct ull__device_spec *device = &job->devices[i];
        struct remembered one;
        look_up(text, device->uuid, &one);
        bool known = plausible(&one, device);
        device->context_bytes = known ? one.bytes : default_guess(device);
        device->hidden_bytes =
            known && one.hidden <= one.bytes && strcmp(one.driver, driver) == 0 ? one.hidden : 0;
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

static void write_line(FILE *out, const struct remembered *one)
{
    fprintf(out, "%s %" PRIu64, one->uuid, one->bytes);
    if (one->hidden)
        fprintf(out, " %" PRIu64 " %s", one->hidden, one->driver);
    fputc('\n', out);
}

/* The lines of other devices stay; those of this job are written anew. */
static void write_file(const char *old, const struct ull__job_spec *job,
                       const struct remembered *sizes)
{
    char path[ULL_FILE_PATH + 16], folder[ULL_FILE_PATH];
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return;
    for (const char *line = old; line && *line;) {
        struct remembered one;
        if (parse_line(line, &one) && !is_job_device(job, one.uuid))
            write_line(out, &one);
        line = strchr(line, '\n');
        if (line)
            line++;
    }
    for (int i = 0; i < job->device_count; i++) {
        if (sizes[i].bytes)
            write_line(out, &sizes[i]);
    }
    if (fclose(out) == 0 && ull__state_folder(folder) && file_path(path, sizeof path) &&
        ull__folder_create(folder, NULL) == ULL_OK)
        ull__file_write(path, text, size, NULL);
    free(text);
}

/* What the job knows of a device by now. */
static void of_ledger(struct ull__ledger *ledger, int device, const char *driver,
                      const struct remembered *old, struct remembered *now)
{
    const struct ull__device_spec *spec = &ull__ledger_spec(ledger)->devices[device];
    memset(now, 0, sizeof *now);
    snprintf(now->uuid, sizeof now->uuid, "%s", spec->uuid);
    now->bytes = ull__ledger_context_bytes(ledger, device);
    /* An unmeasured context still has the guess, which is not worth keeping. */
    if (now->bytes == spec->context_bytes)
        now->bytes = old->bytes;
    if (!driver[0] || strpbrk(driver, " \t\n")) { /* it cannot be told of which version anything is */
        now->hidden = old->hidden;
        snprintf(now->driver, sizeof now->driver, "%s", old->driver);
        return;
    }
    now->hidden = ull__ledger_hidden_measured(ledger, device);
    /* Not measured; but what the job began with and then found to be nothing is not kept. */
    bool gone = spec->hidden_bytes > 0 && ull__ledger_hidden_bytes(ledger, device) == 0;
    if (now->hidden == 0 && !gone && strcmp(old->driver, driver) == 0)
        now->hidden = old->hidden;
    if (now->hidden)
        snprintf(now->driver, sizeof now->driver, "%s", driver);
}

void contexts_remember(struct ull__ledger *ledger, const char *driver)
{
    const struct ull__job_spec *job = ull__ledger_spec(ledger);
    struct remembered sizes[ULL_MAX_DEVICES];
    bool changed = false;
    char *text = read_file();
    for (int i = 0; i < job->device_count; i++) {
        struct remembered old;
        look_up(text, job->devices[i].uuid, &old);
        of_ledger(ledger, i, driver, &old, &sizes[i]);
        changed = changed || sizes[i].bytes != old.bytes || sizes[i].hidden != old.hidden ||
                  strcmp(sizes[i].driver, old.driver) != 0;
    }
    if (changed)
        write_file(text, job, sizes);
    free(text);
}
