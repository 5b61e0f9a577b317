/*
 * report.h: `ullage report`: what a recorded run did, in several formats.
 *
 * A format is one function and one line in the table in formats.c. It gets all that was found out and writes to a
 * stream; it checks the stream for nothing, since its caller does at the end, and fails only for want of memory
 * or where the history cannot be told in its form.
 */
#ifndef ULLAGE_REPORT_H
#define ULLAGE_REPORT_H

#include <stdio.h>

#include "diff.h"
#include "figures.h"
#include "json.h"
#include "timeline.h"
#include "verdict.h"

/* How text may look; set from the terminal, the environment and the options. */
struct report_look {
    bool colour;
    bool utf8;
    int width; /* columns */
};

/* A history with all that was found in it. */
struct report_input {
    const char *path; /* as the user gave it */
    const struct ull__history *history;
    const struct ull__facts *facts;
    const struct ull__figures *figures;
    const struct ull__verdict *verdict, *host_verdict;
    enum ull__role role;
    struct report_look look;
    const struct report_input *before; /* --diff: the other one; NULL: none */
};

typedef ull_status report_write_fn(const struct report_input *input, FILE *out,
                                   struct ull_error *err);

struct report_format {
    const char *name;
    report_write_fn *write;
    bool binary;     /* not for a terminal */
    bool takes_diff; /* can show `before` */
};

/* Ends with a NULL name. The first is the default. */
extern const struct report_format report_formats[];

report_write_fn report_text, report_json, report_html, report_perfetto, report_torch;

/*
 * Reads a record of ours or a snapshot of PyTorch's, by content. ULL_E_FORMAT with the offset in *err: it is
 * neither, or damaged.
 */
ull_status report_open(const char *path, struct ull__history **history, struct ull_error *err);

/* Its verdict, confidence and evidence under these names, with a prefix; NULL: it is not known. */
void report_json_verdict(struct ull_json *json, const struct ull__verdict *verdict,
                         const char *prefix);

#endif
