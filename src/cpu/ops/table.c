/* table.c: the kernels of this ability of processors. */
#include "../kernel.h"
#include "list.h"

#define X(name) extern const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_##name);
ULL_CPU_OPS(X)
#undef X

extern const struct ull__cpu_op *const ULL_ISA_NAME(ull__cpu_ops)[];
const struct ull__cpu_op *const ULL_ISA_NAME(ull__cpu_ops)[] = {
#define X(name) &ULL_ISA_NAME(ull__cpu_##name),
    ULL_CPU_OPS(X)
#undef X
        NULL,
};
