/*
 * grid.h: a screen full of cells, before anything is drawn.
 *
 * Text may be any bytes: what is no UTF-8, cannot be printed or would reorder a line becomes '?' or U+FFFD,
 * marks of no width are left out, and wide characters take two cells or none. So nothing that a process calls
 * itself can leave its place. Widths are those of the C library (wcwidth), so LC_CTYPE must be set; where it is
 * no UTF-8 the grid is ascii, and every other character becomes '?'.
 */
#ifndef ULLAGE_TOP_GRID_H
#define ULLAGE_TOP_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a cell means; screen.c knows how that looks. */
enum look {
    LOOK_PLAIN,
    LOOK_DIM,
    LOOK_BOLD,
    LOOK_HEAD,     /* of columns */
    LOOK_SORTED,   /* the column that is sorted by */
    LOOK_SELECTED, /* the row that keys act on */
    LOOK_JOBS,     /* memory: held by jobs, by others, reserved */
    LOOK_OTHERS,
    LOOK_RESERVED,
    LOOK_WARN,
    LOOK_BAD,
    LOOK_KEY,
    LOOK_PROMPT,
    LOOKS
};

struct cell {
    uint32_t text; /* a character that can be printed */
    uint8_t look;
    uint8_t columns; /* 1, 2, or 0 for the right half of the cell before */
};

struct grid {
    int width, height;
    bool ascii;
    struct cell *cells; /* row by row */
};

/* Characters that are drawn in two ways. */
enum glyph {
    GLYPH_JOBS,
    GLYPH_OTHERS,
    GLYPH_RESERVED,
    GLYPH_FREE,
    GLYPH_CUT, /* the end of text that is longer */
    GLYPH_BRANCH,
    GLYPH_LAST,
    GLYPH_THROUGH,
    GLYPH_LINE,
    GLYPH_UP,
    GLYPH_DOWN,
    GLYPH_LEVEL_1, /* heights of a line; levels 2 to 8 follow */
    GLYPH_LEVEL_8 = GLYPH_LEVEL_1 + 7,
    GLYPHS
};

/* All blank. False without memory. */
bool grid_init(struct grid *grid, int width, int height, bool ascii);
void grid_finish(struct grid *grid);

/* Everything that follows clips at the edges of the grid. */

/* Writes text into `room` columns from x, cut with GLYPH_CUT if it is longer; the columns that it took. */
int grid_text(struct grid *grid, int x, int y, int room, enum look look, const char *text);
/* The same, ending where the room ends. */
void grid_text_right(struct grid *grid, int x, int y, int room, enum look look, const char *text);
void grid_printf(struct grid *grid, int x, int y, int room, enum look look, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
void grid_glyph(struct grid *grid, int x, int y, enum look look, enum glyph glyph);
/* Gives cells another look. */
void grid_paint(struct grid *grid, int x, int y, int columns, enum look look);
/* Copies `height` lines from line `from` of one grid to line `to` of another of the same width. */
void grid_copy(struct grid *grid, int to, const struct grid *source, int from, int height);

/* Columns that text would take. */
int grid_text_width(const struct grid *grid, const char *text);
/* Line y as UTF-8 without blanks at its end; bytes written without the 0. size 4 * width + 1 is enough. */
size_t grid_line(const struct grid *grid, int y, char *text, size_t size);

#endif
