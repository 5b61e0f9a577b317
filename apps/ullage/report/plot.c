/* plot.c: see plot.h. Eighths of a character where the terminal has them, else ASCII in about the same heights. */
#include "plot.h"

static const char *const heights[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const plain[] = {" ", "_", ".", "-", "=", "+", "*", "%", "#"};
static const char *const widths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};

/* The highest between two moments, with what it was at the first. */
static uint64_t highest(const struct ull__timeline *timeline, bool live, size_t *at, uint64_t to_ns)
{
    const struct ull__point *points = timeline->points;
    uint64_t most = live ? points[*at].live : points[*at].held;
    while (*at + 1 < timeline->count && points[*at + 1].time_ns < to_ns) {
        ++*at;
        uint64_t value = live ? points[*at].live : points[*at].held;
        most = value > most ? value : most;
    }
    return most;
}

void plot_line(FILE *out, const struct report_look *look, const struct ull__timeline *timeline,
               bool live, int columns)
{
    uint64_t top = 0;
    size_t at = 0;
    for (size_t i = 0; i < timeline->count; i++)
        top = timeline->points[i].held > top ? timeline->points[i].held : top;
    for (int column = 0; column < columns; column++) {
        uint64_t to = (uint64_t)((double)timeline->end_ns * (column + 1) / columns);
        uint64_t value = highest(timeline, live, &at, to + (column + 1 == columns));
        /* Only nothing is empty, and only the peak is full. What is live may be ahead of what is held. */
        int level = value == 0 ? 0 : value >= top ? 8 : 1 + (int)((double)value / (double)top * 7);
        fputs(look->utf8 ? heights[level] : plain[level], out);
    }
    fputc('\n', out);
}

void plot_bar(FILE *out, const struct report_look *look, double share, int columns)
{
    int eighths = (int)(share * columns * 8 + 0.5);
    if (share > 0 && eighths == 0)
        eighths = 1;
    for (int i = 0; i < eighths / 8; i++)
        fputs(look->utf8 ? widths[8] : "#", out);
    if (look->utf8)
        fputs(widths[eighths % 8], out);
    else if (eighths < 8)
        fputs(".", out);
    fputc('\n', out);
}
