/* peaks.c: see peaks.h. A file with lines "BYTES UUID NAME", the newest first and so many of them. */
#include "peaks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

enum { FILE_LIMIT = 1 << 20, LINES = 1000, LINE = 512 };

static bool file_path(char *path, size_t size)
{
    char folder[ULL_FILE_PATH];
    return ull__state_folder(folder) && snprintf(path, size, "%s/peaks", folder) < (int)size;
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

/* The next line that can be read; its name is what is left of it. */
static const char *read_line(const char *at, uint64_t *bytes, char uuid[ULL_UUID_TEXT],
                             char name[LINE])
{
    while (at && *at) {
        size_t length = strcspn(at, "\n");
        char line[LINE];
        int used = 0;
        snprintf(line, sizeof line, "%.*s", (int)(length < LINE ? length : LINE - 1), at);
        at += length + (at[length] == '\n');
        if (sscanf(line, "%" SCNu64 " %63s %n", bytes, uuid, &used) == 2 && used > 0 && line[used]) {
            snprintf(name, LINE, "%s", line + used);
            return at;
        }
    }
    return NULL;
}

bool peaks_recall(struct ull__job_spec *job)
{
    char *text = read_file(), uuid[ULL_UUID_TEXT], name[LINE];
    uint64_t bytes;
    bool found = false;
    for (const char *at = text; (at = read_line(at, &bytes, uuid, name));) {
        if (strcmp(name, job->name) != 0)
            continue;
        for (int i = 0; i < job->device_count; i++) {
            struct ull__device_spec *device = &job->devices[i];
            if (strcmp(device->uuid, uuid) != 0 || device->room_bytes > 0)
                continue;
            uint64_t most = device->budget_bytes;
            device->room_bytes = bytes < most ? bytes : most;
            found = true;
        }
    }
    free(text);
    return found;
}

void peaks_remember(struct ull__ledger *ledger)
{
    const struct ull__job_spec *job = ull__ledger_spec(ledger);
    char path[ULL_FILE_PATH + 16], folder[ULL_FILE_PATH], *text = NULL, *old = read_file();
    char uuid[ULL_UUID_TEXT], name[LINE];
    struct ull__account_view account;
    uint64_t bytes;
    size_t size;
    int lines = 0;
    FILE *out = open_memstream(&text, &size);
    bool has_account = ull__ledger_account(ledger, 0, &account);
    for (int i = 0; out && i < job->device_count && has_account; i++)
        if (account.usage[i].peak_bytes > 0)
            lines += fprintf(out, "%" PRIu64 " %s %s\n", account.usage[i].peak_bytes,
                             job->devices[i].uuid, job->name) > 0;
    bool changed = lines > 0;
    for (const char *at = old; out && lines < LINES && (at = read_line(at, &bytes, uuid, name));)
        if (strcmp(name, job->name) != 0)
            lines += fprintf(out, "%" PRIu64 " %s %s\n", bytes, uuid, name) > 0;
    if (out && fclose(out) == 0 && changed && ull__state_folder(folder) &&
        file_path(path, sizeof path) && ull__folder_create(folder, NULL) == ULL_OK)
        ull__file_write(path, text, size, NULL);
    free(text);
    free(old);
}
