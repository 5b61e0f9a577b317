/* keys.c: see keys.h. */
#include "keys.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void view_init(struct view *view)
{
    *view = (struct view){.sort = SORT_HELD, .seconds = 1, .signal = SIGTERM};
}

static const char *const sort_names[SORTS] = {"name", "pid",  "user", "budget",
                                              "held", "peak", "use",  "trend"};

const char *view_sort_name(enum view_sort sort)
{
    return sort_names[sort];
}

bool view_sort_parse(const char *name, enum view_sort *sort)
{
    for (int i = 0; i < SORTS; i++) {
        if (strcmp(name, sort_names[i]) == 0) {
            *sort = (enum view_sort)i;
            return true;
        }
    }
    return false;
}

/* A process may be told to end at once; of a job its `ullage run`, which hands on what it can catch. */
static const int process_signals[] = {SIGTERM, SIGINT, SIGKILL};
static const int job_signals[] = {SIGTERM, SIGINT, SIGHUP};
enum { CHOICES = 3, SCROLL_END = 1000000 }; /* layout stops at the last line */

const char *keys_signal_name(int signal)
{
    return signal == SIGTERM   ? "SIGTERM"
           : signal == SIGINT  ? "SIGINT"
           : signal == SIGKILL ? "SIGKILL"
                               : "SIGHUP";
}

bool keys_parse_seconds(const char *text, double *seconds)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != 0 || !isfinite(value) || value < SECONDS_LEAST || value > SECONDS_MOST)
        return false;
    *seconds = value;
    return true;
}

/* --- selection --------------------------------------------------------------------------------------- */

void keys_follow(struct view *view, const struct sample *sample, int room)
{
    struct rows rows;
    if (!sample || !rows_build(&rows, sample, view))
        return;
    int at = rows_find(&rows, sample, &view->selected);
    if (at < 0)
        at = view->at;
    at = at < rows.count ? at : rows.count - 1;
    at = at < 0 ? 0 : at;
    if (rows.count > 0 && rows.row[at].kind == ROW_STRANGERS)
        at = at + 1 < rows.count ? at + 1 : at;
    view->at = at;
    view->selected = rows.count > 0 ? rows_key(sample, &rows.row[at]) : (struct row_key){.id = ""};
    room = room < 1 ? 1 : room;
    if (view->top > at)
        view->top = at;
    if (view->top < at - room + 1)
        view->top = at - room + 1;
    if (view->top > rows.count - room)
        view->top = rows.count - room;
    view->top = view->top < 0 ? 0 : view->top;
    rows_finish(&rows);
}

static void move(struct view *view, const struct sample *sample, int by)
{
    struct rows rows;
    if (!sample || !rows_build(&rows, sample, view))
        return;
    int at = rows_find(&rows, sample, &view->selected);
    at = (at < 0 ? view->at : at) + by;
    at = at >= rows.count ? rows.count - 1 : at;
    at = at < 0 ? 0 : at;
    if (rows.count > 0 && rows.row[at].kind == ROW_STRANGERS) { /* a headline cannot be chosen */
        at += by < 0 ? -1 : 1;
        at = at < 0 ? 1 : at;
    }
    if (at >= 0 && at < rows.count) {
        view->at = at;
        view->selected = rows_key(sample, &rows.row[at]);
    }
    rows_finish(&rows);
}

static void fold(struct view *view)
{
    struct row_key job = view->selected;
    if (job.id[0] == 0)
        return;
    job.pid = 0;
    job.start_ticks = 0;
    for (int i = 0; i < view->folded_count; i++) {
        if (rows_same_key(&view->folded[i], &job)) {
            view->folded[i] = view->folded[--view->folded_count];
            return;
        }
    }
    if (view->folded_count == VIEW_FOLDED) /* those of long ago come back */
        memmove(view->folded, view->folded + 1, (size_t)--view->folded_count * sizeof *view->folded);
    view->folded[view->folded_count++] = job;
    view->selected = job;
}

/* --- signals ------------------------------------------------------------------------------------------ */

static enum action refuse(struct view *view, const char *why)
{
    snprintf(view->message, sizeof view->message, "%s", why);
    return ACTION_NONE;
}

/* The number first, since a long name is cut. */
static void name_target(struct view *view, uint32_t pid, const char *before, const char *name)
{
    snprintf(view->target_name, sizeof view->target_name, "%u (%s%.120s)", pid, before, name);
}

static enum action aim(struct view *view, const struct sample *sample)
{
    struct rows rows;
    if (view->readonly)
        return refuse(view, "started with --readonly: no signals are sent");
    if (!sample || !rows_build(&rows, sample, view))
        return ACTION_NONE;
    int at = rows_find(&rows, sample, &view->selected);
    struct row row = at >= 0 ? rows.row[at] : (struct row){.kind = ROW_STRANGERS};
    rows_finish(&rows);
    if (row.kind == ROW_STRANGERS)
        return refuse(view, "nothing is selected");
    view->target_is_job = row.kind == ROW_JOB;
    if (row.kind == ROW_JOB) {
        const struct sample_job *job = &sample->jobs[row.job];
        if (job->start_ticks == 0)
            return refuse(view, "the job's own process is gone: select one of those below it");
        view->target = (struct row_key){.pid = job->pid, .start_ticks = job->start_ticks};
        name_target(view, job->pid, "job ", job->name);
    } else {
        const struct sample_process *process = &sample->processes[row.process];
        if (process->kind == SAMPLE_DRAINING)
            return refuse(view, "the process has ended; the driver has not freed its memory yet");
        if (process->place == PROC_UNSEEN || process->start_ticks == 0)
            return refuse(
                view, "the process is in another pid namespace and cannot be signalled from here");
        view->target = (struct row_key){.pid = process->pid, .start_ticks = process->start_ticks};
        name_target(view, process->pid, "", sample_short_command(process));
    }
    view->signal = SIGTERM;
    view->prompt = PROMPT_SIGNAL;
    return ACTION_AIM;
}

static void other_signal(struct view *view, int by)
{
    const int *choices = view->target_is_job ? job_signals : process_signals;
    int at = 0;
    for (int i = 0; i < CHOICES; i++)
        at = choices[i] == view->signal ? i : at;
    view->signal = choices[(at + by + CHOICES) % CHOICES];
}

static enum action answer_signal(struct view *view, int key)
{
    switch (key) {
    case KEYS_TAB:
    case KEYS_RIGHT:
    case KEYS_DOWN:
        other_signal(view, 1);
        return ACTION_NONE;
    case KEYS_LEFT:
    case KEYS_UP:
        other_signal(view, -1);
        return ACTION_NONE;
    case 'y':
    case 'Y':
        view->prompt = PROMPT_NONE;
        return ACTION_SIGNAL;
    default:
        view->prompt = PROMPT_NONE;
        snprintf(view->message, sizeof view->message, "nothing was sent");
        return ACTION_LET_GO;
    }
}

/* --- prompts ------------------------------------------------------------------------------------------- */

static void type(char *text, size_t size, int key)
{
    size_t used = strlen(text);
    unsigned int c = (unsigned int)key;
    char bytes[5] = {0};
    if (c < 0x80)
        bytes[0] = (char)c;
    else if (c < 0x800)
        bytes[0] = (char)(0xc0 | c >> 6), bytes[1] = (char)(0x80 | (c & 0x3f));
    else if (c < 0x10000)
        bytes[0] = (char)(0xe0 | c >> 12), bytes[1] = (char)(0x80 | (c >> 6 & 0x3f)),
        bytes[2] = (char)(0x80 | (c & 0x3f));
    else
        bytes[0] = (char)(0xf0 | c >> 18), bytes[1] = (char)(0x80 | (c >> 12 & 0x3f)),
        bytes[2] = (char)(0x80 | (c >> 6 & 0x3f)), bytes[3] = (char)(0x80 | (c & 0x3f));
    if (used + strlen(bytes) < size)
        strcpy(text + used, bytes);
}

static void rub_out(char *text)
{
    size_t used = strlen(text);
    while (used > 0 && ((unsigned char)text[used - 1] & 0xc0) == 0x80)
        used--;
    text[used > 0 ? used - 1 : 0] = 0;
}

/* What is typed; true if the key was for that. */
static bool edit(char *text, size_t size, int key)
{
    if (key == KEYS_BACKSPACE)
        rub_out(text);
    else if (key == KEYS_CLEAR)
        text[0] = 0;
    else if (key >= ' ' && key != 0x7f && key <= 0x10ffff)
        type(text, size, key);
    else
        return false;
    return true;
}

/* The rows follow while it is typed; Escape brings back what was before. */
static enum action answer_filter(struct view *view, int key)
{
    if (edit(view->filter, sizeof view->filter, key))
        return ACTION_NONE;
    if (key == KEYS_ESCAPE)
        memcpy(view->filter, view->input, sizeof view->filter);
    if (key == KEYS_ESCAPE || key == KEYS_ENTER)
        view->prompt = PROMPT_NONE;
    return ACTION_NONE;
}

static enum action answer_seconds(struct view *view, int key)
{
    if ((key >= '0' && key <= '9') || key == '.' || key == KEYS_BACKSPACE || key == KEYS_CLEAR) {
        if (strlen(view->input) < SECONDS_DIGITS || key > 0x7f)
            edit(view->input, sizeof view->input, key);
        return ACTION_NONE;
    }
    if (key != KEYS_ENTER && key != KEYS_ESCAPE)
        return ACTION_NONE;
    view->prompt = PROMPT_NONE;
    if (key == KEYS_ESCAPE || view->input[0] == 0)
        return ACTION_NONE;
    if (keys_parse_seconds(view->input, &view->seconds))
        return ACTION_SECONDS;
    snprintf(view->message, sizeof view->message, "'%s' is not a number from %g to %g", view->input,
             SECONDS_LEAST, SECONDS_MOST);
    return ACTION_NONE;
}

/* --- pages ------------------------------------------------------------------------------------------------ */

static bool scroll(struct view *view, int room, int key)
{
    int page = room > 2 ? room - 1 : 1;
    int by = key == KEYS_UP                        ? -1
             : key == KEYS_DOWN                    ? 1
             : key == KEYS_PAGE_UP                 ? -page
             : key == KEYS_PAGE_DOWN || key == ' ' ? page
             : key == KEYS_HOME                    ? -view->scroll
             : key == KEYS_END                     ? SCROLL_END - view->scroll
                                                   : 0;
    view->scroll = view->scroll + by < 0 ? 0 : view->scroll + by;
    return by != 0 || key == KEYS_HOME;
}

static enum action press_elsewhere(struct view *view, const struct sample *sample, int room, int key)
{
    if (scroll(view, room, key))
        return ACTION_NONE;
    if (key == 'k' && view->page == PAGE_DETAILS)
        return aim(view, sample);
    if (key == KEYS_ESCAPE || key == 'q' || key == KEYS_ENTER || key == KEYS_LEFT || key == '?')
        view->page = PAGE_MAIN;
    return ACTION_NONE;
}

static void open_page(struct view *view, enum view_page page)
{
    view->page = page;
    view->scroll = 0;
}

/* Another column, the way it is sorted by itself. */
static void sort_by(struct view *view, int sort)
{
    view->sort = (enum view_sort)((sort + SORTS) % SORTS);
    view->reversed = false;
}

static enum action press_letter(struct view *view, const struct sample *sample, int key)
{
    switch (key) {
    case '/':
        memcpy(view->input, view->filter, sizeof view->input);
        view->prompt = PROMPT_FILTER;
        break;
    case 'd':
    case 's':
        view->input[0] = 0;
        view->prompt = PROMPT_SECONDS;
        break;
    case '<':
    case ',':
        sort_by(view, (int)view->sort - 1);
        break;
    case '>':
    case '.':
        sort_by(view, (int)view->sort + 1);
        break;
    case 'r':
        view->reversed = !view->reversed;
        break;
    case 't':
        view->flat = !view->flat;
        break;
    case 'c':
        view->cards = (enum view_cards)((view->cards + 1) % (CARDS_NONE + 1));
        break;
    case ' ':
        fold(view);
        break;
    case 'k':
        return aim(view, sample);
    case '?':
    case 'h':
        open_page(view, PAGE_HELP);
        break;
    case 'q':
        return ACTION_QUIT;
    case 0x0c: /* Ctrl-L */
        return ACTION_REDRAW;
    default:
        break;
    }
    return ACTION_NONE;
}

static enum action press_main(struct view *view, const struct sample *sample, int room, int key)
{
    int page = room > 2 ? room - 1 : 1;
    switch (key) {
    case KEYS_UP:
        move(view, sample, -1);
        return ACTION_NONE;
    case KEYS_DOWN:
        move(view, sample, 1);
        return ACTION_NONE;
    case KEYS_PAGE_UP:
        move(view, sample, -page);
        return ACTION_NONE;
    case KEYS_PAGE_DOWN:
        move(view, sample, page);
        return ACTION_NONE;
    case KEYS_HOME:
        move(view, sample, -SCROLL_END);
        return ACTION_NONE;
    case KEYS_END:
        move(view, sample, SCROLL_END);
        return ACTION_NONE;
    case KEYS_ENTER:
    case KEYS_RIGHT:
        if (view->selected.id[0] || view->selected.pid)
            open_page(view, PAGE_DETAILS);
        return ACTION_NONE;
    case KEYS_ESCAPE:
        view->filter[0] = 0;
        return ACTION_NONE;
    default:
        return press_letter(view, sample, key);
    }
}

enum action keys_press(struct view *view, const struct sample *sample, int room, int key)
{
    enum action action;
    view->message[0] = 0;
    switch (view->prompt) {
    case PROMPT_FILTER:
        action = answer_filter(view, key);
        break;
    case PROMPT_SECONDS:
        action = answer_seconds(view, key);
        break;
    case PROMPT_SIGNAL:
        action = answer_signal(view, key);
        break;
    default:
        action = view->page == PAGE_MAIN ? press_main(view, sample, room, key)
                                         : press_elsewhere(view, sample, room, key);
    }
    if (view->page == PAGE_MAIN)
        keys_follow(view, sample, room);
    return action;
}
