/* plot.h: curves and bars in one line of text. */
#ifndef ULLAGE_REPORT_PLOT_H
#define ULLAGE_REPORT_PLOT_H

#include "report.h"

/* Held or live over time, the highest of each column, in `columns` columns from 0 to the peak of held. */
void plot_line(FILE *out, const struct report_look *look, const struct ull__timeline *timeline,
               bool live, int columns);
/* A bar of `share` (0 to 1) of `columns`, at least a trace for what is not 0, and the end of the line. */
void plot_bar(FILE *out, const struct report_look *look, double share, int columns);

#endif
