/* rows.c: see rows.h. */
#include "rows.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct building {
    struct rows *rows;
    const struct sample *sample;
    const struct view *view;
    int *order;  /* places of processes in the order of their rows, for the span at hand */
    bool *shown; /* by process: passes the filter, or is above one that does */
    int capacity;
};

/* --- filter ------------------------------------------------------------------------------------------ */

/* Without regard to case, of ASCII letters only. */
static bool contains(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (; *text; text++) {
        size_t i = 0;
        while (i < length && text[i] &&
               tolower((unsigned char)text[i]) == tolower((unsigned char)word[i]))
            i++;
        if (i == length)
            return true;
    }
    return length == 0;
}

static bool is_number(uint32_t number, const char *word)
{
    char *end;
    unsigned long value = strtoul(word, &end, 10);
    return end != word && *end == 0 && word[0] != '-' && value == number;
}

static bool job_matches(const struct sample_job *job, const char *word)
{
    return contains(job->name, word) || contains(job->command, word) || contains(job->user, word) ||
           contains(job->id, word) || is_number(job->pid, word);
}

static bool process_matches(const struct sample_process *process, const char *word)
{
    return contains(process->command, word) || contains(process->user, word) ||
           is_number(process->pid, word);
}

/* Marks those that pass, and in a tree what is above them. True if any does. */
static bool mark_shown(struct building *to, struct sample_span span, bool all)
{
    const struct sample *sample = to->sample;
    bool any = false;
    for (int i = span.first; i < span.first + span.count; i++) {
        if (!all && !process_matches(&sample->processes[i], to->view->filter))
            continue;
        any = true;
        to->shown[i] = true;
        int above = to->view->flat ? -1 : sample->processes[i].parent;
        for (int depth = 0; above >= 0 && depth < ROW_DEPTHS * 4; depth++) {
            to->shown[above] = true;
            above = sample->processes[above].parent;
        }
    }
    return any;
}

/* --- order -------------------------------------------------------------------------------------------- */

/* qsort has no place for it, and only one thread draws. */
static const struct sample *sorted_sample;
static const struct view *sorted_view;

static int compare_numbers(uint64_t left, uint64_t right)
{
    /* Unknown is least, and the largest comes first. */
    left = left == SAMPLE_UNKNOWN ? 0 : left + 1;
    right = right == SAMPLE_UNKNOWN ? 0 : right + 1;
    return left == right ? 0 : left > right ? -1 : 1;
}

static int compare_trends(const struct trend *left, const struct trend *right)
{
    return (int)trend_verdict(right) - (int)trend_verdict(left);
}

static int compare_jobs(const void *left, const void *right)
{
    const struct sample_job *a = &sorted_sample->jobs[*(const int *)left];
    const struct sample_job *b = &sorted_sample->jobs[*(const int *)right];
    int order = 0;
    switch (sorted_view->sort) {
    case SORT_PID:
        order = a->pid == b->pid ? 0 : a->pid < b->pid ? -1 : 1;
        break;
    case SORT_USER:
        order = strcmp(a->user, b->user);
        break;
    case SORT_BUDGET:
        order = compare_numbers(a->budget_bytes, b->budget_bytes);
        break;
    case SORT_HELD:
        order = compare_numbers(a->held_bytes, b->held_bytes);
        break;
    case SORT_PEAK:
        order = compare_numbers(a->peak_bytes, b->peak_bytes);
        break;
    case SORT_USE:
        order = a->fill == b->fill ? 0 : a->fill > b->fill ? -1 : 1;
        break;
    case SORT_TREND:
        order = compare_trends(&a->trend, &b->trend);
        break;
    case SORT_NAME:
    default:
        order = strcmp(a->name, b->name);
    }
    if (order == 0) /* as the sample has them: by name */
        return *(const int *)left - *(const int *)right;
    return sorted_view->reversed ? -order : order;
}

static int compare_processes(const void *left, const void *right)
{
    const struct sample_process *a = &sorted_sample->processes[*(const int *)left];
    const struct sample_process *b = &sorted_sample->processes[*(const int *)right];
    int order = 0;
    switch (sorted_view->sort) {
    case SORT_NAME:
        order = strcmp(a->command, b->command);
        break;
    case SORT_USER:
        order = strcmp(a->user, b->user);
        break;
    case SORT_HELD:
        order = compare_numbers(a->held_bytes, b->held_bytes);
        break;
    case SORT_PEAK:
        order = compare_numbers(a->peak_bytes, b->peak_bytes);
        break;
    case SORT_TREND:
        order = compare_trends(&a->trend, &b->trend);
        break;
    case SORT_PID:
        order = a->pid == b->pid ? 0 : a->pid < b->pid ? -1 : 1;
        break;
    default: /* processes have no budget */
        order = compare_numbers(a->held_bytes, b->held_bytes);
    }
    if (order == 0)
        return a->pid == b->pid ? 0 : a->pid < b->pid ? -1 : 1;
    return sorted_view->reversed ? -order : order;
}

/* --- rows ---------------------------------------------------------------------------------------------- */

static void add_row(struct building *to, const struct row *row)
{
    if (to->rows->count < to->capacity)
        to->rows->row[to->rows->count++] = *row;
}

/* Those below one parent (-1: none), in the order of to->order. */
static void add_below(struct building *to, struct sample_span span, int parent, int depth,
                      uint32_t through)
{
    const struct sample *sample = to->sample;
    int last = -1;
    bool flat = to->view->flat;
    for (int i = 0; i < span.count; i++) {
        int p = to->order[i];
        if (to->shown[p] && (flat || sample->processes[p].parent == parent))
            last = p;
    }
    for (int i = 0; i < span.count; i++) {
        int p = to->order[i];
        if (!to->shown[p] || (!flat && sample->processes[p].parent != parent))
            continue;
        struct row row = {.kind = ROW_PROCESS,
                          .job = sample->processes[p].job,
                          .process = p,
                          .depth = depth,
                          .last = p == last,
                          .through = through};
        add_row(to, &row);
        if (!flat && depth + 1 < ROW_DEPTHS * 4)
            add_below(to, span, p, depth + 1,
                      depth < ROW_DEPTHS && p != last ? through | 1u << depth : through);
    }
}

static void add_processes(struct building *to, struct sample_span span)
{
    for (int i = 0; i < span.count; i++)
        to->order[i] = span.first + i;
    qsort(to->order, (size_t)span.count, sizeof *to->order, compare_processes);
    add_below(to, span, -1, 0, 0);
}

static bool is_folded(const struct view *view, const struct row_key *key)
{
    for (int i = 0; i < view->folded_count; i++)
        if (rows_same_key(&view->folded[i], key))
            return true;
    return false;
}

static void add_job(struct building *to, int number)
{
    const struct sample_job *job = &to->sample->jobs[number];
    struct row row = {.kind = ROW_JOB, .job = number, .process = -1};
    bool matches = job_matches(job, to->view->filter);
    if (!mark_shown(to, job->processes, matches) && !matches)
        return;
    struct row_key key = rows_key(to->sample, &row);
    row.folded = is_folded(to->view, &key);
    row.hidden = row.folded ? job->processes.count : 0;
    add_row(to, &row);
    if (!row.folded)
        add_processes(to, job->processes);
}

bool rows_build(struct rows *rows, const struct sample *sample, const struct view *view)
{
    size_t processes = (size_t)sample->process_count, jobs = (size_t)sample->job_count;
    struct building to = {.rows = rows,
                          .sample = sample,
                          .view = view,
                          .order = calloc(processes + 1, sizeof *to.order),
                          .shown = calloc(processes + 1, sizeof *to.shown),
                          .capacity = sample->process_count + sample->job_count + 1};
    int *order = calloc(jobs + 1, sizeof *order);
    *rows = (struct rows){.row = calloc(processes + jobs + 1, sizeof *rows->row)};
    bool good = rows->row && to.order && to.shown && order;
    sorted_sample = sample;
    sorted_view = view;
    if (good) {
        for (int j = 0; j < sample->job_count; j++)
            order[j] = j;
        qsort(order, jobs, sizeof *order, compare_jobs);
        for (int j = 0; j < sample->job_count; j++)
            add_job(&to, order[j]);
        if (mark_shown(&to, sample->strangers, false)) {
            add_row(&to, &(struct row){.kind = ROW_STRANGERS, .job = -1, .process = -1});
            add_processes(&to, sample->strangers);
        }
    }
    free(order);
    free(to.order);
    free(to.shown);
    if (!good)
        rows_finish(rows);
    return good;
}

void rows_finish(struct rows *rows)
{
    free(rows->row);
    *rows = (struct rows){0};
}

struct row_key rows_key(const struct sample *sample, const struct row *row)
{
    struct row_key key = {.id = ""};
    if (row->job >= 0) {
        memcpy(key.id, sample->jobs[row->job].id, sizeof key.id);
        key.account = sample->jobs[row->job].account;
    }
    if (row->process >= 0) {
        key.pid = sample->processes[row->process].pid;
        key.start_ticks = sample->processes[row->process].start_ticks;
    }
    return key;
}

bool rows_same_key(const struct row_key *left, const struct row_key *right)
{
    return left->pid == right->pid && left->start_ticks == right->start_ticks &&
           left->account == right->account && strcmp(left->id, right->id) == 0;
}

int rows_find(const struct rows *rows, const struct sample *sample, const struct row_key *key)
{
    for (int i = 0; i < rows->count; i++) {
        struct row_key here = rows_key(sample, &rows->row[i]);
        /* The headline has the key of nothing, which is also that of a view before the first sample. */
        if (rows->row[i].kind != ROW_STRANGERS && rows_same_key(&here, key))
            return i;
    }
    return -1;
}
