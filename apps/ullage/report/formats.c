/* formats.c: the table of formats; see report.h. */
#include "report.h"

/* clang-format off */
const struct report_format report_formats[] = {
    {"text", report_text, false, true},
    {"json", report_json, false, true},
    {"html", report_html, false, true},
    {"perfetto", report_perfetto, false, false},
    {"torch", report_torch, true, false},
    {NULL, NULL, false, false},
};
