/*
 * list.h: the kernels, once: X(operator). Each is `const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_<operator>)` in a file
 * of ops/. Operators that are views have none.
 */
#define ULL_CPU_OPS(X)                                                                             \
    X(conv2d)                                                                                      \
    X(conv2d_grad_input)                                                                           \
    X(conv2d_grad_weight)                                                                          \
    X(conv_transpose2d)                                                                            \
    X(matmul)                                                                                      \
    X(unary)                                                                                       \
    X(unary_grad)                                                                                  \
    X(binary)                                                                                      \
    X(binary_grad)                                                                                 \
    X(where)                                                                                       \
    X(bias)                                                                                        \
    X(accumulate)                                                                                  \
    X(sgd)                                                                                         \
    X(adam)                                                                                        \
    X(batch_norm)                                                                                  \
    X(batch_norm_grad)                                                                             \
    X(reduce)                                                                                      \
    X(reduce_grad)                                                                                 \
    X(max_pool)                                                                                    \
    X(max_pool_grad)                                                                               \
    X(avg_pool)                                                                                    \
    X(avg_pool_grad)                                                                               \
    X(upsample_nearest)                                                                            \
    X(upsample_nearest_grad)                                                                       \
    X(cast)                                                                                        \
    X(cross_entropy)                                                                               \
    X(cross_entropy_grad)                                                                          \
    X(mse)                                                                                         \
    X(mse_grad)                                                                                    \
    X(finite)                                                                                      \
    X(norm_square)                                                                                 \
    X(clip)                                                                                        \
    X(loss_scale)                                                                                  \
    X(count_step)                                                                                  \
    X(layer_norm)                                                                                  \
    X(layer_norm_grad)                                                                             \
    X(rms_norm)                                                                                    \
    X(rms_norm_grad)                                                                               \
    X(softmax)                                                                                     \
    X(softmax_grad)                                                                                \
    X(log_softmax)                                                                                 \
    X(log_softmax_grad)                                                                            \
    X(gather)                                                                                      \
    X(gather_grad)                                                                                 \
    X(embedding)                                                                                   \
    X(embedding_grad)                                                                              \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(rotary)                                                                                      \
    X(transpose)                                                                                   \
    X(expand)                                                                                      \
    X(copy)                                                                                        \
    X(slice)                                                                                       \
    X(slice_grad)                                                                                  \
    X(concat)                                                                                      \
    X(split)                                                                                       \
    X(pad)                                                                                         \
    X(dropout)                                                                                     \
    X(linear_cross_entropy)                                                                        \
    X(linear_cross_entropy_grad)
