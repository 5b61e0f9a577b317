/* layout.c: see layout.h. The frame: head, cards, table, foot; and what is small. */
#include "layout.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "keys.h"

/* Lines of a page in all; a job with more processes than fit says so. */
enum { PAGE_LINES = 1200, HEAD = 1, FOOT = 1, TABLE_LEAST = 3 };

const char *layout_size(uint64_t bytes, char text[LAYOUT_SIZE])
{
    static const char units[] = "BKMGTPE";
    double value = (double)bytes;
    int unit = 0;
    if (bytes == SAMPLE_UNKNOWN || bytes == 0) {
        snprintf(text, LAYOUT_SIZE, "%s", bytes == 0 ? "0" : "-");
        return text;
    }
    while (value >= 1023.5 && unit < 6) {
        value /= 1024;
        unit++;
    }
    snprintf(text, LAYOUT_SIZE, unit >= 3 ? "%.1f%c" : "%.0f%c", value, units[unit]);
    return text;
}

const char *layout__device(const struct sample_device *device, char text[LAYOUT_SIZE])
{
    if (device->physical < 0)
        snprintf(text, LAYOUT_SIZE, "?");
    else if (device->instance >= 0)
        snprintf(text, LAYOUT_SIZE, "%d:%d", device->physical, device->instance);
    else
        snprintf(text, LAYOUT_SIZE, "%d", device->physical);
    return text;
}

enum look layout__fill_look(double fill)
{
    return fill >= 0.9 ? LOOK_BAD : fill >= 0.7 ? LOOK_WARN : LOOK_PLAIN;
}

void layout__trend(struct grid *grid, int x, int y, int width, enum look look,
                   const struct trend *trend)
{
    unsigned char heights[TREND_POINTS];
    width = width < TREND_POINTS ? width : TREND_POINTS;
    trend_line(trend, width, heights);
    for (int i = 0; i < width; i++)
        if (heights[i] > 0)
            grid_glyph(grid, x + i, y, look, (enum glyph)(GLYPH_LEVEL_1 + heights[i] - 1));
}

/* --- head and foot ----------------------------------------------------------------------------------- */

static double age(const struct sample *sample, const struct layout_about *about)
{
    return about->now_ns > sample->time_ns ? (double)(about->now_ns - sample->time_ns) / 1e9 : 0;
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

static void draw_head(struct grid *grid, const struct sample *sample, const struct view *view,
                      const struct layout_about *about)
{
    char left[256], right[128] = "";
    int processes = sample ? sample->process_count - sample->strangers.count : 0;
    enum look look = LOOK_PLAIN;
    if (!sample) {
        snprintf(left, sizeof left, "ullage top  %.60s", about->host);
        snprintf(right, sizeof right, "asking the driver...");
    } else {
        snprintf(left, sizeof left, "ullage top  %.60s  %d job%s  %d process%s", about->host,
                 sample->job_count, plural(sample->job_count), processes, processes == 1 ? "" : "es");
        time_t seconds = (time_t)(sample->unix_ns / 1000000000ull);
        struct tm local;
        char clock[16] = "";
        if (localtime_r(&seconds, &local))
            strftime(clock, sizeof clock, "%H:%M:%S", &local);
        bool late = age(sample, about) > 2 * view->seconds + 2;
        if (late)
            snprintf(right, sizeof right, "no answer for %.0f s", age(sample, about));
        else
            snprintf(right, sizeof right, "%severy %g s  %s", view->readonly ? "read only  " : "",
                     view->seconds, clock);
        look = late ? LOOK_BAD : LOOK_DIM;
    }
    int room = grid->width - grid_text_width(grid, right) - 1;
    grid_text(grid, 0, 0, room > 0 ? room : 0, LOOK_BOLD, left);
    grid_text_right(grid, room + 1, 0, grid->width - room - 1, look, right);
}

struct hint {
    const char *key, *what;
};

static void draw_hints(struct grid *grid, const struct hint *hints, int count)
{
    int x = 0, y = grid->height - 1;
    for (int i = 0; i < count; i++) {
        int need = (int)(strlen(hints[i].key) + 1 + strlen(hints[i].what));
        if (x + need > grid->width)
            return;
        x += grid_text(grid, x, y, need, LOOK_KEY, hints[i].key) + 1;
        x += grid_text(grid, x, y, need, LOOK_PLAIN, hints[i].what) + 2;
    }
}

static void draw_prompt(struct grid *grid, const struct view *view)
{
    int y = grid->height - 1, width = grid->width;
    char tail[64];
    switch (view->prompt) {
    case PROMPT_FILTER:
        grid_printf(grid, 0, y, width, LOOK_PROMPT, "filter: %s_", view->filter);
        break;
    case PROMPT_SECONDS:
        grid_printf(grid, 0, y, width, LOOK_PROMPT, "seconds between rounds (now %g): %s_",
                    view->seconds, view->input);
        break;
    default: /* the question stays in sight, the name is cut */
        snprintf(tail, sizeof tail, "?  y: send  Tab: other signal  else: no");
        char head[32];
        snprintf(head, sizeof head, "%s to ", keys_signal_name(view->signal));
        int x = grid_text(grid, 0, y, width, LOOK_PROMPT, head);
        int room = width - x - (int)strlen(tail);
        x += grid_text(grid, x, y, room > 10 ? room : 10, LOOK_BAD, view->target_name);
        grid_text(grid, x, y, width - x, LOOK_PROMPT, tail);
    }
}

static void draw_foot(struct grid *grid, const struct view *view)
{
    static const struct hint main_hints[] = {{"q", "quit"},   {"?", "help"},   {"Enter", "details"},
                                             {"/", "filter"}, {"< >", "sort"}, {"r", "reverse"},
                                             {"t", "tree"},   {"k", "kill"},   {"Space", "fold"},
                                             {"c", "cards"},  {"d", "delay"}};
    static const struct hint page_hints[] = {
        {"Esc", "back"}, {"Up Down PgUp PgDn", "scroll"}, {"k", "kill"}};
    int count = (int)(sizeof main_hints / sizeof *main_hints);
    int pages = view->page == PAGE_HELP || view->readonly ? 2 : 3;
    struct hint shown[sizeof main_hints / sizeof *main_hints];
    if (view->prompt != PROMPT_NONE) {
        draw_prompt(grid, view);
    } else if (view->message[0]) {
        grid_text(grid, 0, grid->height - 1, grid->width, LOOK_WARN, view->message);
    } else if (view->page != PAGE_MAIN) {
        draw_hints(grid, page_hints, pages);
    } else {
        int kept = 0;
        for (int i = 0; i < count; i++)
            if (!view->readonly || main_hints[i].key[0] != 'k')
                shown[kept++] = main_hints[i];
        draw_hints(grid, shown, kept);
    }
}

/* --- the main page ------------------------------------------------------------------------------------- */

/* Lines for cards, their head among them; 0 where none are shown. */
static int card_lines(const struct sample *sample, const struct view *view, int width, int height)
{
    struct grid measure = {.width = width, .height = height};
    int all = layout__cards(&measure, 0, 0, sample);
    int rest = height - HEAD - FOOT - TABLE_LEAST;
    int most = view->cards == CARDS_ALL ? rest : rest / 2 > 3 ? rest / 2 : 3;
    if (view->cards == CARDS_NONE || rest < most)
        return 0;
    return all < most ? all : most;
}

int layout_room(const struct sample *sample, const struct view *view, int width, int height)
{
    if (view->page != PAGE_MAIN)
        return height - HEAD - FOOT > 1 ? height - HEAD - FOOT : 1;
    int lines = sample ? card_lines(sample, view, width, height) : 0;
    int room = height - HEAD - FOOT - lines - (lines > 0) - 1;
    return room > 1 ? room : 1;
}

/* What stands where rows would be. */
static void draw_nothing(struct grid *grid, int y, const struct sample *sample,
                         const struct view *view)
{
    if (view->filter[0])
        grid_printf(grid, 2, y, grid->width - 2, LOOK_DIM, "nothing contains '%s': Esc shows all",
                    view->filter);
    else if (sample->job_count == 0)
        grid_text(grid, 2, y, grid->width - 2, LOOK_DIM,
                  "no jobs: start one with ullage run -m 4GiB -- COMMAND");
}

static void draw_main(struct grid *grid, const struct sample *sample, const struct view *view)
{
    struct rows rows;
    int y = HEAD, lines = card_lines(sample, view, grid->width, grid->height);
    if (lines > 0)
        layout__cards(grid, y, lines, sample);
    y += lines + (lines > 0);
    if (!rows_build(&rows, sample, view)) {
        grid_text(grid, 0, y, grid->width, LOOK_BAD, "no memory");
        return;
    }
    int room = layout_room(sample, view, grid->width, grid->height);
    layout__table(grid, y, room, sample, view, &rows, view->top, true);
    if (rows.count == 0)
        draw_nothing(grid, y + 2, sample, view);
    if (view->prompt == PROMPT_NONE && !view->message[0] && view->filter[0])
        grid_printf(grid, 0, grid->height - 1, grid->width, LOOK_PROMPT,
                    "filter: %s   (Esc: all, /: another)", view->filter);
    rows_finish(&rows);
}

/* --- other pages ------------------------------------------------------------------------------------------ */

static int fill_page(struct grid *page, const struct sample *sample, const struct view *view)
{
    return view->page == PAGE_HELP ? layout__help(page, view) : layout__details(page, sample, view);
}

int layout_scroll_end(const struct sample *sample, const struct view *view, int width, int height)
{
    struct grid page;
    int room = layout_room(sample, view, width, height), lines = 0;
    if (view->page == PAGE_MAIN || !grid_init(&page, width, PAGE_LINES, false))
        return 0;
    if (sample || view->page == PAGE_HELP)
        lines = fill_page(&page, sample, view);
    grid_finish(&page);
    return lines > room ? lines - room : 0;
}

static void draw_page(struct grid *grid, const struct sample *sample, const struct view *view)
{
    struct grid page;
    if (!grid_init(&page, grid->width, PAGE_LINES, grid->ascii))
        return;
    int lines = fill_page(&page, sample, view), room = grid->height - HEAD - FOOT;
    int from = view->scroll > lines - room ? lines - room : view->scroll;
    grid_copy(grid, HEAD, &page, from > 0 ? from : 0, room);
    grid_finish(&page);
}

void layout_draw(struct grid *grid, const struct sample *sample, const struct view *view,
                 const struct layout_about *about)
{
    if (grid->width < LAYOUT_LEAST_WIDTH || grid->height < LAYOUT_LEAST_HEIGHT) {
        grid_printf(grid, 0, 0, grid->width, LOOK_BAD, "%dx%d: needs %dx%d", grid->width,
                    grid->height, LAYOUT_LEAST_WIDTH, LAYOUT_LEAST_HEIGHT);
        return;
    }
    draw_head(grid, sample, view, about);
    draw_foot(grid, view);
    if (!sample && view->page != PAGE_HELP)
        return;
    if (view->page == PAGE_MAIN)
        draw_main(grid, sample, view);
    else
        draw_page(grid, sample, view);
}

bool layout_whole(struct grid *grid, const struct sample *sample, const struct view *view,
                  int width, bool ascii)
{
    struct rows rows;
    struct grid measure = {.width = width, .height = 1};
    if (!rows_build(&rows, sample, view))
        return false;
    int cards = layout__cards(&measure, 0, 0, sample);
    bool good =
        grid_init(grid, width, cards + (cards > 0) + 1 + (rows.count ? rows.count : 1), ascii);
    if (good) {
        layout__cards(grid, 0, cards, sample);
        int y = cards + (cards > 0);
        layout__table(grid, y, rows.count, sample, view, &rows, 0, false);
        if (rows.count == 0)
            draw_nothing(grid, y + 1, sample, view);
    }
    rows_finish(&rows);
    return good;
}
