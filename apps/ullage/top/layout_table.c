/* layout_table.c: jobs and their processes, a row each. */
#include <stdio.h>
#include <string.h>

#include "layout.h"

enum column {
    COL_NAME,
    COL_PID,
    COL_USER,
    COL_GPU,
    COL_BUDGET,
    COL_HELD,
    COL_PEAK,
    COL_USE,
    COL_TREND,
    COL_VERDICT,
    COLUMNS
};
enum { NAME_LEAST = 20, TREND_MOST = 20, NO_SORT = -1 };

static const struct {
    const char *head;
    int width;
    int sort;
    bool right;
} columns[COLUMNS] = {
    [COL_NAME] = {"JOB / PROCESS", NAME_LEAST, SORT_NAME, false},
    [COL_PID] = {"PID", 7, SORT_PID, true},
    [COL_USER] = {"USER", 8, SORT_USER, false},
    [COL_GPU] = {"GPU", 3, NO_SORT, false},
    [COL_BUDGET] = {"BUDGET", 6, SORT_BUDGET, true},
    [COL_HELD] = {"HELD", 6, SORT_HELD, true},
    [COL_PEAK] = {"PEAK", 6, SORT_PEAK, true},
    [COL_USE] = {"USE", 4, SORT_USE, true},
    [COL_TREND] = {"TREND", 6, SORT_TREND, false},
    [COL_VERDICT] = {"VERDICT", 10, NO_SORT, false},
};

/* Widths for a screen; 0: left out. The column that is sorted by stays. */
static void fit(int width, enum view_sort sort, int *widths)
{
    static const enum column drops[] = {COL_USE,     COL_USER, COL_TREND, COL_GPU,
                                        COL_VERDICT, COL_PEAK, COL_BUDGET};
    int need = -1;
    for (int c = 0; c < COLUMNS; c++) {
        widths[c] = columns[c].width;
        need += widths[c] + 1;
    }
    for (size_t i = 0; i < sizeof drops / sizeof *drops && need > width; i++) {
        if (columns[drops[i]].sort == (int)sort)
            continue;
        need -= widths[drops[i]] + 1;
        widths[drops[i]] = 0;
    }
    int spare = width - need;
    if (widths[COL_TREND] && spare > 0) {
        int more =
            spare / 4 < TREND_MOST - widths[COL_TREND] ? spare / 4 : TREND_MOST - widths[COL_TREND];
        widths[COL_TREND] += more;
        spare -= more;
    }
    widths[COL_NAME] += spare;
}

static void draw_head(struct grid *grid, int y, const int *widths, const struct view *view,
                      bool with_selection)
{
    if (with_selection)
        grid_paint(grid, 0, y, grid->width, LOOK_HEAD);
    for (int c = 0, x = 0; c < COLUMNS; x += widths[c] ? widths[c] + 1 : 0, c++) {
        if (!widths[c])
            continue;
        bool sorted = columns[c].sort == (int)view->sort && with_selection;
        enum look look = sorted ? LOOK_SORTED : LOOK_HEAD;
        int length = (int)strlen(columns[c].head);
        if (columns[c].right)
            grid_text_right(grid, x, y, widths[c], look, columns[c].head);
        else
            grid_text(grid, x, y, widths[c], look, columns[c].head);
        if (!sorted)
            continue;
        /* Numbers are largest first by themselves, text is smallest first. */
        bool text = c == COL_NAME || c == COL_PID || c == COL_USER;
        enum glyph arrow = text != view->reversed ? GLYPH_UP : GLYPH_DOWN;
        int at = columns[c].right ? x + widths[c] - length - 1 : x + length;
        grid_glyph(grid, at < 0 ? 0 : at, y, look, arrow);
    }
}

/* --- cells ---------------------------------------------------------------------------------------------- */

/* Which devices were used, or could be: "0", "0,1", "8x" where they are too many to name. */
static void devices_text(const struct sample *sample, struct sample_span shares, int width,
                         char text[LAYOUT_SIZE])
{
    char all[64] = "", one[LAYOUT_SIZE];
    int used = 0, count = 0;
    bool any = false;
    for (int i = 0; i < shares.count; i++)
        any |= sample->shares[shares.first + i].usage.peak_bytes > 0;
    for (int i = 0; i < shares.count; i++) {
        const struct sample_share *share = &sample->shares[shares.first + i];
        if (any && share->usage.peak_bytes == 0)
            continue;
        count++;
        if (used > LAYOUT_SIZE)
            continue;
        used += snprintf(all + used, sizeof all - (size_t)used, "%s%s", used ? "," : "",
                         layout__device(&sample->devices[share->device], one));
    }
    if (used > width)
        snprintf(text, LAYOUT_SIZE, "%dx", count);
    else
        snprintf(text, LAYOUT_SIZE, "%.*s", LAYOUT_SIZE - 1, all);
}

static void draw_size(struct grid *grid, int x, int y, int width, enum look look, uint64_t bytes)
{
    char text[LAYOUT_SIZE];
    grid_text_right(grid, x, y, width, look, layout_size(bytes, text));
}

static void draw_trend(struct grid *grid, const int *at, const int *widths, int y,
                       const struct trend *trend)
{
    enum trend_verdict verdict = trend_verdict(trend);
    enum look look = verdict == TREND_GROWING ? LOOK_WARN : LOOK_PLAIN;
    if (widths[COL_TREND])
        layout__trend(grid, at[COL_TREND], y, widths[COL_TREND], look, trend);
    if (widths[COL_VERDICT])
        grid_text(grid, at[COL_VERDICT], y, widths[COL_VERDICT],
                  verdict == TREND_STEADY ? LOOK_DIM : look, trend_verdict_name(verdict));
}

static void draw_pid(struct grid *grid, int x, int y, int width, uint32_t pid)
{
    char text[LAYOUT_SIZE];
    snprintf(text, sizeof text, "%u", pid);
    if (width && pid)
        grid_text_right(grid, x, y, width, LOOK_PLAIN, text);
}

/* --- rows ----------------------------------------------------------------------------------------------- */

static void draw_job(struct grid *grid, int y, const int *at, const int *widths,
                     const struct sample *sample, const struct row *row)
{
    const struct sample_job *job = &sample->jobs[row->job];
    char text[LAYOUT_SIZE];
    enum look fill = layout__fill_look(job->fill);
    int x = at[COL_NAME];
    if (row->folded)
        grid_printf(grid, x, y, widths[COL_NAME], LOOK_BOLD, "+ %s (%d)", job->name, row->hidden);
    else if (job->parent >= 0) /* what it holds counts in the other one too */
        grid_printf(grid, x, y, widths[COL_NAME], LOOK_BOLD, "%s (in %s)", job->name,
                    sample->jobs[job->parent].name);
    else
        grid_text(grid, x, y, widths[COL_NAME], LOOK_BOLD, job->name);
    draw_pid(grid, at[COL_PID], y, widths[COL_PID], job->pid);
    grid_text(grid, at[COL_USER], y, widths[COL_USER], LOOK_PLAIN, job->user);
    devices_text(sample, job->shares, widths[COL_GPU], text);
    grid_text(grid, at[COL_GPU], y, widths[COL_GPU], LOOK_PLAIN, text);
    draw_size(grid, at[COL_BUDGET], y, widths[COL_BUDGET], LOOK_PLAIN, job->budget_bytes);
    draw_size(grid, at[COL_HELD], y, widths[COL_HELD], fill == LOOK_PLAIN ? LOOK_BOLD : fill,
              job->held_bytes);
    draw_size(grid, at[COL_PEAK], y, widths[COL_PEAK], LOOK_PLAIN, job->peak_bytes);
    snprintf(text, sizeof text, "%.0f%%", job->fill * 100);
    grid_text_right(grid, at[COL_USE], y, widths[COL_USE], fill, text);
    draw_trend(grid, at, widths, y, &job->trend);
    if (job->state != ULL_JOB_RUNNING && widths[COL_VERDICT]) { /* says more than a trend */
        grid_text(grid, at[COL_VERDICT], y, widths[COL_VERDICT], LOOK_PLAIN, "          ");
        grid_text(grid, at[COL_VERDICT], y, widths[COL_VERDICT], LOOK_WARN,
                  ull__job_state_name(job->state));
    }
}

/* The lines of the tree; columns used. */
static int draw_branch(struct grid *grid, int y, int x, int room, const struct row *row, bool flat)
{
    int most = room / 2 / 3, from = row->depth >= most ? row->depth - most + 1 : 0;
    if (flat)
        return 2;
    for (int d = from; d < row->depth; d++, x += 3)
        if (d < ROW_DEPTHS && row->through & 1u << d)
            grid_glyph(grid, x, y, LOOK_DIM, GLYPH_THROUGH);
    grid_glyph(grid, x, y, LOOK_DIM, row->last ? GLYPH_LAST : GLYPH_BRANCH);
    grid_glyph(grid, x + 1, y, LOOK_DIM, GLYPH_LINE);
    return 3 * (row->depth - from + 1);
}

static void process_name(const struct sample_process *process, char *text, size_t size)
{
    const char *mark = process->kind == SAMPLE_OUTSIDE    ? "outside: "
                       : process->kind == SAMPLE_DRAINING ? "ended: "
                       : process->place == PROC_UNSEEN    ? "[other pid namespace] "
                       : process->place == PROC_INSIDE    ? "[container] "
                                                          : "";
    snprintf(text, size, "%s%s", mark, sample_short_command(process));
}

static void draw_process(struct grid *grid, int y, const int *at, const int *widths,
                         const struct sample *sample, const struct view *view, const struct row *row)
{
    const struct sample_process *process = &sample->processes[row->process];
    char text[LAYOUT_SIZE], name[SAMPLE_COMMAND + 32];
    enum look look = process->kind == SAMPLE_OUTSIDE    ? LOOK_WARN
                     : process->kind == SAMPLE_DRAINING ? LOOK_DIM
                                                        : LOOK_PLAIN;
    process_name(process, name, sizeof name);
    int x = draw_branch(grid, y, at[COL_NAME], widths[COL_NAME], row, view->flat);
    grid_text(grid, at[COL_NAME] + x, y, widths[COL_NAME] - x, look, name);
    draw_pid(grid, at[COL_PID], y, widths[COL_PID], process->pid);
    grid_text(grid, at[COL_USER], y, widths[COL_USER], LOOK_PLAIN, process->user);
    devices_text(sample, process->shares, widths[COL_GPU], text);
    grid_text(grid, at[COL_GPU], y, widths[COL_GPU], LOOK_PLAIN, text);
    draw_size(grid, at[COL_HELD], y, widths[COL_HELD], LOOK_PLAIN, process->held_bytes);
    if (process->peak_bytes != SAMPLE_UNKNOWN)
        draw_size(grid, at[COL_PEAK], y, widths[COL_PEAK], LOOK_PLAIN, process->peak_bytes);
    draw_trend(grid, at, widths, y, &process->trend);
}

void layout__table(struct grid *grid, int y, int height, const struct sample *sample,
                   const struct view *view, const struct rows *rows, int top, bool with_selection)
{
    int widths[COLUMNS], at[COLUMNS];
    fit(grid->width, view->sort, widths);
    for (int c = 0, x = 0; c < COLUMNS; x += widths[c] ? widths[c] + 1 : 0, c++)
        at[c] = x;
    draw_head(grid, y, widths, view, with_selection);
    for (int i = 0; i < height && top + i < rows->count; i++) {
        const struct row *row = &rows->row[top + i];
        int line = y + 1 + i;
        if (row->kind == ROW_JOB)
            draw_job(grid, line, at, widths, sample, row);
        else if (row->kind == ROW_PROCESS)
            draw_process(grid, line, at, widths, sample, view, row);
        else
            grid_text(grid, 0, line, grid->width, LOOK_DIM, "(in no job)");
        struct row_key key = rows_key(sample, row);
        if (with_selection && row->kind != ROW_STRANGERS && rows_same_key(&key, &view->selected))
            grid_paint(grid, 0, line, grid->width, LOOK_SELECTED);
    }
}
