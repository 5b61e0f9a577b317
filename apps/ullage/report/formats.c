/* formats.c: the table of formats; see report.h. */
#include "report.h"

const struct report_format report_formats[] = {
    {"text", report_text, false, true},
    {"json", report_json, false, true},
    {"torch", report_torch, true, false},
    {NULL, NULL, false, false},
};
