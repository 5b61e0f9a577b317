/* grid.c: see grid.h. */
#include "grid.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { REPLACEMENT = 0xfffd };

static const uint32_t glyphs[GLYPHS][2] = {
    [GLYPH_JOBS] = {0x2588, '='},
    [GLYPH_OTHERS] = {0x2592, '+'},
    [GLYPH_RESERVED] = {0x2591, '#'},
    [GLYPH_FREE] = {0xb7, '.'},
    [GLYPH_CUT] = {0x2026, '~'},
    [GLYPH_BRANCH] = {0x251c, '|'},
    [GLYPH_LAST] = {0x2514, '`'},
    [GLYPH_THROUGH] = {0x2502, '|'},
    [GLYPH_LINE] = {0x2500, '-'},
    [GLYPH_UP] = {0x25b2, '^'},
    [GLYPH_DOWN] = {0x25bc, 'v'},
    [GLYPH_LEVEL_1] = {0x2581, '_'},
    {0x2582, '_'},
    {0x2583, '.'},
    {0x2584, '-'},
    {0x2585, '='},
    {0x2586, '+'},
    {0x2587, '*'},
    {0x2588, '#'},
};

bool grid_init(struct grid *grid, int width, int height, bool ascii)
{
    width = width < 1 ? 1 : width;
    height = height < 1 ? 1 : height;
    *grid = (struct grid){.width = width, .height = height, .ascii = ascii};
    grid->cells = malloc((size_t)width * (size_t)height * sizeof *grid->cells);
    for (int i = 0; grid->cells && i < width * height; i++)
        grid->cells[i] = (struct cell){.text = ' ', .columns = 1};
    return grid->cells;
}

void grid_finish(struct grid *grid)
{
    free(grid->cells);
    grid->cells = NULL;
}

/* The character at *text, which moves behind it. Bytes that are none give U+FFFD, one at a time. */
static uint32_t next_character(const char **text)
{
    const unsigned char *at = (const unsigned char *)*text;
    int more = at[0] < 0x80                     ? 0
               : at[0] >= 0xc2 && at[0] <= 0xdf ? 1
               : (at[0] & 0xf0) == 0xe0         ? 2
               : at[0] >= 0xf0 && at[0] <= 0xf4 ? 3
                                                : -1;
    uint32_t value = more <= 0 ? at[0] : at[0] & (0x3f >> more);
    ++*text;
    if (more < 0)
        return REPLACEMENT;
    for (int i = 1; i <= more; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return REPLACEMENT;
        value = value << 6 | (at[i] & 0x3f);
    }
    bool overlong = (more == 2 && value < 0x800) || (more == 3 && value < 0x10000);
    if (overlong || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return REPLACEMENT;
    *text += more;
    return value;
}

/* Changes the order in which a terminal shows what follows. */
static bool reorders(uint32_t c)
{
    return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

/* What is drawn for a character, and in how many columns; 0: nothing. */
static int drawn(const struct grid *grid, uint32_t *c)
{
    if (*c < 0x20 || (*c >= 0x7f && *c < 0xa0)) {
        *c = '?';
        return 1;
    }
    if (*c < 0x7f)
        return 1;
    int columns = wcwidth((wchar_t)*c);
    if (reorders(*c) || *c == 0xad || columns == 0)
        return 0;
    if (grid->ascii || columns < 0) {
        *c = grid->ascii ? '?' : REPLACEMENT;
        return 1;
    }
    return columns > 2 ? 0 : columns;
}

int grid_text_width(const struct grid *grid, const char *text)
{
    int width = 0;
    while (*text) {
        uint32_t c = next_character(&text);
        width += drawn(grid, &c);
    }
    return width;
}

static struct cell *cell_at(struct grid *grid, int x, int y)
{
    bool inside = x >= 0 && y >= 0 && x < grid->width && y < grid->height;
    return inside ? &grid->cells[(size_t)y * (size_t)grid->width + (size_t)x] : NULL;
}

/* A half of a wide character that is overwritten leaves no other half. */
static void clear_halves(struct grid *grid, int x, int y)
{
    struct cell *cell = cell_at(grid, x, y), *left = cell_at(grid, x - 1, y),
                *right = cell_at(grid, x + 1, y);
    if (cell && cell->columns == 0 && left)
        *left = (struct cell){.text = ' ', .look = left->look, .columns = 1};
    if (cell && cell->columns == 2 && right)
        *right = (struct cell){.text = ' ', .look = right->look, .columns = 1};
}

static void set(struct grid *grid, int x, int y, enum look look, uint32_t c, int columns)
{
    struct cell *cell = cell_at(grid, x, y), *right = cell_at(grid, x + 1, y);
    if (!cell)
        return;
    clear_halves(grid, x, y);
    if (columns == 2 && !right)
        c = ' ', columns = 1;
    if (columns == 2) {
        clear_halves(grid, x + 1, y);
        *right = (struct cell){.look = (uint8_t)look, .columns = 0};
    }
    *cell = (struct cell){.text = c, .look = (uint8_t)look, .columns = (uint8_t)columns};
}

void grid_glyph(struct grid *grid, int x, int y, enum look look, enum glyph glyph)
{
    set(grid, x, y, look, glyphs[glyph][grid->ascii], 1);
}

int grid_text(struct grid *grid, int x, int y, int room, enum look look, const char *text)
{
    int at = 0;
    if (room <= 0)
        return 0;
    bool cut = grid_text_width(grid, text) > room;
    int end = cut ? room - 1 : room;
    while (*text) {
        uint32_t c = next_character(&text);
        int columns = drawn(grid, &c);
        if (columns == 0)
            continue;
        if (at + columns > end)
            break;
        set(grid, x + at, y, look, c, columns);
        at += columns;
    }
    if (!cut)
        return at;
    grid_glyph(grid, x + at, y, look, GLYPH_CUT);
    return at + 1;
}

void grid_text_right(struct grid *grid, int x, int y, int room, enum look look, const char *text)
{
    int width = grid_text_width(grid, text);
    int blank = width < room ? room - width : 0;
    grid_text(grid, x + blank, y, room - blank, look, text);
}

void grid_printf(struct grid *grid, int x, int y, int room, enum look look, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    grid_text(grid, x, y, room, look, text);
}

void grid_paint(struct grid *grid, int x, int y, int columns, enum look look)
{
    for (int i = 0; i < columns; i++) {
        struct cell *cell = cell_at(grid, x + i, y);
        if (cell)
            cell->look = (uint8_t)look;
    }
}

void grid_copy(struct grid *grid, int to, const struct grid *source, int from, int height)
{
    for (int i = 0; i < height; i++) {
        bool inside = from + i >= 0 && from + i < source->height && to + i >= 0 &&
                      to + i < grid->height && source->width == grid->width;
        if (inside)
            memcpy(&grid->cells[(size_t)(to + i) * (size_t)grid->width],
                   &source->cells[(size_t)(from + i) * (size_t)grid->width],
                   (size_t)grid->width * sizeof *grid->cells);
    }
}

static size_t encode(uint32_t c, char *bytes)
{
    if (c < 0x80)
        return bytes[0] = (char)c, 1;
    size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, c >>= 6)
        bytes[i] = (char)(0x80 | (c & 0x3f));
    bytes[0] = (char)((0xf00 >> length & 0xff) | c);
    return length;
}

size_t grid_line(const struct grid *grid, int y, char *text, size_t size)
{
    const struct cell *row = &grid->cells[(size_t)y * (size_t)grid->width];
    size_t used = 0;
    int end = grid->width;
    while (end > 0 && row[end - 1].text == ' ' && row[end - 1].columns == 1)
        end--;
    for (int x = 0; x < end && used + 5 <= size; x++)
        if (row[x].columns > 0)
            used += encode(row[x].text, text + used);
    text[used] = 0;
    return used;
}
