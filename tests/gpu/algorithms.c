/*
 * algorithms.c: which algorithms the libraries of a card have for convolutions and products, with the time and the workspace of
 * each: what the cost tables in device profiles are made of (tests/gpu/algorithms.py).
 *
 *     algorithms conv SECONDS [WORKSPACE_GIB]    convolutions of ResNet-50, ResNet-18, U-Net and smaller networks, by cuDNN
 *     algorithms matmul SECONDS                  products of GPT-2, BERT and ResNet's classifier, by cuBLASLt
 *
 * One JSON object a line. Times are what the card took, in milliseconds: of cuDNN's own search the middle of three, of
 * products the middle of seven. After SECONDS nothing new is begun.
 *
 * Built by run_algorithms.sh, which finds headers and libraries; it needs a card.
 */
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FOUND_MOST = 16, ROUNDS = 3, TIMES = 7 };

static void check(bool fine, const char *what, const char *why)
{
    if (!fine) {
        fprintf(stderr, "algorithms: %s: %s\n", what, why);
        exit(1);
    }
}

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t status_ = (call);                                                              \
        check(status_ == cudaSuccess, #call, cudaGetErrorString(status_));                         \
    } while (0)
#define CUDNN(call)                                                                                \
    do {                                                                                           \
        cudnnStatus_t status_ = (call);                                                            \
        check(status_ == CUDNN_STATUS_SUCCESS, #call, cudnnGetErrorString(status_));               \
    } while (0)
#define BLAS(call) check((call) == CUBLAS_STATUS_SUCCESS, #call, "failed")

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Numbers around zero, in f32, or two of 16 bits in their place: a card is faster on zeros. */
static void *filled(size_t bytes, bool half)
{
    static char *patterns[2];
    size_t most = (size_t)32 << 20, part = bytes < most ? bytes : most;
    char *made;
    uint32_t seed = 1;
    if (patterns[half] == NULL) {
        char *host = malloc(most);
        check(host != NULL, "memory", "none");
        for (size_t i = 0; i < most / 4; ++i) {
            seed = seed * 1664525u + 1013904223u;
            float value = (float)(seed >> 8) / 16777216.0f - 0.5f;
            uint32_t bits;
            memcpy(&bits, &value, 4);
            bits = half ? (bits & 0xffff0000u) | bits >> 16 : bits;
            memcpy(host + 4 * i, &bits, 4);
        }
        patterns[half] = host;
    }
    CUDA(cudaMalloc((void **)&made, bytes + 256));
    for (size_t at = 0; at < bytes; at += part) {
        CUDA(cudaMemcpy(made + at, patterns[half], bytes - at < part ? bytes - at : part,
                        cudaMemcpyHostToDevice));
    }
    return made;
}

/* --- Convolutions --- */

struct shape {
    const char *model;
    int n, c, size, k, kernel, stride, groups;
};

/* c: channels before, k: after; size: height and width before; padding keeps the size. */
static const struct shape shapes[] = {
    {"resnet50", 64, 3, 224, 64, 7, 2, 1},      {"resnet50", 64, 64, 56, 64, 3, 1, 1},
    {"resnet50", 64, 64, 56, 256, 1, 1, 1},     {"resnet50", 64, 256, 56, 64, 1, 1, 1},
    {"resnet50", 64, 256, 56, 128, 1, 1, 1},    {"resnet50", 64, 128, 56, 128, 3, 2, 1},
    {"resnet50", 64, 256, 56, 512, 1, 2, 1},    {"resnet50", 64, 128, 28, 128, 3, 1, 1},
    {"resnet50", 64, 128, 28, 512, 1, 1, 1},    {"resnet50", 64, 512, 28, 128, 1, 1, 1},
    {"resnet50", 64, 256, 28, 256, 3, 2, 1},    {"resnet50", 64, 512, 28, 1024, 1, 2, 1},
    {"resnet50", 64, 256, 14, 256, 3, 1, 1},    {"resnet50", 64, 256, 14, 1024, 1, 1, 1},
    {"resnet50", 64, 1024, 14, 256, 1, 1, 1},   {"resnet50", 64, 512, 14, 512, 3, 2, 1},
    {"resnet50", 64, 512, 7, 512, 3, 1, 1},     {"resnet50", 64, 512, 7, 2048, 1, 1, 1},
    {"resnet18", 64, 64, 56, 64, 3, 1, 1},      {"resnet18", 64, 64, 56, 128, 3, 2, 1},
    {"resnet18", 64, 256, 14, 512, 3, 2, 1},    {"unet", 2, 64, 512, 64, 3, 1, 1},
    {"unet", 2, 128, 256, 128, 3, 1, 1},        {"unet", 2, 256, 128, 256, 3, 1, 1},
    {"unet", 2, 512, 64, 512, 3, 1, 1},         {"unet", 2, 1024, 32, 1024, 3, 1, 1},
    {"unet", 2, 1024, 64, 512, 3, 1, 1},        {"unet", 2, 128, 512, 64, 3, 1, 1},
    {"unet", 2, 1, 512, 64, 3, 1, 1},           {"unet", 2, 512, 128, 256, 2, 2, 1},
    {"resnet50-4k", 1, 3, 2160, 64, 7, 2, 1},   {"resnet50-4k", 1, 64, 540, 64, 3, 1, 1},
    {"resnet50-4k", 1, 64, 540, 256, 1, 1, 1},  {"resnet50-4k", 1, 256, 540, 64, 1, 1, 1},
    {"resnet50-4k", 1, 128, 540, 128, 3, 2, 1}, {"resnet50-4k", 1, 256, 135, 256, 3, 1, 1},
    {"resnet20", 256, 16, 32, 16, 3, 1, 1},     {"resnet20", 256, 32, 16, 32, 3, 1, 1},
    {"resnet20", 256, 64, 8, 64, 3, 1, 1},      {"lenet", 256, 6, 14, 16, 5, 1, 1},
    {"five", 32, 96, 28, 128, 5, 1, 1},         {"depthwise", 32, 256, 28, 256, 3, 1, 256},
    {"grouped", 32, 256, 28, 256, 3, 1, 32},    {"resnet50", 256, 64, 56, 64, 3, 1, 1},
    {"resnet50", 16, 64, 56, 64, 3, 1, 1},      {"resnet50", 16, 256, 14, 256, 3, 1, 1},
};

struct conv {
    cudnnHandle_t handle;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    void *x_data, *y_data, *w_data, *scratch;
    size_t scratch_bytes;
};

struct result {
    int algorithm, math, count;
    float ms[ROUNDS];
    size_t bytes;
    bool deterministic;
};

static const char *const forward_names[] = {
    "implicit_gemm", "implicit_precomp_gemm", "gemm", "direct", "fft", "fft_tiling",
    "winograd",      "winograd_nonfused"};
static const char *const data_names[] = {"0",          "1",        "fft",
                                         "fft_tiling", "winograd", "winograd_nonfused"};
static const char *const weight_names[] = {
    "0", "1", "fft", "3", "winograd", "winograd_nonfused", "fft_tiling"};
static const char *const maths[] = {"default", "tensor", "tensor_convert", "fma"};

#define TAKE(found)                                                                                  \
    for (int i = 0; i < count; ++i) {                                                                \
        if ((found)[i].status == CUDNN_STATUS_SUCCESS) {                                             \
            note(results, results_count, (int)(found)[i].algo, (int)(found)[i].mathType,             \
                 (found)[i].time, (found)[i].memory, (found)[i].determinism == CUDNN_DETERMINISTIC); \
        }                                                                                            \
    }

static void note(struct result *results, int *count, int algorithm, int math, float ms,
                 size_t bytes, bool deterministic)
{
    int at = 0;
    while (at < *count && (results[at].algorithm != algorithm || results[at].math != math)) {
        at += 1;
    }
    if (at == *count && *count < FOUND_MOST) {
        results[(*count)++] = (struct result){algorithm, math, 0, {0}, bytes, deterministic};
    }
    if (at < *count && results[at].count < ROUNDS) {
        results[at].ms[results[at].count++] = ms;
    }
}

/* 0: forward, 1: by data, 2: by weights. */
static bool find(const struct conv *c, int direction, struct result *results, int *results_count)
{
    int count = 0;
    if (direction == 0) {
        cudnnConvolutionFwdAlgoPerf_t found[FOUND_MOST];
        if (cudnnFindConvolutionForwardAlgorithmEx(
                c->handle, c->x, c->x_data, c->w, c->w_data, c->conv, c->y, c->y_data, FOUND_MOST,
                &count, found, c->scratch, c->scratch_bytes) != CUDNN_STATUS_SUCCESS) {
            return false;
        }
        TAKE(found)
    } else if (direction == 1) {
        cudnnConvolutionBwdDataAlgoPerf_t found[FOUND_MOST];
        if (cudnnFindConvolutionBackwardDataAlgorithmEx(
                c->handle, c->w, c->w_data, c->y, c->y_data, c->conv, c->x, c->x_data, FOUND_MOST,
                &count, found, c->scratch, c->scratch_bytes) != CUDNN_STATUS_SUCCESS) {
            return false;
        }
        TAKE(found)
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t found[FOUND_MOST];
        if (cudnnFindConvolutionBackwardFilterAlgorithmEx(
                c->handle, c->x, c->x_data, c->y, c->y_data, c->conv, c->w, c->w_data, FOUND_MOST,
                &count, found, c->scratch, c->scratch_bytes) != CUDNN_STATUS_SUCCESS) {
            return false;
        }
        TAKE(found)
    }
    return true;
}

static float middle(const float *times, int count)
{
    float sorted[TIMES];
    memcpy(sorted, times, sizeof(*times) * (size_t)count);
    for (int i = 1; i < count; ++i) {
        for (int j = i; j > 0 && sorted[j - 1] > sorted[j]; --j) {
            float other = sorted[j];
            sorted[j] = sorted[j - 1];
            sorted[j - 1] = other;
        }
    }
    return sorted[count / 2];
}

static void print_results(const struct result *results, int count, int direction)
{
    const char *const *names = direction == 0   ? forward_names
                               : direction == 1 ? data_names
                                                : weight_names;
    printf("\"found\": [");
    for (int i = 0; i < count; ++i) {
        printf("%s{\"algorithm\": \"%s\", \"math\": \"%s\", \"ms\": %.5f, \"bytes\": %zu, "
               "\"deterministic\": %s}",
               i > 0 ? ", " : "", names[results[i].algorithm], maths[results[i].math],
               (double)middle(results[i].ms, results[i].count), results[i].bytes,
               results[i].deterministic ? "true" : "false");
    }
    printf("]}\n");
    fflush(stdout);
}

static void measure_conv(struct conv *c, const struct shape *s, cudnnDataType_t type, bool last,
                         bool print)
{
    static const char *const directions[] = {"forward", "data", "weights"};
    cudnnTensorFormat_t format = last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    int width = s->size == 2160 ? 3840 : s->size == 540 ? 960 : s->size == 135 ? 240 : s->size;
    int padding = s->kernel % 2 == 0 ? 0 : s->kernel / 2, n, k, oh, ow;
    size_t element = type == CUDNN_DATA_FLOAT ? 4 : 2;
    CUDNN(cudnnSetTensor4dDescriptor(c->x, format, type, s->n, s->c, s->size, width));
    CUDNN(cudnnSetFilter4dDescriptor(c->w, type, format, s->k, s->c / s->groups, s->kernel,
                                     s->kernel));
    CUDNN(cudnnSetConvolution2dDescriptor(c->conv, padding, padding, s->stride, s->stride, 1, 1,
                                          CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    CUDNN(cudnnSetConvolutionGroupCount(c->conv, s->groups));
    CUDNN(cudnnSetConvolutionMathType(c->conv, type == CUDNN_DATA_FLOAT ? CUDNN_DEFAULT_MATH
                                                                        : CUDNN_TENSOR_OP_MATH));
    CUDNN(cudnnGetConvolution2dForwardOutputDim(c->conv, c->x, c->w, &n, &k, &oh, &ow));
    CUDNN(cudnnSetTensor4dDescriptor(c->y, format, type, n, k, oh, ow));
    size_t x = element * (size_t)s->n * (size_t)s->c * (size_t)s->size * (size_t)width;
    size_t y = element * (size_t)n * (size_t)k * (size_t)oh * (size_t)ow;
    size_t w = element * (size_t)s->k * (size_t)(s->c / s->groups) * (size_t)(s->kernel * s->kernel);
    c->x_data = filled(x, element == 2);
    c->y_data = filled(y, element == 2);
    c->w_data = filled(w, element == 2);
    for (int direction = 0; direction < 3; ++direction) {
        struct result results[FOUND_MOST];
        int count = 0;
        bool fine = true;
        for (int i = 0; i < ROUNDS && fine; ++i) {
            fine = find(c, direction, results, &count);
        }
        if (fine && print) {
            printf(
                "{\"model\": \"%s\", \"direction\": \"%s\", \"type\": \"%s\", \"layout\": \"%s\", "
                "\"n\": %d, \"c\": %d, \"h\": %d, \"w\": %d, \"k\": %d, \"oh\": %d, \"ow\": %d, "
                "\"kernel\": %d, \"stride\": %d, \"groups\": %d, ",
                s->model, directions[direction],
                type == CUDNN_DATA_FLOAT      ? "f32"
                : type == CUDNN_DATA_BFLOAT16 ? "bf16"
                                              : "f16",
                last ? "nhwc" : "nchw", s->n, s->c, s->size, width, s->k, oh, ow, s->kernel,
                s->stride, s->groups);
            print_results(results, count, direction);
        }
    }
    CUDA(cudaFree(c->x_data));
    CUDA(cudaFree(c->y_data));
    CUDA(cudaFree(c->w_data));
}

static void convolutions(double seconds, size_t gib)
{
    static const struct {
        cudnnDataType_t type;
        bool last;
    } kinds[] = {{CUDNN_DATA_BFLOAT16, true},
                 {CUDNN_DATA_FLOAT, true},
                 {CUDNN_DATA_FLOAT, false},
                 {CUDNN_DATA_BFLOAT16, false},
                 {CUDNN_DATA_HALF, true}};
    struct conv c = {.scratch_bytes = gib << 30};
    double end = now() + seconds;
    CUDNN(cudnnCreate(&c.handle));
    CUDNN(cudnnCreateTensorDescriptor(&c.x));
    CUDNN(cudnnCreateTensorDescriptor(&c.y));
    CUDNN(cudnnCreateFilterDescriptor(&c.w));
    CUDNN(cudnnCreateConvolutionDescriptor(&c.conv));
    CUDA(cudaMalloc(&c.scratch, c.scratch_bytes));
    printf("{\"cudnn\": %zu, \"workspace_limit\": %zu}\n", cudnnGetVersion(), c.scratch_bytes);
    measure_conv(&c, &shapes[1], kinds[0].type, kinds[0].last, false); /* brings the clocks up */
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); ++kind) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && now() < end; ++i) {
            measure_conv(&c, &shapes[i], kinds[kind].type, kinds[kind].last, true);
        }
    }
}

/* --- Products --- */

struct product {
    const char *what;
    int m, n, k;
    bool transpose_a, transpose_b; /* of operands by columns */
};

static const struct product products[] = {
    {"gpt2 qkv", 2304, 32768, 768, true, false},
    {"gpt2 up", 3072, 32768, 768, true, false},
    {"gpt2 down", 768, 32768, 3072, true, false},
    {"gpt2 logits", 50304, 8192, 768, true, false},
    {"gpt2 up by data", 768, 32768, 3072, false, false},
    {"gpt2 qkv by weights", 768, 2304, 32768, false, true},
    {"gpt2 up by weights", 768, 3072, 32768, false, true},
    {"gpt2 down by weights", 3072, 768, 32768, false, true},
    {"gpt2 out by weights", 768, 768, 32768, false, true},
    {"gpt2 logits by weights", 768, 50304, 8192, false, true},
    {"bert up", 3072, 4096, 768, true, false},
    {"bert by weights", 768, 768, 4096, false, true},
    {"gpt2-xl up", 6400, 8192, 1600, true, false},
    {"gpt2-xl by weights", 1600, 6400, 8192, false, true},
    {"resnet50 fc", 1000, 256, 2048, true, false},
    {"resnet50 fc by weights", 2048, 1000, 256, false, true},
    {"small by weights", 256, 256, 16384, false, true},
};

static float time_product(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                          cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                          cublasLtMatrixLayout_t c, void *const data[3],
                          const cublasLtMatmulAlgo_t *algorithm, void *scratch, size_t bytes)
{
    float times[TIMES], one = 1, zero = 0;
    cudaEvent_t begin, end;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    for (int i = -1; i < TIMES; ++i) {
        CUDA(cudaEventRecord(begin, 0));
        if (cublasLtMatmul(handle, operation, &one, data[0], a, data[1], b, &zero, data[2], c,
                           data[2], c, algorithm, scratch, bytes, 0) != CUBLAS_STATUS_SUCCESS) {
            return -1;
        }
        CUDA(cudaEventRecord(end, 0));
        CUDA(cudaEventSynchronize(end));
        CUDA(cudaEventElapsedTime(&times[i < 0 ? 0 : i], begin, end));
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return middle(times, TIMES);
}

static void measure_product(cublasLtHandle_t handle, const struct product *p, cudaDataType_t type,
                            void *scratch)
{
    static const size_t limits[] = {0, (size_t)1 << 20, (size_t)4 << 20, (size_t)32 << 20,
                                    (size_t)256 << 20};
    size_t element = type == CUDA_R_32F ? 4 : 2;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasOperation_t ta = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t tb = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    void *data[3] = {filled(element * (size_t)p->m * (size_t)p->k, element == 2),
                     filled(element * (size_t)p->k * (size_t)p->n, element == 2),
                     filled(element * (size_t)p->m * (size_t)p->n, element == 2)};
    BLAS(cublasLtMatmulDescCreate(
        &operation, type == CUDA_R_32F ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F));
    BLAS(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof(ta)));
    BLAS(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof(tb)));
    BLAS(cublasLtMatrixLayoutCreate(&a, type, (uint64_t)(p->transpose_a ? p->k : p->m),
                                    (uint64_t)(p->transpose_a ? p->m : p->k),
                                    p->transpose_a ? p->k : p->m));
    BLAS(cublasLtMatrixLayoutCreate(&b, type, (uint64_t)(p->transpose_b ? p->n : p->k),
                                    (uint64_t)(p->transpose_b ? p->k : p->n),
                                    p->transpose_b ? p->n : p->k));
    BLAS(cublasLtMatrixLayoutCreate(&c, type, (uint64_t)p->m, (uint64_t)p->n, p->m));
    printf("{\"product\": \"%s\", \"m\": %d, \"n\": %d, \"k\": %d, \"type\": \"%s\", \"found\": [",
           p->what, p->m, p->n, p->k, element == 4 ? "f32" : "bf16");
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); ++i) {
        cublasLtMatmulPreference_t preference;
        cublasLtMatmulHeuristicResult_t found[8];
        int count = 0;
        BLAS(cublasLtMatmulPreferenceCreate(&preference));
        BLAS(cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limits[i], sizeof(limits[i])));
        if (cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, c, c, preference, 8, found,
                                           &count) != CUBLAS_STATUS_SUCCESS) {
            count = 0;
        }
        float best = -1, first = -1;
        size_t bytes = 0, first_bytes = 0;
        for (int j = 0; j < count; ++j) {
            float ms = time_product(handle, operation, a, b, c, data, &found[j].algo, scratch,
                                    found[j].workspaceSize);
            if (ms > 0 && (best < 0 || ms < best)) {
                best = ms;
                bytes = found[j].workspaceSize;
            }
            first = j == 0 ? ms : first;
            first_bytes = j == 0 ? found[j].workspaceSize : first_bytes;
        }
        printf("%s{\"limit\": %zu, \"ms\": %.5f, \"bytes\": %zu, \"first_ms\": %.5f, "
               "\"first_bytes\": %zu}",
               i > 0 ? ", " : "", limits[i], (double)best, bytes, (double)first, first_bytes);
        cublasLtMatmulPreferenceDestroy(preference);
    }
    printf("]}\n");
    fflush(stdout);
    for (int i = 0; i < 3; ++i) {
        CUDA(cudaFree(data[i]));
    }
    cublasLtMatrixLayoutDestroy(a);
    cublasLtMatrixLayoutDestroy(b);
    cublasLtMatrixLayoutDestroy(c);
    cublasLtMatmulDescDestroy(operation);
}

static void matrix_products(double seconds)
{
    cublasLtHandle_t handle;
    void *scratch;
    double end = now() + seconds;
    BLAS(cublasLtCreate(&handle));
    CUDA(cudaMalloc(&scratch, (size_t)256 << 20));
    printf("{\"cublaslt\": %zu}\n", cublasLtGetVersion());
    for (int half = 1; half >= 0; --half) {
        for (size_t i = 0; i < sizeof(products) / sizeof(products[0]) && now() < end; ++i) {
            measure_product(handle, &products[i], half ? CUDA_R_16BF : CUDA_R_32F, scratch);
        }
    }
}

int main(int argc, char **argv)
{
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 0;
    if (argc > 2 && strcmp(argv[1], "conv") == 0 && seconds > 0) {
        convolutions(seconds, argc > 3 ? strtoul(argv[3], NULL, 10) : 16);
    } else if (argc > 2 && strcmp(argv[1], "matmul") == 0 && seconds > 0) {
        matrix_products(seconds);
    } else {
        fprintf(stderr, "usage: algorithms conv|matmul SECONDS [WORKSPACE_GIB]\n");
        return 2;
    }
    return 0;
}
