/*
 * conv.c: convolutions and their gradients. Each thread has samples of its own, which it works on some at a time: by oneDNN
 * where that has generated code for the shape, else as products of matrices.
 *
 * 16-bit operands become f32 for these samples only, in the thread's part of the workspace. The gradient by the weights is
 * gathered by each thread for itself; the parts are added in the order of the threads.
 *
 * Workspace: what all share (weights in f32, as oneDNN wants them, bias), then for each thread: what the library needs or
 * columns, samples in f32, and for a gradient by weights its sum and one more to add to it.
 */
#include <stdlib.h>
#include <string.h>

#include "../onednn.h"
#include "conv_plain.h"
#include "error.h"
#include "half.h"

enum { TILE_BYTES = 1 << 20, SIZES = 3 };

struct state {
    const struct ull__cpu_library *library;
    struct ull__conv conv;
    int64_t tile; /* samples at a time; what is left of a thread's is fewer */
    /* oneDNN's for each number of samples that comes up; [0] for `tile`. NULL: plain code does it. */
    struct ull__dnnl_conv *many[SIZES];
    int64_t samples[SIZES];
    int big, small, weights, bias; /* operands: inputs from 0, output 0 is OUTPUT; bias NONE */
    int64_t big_elements, small_elements, weight_elements; /* of a sample; of all weights */
    int64_t packed; /* elements of the weights as oneDNN wants them; by rows where it is not used */
    bool adds_bias; /* afterwards, by us */
    /* Places in the workspace, in bytes, and the size of a thread's part. */
    int64_t rows_at, packed_at, bias_at, threads_at, part;
    int64_t scratch_in, big_in, small_in, sum_in, extra_in; /* within a part */
};

enum { OUTPUT = 100, NONE = -1 };

static const struct ull__cpu_operand *operand(const struct ull__kernel *kernel, int which)
{
    return which == OUTPUT ? &kernel->outputs[0] : &kernel->inputs[which];
}

static int64_t take(int64_t *at, int64_t bytes)
{
    int64_t here = *at;
    *at += (bytes + 63) / 64 * 64;
    return here;
}

/* Which operand is what. */
static void name_operands(const struct ull__kernel *kernel, struct state *state)
{
    state->bias = NONE;
    if (kernel->op == &ull__op_conv2d || kernel->op == &ull__op_conv_transpose2d) {
        bool transposed = kernel->op == &ull__op_conv_transpose2d;
        state->big = transposed ? OUTPUT : 0;
        state->small = transposed ? 0 : OUTPUT;
        state->weights = 1;
        state->conv.direction = transposed ? ULL_CONV_BIG : ULL_CONV_SMALL;
        state->bias = kernel->input_count > 2 && kernel->inputs[2].there ? 2 : NONE;
    } else if (kernel->op == &ull__op_conv2d_grad_input) {
        state->big = OUTPUT;
        state->small = 0;
        state->weights = 1;
        state->conv.direction = ULL_CONV_BIG;
    } else {
        state->big = 0;
        state->small = 1;
        state->weights = OUTPUT;
        state->conv.direction = ULL_CONV_WEIGHTS;
    }
}

static void describe(const struct ull__kernel *kernel, struct state *state)
{
    const struct ull__cpu_operand *big = operand(kernel, state->big);
    const struct ull__cpu_operand *small = operand(kernel, state->small);
    const struct ull__cpu_operand *weights = operand(kernel, state->weights);
    const struct ull__window *window = &kernel->attrs.window;
    struct ull__conv *conv = &state->conv;
    conv->n = big->dims[0];
    conv->groups = window->groups;
    conv->ic = big->dims[1];
    conv->ih = big->dims[2];
    conv->iw = big->dims[3];
    conv->oc = small->dims[1];
    conv->oh = small->dims[2];
    conv->ow = small->dims[3];
    conv->kh = weights->dims[2];
    conv->kw = weights->dims[3];
    for (int i = 0; i < 2; ++i) {
        conv->stride[i] = window->stride[i];
        conv->dilation[i] = window->dilation[i];
        conv->before[i] = window->before[i];
        /* What is left of the picture beyond the last window is no padding. */
        int64_t size = big->dims[2 + i], kernel_size = weights->dims[2 + i];
        conv->after[i] = (small->dims[2 + i] - 1) * window->stride[i] +
                         (kernel_size - 1) * window->dilation[i] + 1 - size - window->before[i];
        conv->after[i] = conv->after[i] > 0 ? conv->after[i] : 0;
    }
    conv->big_last = big->layout == ULL_LAYOUT_CHANNELS_LAST;
    conv->small_last = small->layout == ULL_LAYOUT_CHANNELS_LAST;
    state->big_elements = conv->ic * conv->ih * conv->iw;
    state->small_elements = conv->oc * conv->oh * conv->ow;
    state->weight_elements = weights->elements;
}

/* How many samples at a time, of the most that a thread has: about a megabyte of them, in parts as equal as can be. */
static int64_t tile_of(const struct ull__kernel *kernel, const struct state *state)
{
    int64_t share = (state->conv.n + kernel->threads - 1) / kernel->threads, room = TILE_BYTES;
    bool half = ull__type_is_half(operand(kernel, state->big)->type) ||
                ull__type_is_half(operand(kernel, state->small)->type);
    if (share <= 1) {
        return 1;
    }
    if (state->conv.direction == ULL_CONV_WEIGHTS) {
        if (!half) {
            return share; /* adding up parts of the weights costs as much as they are large */
        }
        room = 16 * state->weight_elements > room ? 16 * state->weight_elements : room;
    }
    int64_t sample = 4 * (state->big_elements + state->small_elements) + 1;
    int64_t tile = room / sample < 1 ? 1 : room / sample;
    int64_t turns = (share + tile - 1) / tile;
    return (share + turns - 1) / turns;
}

static int size_index(const struct state *state, int64_t samples)
{
    for (int i = 0; i < SIZES; ++i) {
        if (state->samples[i] == samples) {
            return i;
        }
    }
    return -1;
}

/* Convolutions of oneDNN for all numbers of samples that come up, or for none of them. */
static void use_library(const struct ull__kernel *kernel, struct state *state, bool bias)
{
    int64_t n = state->conv.n, threads = kernel->threads;
    int64_t sizes[SIZES] = {state->tile, (n + threads - 1) / threads % state->tile,
                            n / threads % state->tile};
    bool fine = true;
    for (int i = 0; i < SIZES && fine; ++i) {
        if (sizes[i] == 0 || size_index(state, sizes[i]) >= 0) {
            continue;
        }
        state->samples[i] = sizes[i];
        state->many[i] = ull__dnnl_conv_create(state->library, &state->conv, sizes[i], bias);
        fine = state->many[i] != NULL && ull__dnnl_conv_weights_bytes(state->many[i]) ==
                                             ull__dnnl_conv_weights_bytes(state->many[0]);
    }
    for (int i = 0; i < SIZES && !fine; ++i) {
        ull__dnnl_conv_destroy(state->many[i]);
        state->many[i] = NULL;
    }
}

static void plan_workspace(struct ull__kernel *kernel, struct state *state)
{
    bool weights = state->conv.direction == ULL_CONV_WEIGHTS;
    bool half_weights = ull__type_is_half(operand(kernel, state->weights)->type);
    int64_t at = 0, in = 0;
    state->packed = state->weight_elements;
    if (state->many[0] != NULL) {
        state->packed = (int64_t)(ull__dnnl_conv_weights_bytes(state->many[0]) / sizeof(float));
    }
    state->rows_at = take(&at, half_weights ? 4 * state->weight_elements : 0);
    state->packed_at = take(&at, !weights && state->many[0] != NULL ? 4 * state->packed : 0);
    state->bias_at = take(&at, state->bias != NONE && ull__type_is_half(kernel->inputs[2].type)
                                   ? 4 * kernel->inputs[2].elements
                                   : 0);
    state->threads_at = at;
    size_t scratch = state->many[0] == NULL ? ull__conv_columns_bytes(&state->conv) : 0;
    for (int i = 0; i < SIZES; ++i) {
        size_t bytes = state->many[i] != NULL ? ull__dnnl_conv_scratch_bytes(state->many[i]) : 0;
        scratch = bytes > scratch ? bytes : scratch;
    }
    state->scratch_in = take(&in, (int64_t)scratch);
    state->big_in = take(&in, ull__type_is_half(operand(kernel, state->big)->type)
                                  ? 4 * state->tile * state->big_elements
                                  : 0);
    state->small_in = take(&in, ull__type_is_half(operand(kernel, state->small)->type)
                                    ? 4 * state->tile * state->small_elements
                                    : 0);
    /* Plain code adds to its sum; oneDNN writes, so that a second turn needs a place of its own. */
    bool turns = state->many[0] != NULL && state->conv.n > state->tile * kernel->threads;
    state->sum_in = take(&in, weights ? 4 * state->packed : 0);
    state->extra_in = take(&in, weights && turns ? 4 * state->packed : 0);
    state->part = in;
    kernel->workspace = state->threads_at + kernel->threads * in;
}

static void finish(struct ull__kernel *kernel)
{
    struct state *state = kernel->state;
    if (state != NULL) {
        for (int i = 0; i < SIZES; ++i) {
            ull__dnnl_conv_destroy(state->many[i]);
        }
        free(state);
    }
}

static ull_status prepare(struct ull__kernel *kernel, const struct ull__cpu_library *library,
                          struct ull_error *err)
{
    struct state *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a kernel of %s", kernel->op->name);
    }
    kernel->state = state;
    state->library = library;
    name_operands(kernel, state);
    for (int i = 0; i < kernel->input_count + 1; ++i) {
        int which = i < kernel->input_count ? i : OUTPUT;
        enum ull__type type = operand(kernel, which)->type;
        if (operand(kernel, which)->there && type != ULL_TYPE_F32 && !ull__type_is_half(type)) {
            return ull__fail(err, ULL_E_NOT_FOUND, "%s of %s: expected f32, f16 or bf16",
                             kernel->op->name, ull__type_text(type));
        }
    }
    describe(kernel, state);
    state->tile = tile_of(kernel, state);
    bool small = state->conv.direction == ULL_CONV_SMALL;
    state->adds_bias = state->bias != NONE;
    if (state->big_elements > 0 && state->small_elements > 0 && state->conv.n > 0) {
        use_library(kernel, state, small && state->bias != NONE);
        state->adds_bias = state->bias != NONE && (state->many[0] == NULL || !small);
    }
    kernel->algorithm = state->many[0] != NULL ? ull__dnnl_conv_name(state->many[0]) : "columns";
    plan_workspace(kernel, state);
    return ULL_OK;
}

/* --- Running --- */

struct place {
    const struct ull__kernel *kernel;
    const struct state *state;
    const struct ull__cpu_run *run;
    char *shared, *own; /* workspace */
    int thread;
};

static void *data(const struct place *place, int which)
{
    return which == OUTPUT ? place->run->out[0] : place->run->in[which];
}

static char *sample(const struct place *place, int which, int64_t elements, int64_t n)
{
    size_t width = (size_t)ull__type_bits(operand(place->kernel, which)->type) / 8;
    return (char *)data(place, which) + (size_t)(n * elements) * width;
}

/* Samples of a picture in f32: where they are, or in the thread's workspace. */
static float *floats(const struct place *place, int which, int64_t elements, int64_t n, int64_t in)
{
    bool half = ull__type_is_half(operand(place->kernel, which)->type);
    return (float *)(half ? place->own + in : sample(place, which, elements, n));
}

static void load(const struct place *place, int which, int64_t elements, int64_t n, int64_t count,
                 float *to)
{
    enum ull__type type = operand(place->kernel, which)->type;
    if (ull__type_is_half(type)) {
        ull__load_f32(type, sample(place, which, elements, n), to, count * elements);
    }
}

static void store(const struct place *place, int which, int64_t elements, int64_t n, int64_t count,
                  const float *from)
{
    enum ull__type type = operand(place->kernel, which)->type;
    if (ull__type_is_half(type)) {
        ull__store_f32(type, from, sample(place, which, elements, n), count * elements);
    }
}

/* Weights by rows in f32, and as oneDNN wants them; made by the first thread. */
static const float *weights_of(const struct place *place)
{
    const struct state *state = place->state;
    const struct ull__cpu_operand *weights = operand(place->kernel, state->weights);
    float *rows = ull__type_is_half(weights->type) ? (float *)(place->shared + state->rows_at)
                                                   : data(place, state->weights);
    float *packed = state->many[0] != NULL ? (float *)(place->shared + state->packed_at) : rows;
    if (place->thread == 0) {
        if (ull__type_is_half(weights->type)) {
            ull__load_f32(weights->type, data(place, state->weights), rows, weights->elements);
        }
        if (state->many[0] != NULL) {
            ull__dnnl_conv_pack(state->many[0], 0, rows, packed);
        }
        if (state->bias != NONE && ull__type_is_half(place->kernel->inputs[2].type)) {
            ull__load_f32(place->kernel->inputs[2].type, place->run->in[2],
                          (float *)(place->shared + state->bias_at),
                          place->kernel->inputs[2].elements);
        }
    }
    ull__team_barrier(place->run->team);
    return packed;
}

static const float *bias_of(const struct place *place)
{
    if (place->state->bias == NONE) {
        return NULL;
    }
    bool half = ull__type_is_half(place->kernel->inputs[2].type);
    return half ? (const float *)(place->shared + place->state->bias_at) : place->run->in[2];
}

static void add_bias(float *pictures, const float *bias, int64_t count, int64_t channels,
                     int64_t points, bool last)
{
    for (int64_t i = 0; i < count * (last ? points : channels); ++i) {
        int64_t run = last ? channels : points;
        for (int64_t j = 0; j < run; ++j) {
            pictures[i * run + j] += bias[last ? j : i % channels];
        }
    }
}

static void some_samples(const struct place *place, int64_t n, int64_t count, const float *weights)
{
    const struct state *state = place->state;
    const struct ull__conv *conv = &state->conv;
    float *big = floats(place, state->big, state->big_elements, n, state->big_in);
    float *small = floats(place, state->small, state->small_elements, n, state->small_in);
    char *scratch = place->own + state->scratch_in;
    bool to_small = conv->direction == ULL_CONV_SMALL;
    int source = to_small ? state->big : state->small, target = to_small ? state->small : state->big;
    int64_t source_elements = to_small ? state->big_elements : state->small_elements;
    int64_t target_elements = to_small ? state->small_elements : state->big_elements;
    load(place, source, source_elements, n, count, to_small ? big : small);
    if (state->many[0] != NULL) {
        ull__dnnl_conv_run(state->many[size_index(state, count)], place->thread, big, weights,
                           bias_of(place), small, scratch);
    } else {
        for (int64_t i = 0; i < count; ++i) {
            float *b = big + i * state->big_elements, *s = small + i * state->small_elements;
            if (to_small) {
                ull__conv_plain_small(state->library, conv, b, weights, s, (float *)scratch);
            } else {
                ull__conv_plain_big(state->library, conv, s, weights, b, (float *)scratch);
            }
        }
    }
    if (state->adds_bias) {
        add_bias(to_small ? small : big, bias_of(place), count, to_small ? conv->oc : conv->ic,
                 to_small ? conv->oh * conv->ow : conv->ih * conv->iw,
                 to_small ? conv->small_last : conv->big_last);
    }
    store(place, target, target_elements, n, count, to_small ? small : big);
}

/* Adds the samples' part of the gradient to the thread's sum; the first turn of oneDNN writes it. */
static void some_weights(const struct place *place, int64_t n, int64_t count, bool first)
{
    const struct state *state = place->state;
    float *big = floats(place, state->big, state->big_elements, n, state->big_in);
    float *small = floats(place, state->small, state->small_elements, n, state->small_in);
    float *sum = (float *)(place->own + state->sum_in);
    char *scratch = place->own + state->scratch_in;
    load(place, state->big, state->big_elements, n, count, big);
    load(place, state->small, state->small_elements, n, count, small);
    if (state->many[0] == NULL) {
        for (int64_t i = 0; i < count; ++i) {
            ull__conv_plain_weights(state->library, &state->conv, big + i * state->big_elements,
                                    small + i * state->small_elements, sum, (float *)scratch);
        }
        return;
    }
    float *into = first ? sum : (float *)(place->own + state->extra_in);
    ull__dnnl_conv_run(state->many[size_index(state, count)], place->thread, big, into, NULL, small,
                       scratch);
    for (int64_t i = 0; i < state->packed && !first; ++i) {
        sum[i] += into[i];
    }
}

/* The threads' sums together, in the order of the threads, and by rows into the output. */
static void gather(const struct place *place)
{
    const struct state *state = place->state;
    const struct ull__cpu_operand *out = &place->kernel->outputs[0];
    char *parts = place->shared + state->threads_at + state->sum_in;
    float *sum = (float *)parts;
    int64_t begin, end;
    ull__team_barrier(place->run->team);
    ull__part(state->packed, 16, place->thread, place->run->threads, &begin, &end);
    for (int t = 1; t < place->run->threads; ++t) {
        const float *other = (const float *)(parts + t * state->part);
        for (int64_t i = begin; i < end; ++i) {
            sum[i] += other[i];
        }
    }
    ull__team_barrier(place->run->team);
    if (place->thread != 0) {
        return;
    }
    bool half = ull__type_is_half(out->type);
    float *rows = half ? (float *)(place->shared + state->rows_at) : place->run->out[0];
    if (state->many[0] != NULL) {
        ull__dnnl_conv_unpack(state->many[0], 0, sum, rows);
    } else {
        memcpy(rows, sum, sizeof(*rows) * (size_t)state->weight_elements);
    }
    if (half) {
        ull__store_f32(out->type, rows, place->run->out[0], out->elements);
    }
}

static void run(const struct ull__kernel *kernel, const struct ull__cpu_run *call, int thread)
{
    const struct state *state = kernel->state;
    struct place place = {.kernel = kernel,
                          .state = state,
                          .run = call,
                          .shared = call->workspace,
                          .own = (char *)call->workspace + state->threads_at + thread * state->part,
                          .thread = thread};
    bool weights = state->conv.direction == ULL_CONV_WEIGHTS;
    const float *packed = weights ? NULL : weights_of(&place);
    int64_t begin, end;
    ull__part(state->conv.n, 1, thread, call->threads, &begin, &end);
    if (weights) {
        memset(place.own + state->sum_in, 0, 4 * (size_t)state->packed);
    }
    for (int64_t n = begin, count; n < end; n += count) {
        count = end - n >= state->tile ? state->tile : end - n;
        if (weights) {
            some_weights(&place, n, count, n == begin);
        } else {
            some_samples(&place, n, count, packed);
        }
    }
    if (weights) {
        gather(&place);
    }
}

#define CONVOLUTION(name, weights_rows)                                                            \
    extern const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_##name);                                 \
    const struct ull__cpu_op ULL_ISA_NAME(ull__cpu_##name) = {                                     \
        .op = &ull__op_##name,                                                                     \
        .layouts = ULL_CPU_ANY,                                                                    \
        .rows = weights_rows,                                                                      \
        .prepare = prepare,                                                                        \
        .finish = finish,                                                                          \
        .run = run,                                                                                \
    };

CONVOLUTION(conv2d, 1u << 1)
CONVOLUTION(conv2d_grad_input, 1u << 1)
CONVOLUTION(conv_transpose2d, 1u << 1)
CONVOLUTION(conv2d_grad_weight, 1u << ULL_CPU_ROWS_OUTPUT)
