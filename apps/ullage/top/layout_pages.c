/* layout_pages.c: everything that is known of one job or process; and the keys. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "layout.h"

enum { INDENT = 2, LABEL = 12, FIGURE = 8 };

/* Where the next line goes. */
struct page {
    struct grid *grid;
    const struct sample *sample;
    int y;
};

static void title(struct page *page, const char *text)
{
    if (page->y > 0)
        page->y++;
    grid_text(page->grid, 0, page->y++, page->grid->width, LOOK_BOLD, text);
}

__attribute__((format(printf, 3, 4))) static void line(struct page *page, const char *label,
                                                       const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    grid_text(page->grid, INDENT, page->y, LABEL, LOOK_DIM, label);
    int x = INDENT + LABEL, room = page->grid->width - x;
    grid_text(page->grid, x, page->y++, room, LOOK_PLAIN, text);
}

/* Text of any length, over several lines. */
static void long_line(struct page *page, const char *label, const char *text)
{
    int room = page->grid->width - INDENT - LABEL;
    char part[1024];
    size_t length = strlen(text), at = 0;
    do {
        /* Bytes are columns at least, so a part of so many bytes is cut nowhere. */
        size_t take = length - at < (size_t)room ? length - at : (size_t)room;
        take = take < sizeof part - 1 ? take : sizeof part - 1;
        while (at + take < length && take > 1 && ((unsigned char)text[at + take] & 0xc0) == 0x80)
            take--;
        snprintf(part, sizeof part, "%.*s", (int)take, text + at);
        line(page, at == 0 ? label : "", "%s", part);
        at += take;
    } while (at < length);
}

static void ago(uint64_t seconds, char *text, size_t size)
{
    if (seconds < 120)
        snprintf(text, size, "%us", (unsigned)seconds);
    else if (seconds < 2 * 3600)
        snprintf(text, size, "%um", (unsigned)(seconds / 60));
    else if (seconds < 48 * 3600)
        snprintf(text, size, "%uh %02um", (unsigned)(seconds / 3600), (unsigned)(seconds / 60 % 60));
    else
        snprintf(text, size, "%u days", (unsigned)(seconds / 86400));
}

static void trend_lines(struct page *page, const struct trend *trend)
{
    uint64_t low = UINT64_MAX, high = 0;
    char from[LAYOUT_SIZE], to[LAYOUT_SIZE];
    int width = page->grid->width - INDENT - LABEL;
    if (trend->count == 0)
        return;
    for (int i = 0; i < trend->count; i++) {
        low = trend->values[i] < low ? trend->values[i] : low;
        high = trend->values[i] > high ? trend->values[i] : high;
    }
    grid_text(page->grid, INDENT, page->y, LABEL, LOOK_DIM, "trend");
    layout__trend(page->grid, INDENT + LABEL, page->y++, width, LOOK_PLAIN, trend);
    line(page, "", "%s to %s in the last %d samples%s%s", layout_size(low, from),
         layout_size(high, to), trend->count, trend_verdict(trend) ? ": " : "",
         trend_verdict_name(trend_verdict(trend)));
}

/* --- shares of devices -------------------------------------------------------------------------------- */

static void figure(struct page *page, int column, enum look look, uint64_t bytes)
{
    char text[LAYOUT_SIZE];
    grid_text_right(page->grid, INDENT + LABEL + column * (FIGURE + 1), page->y, FIGURE, look,
                    layout_size(bytes, text));
}

static void figure_heads(struct page *page, const char *first, const char *const *heads, int count)
{
    grid_text(page->grid, INDENT, page->y, LABEL, LOOK_HEAD, first);
    for (int i = 0; i < count; i++)
        grid_text_right(page->grid, INDENT + LABEL + i * (FIGURE + 1), page->y, FIGURE, LOOK_HEAD,
                        heads[i]);
    page->y++;
}

static void classes(struct page *page, const struct sample_share *share)
{
    for (int c = 0; c < ULL_CLASSES; c++) {
        if (share->usage.by_class[c] == 0 && share->usage.peak_by_class[c] == 0)
            continue;
        grid_printf(page->grid, INDENT + 1, page->y, LABEL - 1, LOOK_DIM, "%s",
                    ull__class_name((enum ull__class)c));
        figure(page, 0, LOOK_PLAIN, share->usage.by_class[c]);
        figure(page, 1, LOOK_PLAIN, share->usage.peak_by_class[c]);
        page->y++;
    }
}

static void device_shares(struct page *page, struct sample_span shares, bool of_job)
{
    static const char *const heads[] = {"HELD", "PEAK", "BUDGET", "AVERAGE", "USE"};
    if (shares.count == 0) {
        title(page, "devices: nothing held yet");
        return;
    }
    title(page, "devices and classes");
    figure_heads(page, "GPU", heads, of_job ? 5 : 2);
    for (int i = 0; i < shares.count; i++) {
        const struct sample_share *share = &page->sample->shares[shares.first + i];
        const struct sample_device *device = &page->sample->devices[share->device];
        char text[LAYOUT_SIZE], use[LAYOUT_SIZE];
        double fill =
            share->budget_bytes ? (double)share->usage.held_bytes / (double)share->budget_bytes : 0;
        grid_text(page->grid, INDENT, page->y, LABEL, LOOK_BOLD, layout__device(device, text));
        figure(page, 0, LOOK_BOLD, share->usage.held_bytes);
        figure(page, 1, LOOK_BOLD, share->usage.peak_bytes);
        if (of_job) {
            snprintf(use, sizeof use, "%.0f%%", fill * 100);
            figure(page, 2, LOOK_PLAIN, share->budget_bytes);
            figure(page, 3, LOOK_PLAIN, share->average_bytes ? share->average_bytes : SAMPLE_UNKNOWN);
            grid_text_right(page->grid, INDENT + LABEL + 4 * (FIGURE + 1), page->y, FIGURE,
                            layout__fill_look(fill), use);
        }
        page->y++;
        if (share->evicted_bytes)
            grid_printf(page->grid, INDENT + 1, page->y++, page->grid->width, LOOK_WARN,
                        "%s of it in host memory now", layout_size(share->evicted_bytes, use));
        classes(page, share);
        if (share->logical >= 0)
            grid_printf(page->grid, INDENT + 1, page->y++, page->grid->width, LOOK_DIM,
                        "logical %d = physical %s (%s) %s", share->logical, text, device->uuid,
                        device->name);
        else
            grid_printf(page->grid, INDENT + 1, page->y++, page->grid->width, LOOK_DIM, "%s %s",
                        device->uuid, device->name);
    }
}

/* --- a job -------------------------------------------------------------------------------------------------- */

static void refusals(struct page *page, const struct sample_job *job)
{
    char text[512];
    if (job->refusals == 0)
        return;
    snprintf(text, sizeof text, "refused requests: %llu, of which %llu by programs that went on",
             (unsigned long long)job->refusals, (unsigned long long)job->refusals_survived);
    title(page, text);
    for (int i = 0; i < job->shown_refusals.count; i++) {
        const struct ull__refusal *refusal = &page->sample->refusals[job->shown_refusals.first + i];
        char wanted[LAYOUT_SIZE], held[LAYOUT_SIZE], budget[LAYOUT_SIZE], number[24];
        snprintf(number, sizeof number, "#%llu", (unsigned long long)refusal->number);
        snprintf(text, sizeof text, "%s of %s (%s) with %s of %s held, by %s (pid %u)%s",
                 layout_size(refusal->wanted_bytes, wanted), ull__class_name(refusal->class),
                 refusal->call, layout_size(refusal->held_bytes, held),
                 layout_size(refusal->budget_bytes, budget), refusal->command, refusal->pid,
                 refusal->survived ? ", which went on" : "");
        long_line(page, number, text);
    }
}

static void processes(struct page *page, struct sample_span span)
{
    static const char *const heads[] = {"HELD", "PEAK"};
    if (span.count == 0)
        return;
    title(page, "processes that use a GPU");
    figure_heads(page, "PID", heads, 2);
    grid_text(page->grid, INDENT + LABEL + 2 * (FIGURE + 1) + 1, page->y - 1, 60, LOOK_HEAD,
              "USER     COMMAND");
    for (int i = 0; i < span.count && page->y + 2 < page->grid->height; i++) {
        const struct sample_process *process = &page->sample->processes[span.first + i];
        int x = INDENT + LABEL + 2 * (FIGURE + 1) + 1;
        grid_printf(page->grid, INDENT, page->y, LABEL, LOOK_PLAIN, "%u", process->pid);
        figure(page, 0, LOOK_PLAIN, process->held_bytes);
        figure(page, 1, LOOK_PLAIN, process->peak_bytes);
        grid_text(page->grid, x, page->y, 8, LOOK_PLAIN, process->user);
        if (process->kind != SAMPLE_HELD)
            x += grid_text(page->grid, x + 9, page->y, 10, LOOK_WARN,
                           sample_kind_name(process->kind)) +
                 1;
        grid_text(page->grid, x + 9, page->y++, page->grid->width - x - 9, LOOK_PLAIN,
                  process->command);
    }
}

static void job_page(struct page *page, const struct sample_job *job)
{
    const struct sample *sample = page->sample;
    char text[SAMPLE_NAME + 32], since[32], clock[32] = "";
    time_t began = (time_t)(job->start_unix_ns / 1000000000ull);
    uint64_t now = sample->unix_ns, start = job->start_unix_ns;
    struct tm local;
    snprintf(text, sizeof text, "job %s", job->name);
    title(page, text);
    long_line(page, "command", job->command);
    line(page, "user", "%s", job->user);
    if (localtime_r(&began, &local))
        strftime(clock, sizeof clock, "%Y-%m-%d %H:%M:%S", &local);
    ago(now > start ? (now - start) / 1000000000ull : 0, since, sizeof since);
    line(page, "started", "%s, %s ago", clock, since);
    if (job->start_ticks)
        line(page, job->account ? "child" : "ullage run", "pid %u", job->pid);
    else
        line(page, "ullage run", "gone; the budget holds all the same");
    line(page, "id", "%s", job->id);
    line(page, "state", "%s, priority %d", ull__job_state_name(job->state), job->priority);
    if (job->parent >= 0)
        line(page, "inside of", "job %s", sample->jobs[job->parent].name);
    if (job->set_by[0])
        long_line(page, "in force", job->set_by);
    trend_lines(page, &job->trend);
    device_shares(page, job->shares, true);
    refusals(page, job);
    processes(page, job->processes);
}

static void process_page(struct page *page, const struct sample_process *process)
{
    static const char *const kinds[] = {
        "held by its job", "has ended; the driver has not freed its memory yet",
        "outside: belongs to the job but is not held by it", "belongs to no job"};
    char text[64];
    snprintf(text, sizeof text, "process %u", process->pid);
    title(page, text);
    long_line(page, "command", process->command[0] ? process->command : "not to be seen from here");
    line(page, "user", "%s", process->user[0] ? process->user : "-");
    if (process->job >= 0)
        line(page, "job", "%s", page->sample->jobs[process->job].name);
    line(page, "state", "%s", kinds[process->kind]);
    if (process->place == PROC_UNSEEN)
        line(page, "", "in another pid namespace: its number is not one of ours");
    else if (process->place == PROC_INSIDE)
        line(page, "", "in a container");
    if (process->parent >= 0)
        line(page, "started by", "%u %s", page->sample->processes[process->parent].pid,
             page->sample->processes[process->parent].command);
    trend_lines(page, &process->trend);
    device_shares(page, process->shares, false);
}

int layout__details(struct grid *grid, const struct sample *sample, const struct view *view)
{
    struct page page = {.grid = grid, .sample = sample};
    const struct row_key *key = &view->selected;
    for (int j = 0; j < sample->job_count && key->pid == 0; j++) {
        if (strcmp(sample->jobs[j].id, key->id) == 0 && sample->jobs[j].account == key->account) {
            job_page(&page, &sample->jobs[j]);
            return page.y;
        }
    }
    for (int p = 0; p < sample->process_count && key->pid != 0; p++) {
        const struct sample_process *process = &sample->processes[p];
        const char *id = process->job < 0 ? "" : sample->jobs[process->job].id;
        if (process->pid == key->pid && process->start_ticks == key->start_ticks &&
            strcmp(id, key->id) == 0) {
            process_page(&page, process);
            return page.y;
        }
    }
    grid_text(grid, INDENT, 1, grid->width, LOOK_WARN,
              key->pid ? "the process is gone, and so is what it held" : "the job is over");
    return 2;
}

/* --- keys ---------------------------------------------------------------------------------------------------- */

int layout__help(struct grid *grid, const struct view *view)
{
    static const struct {
        const char *keys, *what;
    } lines[] = {
        {"Up Down", "select a job or a process; also PgUp, PgDn, Home, End"},
        {"Enter", "details: classes, refused requests, devices, processes"},
        {"Space", "fold a job: its processes are hidden, or shown again"},
        {"/", "filter by job, command, user or pid; Esc shows all again"},
        {"< >", "sort by another column; r the other way round"},
        {"t", "processes as a tree, or one below the other"},
        {"c", "cards: some, all, none"},
        {"d", "delay between two rounds, in seconds"},
        {"k", "kill: sends a signal to what is selected, after asking"},
        {"Ctrl-L", "draw the screen anew"},
        {"q", "quit; Ctrl-Z stops, fg goes on"},
    };
    struct page page = {.grid = grid};
    title(&page, "keys");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!view->readonly || lines[i].keys[0] != 'k')
            line(&page, lines[i].keys, "%s", lines[i].what);
    title(&page, "cards");
    line(&page, "JOBS", "held by jobs; contexts are part of it");
    line(&page, "OTHERS", "used by anybody else, and what the driver attributes to nobody");
    line(&page, "RESERVED", "by the driver and firmware: no program can have it");
    title(&page, "jobs");
    line(&page, "BUDGET", "what it may hold, on all devices that it has used together");
    line(&page, "USE", "held / budget, on the device where that is most");
    line(&page, "PEAK", "the most that was held");
    line(&page, "TREND", "held in the last 60 rounds, from lowest to highest");
    line(&page, "VERDICT", "which way its lowest (growing) or highest (shrinking) points go;");
    line(&page, "", "a hint: ullage report judges a whole record");
    return page.y;
}
