/* world.c: collectives, of devices that are in one process. See reference.h. */
#include "call.h"

/* Which part of the axis, and which place of it, index `at` along the axis is. */
static int64_t part_length(int64_t whole, int devices)
{
    return (whole + devices - 1) / devices;
}

static double reduced(const struct call *calls, int devices, int64_t at)
{
    int kind = calls->attrs->collective.reduce;
    double result = calls[0].in->data[at];
    for (int i = 1; i < devices; ++i) {
        double other = calls[i].in->data[at];
        if (kind == ULL_REDUCTION_MAX) {
            result = other > result || other != other ? other : result;
        } else {
            result += other;
        }
    }
    return kind == ULL_REDUCTION_MEAN ? result / devices : result;
}

/* Element `at` of the result of one device. */
static double element(const struct call *calls, int devices, int device, int64_t at)
{
    const struct ull__collective_attrs *attrs = &calls->attrs->collective;
    const struct array *in = calls[device].in, *out = calls[device].out;
    int64_t index[ULL_RANK];
    switch (attrs->kind) {
    case ULL_ALL_REDUCE:
        return reduced(calls, devices, at);
    case ULL_BROADCAST:
        return calls[0].in->data[at];
    default:
        break;
    }
    ref__unravel(out, at, index);
    if (attrs->kind == ULL_ALL_GATHER) {
        int64_t length = in->dims[attrs->axis], owner = index[attrs->axis] / length;
        index[attrs->axis] %= length;
        return calls[owner].in->data[ref__ravel(in, index)];
    }
    index[attrs->axis] += device * part_length(in->dims[attrs->axis], devices);
    if (index[attrs->axis] >= in->dims[attrs->axis]) {
        return 0;
    }
    int64_t from = ref__ravel(in, index);
    return attrs->kind == ULL_REDUCE_SCATTER ? reduced(calls, devices, from) : in->data[from];
}

/* One collective: results are made before any is written, since they may lie where operands do. */
static void among(struct call *calls, int devices)
{
    int64_t count = calls->out->count;
    double *results = ref__alloc((size_t)(count * devices), sizeof(*results));
    if (calls->attrs->collective.size != devices) {
        ref__die("a collective of %d devices in a world of %d", calls->attrs->collective.size,
                 devices);
    }
    for (int i = 0; i < devices; ++i) {
        for (int64_t j = 0; j < count; ++j) {
            results[i * count + j] = element(calls, devices, i, j);
        }
    }
    for (int i = 0; i < devices; ++i) {
        memcpy(calls[i].out->data, results + i * count, sizeof(double) * (size_t)count);
    }
    free(results);
}

void ref__collective(struct call *call)
{
    among(call, 1);
}

void ref_run_world(struct ref *const *refs, int devices, enum ull__phase phase)
{
    const struct ull__graph *graph = ref__graph(refs[0]);
    struct call *calls = ref__alloc((size_t)devices, sizeof(*calls));
    for (int i = 0; i < graph->node_count; ++i) {
        if (graph->nodes[i].phase != phase) {
            continue;
        }
        bool alone = graph->nodes[i].op != &ull__op_collective;
        for (int j = 0; j < devices; ++j) {
            if (alone) {
                ref_node(refs[j], i);
            } else {
                calls[j] = ref__call(refs[j], i);
            }
        }
        if (!alone) {
            among(calls, devices);
        }
        for (int j = 0; j < devices && !alone; ++j) {
            ref__call_finish(refs[j], &calls[j]);
        }
    }
    free(calls);
}

static int source_named(const struct ull__graph *graph, enum ull__role role, const char *name)
{
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->node == ULL_NONE && tensor->role == role && strcmp(tensor->name, name) == 0) {
            return i;
        }
    }
    return ULL_NONE;
}

void ref_cut(struct ref *to, int device, int devices, struct ref *whole)
{
    const struct ull__graph *graph = ref__graph(to);
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        bool wanted = tensor->role == ULL_ROLE_PARAMETER || tensor->role == ULL_ROLE_STATE ||
                      tensor->role == ULL_ROLE_MASTER;
        if (tensor->node != ULL_NONE || !wanted) {
            continue;
        }
        enum ull__role role = tensor->role == ULL_ROLE_MASTER ? ULL_ROLE_PARAMETER : tensor->role;
        int from = source_named(ref__graph(whole), role, tensor->name);
        if (from == ULL_NONE) {
            ref__die("the whole model has no '%s'", tensor->name);
        }
        int64_t count = ref_count(to, i), all = ref_count(whole, from);
        int64_t begin = tensor->shard_axis != ULL_NONE ? device * part_length(all, devices) : 0;
        for (int64_t j = 0; j < count; ++j) {
            ref_data(to, i)[j] = begin + j < all ? ref_data(whole, from)[begin + j] : 0;
        }
    }
}
