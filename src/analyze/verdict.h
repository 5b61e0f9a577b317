/*
 * verdict.h: is what a program holds growing for ever (a leak), until it has what it needs (a cache), or not at
 * all? With the evidence, and how sure that is.
 *
 * Each process is judged by itself and the worst is the job's verdict. The program's period, a training step or a
 * request, is found from allocations that come again and again at regular distances; the lowest that live bytes
 * fall to within each period is what the program keeps. Whether that mark rises is tested by rank statistics at
 * several scales (trend.h), so that no single outlier, no noise and no sawtooth decides it.
 *
 * From a record of the driver's calls alone nothing can be said of a program with an allocator of its own,
 * except that its segments grow; then the verdict is unknown and the evidence says how to get a better record.
 */
#ifndef ULLAGE_VERDICT_H
#define ULLAGE_VERDICT_H

#include "facts.h"

enum ull__verdict_kind {
    ULL_VERDICT_UNKNOWN,
    ULL_VERDICT_STEADY,
    ULL_VERDICT_CACHE,
    ULL_VERDICT_LEAK,
};

enum { ULL_EVIDENCE = 8, ULL_EVIDENCE_TEXT = 240 };

struct ull__verdict {
    enum ull__verdict_kind kind;
    double confidence;                              /* 0 to 1 */
    char evidence[ULL_EVIDENCE][ULL_EVIDENCE_TEXT]; /* whole sentences, the most important first */
    int evidence_count;
    uint32_t process;        /* whose; UINT32_MAX: of none */
    uint64_t periods;        /* found in the record; 0: none */
    double period_seconds;   /* the usual one; NaN: none found */
    double bytes_per_period; /* a leak's slope; NaN: none, or without periods */
    double bytes_per_second; /* the same by time; NaN: no leak */
};

/* Of device memory. ULL_E_SYSTEM without memory. */
ull_status ull__verdict_device(const struct ull__facts *facts, struct ull__verdict *verdict,
                               struct ull_error *err);
/* Of the processes' host memory, from HOST samples. */
ull_status ull__verdict_host(const struct ull__facts *facts, struct ull__verdict *verdict,
                             struct ull_error *err);

/* "unknown", "steady", "cache", "leak". */
const char *ull__verdict_name(enum ull__verdict_kind kind);

#endif
