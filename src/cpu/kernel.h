/*
 * kernel.h: what the files of ops/ implement: how a node runs on the processor.
 *
 * A kernel is run by all threads of a team at once: run(kernel, run, thread) is called in each, and they meet where it calls
 * ull__team_barrier. It touches no memory but its operands, its workspace and its stack (at most 64 KiB), and allocates
 * nothing. Sums do not depend on chance: the same kernel on the same values gives the same bits.
 *
 * Files of ops/ are compiled several times, for processors of different ability (CMakeLists.txt), with ULL_ISA the
 * name of one of them; what they export is named by ULL_ISA_NAME. Loops are left to the compiler's vectorizer; for sums
 * use `#pragma omp simd reduction(+:sum)`. Functions of the C library's vector library (expf, logf, tanhf, erff, sinf, cosf,
 * powf) are used in `#pragma omp simd` loops.
 */
#ifndef ULLAGE_CPU_KERNEL_H
#define ULLAGE_CPU_KERNEL_H

#include "backend.h"
#include "op.h"
#include "ops.h"
#include "team.h"

#define ULL_ISA_JOIN2(name, isa) name##_##isa
#define ULL_ISA_JOIN(name, isa) ULL_ISA_JOIN2(name, isa)
#define ULL_ISA_NAME(name) ULL_ISA_JOIN(name, ULL_ISA)

/* An operand with numbers in the place of symbols. */
struct ull__cpu_operand {
    bool there; /* false: an optional one that the node does not have */
    enum ull__type type;
    enum ull__tensor_layout layout; /* ROWS, or CHANNELS_LAST of rank 4: n, h, w, c in memory; dims stay n, c, h, w */
    int rank;
    int64_t dims[ULL_RANK];
    int64_t elements;
    size_t bytes;
};

struct ull__cpu_op;

struct ull__kernel {
    const struct ull__cpu_op *run_by;
    const struct ull__op *op;
    union ull__attrs attrs; /* sizes in it are numbers: symbols have been replaced */
    struct ull__cpu_operand *inputs, *outputs;
    int input_count, output_count;
    int threads;

    /* Set by `prepare`. */
    const char *algorithm;
    int64_t workspace; /* bytes; handed to it aligned to 64 */
    void *state;       /* of the op's file; freed by its `finish` */
};

struct ull__cpu_run {
    void *const *in, *const *out;
    void *workspace;
    struct ull__team *team;
    int threads;
};

/* What layouts a node's operands of rank 4 may have. */
enum ull__cpu_layouts {
    ULL_CPU_ROWS, /* rows only */
    ULL_CPU_SAME, /* any, the same for all operands that have the shape of output 0; the others rows */
    ULL_CPU_ANY, /* each operand may have either */
};

enum { ULL_CPU_ROWS_OUTPUT = 31 };

struct ull__cpu_library; /* gemm.h, onednn.h: what was loaded */

struct ull__cpu_op {
    const struct ull__op *op;
    enum ull__cpu_layouts layouts;
    unsigned rows; /* bit i: input i is rows in any case (weights); bit ULL_CPU_ROWS_OUTPUT: all outputs */
    /*
     * Chooses the algorithm for kernel->inputs, outputs, attrs, threads: sets algorithm, workspace, state. ULL_E_NOT_FOUND
     * for types it cannot do. NULL: algorithm "loops", no workspace.
     */
    ull_status (*prepare)(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err);
    void (*finish)(struct ull__kernel *kernel);
    void (*run)(const struct ull__kernel *kernel, const struct ull__cpu_run *run, int thread);
};

/* A part of n things for a thread: [*begin, *end), parts a multiple of `unit` but for the last. */
static inline void ull__part(int64_t n, int64_t unit, int thread, int threads, int64_t *begin,
                             int64_t *end)
{
    int64_t units = (n + unit - 1) / unit;
    *begin = units * thread / threads * unit;
    *end = units * (thread + 1) / threads * unit;
    *begin = *begin < n ? *begin : n;
    *end = *end < n ? *end : n;
}

#endif
