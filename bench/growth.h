/* growth.h: what the parent and the jobs of bench_growth share: some memory, with a slot for each job. */
#ifndef ULLAGE_BENCH_GROWTH_H
#define ULLAGE_BENCH_GROWTH_H

#include <stdatomic.h>
#include <stdint.h>

enum { MOST_JOBS = 64, MOST_TRACES = 8 };

enum policy { GROW, MIXED, WHOLE, SHARE, POLICIES };

enum outcome {
    UNFINISHED, /* as it is until the job says otherwise: it died */
    FINISHED,
    NO_START, /* what the policy takes at the start was not there */
    REFUSED,  /* a request was refused: out of memory */
    BROKEN    /* anything else */
};

struct job {
    /* Told to the job. */
    enum policy policy;
    unsigned int jobs; /* side by side */
    double scale;      /* of the sizes of the trace */
    double seconds;    /* that the trace is stretched to */
    double late;       /* seconds after the gate opens */
    /* Told by the job, while it runs: */
    _Atomic uint64_t live, held;
    _Atomic int outcome;
    /* And after: nanoseconds since its own start, 0 if it did not come so far. */
    _Atomic uint64_t open_ns, pool_ns, first_ns, end_ns;
    char why[600];
};

struct board {
    _Atomic uint64_t live, peak_live; /* of all jobs together; the peak misses no instant */
    _Atomic uint64_t card_bytes;
    struct job job[MOST_JOBS];
};

/* A job: waits at the gate (a pipe: its end opens it), then runs. Returns an exit code. */
int growth_job(struct board *board, struct job *job, const char *trace, int gate);

#endif
