/*
 * jobs.c: see jobs.h. Processes outside are those that the driver lists on a card and that belong to a
 * job (they descend from its `ullage run`, or were started with its ULLAGE_JOB) but are in no ledger:
 * static or setuid programs, or ones that were started with an empty environment. Only processes of
 * this pid namespace can be told.
 */
#include "jobs.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "error.h"
#include "nvml.h"
#include "procfs.h"

enum { LISTED_PROCESSES = 1024, LISTED_DEVICES = 128 };

static int locked(struct ull__ledger *ledger, int how)
{
    int fd = ull__ledger_file(ull__ledger_path(ledger), O_RDONLY);
    if (fd >= 0 && flock(fd, how | LOCK_NB) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int job_hold(struct ull__ledger *ledger)
{
    return locked(ledger, LOCK_SH);
}

/* Who moves it has the lock, too; it is removed later then. */
void job_remove_if_over(struct ull__ledger *ledger)
{
    char assignment[ULL_PATH_TEXT + 16];
    int fd = locked(ledger, LOCK_EX);
    snprintf(assignment, sizeof assignment, "ULLAGE_JOB=%s", ull__ledger_path(ledger));
    if (fd < 0)
        return;
    if (!proc_anyone_has_variable(assignment))
        ull__ledger_remove_if_dead(ledger);
    close(fd);
}

bool job_is_over(struct ull__ledger *ledger)
{
    struct ull__job_view view;
    ull__ledger_job(ledger, &view);
    if (view.supervisor_alive || view.process_count > 0)
        return false;
    job_remove_if_over(ledger);
    return access(ull__ledger_path(ledger), F_OK) != 0;
}

/* The new list is made of ledgers of the old one that are still there, and of those that are new. */
struct refreshing {
    struct job_list *old, new;
    int capacity;
    bool failed;
};

static bool is_new(const char *path, void *data)
{
    struct refreshing *refreshing = data;
    for (int i = 0; i < refreshing->old->count; i++) {
        struct live_job *job = &refreshing->old->jobs[i];
        if (strcmp(ull__ledger_path(job->report.ledger), path) == 0) {
            job->listed = !ull__ledger_is_copy(job->report.ledger); /* a copy grows old */
            return !job->listed;
        }
    }
    return true;
}

static void add_ledger(struct ull__ledger *ledger, void *data)
{
    struct refreshing *refreshing = data;
    struct job_list *list = &refreshing->new;
    if (list->count == refreshing->capacity) {
        int capacity = refreshing->capacity ? refreshing->capacity * 2 : 16;
        struct live_job *grown = realloc(list->jobs, (size_t)capacity * sizeof *grown);
        if (!grown) {
            refreshing->failed = true;
            ull__ledger_close(ledger);
            return;
        }
        list->jobs = grown;
        refreshing->capacity = capacity;
    }
    list->jobs[list->count++] = (struct live_job){.report.ledger = ledger};
}

static int by_name(const void *left, const void *right)
{
    struct ull__ledger *a = ((const struct live_job *)left)->report.ledger;
    struct ull__ledger *b = ((const struct live_job *)right)->report.ledger;
    int order = strcmp(ull__ledger_spec(a)->name, ull__ledger_spec(b)->name);
    return order ? order : strcmp(ull__ledger_path(a), ull__ledger_path(b));
}

static bool is_member(const struct job_list *list, uint32_t pid)
{
    for (int j = 0; j < list->count; j++) {
        const struct seen *history = &list->jobs[j].history;
        for (int p = 0; p < history->process_count; p++) {
            const struct ull__process_view *view = &history->processes[p].view;
            if (view->pid == pid || view->driver_pid == pid)
                return true;
        }
    }
    return false;
}

int jobs_owner(const struct job_list *list, uint32_t pid)
{
    int found = -1;
    uint32_t found_supervisor = 0;
    for (int j = 0; j < list->count; j++) {
        char assignment[ULL_PATH_TEXT + 16];
        struct ull__job_view view;
        struct ull__ledger *ledger = list->jobs[j].report.ledger;
        ull__ledger_job(ledger, &view);
        snprintf(assignment, sizeof assignment, "ULLAGE_JOB=%s", ull__ledger_path(ledger));
        if (proc_has_variable(pid, assignment))
            return j;
        if (view.supervisor_alive && proc_descends(pid, view.supervisor_pid) &&
            (found < 0 || proc_descends(view.supervisor_pid, found_supervisor))) {
            found = j;
            found_supervisor = view.supervisor_pid;
        }
    }
    return found;
}

static void add_outside(struct live_job *job, const char *uuid,
                        const struct ull__nvml_process *process)
{
    size_t count = (size_t)job->report.outside_count;
    struct outside_process *grown = realloc(job->outside, (count + 1) * sizeof *grown);
    if (!grown)
        return;
    job->outside = grown;
    job->report.outside = grown;
    struct outside_process *outside = &grown[job->report.outside_count++];
    memset(outside, 0, sizeof *outside);
    outside->pid = process->pid;
    outside->used_bytes = process->used_bytes;
    snprintf(outside->uuid, sizeof outside->uuid, "%.*s", ULL_UUID_TEXT - 1, uuid);
    if (!proc_command(process->pid, outside->command, sizeof outside->command))
        snprintf(outside->command, sizeof outside->command, "?");
}

static void find_outside(struct job_list *list, struct ull__nvml *nvml)
{
    struct ull__nvml_device *devices = calloc(LISTED_DEVICES, sizeof *devices);
    struct ull__nvml_process *processes = calloc(LISTED_PROCESSES, sizeof *processes);
    int count = devices && processes ? ull__nvml_devices(nvml, devices, LISTED_DEVICES) : 0;
    for (int d = 0; d < count && d < LISTED_DEVICES; d++) {
        int listed = devices[d].divided
                         ? 0
                         : ull__nvml_processes(nvml, devices[d].handle, processes, LISTED_PROCESSES);
        for (int p = 0; p < listed && p < LISTED_PROCESSES; p++) {
            int job = is_member(list, processes[p].pid) ? -1 : jobs_owner(list, processes[p].pid);
            if (job >= 0)
                add_outside(&list->jobs[job], devices[d].uuid, &processes[p]);
        }
    }
    free(devices);
    free(processes);
}

static void free_job(struct live_job *job)
{
    ull__ledger_close(job->report.ledger);
    seen_free(&job->history);
    free(job->outside);
}

bool jobs_open(struct job_list *list, struct ull__nvml *nvml)
{
    struct refreshing refreshing = {.old = list};
    for (int i = 0; i < list->count; i++)
        list->jobs[i].listed = false;
    ull__ledger_take(is_new, add_ledger, &refreshing);
    for (int i = 0; i < list->count; i++) {
        struct ull__ledger *ledger = list->jobs[i].report.ledger;
        if (list->jobs[i].listed) {
            list->jobs[i].report.ledger = NULL;
            add_ledger(ledger, &refreshing);
        }
        free_job(&list->jobs[i]);
    }
    free(list->jobs);
    *list = (struct job_list){.jobs = refreshing.new.jobs};
    for (int i = 0; i < refreshing.new.count; i++) {
        struct ull__ledger *ledger = list->jobs[i].report.ledger;
        ull__ledger_sweep(ledger, nvml ? ull__nvml_listed : NULL, nvml);
        if (job_is_over(ledger))
            ull__ledger_close(ledger);
        else
            list->jobs[list->count++] = list->jobs[i];
    }
    if (list->count)
        qsort(list->jobs, (size_t)list->count, sizeof *list->jobs, by_name);
    return !refreshing.failed;
}

bool jobs_gather(struct job_list *list)
{
    static const struct ull__linker linker = {.open = dlopen, .symbol = dlsym};
    struct ull__nvml nvml;
    *list = (struct job_list){0};
    bool has_nvml = ull__nvml_init(&nvml, &linker, NULL, NULL) == ULL_OK;
    bool good = jobs_open(list, has_nvml ? &nvml : NULL);
    for (int i = 0; i < list->count; i++) {
        struct live_job *job = &list->jobs[i];
        seen_update(&job->history, job->report.ledger);
        job->report.history = &job->history;
    }
    if (has_nvml && good)
        find_outside(list, &nvml);
    ull__nvml_finish(&nvml);
    return good;
}

void jobs_free(struct job_list *list)
{
    for (int i = 0; i < list->count; i++)
        free_job(&list->jobs[i]);
    free(list->jobs);
    *list = (struct job_list){0};
}

/* "train (1a2b3c4d), serve (99aabbcc)" of the jobs that have this name, or of all where it is NULL. */
static int name_jobs(const struct job_list *list, const char *name, char *text, size_t size)
{
    int count = 0;
    text[0] = 0;
    for (int i = 0; i < list->count; i++) {
        struct ull__ledger *ledger = list->jobs[i].report.ledger;
        struct ull__job_view view;
        size_t used = strlen(text);
        if (name && strcmp(ull__ledger_spec(ledger)->name, name) != 0)
            continue;
        ull__ledger_job(ledger, &view);
        if (used + 60 < size)
            snprintf(text + used, size - used, "%s%.40s (%s)", count ? ", " : "",
                     ull__ledger_spec(ledger)->name, view.id);
        count++;
    }
    return count;
}

ull_status jobs_find(const struct job_list *list, const char *text, struct live_job **job,
                     struct ull_error *err)
{
    char names[300];
    for (int i = 0; i < list->count; i++) {
        struct ull__job_view view;
        ull__ledger_job(list->jobs[i].report.ledger, &view);
        if (strcmp(view.id, text) == 0) {
            *job = &list->jobs[i];
            return ULL_OK;
        }
    }
    int count = name_jobs(list, text, names, sizeof names);
    if (count > 1)
        return ull__fail(err, ULL_E_INVALID, "%d jobs are called '%.60s': name one by its id: %s",
                         count, text, names);
    for (int i = 0; i < list->count && count == 1; i++)
        if (strcmp(ull__ledger_spec(list->jobs[i].report.ledger)->name, text) == 0) {
            *job = &list->jobs[i];
            return ULL_OK;
        }
    count = name_jobs(list, NULL, names, sizeof names);
    return ull__fail(err, ULL_E_NOT_FOUND, "no job of yours is called '%.60s'%s%s", text,
                     count ? "; there are: " : ", and none is running", names);
}
