/*
 * libraries.h: oneDNN and OpenBLAS, as they were found.
 *
 * They are loaded when a backend is made, so that a program which only plans does not pay for them, and run one thread for each call:
 * the backend's own threads share the work, and no library has threads that wait beside them.
 */
#ifndef ULLAGE_CPU_LIBRARIES_H
#define ULLAGE_CPU_LIBRARIES_H

#include <dnnl.h>
#include <stdbool.h>
#include <stdint.h>

#include "team.h"

enum { ULL_ROW_MAJOR = 101, ULL_NO_TRANS = 111, ULL_TRANS = 112 }; /* cblas.h */

typedef void ull__sgemm_fn(int order, int transpose_a, int transpose_b, int m, int n, int k,
                           float alpha, const float *a, int lda, const float *b, int ldb,
                           float beta, float *c, int ldc);

/* What is used of oneDNN: name and type as in dnnl.h of the version that this was compiled with. */
#if DNNL_VERSION_MAJOR >= 3
#define ULL_DNNL_OF_VERSION(X)                                                                     \
    X(convolution_forward_primitive_desc_create)                                                   \
    X(convolution_backward_data_primitive_desc_create)                                             \
    X(convolution_backward_weights_primitive_desc_create)                                          \
    X(memory_desc_create_with_tag)                                                                 \
    X(memory_desc_destroy)
#else
#define ULL_DNNL_OF_VERSION(X)                                                                     \
    X(dilated_convolution_forward_desc_init)                                                       \
    X(dilated_convolution_backward_data_desc_init)                                                 \
    X(dilated_convolution_backward_weights_desc_init)                                              \
    X(primitive_desc_create)                                                                       \
    X(memory_desc_init_by_tag)
#endif
#define ULL_DNNL_FUNCTIONS(X)                                                                      \
    X(version)                                                                                     \
    X(engine_create)                                                                               \
    X(engine_destroy)                                                                              \
    X(stream_create)                                                                               \
    X(stream_destroy)                                                                              \
    X(memory_create)                                                                               \
    X(memory_destroy)                                                                              \
    X(memory_set_data_handle)                                                                      \
    X(memory_desc_get_size)                                                                        \
    X(primitive_attr_create)                                                                       \
    X(primitive_attr_destroy)                                                                      \
    X(primitive_attr_set_scratchpad_mode)                                                          \
    X(primitive_desc_destroy)                                                                      \
    X(primitive_desc_query)                                                                        \
    X(primitive_desc_query_md)                                                                     \
    X(primitive_create)                                                                            \
    X(primitive_destroy)                                                                           \
    X(primitive_execute)                                                                           \
    X(reorder_primitive_desc_create)                                                               \
    ULL_DNNL_OF_VERSION(X)

struct ull__cpu_library {
    void *blas, *dnnl;    /* handles; NULL: not there */
    ull__sgemm_fn *sgemm; /* OpenBLAS's; NULL: not there, or not made for this processor */
    __typeof__(&dnnl_sgemm) dnnl_gemm; /* then oneDNN's, which is; NULL: sgemm, or neither is there */
    bool outdated;                     /* OpenBLAS does not know this processor */
    char blas_name[64];
#define X(name) __typeof__(&dnnl_##name) name;
    ULL_DNNL_FUNCTIONS(X)
#undef X
    dnnl_engine_t engine;
    dnnl_stream_t streams[64]; /* by thread */
    int threads;
    void (*set_threads)(int threads); /* of the OpenMP runtime that oneDNN uses, for the calling thread; or NULL */
};

/* Loads what there is, for the threads of a team. Never fails: what is missing stays NULL. */
void ull__libraries_load(struct ull__cpu_library *library, struct ull__team *team);
void ull__libraries_unload(struct ull__cpu_library *library);

#endif
