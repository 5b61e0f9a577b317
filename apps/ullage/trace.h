/*
 * trace.h: recorded allocations, read from gzip CSV with the columns time_us,action,id,size,stream.
 *
 * Action `a` allocates size bytes under id, `f` frees that id. A trace is checked to the end before
 * anything is played: every line has its five numbers in range, an id is allocated once while it is
 * live, and only what is live is freed, with the size it was allocated with.
 */
#ifndef ULLAGE_TRACE_H
#define ULLAGE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/status.h"

struct trace_event {
    uint64_t time_us;
    uint64_t size;
    uint64_t stream;
    uint32_t slot; /* ids renumbered from 0 and reused after a free: an index into a table */
    bool allocates;
};

struct trace {
    struct trace_event *events; /* event i is line i + 2 of the file */
    size_t count;
    uint32_t slots;      /* most ids live at a time */
    uint64_t peak_bytes; /* largest sum of live sizes */
    size_t peak_event;   /* the event that reaches it first */
};

/* ULL_E_NOT_FOUND, ULL_E_PERMISSION, ULL_E_SYSTEM, ULL_E_FORMAT with the line, value and what was expected. */
ull_status trace_load(const char *path, struct trace *trace, struct ull_error *err);
void trace_free(struct trace *trace);

#endif
