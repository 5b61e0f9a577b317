/* onednn.c: see onednn.h. */
#include "onednn.h"

#include <stdlib.h>
#include <string.h>

#include "libraries.h"

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t described;          /* made and owned */
typedef const_dnnl_memory_desc_t described_by; /* as arguments want it */
#define BY(description) (description)
#else
typedef dnnl_memory_desc_t described;
typedef const dnnl_memory_desc_t *described_by;
#define BY(description) (&(description))
#endif

/* What a thread hands over: addresses are set at each run. */
struct operands {
    dnnl_memory_t big, small, weights, bias, scratch, rows;
};

struct ull__dnnl_conv {
    const struct ull__cpu_library *library;
    enum ull__conv_direction direction;
    bool has_bias;
    described big, small, any_weights, rows, bias;
    dnnl_primitive_desc_t description,
        forward; /* backward ones are made with the forward one as a hint */
    dnnl_primitive_t primitive, pack, unpack;
    const char *name;
    size_t weights_bytes, scratch_bytes;
    struct operands operands[64];
};

static bool describe(const struct ull__cpu_library *library, int rank, const dnnl_dim_t *sizes,
                     dnnl_format_tag_t tag, described *description)
{
    dnnl_dims_t dims = {0};
    memcpy(dims, sizes, sizeof(*sizes) * (size_t)rank);
#if DNNL_VERSION_MAJOR >= 3
    return library->memory_desc_create_with_tag(description, rank, dims, dnnl_f32, tag) ==
           dnnl_success;
#else
    return library->memory_desc_init_by_tag(description, rank, dims, dnnl_f32, tag) == dnnl_success;
#endif
}

static bool describe_all(struct ull__dnnl_conv *made, const struct ull__conv *conv, int64_t samples)
{
    const struct ull__cpu_library *library = made->library;
    dnnl_dim_t big[] = {samples, conv->ic, conv->ih, conv->iw};
    dnnl_dim_t small[] = {samples, conv->oc, conv->oh, conv->ow};
    dnnl_dim_t weights[] = {conv->groups, conv->oc / conv->groups, conv->ic / conv->groups,
                            conv->kh, conv->kw};
    int first = conv->groups == 1;
    dnnl_format_tag_t rows = conv->groups == 1 ? dnnl_abcd : dnnl_abcde;
    return describe(library, 4, big, conv->big_last ? dnnl_nhwc : dnnl_nchw, &made->big) &&
           describe(library, 4, small, conv->small_last ? dnnl_nhwc : dnnl_nchw, &made->small) &&
           describe(library, 5 - first, weights + first, dnnl_format_tag_any, &made->any_weights) &&
           describe(library, 5 - first, weights + first, rows, &made->rows) &&
           describe(library, 1, &conv->oc, dnnl_a, &made->bias);
}

#if DNNL_VERSION_MAJOR >= 3
static bool describe_primitives(struct ull__dnnl_conv *made, const dnnl_dim_t *stride,
                                const dnnl_dim_t *dilation, const dnnl_dim_t *before,
                                const dnnl_dim_t *after, dnnl_primitive_attr_t attributes)
{
    const struct ull__cpu_library *l = made->library;
    described_by bias = made->has_bias ? BY(made->bias) : NULL;
    if (l->convolution_forward_primitive_desc_create(
            &made->forward, l->engine, dnnl_forward_training, dnnl_convolution_direct, made->big,
            made->any_weights, bias, made->small, stride, dilation, before, after,
            attributes) != dnnl_success) {
        return false;
    }
    if (made->direction == ULL_CONV_BIG) {
        return l->convolution_backward_data_primitive_desc_create(
                   &made->description, l->engine, dnnl_convolution_direct, made->big,
                   made->any_weights, made->small, stride, dilation, before, after, made->forward,
                   attributes) == dnnl_success;
    }
    return made->direction == ULL_CONV_SMALL ||
           l->convolution_backward_weights_primitive_desc_create(
               &made->description, l->engine, dnnl_convolution_direct, made->big, made->any_weights,
               NULL, made->small, stride, dilation, before, after, made->forward,
               attributes) == dnnl_success;
}
#else
static bool describe_primitives(struct ull__dnnl_conv *made, const dnnl_dim_t *stride,
                                const dnnl_dim_t *dilation, const dnnl_dim_t *before,
                                const dnnl_dim_t *after, dnnl_primitive_attr_t attributes)
{
    const struct ull__cpu_library *l = made->library;
    dnnl_convolution_desc_t forward, backward;
    described_by bias = made->has_bias ? BY(made->bias) : NULL;
    if (l->dilated_convolution_forward_desc_init(
            &forward, dnnl_forward_training, dnnl_convolution_direct, &made->big, &made->any_weights,
            bias, &made->small, stride, dilation, before, after) != dnnl_success ||
        l->primitive_desc_create(&made->forward, &forward, attributes, l->engine, NULL) !=
            dnnl_success) {
        return false;
    }
    dnnl_status_t status = dnnl_success;
    if (made->direction == ULL_CONV_BIG) {
        status = l->dilated_convolution_backward_data_desc_init(
            &backward, dnnl_convolution_direct, &made->big, &made->any_weights, &made->small,
            stride, dilation, before, after);
    } else if (made->direction == ULL_CONV_WEIGHTS) {
        status = l->dilated_convolution_backward_weights_desc_init(
            &backward, dnnl_convolution_direct, &made->big, &made->any_weights, NULL, &made->small,
            stride, dilation, before, after);
    } else {
        return true;
    }
    return status == dnnl_success &&
           l->primitive_desc_create(&made->description, &backward, attributes, l->engine,
                                    made->forward) == dnnl_success;
}
#endif

static size_t size_of(const struct ull__cpu_library *library, described_by description)
{
    return description != NULL ? library->memory_desc_get_size(description) : 0;
}

static bool make_reorder(struct ull__dnnl_conv *made, described_by from, described_by to,
                         dnnl_primitive_t *primitive)
{
    const struct ull__cpu_library *l = made->library;
    dnnl_primitive_desc_t description = NULL;
    bool fine = l->reorder_primitive_desc_create(&description, from, l->engine, to, l->engine,
                                                 NULL) == dnnl_success &&
                l->primitive_create(primitive, description) == dnnl_success;
    l->primitive_desc_destroy(description);
    return fine;
}

static bool make_memories(struct ull__dnnl_conv *made, described_by weights, described_by scratch)
{
    const struct ull__cpu_library *l = made->library;
    bool fine = true;
    for (int i = 0; i < l->threads && fine; ++i) {
        struct operands *o = &made->operands[i];
        fine = l->memory_create(&o->big, BY(made->big), l->engine, NULL) == dnnl_success &&
               l->memory_create(&o->small, BY(made->small), l->engine, NULL) == dnnl_success &&
               l->memory_create(&o->weights, weights, l->engine, NULL) == dnnl_success &&
               l->memory_create(&o->rows, BY(made->rows), l->engine, NULL) == dnnl_success &&
               l->memory_create(&o->bias, BY(made->bias), l->engine, NULL) == dnnl_success &&
               (made->scratch_bytes == 0 ||
                l->memory_create(&o->scratch, scratch, l->engine, NULL) == dnnl_success);
    }
    return fine;
}

static bool is_fast(const char *name)
{
    return name != NULL && strstr(name, "gemm") == NULL && strstr(name, "ref") == NULL;
}

static bool make(struct ull__dnnl_conv *made, const struct ull__conv *conv)
{
    const struct ull__cpu_library *l = made->library;
    dnnl_dim_t dilation[] = {conv->dilation[0] - 1, conv->dilation[1] - 1};
    dnnl_primitive_attr_t attributes = NULL;
    bool fine =
        l->primitive_attr_create(&attributes) == dnnl_success &&
        l->primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) == dnnl_success &&
        describe_primitives(made, conv->stride, dilation, conv->before, conv->after, attributes);
    l->primitive_attr_destroy(attributes);
    if (!fine) {
        return false;
    }
    dnnl_primitive_desc_t description =
        made->direction == ULL_CONV_SMALL ? made->forward : made->description;
    bool weights = made->direction == ULL_CONV_WEIGHTS;
    if (l->primitive_desc_query(description, dnnl_query_impl_info_str, 0, &made->name) !=
            dnnl_success ||
        !is_fast(made->name)) {
        return false;
    }
    described_by packed = l->primitive_desc_query_md(
        description, weights ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    described_by scratch = l->primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    made->weights_bytes = size_of(l, packed);
    made->scratch_bytes = size_of(l, scratch);
    return l->primitive_create(&made->primitive, description) == dnnl_success &&
           make_reorder(made, BY(made->rows), packed, &made->pack) &&
           make_reorder(made, packed, BY(made->rows), &made->unpack) &&
           make_memories(made, packed, scratch);
}

struct ull__dnnl_conv *ull__dnnl_conv_create(const struct ull__cpu_library *library,
                                             const struct ull__conv *conv, int64_t samples, bool bias)
{
    if (library == NULL || library->dnnl == NULL || samples < 1) {
        return NULL;
    }
    struct ull__dnnl_conv *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return NULL;
    }
    made->library = library;
    made->direction = conv->direction;
    made->has_bias = bias;
    if (!describe_all(made, conv, samples) || !make(made, conv)) {
        ull__dnnl_conv_destroy(made);
        return NULL;
    }
    return made;
}

void ull__dnnl_conv_destroy(struct ull__dnnl_conv *conv)
{
    if (conv == NULL) {
        return;
    }
    const struct ull__cpu_library *l = conv->library;
    for (int i = 0; i < l->threads; ++i) {
        struct operands *o = &conv->operands[i];
        dnnl_memory_t all[] = {o->big, o->small, o->weights, o->bias, o->scratch, o->rows};
        for (size_t j = 0; j < sizeof(all) / sizeof(all[0]); ++j) {
            l->memory_destroy(all[j]);
        }
    }
    l->primitive_destroy(conv->primitive);
    l->primitive_destroy(conv->pack);
    l->primitive_destroy(conv->unpack);
    l->primitive_desc_destroy(conv->description);
    l->primitive_desc_destroy(conv->forward);
#if DNNL_VERSION_MAJOR >= 3
    described all[] = {conv->big, conv->small, conv->any_weights, conv->rows, conv->bias};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) {
        l->memory_desc_destroy(all[i]);
    }
#endif
    free(conv);
}

const char *ull__dnnl_conv_name(const struct ull__dnnl_conv *conv)
{
    return conv->name;
}

size_t ull__dnnl_conv_weights_bytes(const struct ull__dnnl_conv *conv)
{
    return conv->weights_bytes;
}

size_t ull__dnnl_conv_scratch_bytes(const struct ull__dnnl_conv *conv)
{
    return conv->scratch_bytes;
}

static void reorder(struct ull__dnnl_conv *conv, int thread, dnnl_primitive_t primitive,
                    dnnl_memory_t from, const float *source, dnnl_memory_t to, float *target)
{
    const struct ull__cpu_library *l = conv->library;
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    l->memory_set_data_handle(from, (void *)(uintptr_t)source);
    l->memory_set_data_handle(to, target);
    l->primitive_execute(primitive, l->streams[thread], 2, arguments);
}

void ull__dnnl_conv_pack(struct ull__dnnl_conv *conv, int thread, const float *rows, float *packed)
{
    reorder(conv, thread, conv->pack, conv->operands[thread].rows, rows,
            conv->operands[thread].weights, packed);
}

void ull__dnnl_conv_unpack(struct ull__dnnl_conv *conv, int thread, const float *packed, float *rows)
{
    reorder(conv, thread, conv->unpack, conv->operands[thread].weights, packed,
            conv->operands[thread].rows, rows);
}

void ull__dnnl_conv_run(struct ull__dnnl_conv *conv, int thread, const float *big,
                        const float *packed, const float *bias, const float *small, void *scratch)
{
    static const int names[][3] = {
        [ULL_CONV_SMALL] = {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS},
        [ULL_CONV_BIG] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS},
        [ULL_CONV_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS},
    };
    const struct ull__cpu_library *l = conv->library;
    struct operands *o = &conv->operands[thread];
    dnnl_exec_arg_t arguments[5] = {{names[conv->direction][0], o->big},
                                    {names[conv->direction][1], o->small},
                                    {names[conv->direction][2], o->weights}};
    int count = 3;
    l->memory_set_data_handle(o->big, (void *)(uintptr_t)big);
    l->memory_set_data_handle(o->small, (void *)(uintptr_t)small);
    l->memory_set_data_handle(o->weights, (void *)(uintptr_t)packed);
    if (conv->has_bias) {
        l->memory_set_data_handle(o->bias, (void *)(uintptr_t)bias);
        arguments[count++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, o->bias};
    }
    if (conv->scratch_bytes > 0) {
        l->memory_set_data_handle(o->scratch, scratch);
        arguments[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, o->scratch};
    }
    l->primitive_execute(conv->primitive, l->streams[thread], count, arguments);
}
