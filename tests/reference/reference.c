/* reference.c: arrays, types and the order of nodes. See reference.h. */
#include "reference.h"

#include <stdarg.h>
#include <stdio.h>

#include "call.h"
#include "random.h"

struct ref {
    const struct ull__graph *graph;
    int64_t values[ULL_SYMBOLS];
    struct array *arrays;
    bool rounds;
};

_Noreturn void ref__die(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("reference: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    abort();
}

void *ref__alloc(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        ref__die("no memory for %zu elements", count);
    }
    return memory;
}

/* --- Arrays --- */

static void create_array(struct ref *ref, int at)
{
    const struct ull__graph *graph = ref->graph;
    const struct ull__tensor *tensor = &graph->tensors[at];
    struct array *array = &ref->arrays[at];
    array->type = tensor->type;
    array->rank = tensor->rank;
    array->count = 1;
    for (int i = 0; i < tensor->rank; ++i) {
        array->dims[i] = ull__dim_value(graph->symbols, tensor->dims[i], ref->values);
        if (array->dims[i] < 0) {
            ref__die("dimension %d of tensor %d '%s' is negative", i, at, tensor->name);
        }
        array->count *= array->dims[i];
    }
    if (tensor->alias != ULL_NONE) {
        const struct array *of = &ref->arrays[tensor->alias];
        int64_t offset = ull__dim_value(graph->symbols, tensor->alias_offset, ref->values);
        int64_t first = offset * 8 / ull__type_bits(of->type);
        if (offset < 0 || of->type != array->type || first + array->count > of->count) {
            ref__die("tensor %d is no part of tensor %d", at, tensor->alias);
        }
        array->data = of->data + first;
        return;
    }
    array->data = ref__alloc((size_t)array->count, sizeof(double));
    if (tensor->data != NULL) {
        ref_decode(tensor->type, tensor->data, array->data, array->count);
    }
}

struct ref *ref_create(const struct ull__graph *graph, const int64_t *values)
{
    struct ref *ref = ref__alloc(1, sizeof(*ref));
    if (!ull__graph_ok(graph)) {
        ref__die("%s", graph->error.message);
    }
    ref->graph = graph;
    memcpy(ref->values, values, sizeof(*values) * (size_t)ull__dim_symbols(graph->symbols));
    ref->arrays = ref__alloc((size_t)graph->tensor_count, sizeof(*ref->arrays));
    for (int i = 0; i < graph->tensor_count; ++i) {
        create_array(ref, i);
    }
    return ref;
}

void ref_destroy(struct ref *ref)
{
    if (ref == NULL) {
        return;
    }
    for (int i = 0; i < ref->graph->tensor_count; ++i) {
        if (ref->graph->tensors[i].alias == ULL_NONE) {
            free(ref->arrays[i].data);
        }
    }
    free(ref->arrays);
    free(ref);
}

static double uniform(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*seed >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *seed)
{
    double radius = sqrt(-2 * log(uniform(seed)));
    return radius * cos(2 * M_PI * uniform(seed));
}

static void fill(struct ref *ref, int at, uint64_t *seed)
{
    const struct ull__tensor *tensor = &ref->graph->tensors[at];
    const struct array *array = &ref->arrays[at];
    int64_t field = array->rank > 2 ? ref__span(array, 2, array->rank) : 1;
    double fan_in = array->rank > 1 ? (double)(array->dims[1] * field) : 1;
    double fan_out = array->rank > 0 ? (double)(array->dims[0] * field) : 1;
    for (int64_t i = 0; i < array->count; ++i) {
        double *to = &array->data[i];
        switch (tensor->init) {
        case ULL_INIT_ZERO:
        case ULL_INIT_ONE:
            *to = tensor->init == ULL_INIT_ONE;
            break;
        case ULL_INIT_NORMAL:
            *to = tensor->init_scale * normal(seed);
            break;
        case ULL_INIT_KAIMING:
            *to = sqrt(2 / fan_out) * normal(seed);
            break;
        case ULL_INIT_UNIFORM:
            *to = (2 * uniform(seed) - 1) / sqrt(fan_in);
            break;
        case ULL_INIT_DATA:
            break;
        }
    }
}

void ref_fill(struct ref *ref, uint64_t seed)
{
    const struct ull__graph *graph = ref->graph;
    seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        bool is_filled = tensor->role == ULL_ROLE_PARAMETER || tensor->role == ULL_ROLE_STATE ||
                         tensor->role == ULL_ROLE_OPTIMIZER;
        if (tensor->node == ULL_NONE && tensor->alias == ULL_NONE && is_filled) {
            fill(ref, i, &seed);
        }
    }
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->role == ULL_ROLE_MASTER && tensor->node == ULL_NONE) {
            memcpy(ref->arrays[i].data, ref->arrays[tensor->of].data,
                   sizeof(double) * (size_t)ref->arrays[i].count);
        }
    }
}

void ref_round(struct ref *ref, bool rounds)
{
    ref->rounds = rounds;
}

double *ref_data(struct ref *ref, int tensor)
{
    return ref->arrays[tensor].data;
}

int64_t ref_count(const struct ref *ref, int tensor)
{
    return ref->arrays[tensor].count;
}

int64_t ref_size(const struct ref *ref, int tensor, int i)
{
    return ref->arrays[tensor].dims[i];
}

static const struct array *control(struct ref *ref, const char *name)
{
    for (int i = 0; i < ref->graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &ref->graph->tensors[i];
        if (tensor->role == ULL_ROLE_CONTROL && tensor->node == ULL_NONE &&
            strcmp(tensor->name, name) == 0) {
            return &ref->arrays[i];
        }
    }
    return NULL;
}

void ref_control(struct ref *ref, const char *name, double value)
{
    const struct array *of = control(ref, name);
    if (of != NULL) {
        of->data[0] = value;
    }
}

void ref_generator(struct ref *ref, int64_t seed, int64_t step, int64_t sample)
{
    const struct array *of = control(ref, "generator");
    if (of != NULL) {
        of->data[ULL_GENERATOR_SEED] = (double)seed;
        of->data[ULL_GENERATOR_STEP] = (double)step;
        of->data[ULL_GENERATOR_SAMPLE] = (double)sample;
    }
}

bool ref__keeps(const struct array *generator, uint32_t key, double rate, int64_t sample, int64_t i)
{
    uint64_t seed = (uint64_t)(int64_t)generator->data[ULL_GENERATOR_SEED];
    uint64_t step = (uint64_t)(int64_t)generator->data[ULL_GENERATOR_STEP];
    uint64_t n = (uint64_t)((int64_t)generator->data[ULL_GENERATOR_SAMPLE] + sample);
    uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)n, (uint32_t)step,
                           (uint32_t)(n >> 32 & 0xffff) | (uint32_t)(step >> 32 & 0xffff) << 16};
    uint32_t draws[4];
    ull__philox(counter, (uint32_t[]){(uint32_t)seed, key}, draws);
    return draws[i % 4] >= (uint32_t)floor(rate * 0x1p32);
}

/* --- Nodes --- */

static void (*loops_of(const struct ull__op *op))(struct call *)
{
#define X(name)                                                                                    \
    if (op == &ull__op_##name) {                                                                   \
        return ref__##name;                                                                        \
    }
#include "ops.def"
#undef X
    ref__die("no operator '%s'", op->name);
}

static struct array *list_of(const struct ref *ref, const int *tensors, int count)
{
    struct array *list = ref__alloc((size_t)count, sizeof(*list));
    for (int i = 0; i < count; ++i) {
        if (tensors[i] != ULL_NONE) {
            list[i] = ref->arrays[tensors[i]];
        }
    }
    return list;
}

static void round_outputs(struct call *call)
{
    for (int i = 0; i < call->outs; ++i) {
        const struct array *out = &call->out[i];
        for (int64_t j = 0; j < out->count; ++j) {
            out->data[j] = ref_rounded(out->data[j], out->type);
        }
    }
}

struct call ref__call(const struct ref *ref, int at)
{
    const struct ull__node *node = &ref->graph->nodes[at];
    return (struct call){.node = node,
                         .attrs = &node->attrs,
                         .in = list_of(ref, node->inputs, node->input_count),
                         .out = list_of(ref, node->outputs, node->output_count),
                         .ins = node->input_count,
                         .outs = node->output_count,
                         .symbols = ref->graph->symbols,
                         .values = ref->values};
}

void ref__call_finish(const struct ref *ref, struct call *call)
{
    if (ref->rounds) {
        round_outputs(call);
    }
    free(call->in);
    free(call->out);
}

void ref_node(struct ref *ref, int at)
{
    const struct ull__node *node = &ref->graph->nodes[at];
    if (node->predicate != ULL_NONE && ref->arrays[node->predicate].data[0] != 0) {
        return;
    }
    struct call call = ref__call(ref, at);
    loops_of(node->op)(&call);
    ref__call_finish(ref, &call);
}

const struct ull__graph *ref__graph(const struct ref *ref)
{
    return ref->graph;
}

void ref_run(struct ref *ref, enum ull__phase phase)
{
    for (int i = 0; i < ref->graph->node_count; ++i) {
        if (ref->graph->nodes[i].phase == phase) {
            ref_node(ref, i);
        }
    }
}
