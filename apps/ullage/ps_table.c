/* ps_table.c: jobs and processes as a table for people; see ps_table.h. */
#include "ps_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"
#include "procfs.h"
#include "size.h"
#include "table.h"

enum { WIDTH = 80, NAME_WIDTH = 30, PID_WIDTH = 8, GPU_WIDTH = 5, BYTES_WIDTH = 11 };

/* --- rows ----------------------------------------------------------------------------------------- */

struct row {
    const char *name;
    int indent;
    uint32_t pid; /* 0: none */
    int gpu;      /* logical; -1: "-" ; -2: blank */
    const uint64_t *budget;
    const uint64_t *held;
    const uint64_t *peak;
};

static void size_cell(const uint64_t *bytes)
{
    char text[ULL_SIZE_TEXT] = "";
    if (bytes && *bytes == UINT64_MAX)
        snprintf(text, sizeof text, "?");
    else if (bytes)
        ull__size_text(*bytes, text);
    table_cell(stdout, text, BYTES_WIDTH, true);
}

static void print_row(const struct row *row)
{
    char pid[16] = "", gpu[16] = "";
    int indent = row->indent < NAME_WIDTH - 10 ? row->indent : NAME_WIDTH - 10;
    printf("%*s", indent, "");
    table_cell(stdout, row->name, NAME_WIDTH - indent, false);
    if (row->pid)
        snprintf(pid, sizeof pid, "%u", row->pid);
    if (row->gpu > -2)
        snprintf(gpu, sizeof gpu, row->gpu < 0 ? "-" : "%d", row->gpu);
    table_cell(stdout, pid, PID_WIDTH, true);
    table_cell(stdout, gpu, GPU_WIDTH, true);
    size_cell(row->budget);
    size_cell(row->held);
    size_cell(row->peak);
    putchar('\n');
}

static void print_header(void)
{
    table_cell(stdout, "JOB / PROCESS", NAME_WIDTH, false);
    table_cell(stdout, "PID", PID_WIDTH, true);
    table_cell(stdout, "GPU", GPU_WIDTH, true);
    table_cell(stdout, "BUDGET", BYTES_WIDTH, true);
    table_cell(stdout, "HELD", BYTES_WIDTH, true);
    table_cell(stdout, "PEAK", BYTES_WIDTH, true);
    putchar('\n');
}

/*
 * "context 526.0 MiB, data 2.9 GiB" below the job; classes with nothing are left out. Where there is room, also what of
 * that the driver shows in no process's figure, for who compares them.
 */
static void print_classes(const struct ull__usage *usage, uint64_t unlisted)
{
    char text[256] = "", size[ULL_SIZE_TEXT], more[64];
    for (int c = 0; c < ULL_CLASSES; c++) {
        size_t used = strlen(text);
        if (usage->by_class[c] > 0)
            snprintf(text + used, sizeof text - used, "%s%s %s", used ? ", " : "",
                     ull__class_name((enum ull__class)c), ull__size_text(usage->by_class[c], size));
    }
    if (text[0] == 0)
        return;
    snprintf(more, sizeof more, "; NVML lists %s less", ull__size_text(unlisted, size));
    if (unlisted > 0 && table_width(text) + table_width(more) <= WIDTH - 4)
        strcat(text, more);
    printf("    ");
    table_cell(stdout, text, table_width(text) < WIDTH - 4 ? table_width(text) : WIDTH - 4, false);
    putchar('\n');
}

static uint64_t held_by(const struct seen_process *seen)
{
    uint64_t held = 0;
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        held += seen->view.usage[d].held_bytes;
    return held;
}

static int by_held(const void *left, const void *right)
{
    uint64_t a = held_by(left), b = held_by(right);
    if (a != b)
        return a > b ? -1 : 1;
    return ((const struct seen_process *)left)->view.pid <
                   ((const struct seen_process *)right)->view.pid
               ? -1
               : 1;
}

static void print_process(const struct live_job *job, const struct seen_process *seen, int depth)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->report.ledger);
    bool first = true;
    char name[ULL_COMMAND_TEXT + 16];
    snprintf(name, sizeof name, "%s%s", seen->view.command, seen->view.draining ? " (ended)" : "");
    for (int d = 0; d < spec->device_count; d++) {
        const struct ull__usage *usage = &seen->view.usage[d];
        if (usage->peak_bytes == 0)
            continue;
        struct row row = {.name = first ? name : "",
                          .indent = 2 + 2 * depth,
                          .pid = first ? seen->view.pid : 0,
                          .gpu = spec->devices[d].logical,
                          .held = &usage->held_bytes,
                          .peak = &usage->peak_bytes};
        print_row(&row);
        first = false;
    }
    if (first) {
        struct row row = {.name = name, .indent = 2 + 2 * depth, .pid = seen->view.pid, .gpu = -2};
        print_row(&row);
    }
}

/* The process of the job that is the nearest ancestor of one, or -1. */
static int parent_in_job(const struct seen *history, int child)
{
    uint32_t pid = history->processes[child].view.pid;
    for (int depth = 0; depth < 64 && pid > 1; depth++) {
        pid = proc_parent(pid);
        for (int i = 0; i < history->process_count; i++) {
            if (i != child && history->processes[i].view.pid == pid)
                return i;
        }
    }
    return -1;
}

static void print_below(const struct live_job *job, const int *parents, int parent, int depth,
                        uint32_t account)
{
    const struct seen *history = &job->history;
    for (int i = 0; i < history->process_count; i++) {
        if (parents[i] != parent || depth > 64)
            continue;
        if (history->processes[i].view.account == account)
            print_process(job, &history->processes[i], depth);
        print_below(job, parents, i, depth + 1, account);
    }
}

static void print_processes(const struct live_job *job, bool tree, uint32_t account)
{
    const struct seen *history = &job->history;
    int *parents = tree ? calloc((size_t)history->process_count + 1, sizeof *parents) : NULL;
    for (int i = 0; i < history->process_count; i++) {
        if (parents)
            parents[i] = parent_in_job(history, i);
        else if (history->processes[i].view.account == account)
            print_process(job, &history->processes[i], 0);
    }
    if (parents)
        print_below(job, parents, -1, 0, account);
    free(parents);
}

static void print_outside(const struct live_job *job)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->report.ledger);
    for (int i = 0; i < job->report.outside_count; i++) {
        const struct outside_process *outside = &job->outside[i];
        char name[ULL_COMMAND_TEXT + 16];
        struct row row = {
            .name = name, .indent = 2, .pid = outside->pid, .gpu = -1, .held = &outside->used_bytes};
        for (int d = 0; d < spec->device_count; d++) {
            if (strcmp(spec->devices[d].uuid, outside->uuid) == 0)
                row.gpu = spec->devices[d].logical;
        }
        snprintf(name, sizeof name, "outside: %s", outside->command);
        print_row(&row);
    }
}

/* One more thing that is said of a job. */
static void say_state(bool *any, const char *before, uint64_t bytes, const char *after)
{
    char size[ULL_SIZE_TEXT];
    printf("%s%s%s%s", *any ? ", " : "    ", before, bytes ? ull__size_text(bytes, size) : "", after);
    *any = true;
}

/* "suspended, 4.7 GiB in host memory" below a job that is not simply running. */
static void print_state(const struct ull__job_spec *spec, const struct ull__job_view *view,
                        const struct ull__account_view *account)
{
    uint64_t evicted = 0, spilled = 0;
    bool any = false;
    for (int d = 0; d < spec->device_count; d++) {
        evicted += account->evicted_bytes[d];
        spilled += account->spilled_bytes[d];
    }
    if (view->state != ULL_JOB_RUNNING)
        say_state(&any, ull__job_state_name(view->state), 0, "");
    if (evicted > 0)
        say_state(&any, "", evicted, " in host memory");
    if (account->pinned_bytes > 0)
        say_state(&any, "", account->pinned_bytes, " of host memory pinned for it");
    if (spilled > 0)
        say_state(&any, "", spilled, " spilled to host memory, which is slow");
    if (any)
        putchar('\n');
}

static void print_account(const struct live_job *job, const struct ull__job_view *view,
                          const struct ull__account_view *account, bool tree)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->report.ledger);
    char name[ULL_NAME_TEXT + 16];
    bool first = true;
    snprintf(name, sizeof name, account->number ? "%s.%u" : "%s", spec->name, account->number);
    for (int d = 0; d < spec->device_count; d++) {
        if (!job_shows_device(job->report.ledger, d))
            continue;
        struct row row = {.name = first ? name : "",
                          .pid = !first            ? 0
                                 : account->number ? account->root_pid
                                                   : view->supervisor_pid,
                          .gpu = spec->devices[d].logical,
                          .budget = &view->budget_bytes[d],
                          .held = &account->usage[d].held_bytes,
                          .peak = &account->usage[d].peak_bytes};
        print_row(&row);
        print_classes(&account->usage[d], account->hidden_bytes[d]);
        first = false;
    }
    if (first)
        print_row(&(struct row){.name = name, .pid = view->supervisor_pid, .gpu = -2});
    print_state(spec, view, account);
    print_processes(job, tree, account->number);
}

static void print_device_map(const struct live_job *job)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->report.ledger);
    for (int d = 0; d < spec->device_count; d++) {
        char text[DEVICE_MAP_TEXT];
        if (!job_shows_device(job->report.ledger, d))
            continue;
        device_map_text(&spec->devices[d], text);
        printf("  %s", text);
        int room = WIDTH - 4 - table_width(text);
        if (room > 4) {
            int width = table_width(spec->devices[d].name);
            putchar(' ');
            table_cell(stdout, spec->devices[d].name, width < room ? width : room, false);
        }
        putchar('\n');
    }
}

void ps_table(const struct job_list *list, bool tree)
{
    if (list->count)
        print_header();
    for (int j = 0; j < list->count; j++) {
        struct live_job *job = &list->jobs[j];
        struct ull__job_view view;
        struct ull__account_view account;
        ull__ledger_job(job->report.ledger, &view);
        qsort(job->history.processes, (size_t)job->history.process_count,
              sizeof *job->history.processes, by_held);
        for (int a = 0; a < ULL_MAX_ACCOUNTS; a++) {
            if ((a == 0 || ull__ledger_spec(job->report.ledger)->each) &&
                ull__ledger_account(job->report.ledger, a, &account))
                print_account(job, &view, &account, tree);
        }
        print_outside(job);
        print_device_map(job);
    }
}
