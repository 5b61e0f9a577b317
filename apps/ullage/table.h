/* table.h: aligned columns on a terminal, counted in characters rather than bytes. */
#ifndef ULLAGE_TABLE_H
#define ULLAGE_TABLE_H

#include <stdbool.h>
#include <stdio.h>

/* Writes text cut to width characters (the last becomes "…" if it was longer) and padded to it. */
void table_cell(FILE *out, const char *text, int width, bool right);

/* Terminal columns of UTF-8 text, taking every character as one wide. */
int table_width(const char *text);

#endif
