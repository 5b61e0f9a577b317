/* operators.c: the operators that are supported, in the order of the alphabet. */
#include <stdlib.h>
#include <string.h>

#include "onnx_private.h"

#define OPERATORS(X)                                                                               \
    X(Abs, unary)                                                                                  \
    X(Add, binary)                                                                                 \
    X(And, binary)                                                                                 \
    X(AveragePool, pool)                                                                           \
    X(BatchNormalization, batch_norm)                                                              \
    X(Cast, cast)                                                                                  \
    X(CastLike, cast)                                                                              \
    X(Ceil, unary)                                                                                 \
    X(Celu, composed)                                                                              \
    X(Clip, clip)                                                                                  \
    X(Concat, concat)                                                                              \
    X(Constant, constant)                                                                          \
    X(ConstantOfShape, constant_of_shape)                                                          \
    X(Conv, conv)                                                                                  \
    X(ConvTranspose, conv_transpose)                                                               \
    X(Cos, unary)                                                                                  \
    X(Cosh, composed)                                                                              \
    X(DepthToSpace, depth)                                                                         \
    X(Div, binary)                                                                                 \
    X(Dropout, dropout)                                                                            \
    X(Einsum, einsum)                                                                              \
    X(Elu, composed)                                                                               \
    X(Equal, binary)                                                                               \
    X(Erf, unary)                                                                                  \
    X(Exp, unary)                                                                                  \
    X(Expand, expand)                                                                              \
    X(Flatten, flatten)                                                                            \
    X(Floor, unary)                                                                                \
    X(Gather, gather)                                                                              \
    X(Gemm, gemm)                                                                                  \
    X(GlobalAveragePool, global_pool)                                                              \
    X(GlobalMaxPool, global_pool)                                                                  \
    X(Greater, binary)                                                                             \
    X(GreaterOrEqual, binary)                                                                      \
    X(HardSigmoid, composed)                                                                       \
    X(HardSwish, composed)                                                                         \
    X(Identity, identity)                                                                          \
    X(InstanceNormalization, instance_norm)                                                        \
    X(LayerNormalization, layer_norm)                                                              \
    X(LeakyRelu, composed)                                                                         \
    X(Less, binary)                                                                                \
    X(LessOrEqual, binary)                                                                         \
    X(Log, unary)                                                                                  \
    X(LogSoftmax, softmax)                                                                         \
    X(MatMul, matmul)                                                                              \
    X(Max, variadic)                                                                               \
    X(MaxPool, pool)                                                                               \
    X(Mean, variadic)                                                                              \
    X(Min, variadic)                                                                               \
    X(Mod, mod)                                                                                    \
    X(Mul, binary)                                                                                 \
    X(Neg, unary)                                                                                  \
    X(NegativeLogLikelihoodLoss, loss)                                                             \
    X(Not, unary)                                                                                  \
    X(Or, binary)                                                                                  \
    X(PRelu, prelu)                                                                                \
    X(Pad, pad)                                                                                    \
    X(Pow, pow)                                                                                    \
    X(Range, range)                                                                                \
    X(Reciprocal, unary)                                                                           \
    X(ReduceL1, reduce)                                                                            \
    X(ReduceL2, reduce)                                                                            \
    X(ReduceLogSum, reduce)                                                                        \
    X(ReduceLogSumExp, reduce)                                                                     \
    X(ReduceMax, reduce)                                                                           \
    X(ReduceMean, reduce)                                                                          \
    X(ReduceMin, reduce)                                                                           \
    X(ReduceProd, reduce)                                                                          \
    X(ReduceSum, reduce)                                                                           \
    X(ReduceSumSquare, reduce)                                                                     \
    X(Relu, unary)                                                                                 \
    X(Reshape, reshape)                                                                            \
    X(Resize, resize)                                                                              \
    X(Round, unary)                                                                                \
    X(ScatterND, scatter)                                                                          \
    X(Selu, composed)                                                                              \
    X(Shape, shape)                                                                                \
    X(Sigmoid, unary)                                                                              \
    X(Sign, unary)                                                                                 \
    X(Sin, unary)                                                                                  \
    X(Sinh, composed)                                                                              \
    X(Size, size)                                                                                  \
    X(Slice, slice)                                                                                \
    X(Softmax, softmax)                                                                            \
    X(SoftmaxCrossEntropyLoss, loss)                                                               \
    X(Softplus, unary)                                                                             \
    X(Softsign, composed)                                                                          \
    X(SpaceToDepth, depth)                                                                         \
    X(Split, split)                                                                                \
    X(Sqrt, unary)                                                                                 \
    X(Squeeze, squeeze)                                                                            \
    X(Sub, binary)                                                                                 \
    X(Sum, variadic)                                                                               \
    X(Tan, composed)                                                                               \
    X(Tanh, unary)                                                                                 \
    X(ThresholdedRelu, composed)                                                                   \
    X(Tile, tile)                                                                                  \
    X(Transpose, transpose)                                                                        \
    X(Trilu, trilu)                                                                                \
    X(Unsqueeze, unsqueeze)                                                                        \
    X(Upsample, resize)                                                                            \
    X(Where, where)                                                                                \
    X(Xor, binary)

static const struct translator operators[] = {
#define X(name, function) {#name, translate_##function},
    OPERATORS(X)
#undef X
};

enum { COUNT = sizeof(operators) / sizeof(operators[0]) };

static int compare(const void *key, const void *entry)
{
    return strcmp(key, ((const struct translator *)entry)->name);
}

const struct translator *operator_find(const char *name)
{
    return name == NULL ? NULL : bsearch(name, operators, COUNT, sizeof(operators[0]), compare);
}

const char *ull__onnx_operator(int i)
{
    return i >= 0 && i < COUNT ? operators[i].name : NULL;
}
