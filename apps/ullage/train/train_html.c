/*
 * train_html.c: a page of a training: loss and speed by step, the memory that was used beside the budget, and the plan. One file, no
 * network; curves are drawn as SVG, so that nothing has to run.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "file.h"
#include "size.h"
#include "train_cmd.h"

enum { WIDTH = 860, HEIGHT = 220, LEFT = 60, POINTS = 800 };

bool train_note_point(struct training *training, const struct ull__step_result *result)
{
    if (training->options->html == NULL) {
        return true;
    }
    if (training->point_count == training->point_room) {
        size_t room = 2 * training->point_room + 256;
        struct train_point *more = realloc(training->points, room * sizeof(*more));
        if (more == NULL) {
            return false;
        }
        training->points = more;
        training->point_room = room;
    }
    training->points[training->point_count++] =
        (struct train_point){.step = training->seen,
                             .loss = result->loss,
                             .rate = (double)training->batch / result->seconds};
    return true;
}

/* What is not letters and figures in a name must not be read as a page. */
static void put_text(FILE *file, const char *text)
{
    for (; *text != '\0'; ++text) {
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"') {
            fprintf(file, "&#%d;", *text);
        } else {
            fputc(*text, file);
        }
    }
}

static double value(const struct train_point *point, bool loss)
{
    return loss ? point->loss : point->rate;
}

/* The mean of each run of steps that shares a point of the curve. */
static void put_curve(FILE *file, const struct training *training, bool loss, const char *title,
                      const char *unit)
{
    const struct train_point *points = training->points;
    size_t count = training->point_count, each = count / POINTS + 1;
    double low = 0, high = 1e-30;
    for (size_t i = 0; i < count; ++i) {
        double here = value(&points[i], loss);
        high = isfinite(here) && here > high ? here : high;
    }
    fprintf(file, "<h2>%s</h2>\n<svg viewBox='0 0 %d %d' role='img' aria-label='%s'>\n", title,
            WIDTH, HEIGHT + 30, title);
    for (int i = 0; i <= 4; ++i) {
        double at = low + (high - low) * i / 4;
        int y = HEIGHT - HEIGHT * i / 4 + 5;
        fprintf(file,
                "<line class='grid' x1='%d' x2='%d' y1='%d' y2='%d'/>"
                "<text x='%d' y='%d' text-anchor='end'>%.*f</text>\n",
                LEFT, WIDTH, y, y, LEFT - 6, y + 4, high < 100 ? 2 : 0, at);
    }
    fprintf(file, "<polyline class='%s' points='", loss ? "loss" : "rate");
    for (size_t i = 0; i < count; i += each) {
        double sum = 0;
        size_t n = 0;
        for (size_t j = i; j < i + each && j < count; ++j, ++n) {
            sum += value(&points[j], loss);
        }
        if (isfinite(sum)) {
            fprintf(file, "%.1f,%.1f ",
                    LEFT + (double)(WIDTH - LEFT) * (double)i / (double)(count > 1 ? count - 1 : 1),
                    5 + HEIGHT - HEIGHT * (sum / (double)n - low) / (high - low));
        }
    }
    fprintf(file,
            "'/>\n<text x='%d' y='%d'>step %llu</text><text x='%d' y='%d' text-anchor='end'>step "
            "%llu</text><text x='%d' y='%d' text-anchor='middle'>%s</text>\n</svg>\n",
            LEFT, HEIGHT + 24, (unsigned long long)(count > 0 ? points[0].step : 0), WIDTH,
            HEIGHT + 24, (unsigned long long)(count > 0 ? points[count - 1].step : 0), WIDTH / 2,
            HEIGHT + 24, unit);
}

static void put_memory(FILE *file, const struct training *training,
                       const struct ull__session_info *info)
{
    char text[ULL_SIZE_TEXT];
    double all = (double)training->options->memory;
    const struct {
        const char *name;
        uint64_t bytes;
    } bars[] = {
        {"budget", (uint64_t)training->options->memory},
        {"predicted peak", info->predicted_peak_bytes},
        {"measured peak", info->measured_peak_bytes},
        {"weights and state", info->persistent_bytes},
        {"second region", info->host_bytes},
    };
    fprintf(file, "<h2>Memory</h2>\n<table>\n");
    for (size_t i = 0; i < sizeof(bars) / sizeof(bars[0]); ++i) {
        double share = all > 0 ? (double)bars[i].bytes / all : 0;
        fprintf(file,
                "<tr><td>%s</td><td class='number'>%s</td><td class='bar'><div "
                "style='width:%.2f%%'></div></td></tr>\n",
                bars[i].name, ull__size_text(bars[i].bytes, text), 100 * (share < 1 ? share : 1));
    }
    fprintf(file, "</table>\n");
}

static void put_times(FILE *file, const struct ull__session_info *info)
{
    bool several = info->bucket_count > 1;
    fprintf(file,
            "<h2>Seconds of a step</h2>\n<table>\n<tr>%s<td>predicted at the start</td><td>"
            "learned</td><td>measured, median of the last</td></tr>\n",
            several ? "<td>length</td>" : "");
    for (int i = 0; i < info->bucket_count; ++i) {
        const struct ull__session_bucket *bucket = &info->buckets[i];
        fprintf(file, "<tr>");
        if (several) {
            fprintf(file, "<td>%lld</td>", (long long)bucket->length);
        }
        fprintf(file, "<td class='number'>%.3g</td><td class='number'>%.3g</td><td class='number'>",
                bucket->planned_seconds, bucket->predicted_seconds);
        if (bucket->measured_seconds > 0) {
            fprintf(file, "%.3g", bucket->measured_seconds);
        }
        fprintf(file, "</td></tr>\n");
    }
    fprintf(file, "</table>\n");
}

static void put_switches(FILE *file, const struct training *training)
{
    if (training->switch_count == 0) {
        return;
    }
    fprintf(file, "<h2>Changes of plan</h2>\n<table>\n");
    for (size_t i = 0; i < training->switch_count; ++i) {
        fprintf(file, "<tr><td>step %llu</td><td>", (unsigned long long)training->switches[i].step);
        put_text(file, training->switches[i].why);
        fprintf(file, "</td><td>");
        put_text(file, training->switches[i].plan);
        fprintf(file, "</td></tr>\n");
    }
    fprintf(file, "</table>\n");
}

static const char style[] =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:920px;margin:2em auto;padding:0 1em;"
    "color:#222;background:#fff}h1{font-size:1.4em}h2{font-size:1.1em;margin-top:1.6em}"
    "svg{width:100%;height:auto}svg text{font-size:12px;fill:#555}.grid{stroke:#ddd}"
    "polyline{fill:none;stroke-width:1.6}.loss{stroke:#1f5fa8}.rate{stroke:#2a8a4a}"
    "table{border-collapse:collapse;width:100%}td{padding:.2em .6em;border-bottom:1px solid #eee}"
    ".number{text-align:right;white-space:nowrap}.bar{width:60%}.bar div{background:#1f5fa8;"
    "height:12px;min-width:1px}@media(prefers-color-scheme:dark){body{background:#181818;color:#"
    "ddd}"
    ".grid{stroke:#333}svg text{fill:#999}td{border-color:#333}}";

ull_status train_write_html(const struct training *training, struct ull_error *err)
{
    struct ull__session_info info;
    char words[256], *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size); /* an earlier page is replaced by a whole one */
    if (file == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a page");
    }
    ull__session_info(training->session, &info);
    fprintf(file, "<!DOCTYPE html>\n<html lang='en'><meta charset='utf-8'><meta name='viewport' "
                  "content='width=device-width'><title>");
    put_text(file, training->model_text);
    fprintf(file, "</title><style>%s</style>\n<h1>", style);
    put_text(file, training->model_text);
    fprintf(file, " on ");
    put_text(file, training->options->data);
    fprintf(file, "</h1>\n<p>%llu steps of %llu samples in %.0f s; plan: ",
            (unsigned long long)training->seen, (unsigned long long)training->batch,
            training->seconds);
    put_text(file, train_plan_words(info.chosen, words, sizeof(words)));
    if (!isnan(training->accuracy)) {
        fprintf(file, "; accuracy %.4f, loss %.4f on what was held out", training->accuracy,
                training->eval_loss);
    }
    fprintf(file, ".</p>\n");
    put_curve(file, training, true, "Loss", "loss of each step");
    put_curve(file, training, false, "Speed", "samples a second");
    put_memory(file, training, &info);
    put_times(file, &info);
    put_switches(file, training);
    fprintf(file, "</html>\n");
    bool fine = !ferror(file);
    fine = fclose(file) == 0 && fine;
    ull_status status = fine ? ull__file_write(training->options->html, text, size, err)
                             : ull__fail(err, ULL_E_NO_MEMORY, "no memory for a page");
    free(text);
    return status;
}
