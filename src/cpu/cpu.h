/*
 * cpu.h: the backend that runs graphs on the processor, with threads of its own.
 *
 * Convolutions are oneDNN's, matrix products OpenBLAS's; both are loaded when the backend is made, run in one thread for each
 * call, and where one is missing plain C does its work. Everything else is C in ops/. All threads are this
 * backend's: a kernel is run by all of them at once, each on a part of it.
 */
#ifndef ULLAGE_CPU_CPU_H
#define ULLAGE_CPU_CPU_H

#include "backend.h"
#include "world.h"

struct ull__cpu_options {
    int threads;       /* 0: as many as processors that this process may use, at most 64 */
    bool no_libraries; /* plain C only */
    const char *isa; /* kernels for "base", "avx2", "avx512" at most; NULL: the best that the processor has */
    /*
     * Called for each kernel, copy and wait when it has run, with its times in seconds of CLOCK_MONOTONIC, by the thread that
     * ran it; NULL: nobody watches.
     */
    void (*observe)(void *context, enum ull__queue queue, const char *what, double begin, double end);
    void *context;
    struct ull__world *world; /* that collectives are among, joined; must outlive the backend. NULL: alone */
};

ull_status ull__cpu_create(const struct ull__cpu_options *options, struct ull__backend **backend,
                           struct ull_error *err);
int ull__cpu_threads(const struct ull__backend *backend);
/* "oneDNN 2.6.3, OpenBLAS 0.3.21, avx512, 2 threads". */
const char *ull__cpu_describe(const struct ull__backend *backend);

#endif
