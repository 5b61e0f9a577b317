/* kernels.h: what the backend's own files share: making kernels, and which there are for this processor. */
#ifndef ULLAGE_CPU_KERNELS_H
#define ULLAGE_CPU_KERNELS_H

#include "kernel.h"
#include "libraries.h"

/* The kernels for this processor, a NULL at the end, and the ability's name: "avx512". `most`: no better ones; or NULL. */
const struct ull__cpu_op *const *ull__cpu_best(const char *most, const char **isa);
/* NULL: none for this operator. */
const struct ull__cpu_op *ull__cpu_find(const struct ull__cpu_op *const *ops,
                                        const struct ull__op *op);

/* A kernel, ready to run. ULL_E_NOT_FOUND, ULL_E_NO_MEMORY, ULL_E_INVALID: a size that overflows. */
ull_status ull__kernel_create(const struct ull__selecting *what, const struct ull__cpu_op *const *ops,
                              const struct ull__cpu_library *library, int threads,
                              struct ull__kernel **kernel, struct ull_error *err);
void ull__kernel_destroy(struct ull__kernel *kernel);

/* How each tensor lies best (backend.h, layouts). */
ull_status ull__cpu_layouts(const struct ull__cpu_op *const *ops, const struct ull__graph *graph,
                            const int64_t *values, uint8_t *layouts, struct ull_error *err);

#endif
