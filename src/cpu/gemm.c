/* gemm.c: see gemm.h. */
#include "gemm.h"

#include <limits.h>

#include "libraries.h"

static float at(const float *matrix, int64_t stride, bool transposed, int64_t row, int64_t column)
{
    return transposed ? matrix[column * stride + row] : matrix[row * stride + column];
}

/* Without a library, or beyond the numbers that it takes. */
static void plain(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                  int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    for (int64_t i = 0; i < m; ++i) {
        float *row = c + i * ldc;
        for (int64_t j = 0; j < n; ++j) {
            row[j] = beta == 0 ? 0 : beta * row[j];
        }
        for (int64_t p = 0; p < k; ++p) {
            float factor = alpha * at(a, lda, ta, i, p);
            if (tb) {
                for (int64_t j = 0; j < n; ++j) {
                    row[j] += factor * b[j * ldb + p];
                }
            } else {
                const float *other = b + p * ldb;
                for (int64_t j = 0; j < n; ++j) {
                    row[j] += factor * other[j];
                }
            }
        }
    }
}

void ull__gemm(const struct ull__cpu_library *library, bool transpose_a, bool transpose_b,
               int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
               const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    if (m == 0 || n == 0) {
        return;
    }
    bool fits = m <= INT_MAX && n <= INT_MAX && k <= INT_MAX && lda <= INT_MAX && ldb <= INT_MAX &&
                ldc <= INT_MAX;
    if (fits && k > 0 && library != NULL && library->dnnl_gemm != NULL) {
        library->dnnl_gemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, lda,
                           b, ldb, beta, c, ldc);
        return;
    }
    if (library == NULL || library->sgemm == NULL || !fits || k == 0) {
        plain(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
        return;
    }
    library->sgemm(ULL_ROW_MAJOR, transpose_a ? ULL_TRANS : ULL_NO_TRANS,
                   transpose_b ? ULL_TRANS : ULL_NO_TRANS, (int)m, (int)n, (int)k, alpha, a,
                   (int)lda, b, (int)ldb, beta, c, (int)ldc);
}
