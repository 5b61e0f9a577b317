/* layout_cards.c: a line a card: a bar of what its memory is used for, and the figures. */
#include <stdio.h>
#include <string.h>

#include "layout.h"

enum card_column {
    CARD_GPU,
    CARD_NAME,
    CARD_BAR,
    CARD_USED,
    CARD_TOTAL,
    CARD_JOBS,
    CARD_OTHERS,
    CARD_RESERVED,
    CARD_BUSY,
    CARD_COLUMNS
};
enum { NAME_MOST = 28, BAR_LEAST = 10 };

static const struct {
    const char *head;
    int width;        /* at least */
    enum glyph glyph; /* of that part of the bar; GLYPHS: none */
    enum look look;
} columns[CARD_COLUMNS] = {
    [CARD_GPU] = {"GPU", 4, GLYPHS, LOOK_PLAIN},
    [CARD_NAME] = {"NAME", 10, GLYPHS, LOOK_PLAIN},
    [CARD_BAR] = {"MEMORY", BAR_LEAST, GLYPHS, LOOK_PLAIN},
    [CARD_USED] = {"USED", 6, GLYPHS, LOOK_PLAIN},
    [CARD_TOTAL] = {"TOTAL", 6, GLYPHS, LOOK_PLAIN},
    [CARD_JOBS] = {"JOBS", 6, GLYPH_JOBS, LOOK_JOBS},
    [CARD_OTHERS] = {"OTHERS", 8, GLYPH_OTHERS, LOOK_OTHERS},
    [CARD_RESERVED] = {"RESERVED", 10, GLYPH_RESERVED, LOOK_RESERVED},
    [CARD_BUSY] = {"BUSY", 4, GLYPHS, LOOK_PLAIN},
};

/* Widths for a screen; 0: left out. */
static void fit(int width, int *widths)
{
    static const enum card_column drops[] = {CARD_NAME, CARD_RESERVED, CARD_BUSY, CARD_OTHERS};
    int need = -1;
    for (int c = 0; c < CARD_COLUMNS; c++) {
        widths[c] = columns[c].width;
        need += widths[c] + 1;
    }
    for (size_t i = 0; i < sizeof drops / sizeof *drops && need > width; i++) {
        need -= widths[drops[i]] + 1;
        widths[drops[i]] = 0;
    }
    int spare = width - need;
    if (widths[CARD_NAME] && spare > 0) {
        int more =
            spare / 3 < NAME_MOST - widths[CARD_NAME] ? spare / 3 : NAME_MOST - widths[CARD_NAME];
        widths[CARD_NAME] += more;
        spare -= more;
    }
    widths[CARD_BAR] += spare;
}

static uint64_t known(uint64_t bytes)
{
    return bytes == SAMPLE_UNKNOWN ? 0 : bytes;
}

/* What is used from the left, what nobody can use at the right end. */
static void draw_bar(struct grid *grid, int x, int y, int width, const struct sample_device *device)
{
    uint64_t total = device->total_bytes;
    uint64_t jobs = device->job_bytes, others = known(device->other_bytes);
    if (total == SAMPLE_UNKNOWN || total == 0) {
        grid_text(grid, x, y, width, LOOK_DIM, "not told");
        return;
    }
    /* The second part ends where both together do, so that rounding adds up. */
    double cells = (double)width / (double)total;
    int job_end = (int)((double)jobs * cells + 0.5);
    int used_end = (int)((double)(jobs + others) * cells + 0.5);
    int reserved_from = width - (int)((double)known(device->reserved_bytes) * cells + 0.5);
    for (int i = 0; i < width; i++) {
        if (i < job_end)
            grid_glyph(grid, x + i, y, LOOK_JOBS, GLYPH_JOBS);
        else if (i < used_end)
            grid_glyph(grid, x + i, y, LOOK_OTHERS, GLYPH_OTHERS);
        else if (i >= reserved_from)
            grid_glyph(grid, x + i, y, LOOK_RESERVED, GLYPH_RESERVED);
        else
            grid_glyph(grid, x + i, y, LOOK_DIM, GLYPH_FREE);
    }
}

static void draw_head(struct grid *grid, int y, const int *widths)
{
    for (int c = 0, x = 0; c < CARD_COLUMNS; x += widths[c] ? widths[c] + 1 : 0, c++) {
        if (!widths[c])
            continue;
        if (c <= CARD_BAR)
            grid_text(grid, x, y, widths[c], LOOK_HEAD, columns[c].head);
        else
            grid_text_right(grid, x, y, widths[c], LOOK_HEAD, columns[c].head);
        if (columns[c].glyph != GLYPHS)
            grid_glyph(grid, x + widths[c] - (int)strlen(columns[c].head) - 2, y, columns[c].look,
                       columns[c].glyph);
    }
}

static void draw_size(struct grid *grid, int x, int y, int width, enum look look, uint64_t bytes)
{
    char text[LAYOUT_SIZE];
    grid_text_right(grid, x, y, width, look, layout_size(bytes, text));
}

static void draw_card(struct grid *grid, int y, const int *widths, const struct sample_device *device)
{
    char text[LAYOUT_SIZE];
    uint64_t used = device->used_bytes;
    double full =
        used == SAMPLE_UNKNOWN || device->total_bytes == SAMPLE_UNKNOWN || !device->total_bytes
            ? 0
            : (double)used / (double)device->total_bytes;
    for (int c = 0, x = 0; c < CARD_COLUMNS; x += widths[c] ? widths[c] + 1 : 0, c++) {
        if (!widths[c])
            continue;
        switch ((enum card_column)c) {
        case CARD_GPU:
            grid_text(grid, x, y, widths[c], LOOK_BOLD, layout__device(device, text));
            break;
        case CARD_NAME:
            grid_text(grid, x, y, widths[c], LOOK_PLAIN, device->name);
            break;
        case CARD_BAR:
            draw_bar(grid, x, y, widths[c], device);
            break;
        case CARD_USED:
            draw_size(grid, x, y, widths[c], layout__fill_look(full), used);
            break;
        case CARD_TOTAL:
            draw_size(grid, x, y, widths[c], LOOK_PLAIN, device->total_bytes);
            break;
        case CARD_JOBS:
            draw_size(grid, x, y, widths[c], LOOK_JOBS, device->job_bytes);
            break;
        case CARD_OTHERS:
            draw_size(grid, x, y, widths[c], LOOK_OTHERS, device->other_bytes);
            break;
        case CARD_RESERVED:
            draw_size(grid, x, y, widths[c], LOOK_RESERVED, device->reserved_bytes);
            break;
        default:
            snprintf(text, sizeof text, device->busy_percent < 0 ? "-" : "%d%%",
                     device->busy_percent);
            grid_text_right(grid, x, y, widths[c], LOOK_PLAIN, text);
        }
    }
}

int layout__cards(struct grid *grid, int y, int height, const struct sample *sample)
{
    int widths[CARD_COLUMNS];
    /* Without cards one line says why. */
    int why = sample->no_cards[0] || sample->device_count == 0;
    int cards = sample->device_count > 0 ? sample->device_count + 1 : 0;
    if (height == 0)
        return cards + why;
    fit(grid->width, widths);
    if (why)
        grid_printf(grid, 0, y++, grid->width, LOOK_WARN, "no card told by the driver: %s",
                    sample->no_cards[0] ? sample->no_cards : "it lists none");
    height -= why;
    if (cards == 0 || height < 2)
        return why;
    draw_head(grid, y, widths);
    int shown = cards <= height ? sample->device_count : height - 2;
    for (int i = 0; i < shown; i++)
        draw_card(grid, y + 1 + i, widths, &sample->devices[i]);
    if (shown < sample->device_count)
        grid_printf(grid, 0, y + 1 + shown, grid->width, LOOK_DIM, "%d more (c shows them)",
                    sample->device_count - shown);
    return height;
}
