/*
 * list.h: the kernels, once: X(operator). Each is `const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_<operator>)` in a file
 * of ops/. Operators that are views have none.
 */
#define ULL_CPU_OPS(X)                                                                             \
    X(conv2d)                                                                                      \
    X(conv2d_grad_input)                                                                           \
    X(conv2d_grad_weight)                                                                          \
    X(conv_transpose2d)                                                                            \
    X(matmul)
