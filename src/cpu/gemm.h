/*
 * gemm.h: products of f32 matrices, in the calling thread, by OpenBLAS or plain C.
 */
#ifndef ULLAGE_CPU_GEMM_H
#define ULLAGE_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel.h"

/*
 * c = alpha * op(a) op(b) + beta * c, all by rows: op(a) m x k, op(b) k x n, c m x n; lda, ldb, ldc are the elements from one
 * row in memory to the next. beta 0 does not read c. No thread is started and nothing is allocated after each thread's first call.
 */
void ull__gemm(const struct ull__cpu_library *library, bool transpose_a, bool transpose_b,
               int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
               const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

#endif
