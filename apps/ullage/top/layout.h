/*
 * layout.h: a sample and a view as a screen full of cells. Pure, so that it is tested without a terminal.
 *
 * From LAYOUT_LEAST_WIDTH x LAYOUT_LEAST_HEIGHT up; on less it says so. What does not fit in the width is left
 * out column by column, the least important first; names are cut, figures never.
 */
#ifndef ULLAGE_TOP_LAYOUT_H
#define ULLAGE_TOP_LAYOUT_H

#include "grid.h"
#include "rows.h"

enum { LAYOUT_LEAST_WIDTH = 40, LAYOUT_LEAST_HEIGHT = 8, LAYOUT_SIZE = 24 };

/* What is shown besides. */
struct layout_about {
    const char *host;
    uint64_t now_ns; /* CLOCK_MONOTONIC: how old the sample is */
};

/* sample: NULL before the first one. */
void layout_draw(struct grid *grid, const struct sample *sample, const struct view *view,
                 const struct layout_about *about);

/* Rows of the table, or lines of another page, that fit. */
int layout_room(const struct sample *sample, const struct view *view, int width, int height);
/* How far a page other than the main one can be scrolled. */
int layout_scroll_end(const struct sample *sample, const struct view *view, int width, int height);

/*
 * All cards and rows, one below the other and nothing selected: for where there is no terminal. Sets the
 * grid up; false without memory.
 */
bool layout_whole(struct grid *grid, const struct sample *sample, const struct view *view,
                  int width, bool ascii);

/* "27.6G", "526M", "0"; "-" unknown. Five characters, six from 100 G. */
const char *layout_size(uint64_t bytes, char text[LAYOUT_SIZE]);

/* --- parts, of layout_*.c --- */

/* Draws cards into lines y to y + height - 1; with height 0 only says how many lines all would take. */
int layout__cards(struct grid *grid, int y, int height, const struct sample *sample);
/* The head of the table and below it `height` rows from `top`. */
void layout__table(struct grid *grid, int y, int height, const struct sample *sample,
                   const struct view *view, const struct rows *rows, int top, bool with_selection);
/* A page's lines, in a grid of its own; lines used. */
int layout__details(struct grid *page, const struct sample *sample, const struct view *view);
int layout__help(struct grid *page, const struct view *view);
/* A line of the course of what is held. */
void layout__trend(struct grid *grid, int x, int y, int width, enum look look,
                   const struct trend *trend);
/* How a device is called: "0", "0:1" for an instance, "?" */
const char *layout__device(const struct sample_device *device, char text[LAYOUT_SIZE]);
/* How full something looks. */
enum look layout__fill_look(double fill);

#endif
