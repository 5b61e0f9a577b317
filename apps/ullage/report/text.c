/* text.c: `ullage report` for people, at 80 columns. Curves are in plot.c, what grew in text_diff.c. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "error.h"
#include "plot.h"
#include "size.h"
#include "suspects.h"
#include "table.h"
#include "text.h"
#include "words.h"

enum { LABEL = 18, SHOWN_HOLDERS = 10, SHOWN_PROCESSES = 8 };

static void colour(const struct text *text, const char *code)
{
    if (text->look->colour)
        fprintf(text->out, "\033[%sm", code);
}

void text_heading(const struct text *text, const char *heading)
{
    fputc('\n', text->out);
    colour(text, "1");
    fputs(heading, text->out);
    colour(text, "0");
    fputc('\n', text->out);
}

void text_label(const struct text *text, const char *label)
{
    fputs("  ", text->out);
    table_cell(text->out, label, LABEL - 2, false);
}

void text_line(const struct text *text, const char *label, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    text_label(text, label);
    words_wrap(text->out, line, LABEL, text->look->width);
}

static void warn(const struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void warn(const struct text *text, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(text->out, "%*s", LABEL, "");
    colour(text, "33");
    words_wrap(text->out, line, LABEL, text->look->width);
    colour(text, "0");
}

/* --- the run -------------------------------------------------------------------------------------------- */

static void show_run(const struct text *text)
{
    const struct ull__history *history = text->input->history;
    char time[WORDS_TEXT], count[WORDS_TEXT];
    const char *name = history->command ? ull__history_string(history, history->command)
                       : history->job   ? ull__history_string(history, history->job)
                                        : text->input->path;
    colour(text, "1");
    words_wrap(text->out, name, 0, text->look->width);
    colour(text, "0");
    fprintf(text->out, "  %s, %s events, %" PRIu32 " process%s%s\n",
            words_time((double)history->end_ns / 1e9, time), words_count(history->event_count, count),
            history->process_count, history->process_count == 1 ? "" : "es",
            history->origin == ULL_ORIGIN_TORCH ? ", from a snapshot of PyTorch's"
            : history->over                     ? ""
                                                : ", not ended when this was read");
    if (history->truncated)
        text_line(text, "note",
                  "the record is cut short at byte %" PRIu64 "; this is told from what is there",
                  history->broken_offset);
    if (history->torn_blocks)
        text_line(text, "note", "%s block%s of writers that were killed is missing",
                  words_count(history->torn_blocks, count), history->torn_blocks == 1 ? "" : "s");
    if (history->dropped)
        text_line(text, "note",
                  "%s events were dropped since they came faster than they could be written: "
                  "sums may be off by what they were",
                  words_count(history->dropped, count));
}

/* --- devices -------------------------------------------------------------------------------------------- */

static ull_status show_curves(const struct text *text, uint32_t device, struct ull_error *err)
{
    struct ull__timeline *timeline;
    ull_status status = ull__timeline_create(text->input->facts, (int)device, 4096, &timeline, err);
    if (status != ULL_OK)
        return status;
    bool differs = false;
    for (size_t i = 0; i < timeline->count; i++)
        differs |= timeline->points[i].live != timeline->points[i].held;
    text_label(text, "held");
    plot_line(text->out, text->look, timeline, false, text->look->width - LABEL);
    if (differs) {
        text_label(text, "live");
        plot_line(text->out, text->look, timeline, true, text->look->width - LABEL);
    }
    ull__timeline_destroy(timeline);
    return ULL_OK;
}

static void show_limit(const struct text *text, const struct ull__device_figures *device)
{
    char suggested[ULL_SUGGEST_TEXT], needed[ULL_SIZE_TEXT];
    if (device->preallocated) {
        text_line(text, "limit to set",
                  "not known: one early allocation took most of the card; "
                  "repeat with --growth");
        return;
    }
    text_line(
        text, "limit to set", "-m %s%s%s", ull__suggest_text(device->suggested_bytes, suggested),
        device->stopped_short ? " or more" : "",
        device->alone == ULL_ALONE_YES ? "; but it was alone on the card, where it needs no limit"
                                       : "");
    text_line(text, "", "%s with %s",
              device->stopped_short ? "it was stopped; it would have got"
                                      " further"
                                    : "it would have run",
              ull__size_text_up(device->needed_bytes, needed));
}

static void show_device_figures(const struct text *text, const struct ull__device_figures *device)
{
    const struct ull__course *course = &device->course;
    char size[ULL_SIZE_TEXT], other[ULL_SIZE_TEXT], time[WORDS_TEXT], share[WORDS_TEXT] = "";
    if (device->budget_bytes > 0)
        snprintf(share, sizeof share, " (%.0f %% of the budget)",
                 100.0 * (double)course->peak_bytes / (double)device->budget_bytes);
    text_line(text, "peak", "%s%s, reached after %s", ull__size_text(course->peak_bytes, size),
              share, words_time((double)course->peak_ns / 1e9, time));
    if (!isnan(course->peak_to_average))
        text_line(text, "average", "%s; peak / average %.2f%s",
                  ull__size_text(course->average_bytes, size), course->peak_to_average,
                  course->peak_to_average > 1.5 ? " (1.2 to 1.5 is usual)" : "");
    if (course->live_peak_bytes != course->peak_bytes)
        text_line(text, "live", "at most %s; on average %s",
                  ull__size_text(course->live_peak_bytes, size),
                  ull__size_text(course->live_average_bytes, other));
    if (!isnan(device->fragmentation)) {
        char free_share[WORDS_TEXT];
        text_line(text, "fragmentation",
                  "%s of what the allocator has free is not in its largest "
                  "free piece; free is %s of what it holds",
                  words_percent(device->fragmentation, time),
                  words_percent(device->free_share, free_share));
        if (device->fragmentation > ULL_FRAGMENTATION_FLAG)
            warn(text, "! above %.0f %%: large requests may be refused though enough is free",
                 ULL_FRAGMENTATION_FLAG * 100);
    }
}

static void show_classes(const struct text *text, const struct ull__course *course)
{
    char line[512] = "", size[ULL_SIZE_TEXT];
    for (int c = 0; c < ULL_CLASSES; c++) {
        size_t used = strlen(line);
        if (course->peak_by_class[c] > 0)
            snprintf(line + used, sizeof line - used, "%s%s %s", used ? ", " : "",
                     ull__class_name((enum ull__class)c),
                     ull__size_text(course->peak_by_class[c], size));
    }
    if (line[0])
        text_line(text, "at the peak", "%s", line);
}

static ull_status show_device(const struct text *text, uint32_t d, struct ull_error *err)
{
    const struct ull__history *history = text->input->history;
    const struct ull__device_figures *device = &text->input->figures->devices[d];
    char heading[256], name[WORDS_TEXT], size[ULL_SIZE_TEXT], more[64] = "";
    if (device->budget_bytes > 0)
        snprintf(more, sizeof more, ", budget %s", ull__size_text(device->budget_bytes, size));
    snprintf(heading, sizeof heading, "%s %.80s%s", words_device(history, d, name),
             ull__history_string(history, history->devices[d].name), more);
    text_heading(text, heading);
    if (device->course.peak_event == ULL_NO_EVENT) {
        fputs("  nothing was held\n", text->out);
        return ULL_OK;
    }
    ull_status status = show_curves(text, d, err);
    show_device_figures(text, device);
    show_classes(text, &device->course);
    show_limit(text, device);
    return status;
}

/* --- verdicts ------------------------------------------------------------------------------------------- */

static void show_verdict(const struct text *text, const char *label,
                         const struct ull__verdict *verdict)
{
    char sure[64] = "";
    text_label(text, label);
    colour(text, verdict->kind == ULL_VERDICT_LEAK ? "1;31" : "1");
    fputs(ull__verdict_name(verdict->kind), text->out);
    colour(text, "0");
    if (verdict->kind != ULL_VERDICT_UNKNOWN)
        snprintf(sure, sizeof sure, " (%.0f %% sure)", verdict->confidence * 100);
    fprintf(text->out, "%s\n", sure);
    for (int i = 0; i < verdict->evidence_count; i++) {
        fprintf(text->out, "%*s", LABEL, "");
        words_wrap(text->out, verdict->evidence[i], LABEL, text->look->width);
    }
}

/* --- calls ---------------------------------------------------------------------------------------------- */

static void show_latency(const struct text *text, const char *label,
                         const struct ull__latency *latency)
{
    char p50[WORDS_TEXT], p99[WORDS_TEXT], most[WORDS_TEXT], count[WORDS_TEXT];
    if (latency->count == 0)
        return;
    text_line(text, label, "half within %s, 99 of 100 within %s, at most %s (%s calls)",
              words_time(latency->p50, p50), words_time(latency->p99, p99),
              words_time(latency->max, most), words_count(latency->count, count));
    if (latency->max > ULL_LATENCY_FLAG)
        warn(text, "! some took more than %.0f ms%s", ULL_LATENCY_FLAG * 1000,
             latency->p99 > ULL_LATENCY_FLAG ? ", and not only a few" : "");
}

static void show_pressure(const struct text *text)
{
    static const char *const waits[] = {
        "for the books to be settled",  "for a stream to run dry",
        "for caches to be trimmed",     "for other threads or processes",
        "for pages to be put together", "in a retry"};
    const struct ull__pressure *pressure = &text->input->figures->pressure;
    char count[WORDS_TEXT], time[WORDS_TEXT], size[ULL_SIZE_TEXT];
    if (pressure->waited > 0)
        text_line(text, "waits", "%s request%s had to wait, %s in all beyond the usual",
                  words_count(pressure->waited, count), pressure->waited == 1 ? "" : "s",
                  words_time(pressure->waited_seconds, time));
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        if (pressure->by_wait[i] > 0)
            text_line(text, "", "%s %s", words_count(pressure->by_wait[i], count), waits[i]);
    }
    if (pressure->refusals == 0)
        return;
    text_line(text, "refused", "%s request%s", words_count(pressure->refusals, count),
              pressure->refusals == 1 ? "" : "s");
    if (pressure->survived == 0)
        return;
    char more[64] = "";
    if (pressure->more_bytes > 0)
        snprintf(more, sizeof more, "; %s more would grant them",
                 ull__size_text_up(pressure->more_bytes, size));
    warn(text, "! after %s of them the program went on: likely slower algorithms%s",
         words_count(pressure->survived, count), more);
}

/* --- contents --------------------------------------------------------------------------------------------- */

static void show_holder(const struct text *text, const struct ull__holder *holder)
{
    const struct report_input *input = text->input;
    char size[ULL_SIZE_TEXT], count[WORDS_TEXT], age[WORDS_TEXT], who[512];
    uint64_t ns = input->figures->holder_ns;
    const char *tag = ull__history_string(input->history, holder->tag);
    fputs("  ", text->out);
    table_cell(text->out, ull__size_text(holder->bytes, size), 10, true);
    table_cell(text->out, words_count(holder->count, count), 8, true);
    table_cell(text->out,
               words_time(ns > holder->since_ns ? (double)(ns - holder->since_ns) / 1e9 : 0, age),
               13, true);
    fputs("  ", text->out);
    table_cell(text->out, ull__class_name(holder->class), 8, false);
    snprintf(who, sizeof who, "%" PRIu32 " ", input->history->processes[holder->process].pid);
    table_cell(text->out, who, 9, true);
    fputc(' ', text->out);
    ull__stack_describe(input->history, holder->stack, 3, who, sizeof who);
    char what[1024];
    if (tag[0] || who[0])
        snprintf(what, sizeof what, "%s%s%s", tag, tag[0] && who[0] ? ": " : "", who);
    else
        snprintf(what, sizeof what, "of %s", ull__size_text(holder->largest, size));
    words_wrap(text->out, what, 53, text->look->width);
}

static void show_holders(const struct text *text)
{
    const struct ull__figures *figures = text->input->figures;
    char size[ULL_SIZE_TEXT], heading[128], time[WORDS_TEXT], name[WORDS_TEXT];
    uint64_t rest = figures->rest_bytes;
    if (figures->main < 0 || figures->holder_count == 0)
        return;
    snprintf(heading, sizeof heading, "live on %s when it was most, after %s",
             words_device(text->input->history, (uint32_t)figures->main, name),
             words_time((double)figures->holder_ns / 1e9, time));
    text_heading(text, heading);
    fputs("       bytes  blocks          age  class        pid  what\n", text->out);
    for (int i = 0; i < figures->holder_count; i++) {
        if (i < SHOWN_HOLDERS)
            show_holder(text, &figures->holders[i]);
        else
            rest += figures->holders[i].bytes;
    }
    if (rest > 0)
        fprintf(text->out, "  %10s  in all others\n", ull__size_text(rest, size));
    if (figures->charged_bytes > 0)
        fprintf(text->out, "  %10s  held besides: contexts, code, reserves\n",
                ull__size_text(figures->charged_bytes, size));
}

static void show_sizes(const struct text *text)
{
    const struct ull__figures *figures = text->input->figures;
    char from[ULL_SIZE_TEXT], bytes[ULL_SIZE_TEXT], count[WORDS_TEXT];
    uint64_t most = 0;
    for (int i = 0; i < ULL_SIZE_BUCKETS; i++)
        most = figures->sizes[i] > most ? figures->sizes[i] : most;
    if (most == 0)
        return;
    text_heading(text, "allocations by size");
    for (int i = 0; i < ULL_SIZE_BUCKETS; i++) {
        if (figures->sizes[i] == 0)
            continue;
        fputs("  ", text->out);
        table_cell(text->out, ull__size_text(1ull << i, from), 10, true);
        table_cell(text->out, words_count(figures->sizes[i], count), 12, true);
        table_cell(text->out, ull__size_text(figures->size_bytes[i], bytes), 11, true);
        fputs("  ", text->out);
        plot_bar(text->out, text->look, (double)figures->sizes[i] / (double)most,
                 text->look->width - 40);
    }
}

static void show_ages(const struct text *text)
{
    const struct ull__figures *figures = text->input->figures;
    char from[WORDS_TEXT], bytes[ULL_SIZE_TEXT], count[WORDS_TEXT];
    uint64_t most = figures->never_freed;
    for (int i = 0; i < ULL_AGE_BUCKETS; i++)
        most = figures->ages[i] > most ? figures->ages[i] : most;
    if (most == 0)
        return;
    text_heading(text, "allocations by how long they lived, from");
    for (int i = 0; i <= ULL_AGE_BUCKETS; i++) {
        bool never = i == ULL_AGE_BUCKETS;
        uint64_t number = never ? figures->never_freed : figures->ages[i];
        if (number == 0)
            continue;
        fputs("  ", text->out);
        table_cell(text->out,
                   never ? "not freed" : words_time(i ? (double)(1ull << 2 * i) * 1e-6 : 0, from),
                   12, true);
        table_cell(text->out, words_count(number, count), 10, true);
        table_cell(text->out,
                   ull__size_text(never ? figures->never_freed_bytes : figures->age_bytes[i], bytes),
                   11, true);
        fputs("  ", text->out);
        plot_bar(text->out, text->look, (double)number / (double)most, text->look->width - 40);
    }
}

/* The processes that came to hold most; small, so that simple selection does. */
static void show_processes(const struct text *text)
{
    const struct report_input *input = text->input;
    const struct ull__figures *figures = input->figures;
    uint64_t below = UINT64_MAX;
    uint32_t after = 0;
    if (figures->process_count < 2)
        return;
    text_heading(text, "processes");
    fputs("         pid      peak   average  host peak  command\n", text->out);
    for (int shown = 0; shown < SHOWN_PROCESSES && (uint32_t)shown < figures->process_count; shown++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t p = 0; p < figures->process_count; p++) {
            uint64_t peak = figures->processes[p].course.peak_bytes;
            bool left = peak < below || (peak == below && p >= after);
            if (left && (best == UINT32_MAX || peak > figures->processes[best].course.peak_bytes))
                best = p;
        }
        const struct ull__process_figures *process = &figures->processes[best];
        char peak[ULL_SIZE_TEXT], average[ULL_SIZE_TEXT], host[ULL_SIZE_TEXT];
        fprintf(text->out, "  %10" PRIu32 " %9s %9s %10s  ", input->history->processes[best].pid,
                ull__size_text(process->course.peak_bytes, peak),
                ull__size_text(process->course.average_bytes, average),
                process->host_samples ? ull__size_text(process->host_peak, host) : "-");
        table_cell(text->out,
                   ull__history_string(input->history, input->history->processes[best].name),
                   text->look->width - 46, false);
        fputc('\n', text->out);
        below = process->course.peak_bytes;
        after = best + 1;
    }
    if (figures->process_count > SHOWN_PROCESSES)
        fprintf(text->out, "  and %" PRIu32 " more\n", figures->process_count - SHOWN_PROCESSES);
}

ull_status report_text(const struct report_input *input, FILE *out, struct ull_error *err)
{
    const struct text text = {.input = input, .out = out, .look = &input->look};
    const struct ull__figures *figures = input->figures;
    ull_status status = ULL_OK;
    show_run(&text);
    for (uint32_t d = 0; status == ULL_OK && d < figures->device_count; d++) {
        if (figures->devices[d].course.peak_event != ULL_NO_EVENT || figures->device_count == 1)
            status = show_device(&text, d, err);
    }
    if (status != ULL_OK)
        return status;
    if (figures->main < 0)
        fputs("  no GPU memory was held\n", out);
    text_heading(&text, "leak, cache or steady?");
    show_verdict(&text, "device memory", input->verdict);
    show_verdict(&text, "host memory", input->host_verdict);
    if (figures->driver.count || figures->chunks.count || figures->pressure.waited ||
        figures->pressure.refusals)
        text_heading(&text, "calls");
    show_latency(&text, "driver", &figures->driver);
    show_latency(&text, "allocator", &figures->chunks);
    show_pressure(&text);
    show_holders(&text);
    show_sizes(&text);
    show_ages(&text);
    show_processes(&text);
    return input->before ? text_diff(&text, err) : ULL_OK;
}
