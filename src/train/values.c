/* values.c: what a training begins with, and the list of what it keeps. See session.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "half.h"
#include "random.h"
#include "session_private.h"

int ull__graph_find(const struct ull__graph *graph, enum ull__role role, const char *name)
{
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->node == ULL_NONE && tensor->role == role && strcmp(tensor->name, name) == 0) {
            return i;
        }
    }
    return ULL_NONE;
}

/* A tensor's own draws: from the seed and its name, so that they do not depend on what else there is. */
static uint32_t name_key(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name != '\0'; ++name) {
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    }
    return hash;
}

/* Element i: four elements share a block of draws, two by two for normal ones. */
static double uniform(uint64_t seed, uint32_t key, int64_t i)
{
    uint32_t draws[4], counter[4] = {(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), 1, 0};
    ull__philox(counter, (uint32_t[]){(uint32_t)seed ^ (uint32_t)(seed >> 32), key}, draws);
    return ((double)draws[i % 4] + 0.5) / 4294967296.0;
}

static double normal(uint64_t seed, uint32_t key, int64_t i)
{
    double radius = sqrt(-2 * log(uniform(seed, key, i / 2 * 2)));
    double angle = 2 * M_PI * uniform(seed, key, i / 2 * 2 + 1);
    return radius * (i % 2 == 0 ? cos(angle) : sin(angle));
}

/* Elements that feed one of the next layer, and that one feeds. Source: graph.h, enum ull__init. */
static double fan(const struct ull__graph *graph, int tensor, bool out)
{
    const struct ull__tensor *of = &graph->tensors[tensor];
    double field = 1;
    for (int i = 2; i < of->rank; ++i) {
        field *= (double)ull__dim_value(graph->symbols, of->dims[i], NULL);
    }
    if (of->rank < 2) {
        return of->rank == 1 ? (double)ull__dim_value(graph->symbols, of->dims[0], NULL) : 1;
    }
    return field * (double)ull__dim_value(graph->symbols, of->dims[out ? 0 : 1], NULL);
}

/* A bias goes by the fan of its weights. */
static double uniform_bound(const struct ull__graph *graph, int tensor)
{
    const struct ull__tensor *of = &graph->tensors[tensor];
    int by = tensor;
    size_t length = strlen(of->name);
    if (of->rank == 1 && length > 5 && strcmp(of->name + length - 5, ".bias") == 0) {
        for (int i = 0; i < graph->tensor_count; ++i) {
            const char *name = graph->tensors[i].name;
            if (graph->tensors[i].role == ULL_ROLE_PARAMETER && strlen(name) == length + 2 &&
                strncmp(name, of->name, length - 4) == 0 && strcmp(name + length - 4, "weight") == 0) {
                by = i;
            }
        }
    }
    double in = fan(graph, by, false);
    return in > 0 ? 1 / sqrt(in) : 1;
}

static double initial(const struct ull__graph *graph, int tensor, uint64_t seed, uint32_t key,
                      double scale, int64_t i)
{
    const struct ull__tensor *of = &graph->tensors[tensor];
    switch (of->init) {
    case ULL_INIT_ONE:
        return 1;
    case ULL_INIT_NORMAL:
    case ULL_INIT_KAIMING:
        return scale * normal(seed, key, i);
    case ULL_INIT_UNIFORM:
        return scale * (2 * uniform(seed, key, i) - 1);
    default:
        return 0;
    }
}

static void fill_floats(const struct ull__session *session, int tensor, void *to, int64_t elements)
{
    const struct ull__graph *graph = ull__session_graph(session);
    const struct ull__tensor *of = &graph->tensors[tensor];
    uint32_t key = name_key(of->name);
    double scale = of->init == ULL_INIT_NORMAL    ? of->init_scale
                   : of->init == ULL_INIT_KAIMING ? sqrt(2 / fan(graph, tensor, true))
                   : of->init == ULL_INIT_UNIFORM ? uniform_bound(graph, tensor)
                                                  : 0;
    for (int64_t i = 0; i < elements; ++i) {
        float value = (float)initial(graph, tensor, session->options.seed, key, scale, i);
        if (of->init == ULL_INIT_DATA && of->data != NULL) {
            memcpy(&value, (const char *)of->data + 4 * i, sizeof(value));
        }
        ull__put_float(of->type, to, i, value);
    }
}

static void fill_buffer(struct ull__session *session, const struct ull__program_buffer *buffer)
{
    const struct ull__graph *graph = ull__session_graph(session);
    const struct ull__tensor *of = &graph->tensors[buffer->tensor];
    int64_t values[ULL_SYMBOLS];
    void *to = buffer->life != ULL_LIFE_PASSING
                   ? ull__executable_address(session->at->full, buffer->tensor)
                   : NULL;
    if (to == NULL || buffer->role == ULL_ROLE_CONTROL) {
        return;
    }
    ull__graph_values(graph, 1, values);
    int64_t bytes = ull__tensor_bytes(graph, buffer->tensor, values);
    if (ull__type_is_float(of->type) && of->role != ULL_ROLE_CONSTANT) {
        fill_floats(session, buffer->tensor, to, ull__tensor_elements(graph, buffer->tensor, values));
    } else if (of->data != NULL && of->data_bytes >= (size_t)bytes) {
        memcpy(to, of->data, (size_t)bytes);
    } else {
        memset(to, 0, (size_t)bytes);
    }
}

void ull__session_fill(struct ull__session *session)
{
    for (int i = 0; i < session->at->program->buffer_count; ++i) {
        fill_buffer(session, &session->at->program->buffers[i]);
    }
}

void ull__session_fill_constants(struct ull__session *session)
{
    for (int i = 0; i < session->at->program->buffer_count; ++i) {
        if (session->at->program->buffers[i].role == ULL_ROLE_CONSTANT) {
            fill_buffer(session, &session->at->program->buffers[i]);
        }
    }
}

static bool is_kept(const struct ull__program_buffer *buffer, const struct ull__graph *graph)
{
    const struct ull__tensor *of = &graph->tensors[buffer->tensor];
    if (buffer->life != ULL_LIFE_PERSISTENT || of->node != ULL_NONE) {
        return false;
    }
    /* 16-bit weights follow from their masters. */
    bool has_master = of->role == ULL_ROLE_PARAMETER && ull__type_is_half(of->type) &&
                      ull__graph_find(graph, ULL_ROLE_MASTER, of->name) != ULL_NONE;
    return !has_master && (of->role == ULL_ROLE_PARAMETER || of->role == ULL_ROLE_MASTER ||
                           of->role == ULL_ROLE_STATE || of->role == ULL_ROLE_OPTIMIZER);
}

static int by_name(const void *left, const void *right)
{
    const struct ull__session_tensor *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order != 0 ? order : (int)a->role - (int)b->role;
}

ull_status ull__session_list(struct ull__session *session, struct ull_error *err)
{
    const struct ull__graph *graph = ull__session_graph(session);
    struct ull__session_tensor *tensors =
        calloc((size_t)session->at->program->buffer_count + 1, sizeof(*tensors));
    if (tensors == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for the list of weights");
    }
    free(session->tensors);
    session->tensors = tensors;
    session->tensor_count = 0;
    for (int i = 0; i < session->at->program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &session->at->program->buffers[i];
        if (!is_kept(buffer, graph)) {
            continue;
        }
        const struct ull__tensor *of = &graph->tensors[buffer->tensor];
        struct ull__session_tensor *made = &tensors[session->tensor_count++];
        *made = (struct ull__session_tensor){
            .name = of->name,
            .role = of->role == ULL_ROLE_MASTER ? ULL_ROLE_PARAMETER : of->role,
            .type = of->type,
            .rank = of->rank,
            .data = ull__executable_address(session->at->full, buffer->tensor)};
        size_t elements = 1;
        for (int j = 0; j < of->rank; ++j) {
            made->dims[j] = ull__dim_value(graph->symbols, of->dims[j], NULL);
            elements *= (size_t)made->dims[j];
        }
        made->bytes = elements * (size_t)ull__type_bits(of->type) / 8;
    }
    qsort(tensors, (size_t)session->tensor_count, sizeof(*tensors), by_name);
    return ULL_OK;
}

const struct ull__session_tensor *ull__session_tensors(struct ull__session *session, int *count)
{
    *count = session->tensor_count;
    return session->tensors;
}

void ull__session_restore(struct ull__session *session, uint64_t steps, double loss_scale,
                          int64_t good_steps, int64_t hysteresis_left)
{
    const struct ull__graph *graph = ull__session_graph(session);
    session->steps = steps;
    session->loss_scale = loss_scale;
    session->good_steps = good_steps;
    session->hysteresis_left = hysteresis_left;
    ull__session_write_counters(session);
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *half = &graph->tensors[i];
        if (half->node != ULL_NONE || half->role != ULL_ROLE_PARAMETER ||
            !ull__type_is_half(half->type)) {
            continue;
        }
        int master = ull__graph_find(graph, ULL_ROLE_MASTER, half->name);
        const float *from =
            master != ULL_NONE ? ull__executable_address(session->at->full, master) : NULL;
        void *to = ull__executable_address(session->at->full, i);
        for (int64_t j = 0; from != NULL && to != NULL && j < ull__tensor_elements(graph, i, NULL);
             ++j) {
            ull__put_float(half->type, to, j, from[j]);
        }
    }
}
