/*
 * sweep_page.c: a sweep as one HTML page with a plot: for each limit a bar of the time it took and a line of what it
 * held. Complete in itself: no script, nothing is loaded.
 */
#include <string.h>

#include "report/words.h"
#include "size.h"
#include "sweep.h"

enum { WIDTH = 720, HEIGHT = 320, LEFT = 70, RIGHT = 80, TOP = 20, BOTTOM = 60 };

/* Text from outside: what HTML takes for its own is written as entities. */
static void escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, out);
        }
    }
}

static void head(const struct sweep *sweep, FILE *out)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
          "'unsafe-inline'\">\n<title>ullage sweep</title>\n<style>\n"
          ":root{color-scheme:light dark;--ok:#2a78b5;--bad:#c0392b;--held:#d98200}\n"
          "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:760px;padding:0 1em}\n"
          "code{overflow-wrap:anywhere}svg{width:100%;height:auto}svg text{font-size:12px;"
          "fill:currentColor}\n"
          "table{border-collapse:collapse;width:100%}td,th{padding:.3em .6em;text-align:right;"
          "border-bottom:1px solid #8884}\ntd:last-child,th:last-child{text-align:left}\n"
          "</style></head><body>\n<h1>One command, several limits</h1>\n<p><code>",
          out);
    for (char *const *word = sweep->command; *word; word++) {
        if (word != sweep->command)
            fputc(' ', out);
        escaped(out, *word);
    }
    fputs("</code></p>\n", out);
}

static double most_seconds(const struct sweep *sweep)
{
    double most = 1e-9;
    for (int i = 0; i < sweep->count; i++)
        most = sweep->runs[i].seconds > most ? sweep->runs[i].seconds : most;
    return most;
}

static uint64_t most_held(const struct sweep *sweep)
{
    uint64_t most = 1;
    for (int i = 0; i < sweep->count; i++)
        most = sweep->runs[i].peak > most ? sweep->runs[i].peak : most;
    return most;
}

static double column(const struct sweep *sweep, int run)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (run + 0.5) / sweep->count;
}

static void axes(FILE *out, double seconds, uint64_t held)
{
    char time[WORDS_TEXT], size[ULL_SIZE_TEXT];
    for (int i = 0; i <= 4; i++) {
        double y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - i / 4.0);
        fprintf(out,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#8885\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>"
                "<text x=\"%d\" y=\"%.1f\" style=\"fill:var(--held)\">%s</text>\n",
                LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, words_time(seconds * i / 4, time),
                WIDTH - RIGHT + 8, y + 4, ull__size_text((uint64_t)((double)held * i / 4), size));
    }
}

static void plot(const struct sweep *sweep, FILE *out)
{
    double seconds = most_seconds(sweep), room = HEIGHT - TOP - BOTTOM;
    double wide = (WIDTH - LEFT - RIGHT) / (double)sweep->count * 0.5;
    uint64_t held = most_held(sweep);
    fprintf(
        out,
        "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Time and memory held by limit\">\n",
        WIDTH, HEIGHT);
    axes(out, seconds, held);
    for (int i = 0; i < sweep->count; i++) {
        const struct sweep_run *run = &sweep->runs[i];
        double high = room * run->seconds / seconds, x = column(sweep, i);
        char time[WORDS_TEXT];
        fprintf(
            out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" style=\"fill:var(--%s)\">"
            "<title>%s</title></rect><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
            x - wide / 2, TOP + room - high, wide, high, run->outcome == SWEEP_OK ? "ok" : "bad",
            words_time(run->seconds, time), x, HEIGHT - BOTTOM + 18);
        escaped(out, run->limit);
        fputs("</text>\n", out);
    }
    fputs("<polyline fill=\"none\" style=\"stroke:var(--held)\" stroke-width=\"2\" points=\"", out);
    for (int i = 0; i < sweep->count; i++) {
        if (sweep->runs[i].known)
            fprintf(out, "%.1f,%.1f ", column(sweep, i),
                    TOP + room * (1 - (double)sweep->runs[i].peak / (double)held));
    }
    fputs("\"/>\n", out);
    for (int i = 0; i < sweep->count; i++) {
        if (sweep->runs[i].known)
            fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" style=\"fill:var(--held)\"/>\n",
                    column(sweep, i), TOP + room * (1 - (double)sweep->runs[i].peak / (double)held));
    }
    fprintf(out,
            "<text x=\"%d\" y=\"%d\">bars: time, <tspan style=\"fill:var(--ok)\">ok</tspan> or "
            "<tspan style=\"fill:var(--bad)\">not</tspan>; line: <tspan style=\"fill:var(--held)\">"
            "most held</tspan></text></svg>\n",
            LEFT, HEIGHT - 12);
}

static void rows(const struct sweep *sweep, FILE *out)
{
    fputs("<table><tr><th>limit</th><th>most held</th><th>average</th><th>time</th><th>refused</th>"
          "<th>verdict</th><th>outcome</th></tr>\n",
          out);
    for (int i = 0; i < sweep->count; i++) {
        const struct sweep_run *run = &sweep->runs[i];
        char held[ULL_SIZE_TEXT], average[ULL_SIZE_TEXT], time[WORDS_TEXT], count[WORDS_TEXT];
        char outcome[WORDS_TEXT];
        snprintf(outcome, sizeof outcome, "%s", sweep_outcome_name(run->outcome));
        for (char *c = outcome; *c; c++)
            *c = *c == '_' ? ' ' : *c;
        fputs("<tr><td>", out);
        escaped(out, run->limit);
        fprintf(out, "</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s",
                run->known ? ull__size_text(run->peak, held) : "-",
                run->average ? ull__size_text(run->average, average) : "-",
                words_time(run->seconds, time), run->known ? words_count(run->refusals, count) : "-",
                sweep_verdict_name(run), outcome);
        if (run->exit_code)
            fprintf(out, " (exit %d)", run->exit_code);
        fputs("</td></tr>\n", out);
    }
    fputs("</table>\n", out);
}

/* Evidence may name what is in the record: tags, functions. */
static void leaks(const struct sweep *sweep, FILE *out)
{
    for (int i = 0; i < sweep->count; i++) {
        const char *evidence = sweep_leak_evidence(&sweep->runs[i]);
        if (!evidence)
            continue;
        fprintf(out, "<p>%s with <b>", sweep_verdict_name(&sweep->runs[i]));
        escaped(out, sweep->runs[i].limit);
        fputs("</b>: ", out);
        escaped(out, evidence);
        fputs("</p>\n", out);
    }
}

void sweep_page(const struct sweep *sweep, FILE *out)
{
    int smallest = sweep_smallest(sweep), fastest = sweep_fastest(sweep);
    head(sweep, out);
    if (sweep->count > 0)
        plot(sweep, out);
    rows(sweep, out);
    if (smallest >= 0) {
        fputs("<p>Smallest that ran: <b>", out);
        escaped(out, sweep->runs[smallest].limit);
        fprintf(out, "</b>, in %.2f times the time of the fastest (",
                sweep->runs[smallest].seconds / sweep->runs[fastest].seconds);
        escaped(out, sweep->runs[fastest].limit);
        fputs(").</p>\n", out);
    }
    leaks(sweep, out);
    fputs("</body></html>\n", out);
}
