/* perfetto.h: what the files that write a trace for the Perfetto UI share. Internal to the report. */
#ifndef ULLAGE_REPORT_PERFETTO_H
#define ULLAGE_REPORT_PERFETTO_H

#include "report.h"
#include "spans.h"

struct perfetto {
    const struct report_input *input;
    const struct ull__spans *spans;
    struct ull_json json;
    uint32_t *pids; /* by process: of the trace */
    bool failed;
};

void perfetto_time(struct ull_json *json, const char *key, uint64_t ns);
/* Opens an event; its args, between the other two, and its end are the caller's. */
void perfetto_begin(struct perfetto *work, const char *phase, const char *name, uint32_t pid,
                    uint64_t ns);
void perfetto_args(struct perfetto *work);
void perfetto_end(struct perfetto *work);

/* For qsort: uint64_t, the largest first. */
int perfetto_by_size(const void *left, const void *right);

/* All counters; sets work->failed without memory. */
void perfetto_counters(struct perfetto *work);

#endif
