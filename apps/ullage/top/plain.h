/* plain.h: samples where there is no screen: a table, or JSON. */
#ifndef ULLAGE_TOP_PLAIN_H
#define ULLAGE_TOP_PLAIN_H

#include "layout.h"

enum { PLAIN_VERSION = 1 };

/* All cards and rows to standard output. False if that failed. */
bool plain_table(const struct sample *sample, const struct view *view, int width, bool ascii);
/* One document; in one line where it is one of many. Sort and filter of the view apply. */
bool plain_json(const struct sample *sample, const struct view *view, bool one_line);

#endif
