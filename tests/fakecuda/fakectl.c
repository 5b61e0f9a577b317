/*
 * fakectl: the fake cards from outside, and the independent witness of what was taken.
 *
 *   fakectl status       the cards as JSON: bytes in use, the most that ever were, and by whom
 *   fakectl reset-peak   peaks start again from what is in use now
 *   fakectl destroy      removes the state; processes that use it keep what they have mapped
 *
 * The peaks are raised in the same critical section that takes memory, so they miss no instant.
 * It looks at the state that ULLAGE_FAKE_STATE and ULLAGE_FAKE_GPUS name, as the libraries do.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared.h"

static void print_processes(const struct fake_shared *shared, int card)
{
    const char *comma = "";
    printf("\"processes\": [");
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++) {
        const struct fake_process *p = &shared->process[i];
        if (p->state == 0 || p->used[card] + p->hidden[card] == 0)
            continue;
        printf("%s{\"pid\": %d, \"used\": %" PRIu64 ", \"hidden\": %" PRIu64 ", \"live\": %" PRIu64
               ", \"dead\": %s, \"frozen\": %" PRIu32 "}",
               comma, p->pid, p->used[card], p->hidden[card], (uint64_t)p->live[card],
               p->state == 2 ? "true" : "false", p->frozen);
        comma = ", ";
    }
    printf("]");
}

static void print_tags(const struct fake_shared *shared, int card)
{
    const char *comma = "";
    printf("\"tags\": {");
    for (int t = 0; t < FAKE_MAX_TAGS && shared->tag_name[t][0]; t++) {
        printf("%s\"", comma);
        for (const char *c = shared->tag_name[t]; *c; c++) {
            if (*c == '"' || *c == '\\')
                putchar('\\');
            putchar((unsigned char)*c < ' ' ? '?' : *c);
        }
        printf("\": {\"used\": %" PRIu64 ", \"peak_used\": %" PRIu64 "}", shared->tag[t][card].used,
               shared->tag[t][card].peak);
        comma = ", ";
    }
    printf("}");
}

static int status(struct fake_shared *shared)
{
    static struct fake_shared copy; /* so that printing holds nobody up */
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    memcpy(&copy, shared, sizeof copy);
    fake_shared_unlock(shared);
    printf("{\"cards\": [");
    for (int c = 0; c < (int)copy.count; c++) {
        uint64_t live = 0, orphaned = 0;
        char uuid[48];
        for (int i = 0; i < FAKE_MAX_PROCESSES; i++)
            live += copy.process[i].state ? (uint64_t)copy.process[i].live[c] : 0;
        for (int i = 0; i < FAKE_MAX_EXPORTS; i++)
            orphaned +=
                copy.export[i].state && copy.export[i].card == c ? copy.export[i].orphaned : 0;
        fake_uuid_text(&copy.config[c], uuid);
        printf("%s\n  {\"index\": %d, \"uuid\": \"%s\", \"total\": %" PRIu64 ", \"used\": %" PRIu64
               ", \"peak_used\": %" PRIu64 ", \"live\": %" PRIu64 ", \"orphaned\": %" PRIu64
               ",\n   ",
               c ? "," : "", c, uuid, copy.config[c].total, copy.card[c].used, copy.card[c].peak,
               live, orphaned);
        print_processes(&copy, c);
        printf(",\n   ");
        print_tags(&copy, c);
        printf("}");
    }
    printf("\n]}\n");
    return 0;
}

static int reset_peak(struct fake_shared *shared)
{
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    for (int c = 0; c < FAKE_MAX_CARDS; c++) {
        shared->card[c].peak = shared->card[c].used;
        for (int t = 0; t < FAKE_MAX_TAGS; t++)
            shared->tag[t][c].peak = shared->tag[t][c].used;
    }
    fake_shared_unlock(shared);
    return 0;
}

/* Removes only what the fake itself puts there. */
static int destroy(void)
{
    const char *directory = fake_config()->directory;
    DIR *dir = opendir(directory);
    if (!dir)
        return 0;
    const struct dirent *entry;
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, "state") == 0 || strncmp(entry->d_name, "data.", 5) == 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    if (rmdir(directory) != 0) {
        perror(directory);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *verb = argc == 2 ? argv[1] : "";
    if (strcmp(verb, "destroy") == 0)
        return destroy();
    if (strcmp(verb, "status") != 0 && strcmp(verb, "reset-peak") != 0) {
        fprintf(stderr, "usage: fakectl status|reset-peak|destroy\n");
        return 2;
    }
    struct fake_shared *shared = fake_shared_open(true);
    if (!shared)
        return 1;
    return strcmp(verb, "status") == 0 ? status(shared) : reset_peak(shared);
}
