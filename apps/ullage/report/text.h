/* text.h: what the parts of the text format share. */
#ifndef ULLAGE_REPORT_TEXT_H
#define ULLAGE_REPORT_TEXT_H

#include "report.h"

struct text {
    const struct report_input *input;
    FILE *out;
    const struct report_look *look;
};

void text_heading(const struct text *text, const char *heading);
void text_label(const struct text *text, const char *label);
/* A label and what belongs to it, wrapped. */
void text_line(const struct text *text, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* text_diff.c: what grew since input->before. */
ull_status text_diff(const struct text *text, struct ull_error *err);

#endif
