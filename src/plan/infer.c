/* infer.c: inference: memory and time. See infer.h. */
#include "infer.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "ops.h"
#include "plan_private.h"

enum { PLANS_MOST = 128 };

/* A causal attention: what a token of it leaves in the cache. */
struct attention {
    int64_t token_bytes; /* of keys; values as many */
    int64_t window;      /* 0: all of the context */
    double token_flops;  /* of a token, for each that it sees */
};

struct ull__inference {
    struct ull__infer_request request;
    struct ull__profile profile;
    struct ull__graph *graph;
    struct attention *attentions;
    int attention_count;
    int64_t sequence; /* tokens of a sample */
    struct ull__infer_plan plans[PLANS_MOST];
    int plan_count;
};

static const struct {
    const char *text;
    enum ull__type type;
} weights_of[] = {
#define X(name, text, type) {text, type},
    ULL_WEIGHTS_MAP(X)
#undef X
};

const char *ull__weights_text(enum ull__weights weights)
{
    return weights_of[weights].text;
}

bool ull__weights_parse(const char *text, enum ull__weights *weights)
{
    for (int i = 0; i < ULL_WEIGHTS; ++i) {
        if (strcmp(weights_of[i].text, text) == 0) {
            *weights = (enum ull__weights)i;
            return true;
        }
    }
    return false;
}

static int64_t rounded(int64_t bytes, const struct ull__profile *profile)
{
    int64_t unit = profile->alignment > 0 ? (int64_t)profile->alignment : 1;
    return (bytes + unit - 1) / unit * unit;
}

/* --- The cache --- */

static ull_status find_attentions(struct ull__inference *made, struct ull_error *err)
{
    const struct ull__graph *graph = made->graph;
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(graph, 1, values);
    made->attentions = calloc((size_t)graph->node_count + 1, sizeof(*made->attentions));
    if (made->attentions == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to plan '%s'", graph->name);
    }
    for (int i = 0; i < graph->node_count; ++i) {
        const struct ull__node *node = &graph->nodes[i];
        if (node->op != &ull__op_attention || !node->attrs.attention.causal) {
            continue;
        }
        /* The first output is as the queries; a head is as wide in keys. */
        const struct ull__attention_attrs *attrs = &node->attrs.attention;
        const struct ull__tensor *out = &graph->tensors[node->outputs[0]];
        int64_t last = ull__dim_value(graph->symbols, out->dims[out->rank - 1], values);
        int64_t head = out->rank == 4 ? last : last / attrs->heads;
        made->sequence = ull__dim_value(graph->symbols, out->dims[out->rank == 4 ? 2 : 1], values);
        made->attentions[made->attention_count++] =
            (struct attention){.token_bytes = head * attrs->kv_heads * ull__type_bits(out->type) / 8,
                               .window = attrs->window,
                               .token_flops = 4.0 * (double)head * attrs->heads};
    }
    return ULL_OK;
}

static int64_t seen_tokens(const struct ull__inference *made, int i)
{
    int64_t window = made->attentions[i].window, context = made->request.context;
    return window > 0 && window < context ? window : context;
}

/* -1: more than there can be. */
static int64_t cache_bytes(const struct ull__inference *made, int64_t requests)
{
    int64_t all = 0;
    for (int i = 0; i < made->attention_count; ++i) {
        int64_t bytes;
        if (__builtin_mul_overflow(made->attentions[i].token_bytes, seen_tokens(made, i), &bytes) ||
            __builtin_mul_overflow(bytes, requests, &bytes) || bytes > INT64_MAX / 4 ||
            __builtin_add_overflow(all, 2 * rounded(bytes, &made->profile), &all)) {
            return -1;
        }
    }
    return all > INT64_MAX / 4 ? -1 : all;
}

/* --- One plan --- */

/* Results stay to the end, so nothing takes their memory. */
static void hold_results(const struct ull__graph *graph, const struct ull__program *program,
                         struct ull__stay *stays, int stay_count, int last)
{
    for (int i = 0; i < graph->output_count; ++i) {
        int buffer = program->buffer_of[graph->outputs[i]];
        for (int j = 0; j < stay_count; ++j) {
            if (stays[j].buffer == buffer) {
                stays[j].end = last;
            } else if (stays[j].joins != ULL_NONE && stays[stays[j].joins].buffer == buffer) {
                stays[j].joins = ULL_NONE;
            }
        }
    }
}

/* Bytes by role of what passes, at the place where they are most. */
static void at_peak(const struct ull__program *program, int count, const struct ull__stay *stays,
                    int stay_count, int64_t bytes[ULL_ROLES])
{
    int64_t most = -1, sum[ULL_ROLES];
    for (int place = 0; place < count; ++place) {
        int64_t all = 0;
        memset(sum, 0, sizeof(sum));
        for (int i = 0; i < stay_count; ++i) {
            int begin = stays[i].joins != ULL_NONE ? stays[i].begin + 1 : stays[i].begin;
            if (begin <= place && place <= stays[i].end) {
                int role = stays[i].buffer == ULL_NONE ? ULL_ROLE_WORKSPACE
                                                       : (int)program->buffers[stays[i].buffer].role;
                sum[role] += stays[i].bytes;
                all += stays[i].bytes;
            }
        }
        if (all > most) {
            most = all;
            memcpy(bytes, sum, sizeof(sum));
        }
    }
}

/* Weights that products read, as bytes that every pass brings in; rows of tables do not count. */
static double weights_read(const struct ull__program *program)
{
    const struct ull__graph *graph = program->graph;
    double all = 0;
    for (int i = 0; i < program->buffer_count; ++i) {
        bool read = false;
        if (program->buffers[i].role != ULL_ROLE_PARAMETER) {
            continue;
        }
        for (int j = 0; j < program->item_count && !read; ++j) {
            const struct ull__program_item *item = &program->items[j];
            const struct ull__op *op = graph->nodes[item->node].op;
            for (int k = 0; k < item->input_count && op != &ull__op_embedding; ++k) {
                read |= program->refs[item->inputs + k] == i;
            }
        }
        all += read ? (double)program->buffers[i].bytes : 0;
    }
    return all;
}

/* A token of each request: weights are read once a pass, the cache once. */
static double token_seconds(const struct ull__inference *made, const struct ull__program *program,
                            const int64_t *values, int64_t micro_batch)
{
    const struct ull__profile *profile = &made->profile;
    const struct ull__graph *graph = made->graph;
    double tokens = (double)micro_batch * (double)made->sequence, flops = 0, seen = 0;
    double requests = (double)made->request.requests;
    bool half = made->request.weights != ULL_WEIGHTS_FP32;
    if (made->attention_count == 0) {
        return 0;
    }
    for (int i = 0; i < program->item_count; ++i) {
        int node = program->items[i].node;
        struct ull__cost cost;
        ull__op_cost(graph, node, values, &cost);
        flops += graph->nodes[node].op != &ull__op_attention ? cost.matrix_flops / tokens : 0;
    }
    for (int i = 0; i < made->attention_count; ++i) {
        seen += made->attentions[i].token_flops * (double)seen_tokens(made, i);
    }
    double passes = requests / tokens;
    passes = passes > (double)(int64_t)passes ? (double)(int64_t)passes + 1 : passes;
    double arithmetic = requests * (flops + seen) /
                        (half ? profile->matrix_half_per_second : profile->matrix_per_second);
    double traffic =
        (passes * weights_read(program) + (double)cache_bytes(made, made->request.requests)) /
        profile->bytes_per_second;
    return (arithmetic > traffic ? arithmetic : traffic) +
           passes * program->item_count * profile->launch_seconds;
}

/* An f32 scale for each row of weights in 8 bits. */
static int64_t scale_bytes(const struct ull__inference *made, const int64_t *values)
{
    int64_t all = 0;
    for (int i = 0; i < made->graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &made->graph->tensors[i];
        if (tensor->role == ULL_ROLE_PARAMETER && tensor->node == ULL_NONE &&
            ull__type_bits(tensor->type) == 8) {
            all += rounded(4 * ull__dim_value(made->graph->symbols, tensor->dims[0], values),
                           &made->profile);
        }
    }
    return all;
}

/* Places what passes and fills in the plan. */
static ull_status place(const struct ull__inference *made, const struct ull__program *program,
                        const int64_t *values, struct ull__scheduler *scheduler,
                        struct ull__infer_plan *plan, struct ull_error *err)
{
    int count, stay_count;
    const struct ull__stay *found = ull__schedule_stays(scheduler, &stay_count);
    struct ull__stay *stays = calloc((size_t)stay_count + 1, sizeof(*stays));
    ull__schedule_order(scheduler, &count);
    uint64_t *offsets = calloc((size_t)stay_count + 1, sizeof(*offsets)), height = 0;
    ull_status status = ULL_E_NO_MEMORY;
    if (stays != NULL && offsets != NULL) {
        memcpy(stays, found, sizeof(*stays) * (size_t)stay_count);
        hold_results(made->graph, program, stays, stay_count, count - 1);
        status = ull__place_stays(stays, stay_count, made->profile.alignment, offsets, &height, err);
    }
    if (status == ULL_OK) {
        int64_t scales = scale_bytes(made, values);
        at_peak(program, count, stays, stay_count, plan->bytes);
        for (int i = 0; i < ULL_ROLES; ++i) {
            plan->bytes[i] += program->role_bytes[i];
        }
        plan->bytes[ULL_ROLE_PARAMETER] += scales;
        plan->passing_bytes = (int64_t)height;
        plan->peak_bytes = program->persistent_bytes + scales + program->step_bytes +
                           (int64_t)height + cache_bytes(made, made->request.requests);
    } else if (status == ULL_E_NO_MEMORY) {
        status = ull__fail(err, status, "no memory for the addresses of '%s'", made->graph->name);
    } else {
        status = ull__fail(err, status, "what %lld samples of '%s' make is larger than there can be",
                           (long long)plan->micro_batch, made->graph->name);
    }
    free(stays);
    free(offsets);
    return status;
}

/* With the fastest algorithms, with those that need the least memory, and between. */
enum { FITS = 3 };

static ull_status add_plans(struct ull__inference *made, const struct ull__program *program,
                            const int64_t *values, int64_t micro_batch, struct ull_error *err)
{
    struct ull__scheduler *scheduler = ull__scheduler_create(program, &made->profile);
    struct ull__decision decision = {NULL, NULL};
    struct ull__cost_of cost;
    int64_t lowest = 0, highest = 0;
    ull_status status = ULL_OK;
    if (scheduler == NULL || !ull__decision_create(program, &decision)) {
        ull__scheduler_destroy(scheduler);
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to plan '%s'", made->graph->name);
    }
    for (int fit = 0; fit < FITS && status == ULL_OK && made->plan_count < PLANS_MOST; ++fit) {
        if (fit == 0) {
            ull__schedule(scheduler, &decision, &cost);
            lowest = ull__schedule_lowest(scheduler);
            highest = cost.peak_bytes;
        } else if (lowest < highest) {
            ull__schedule_fit(scheduler, &decision, highest - (highest - lowest) / (FITS - 1) * fit,
                              &cost);
            ull__schedule(scheduler, &decision, &cost);
        } else {
            break;
        }
        struct ull__infer_plan *plan = &made->plans[made->plan_count];
        *plan = (struct ull__infer_plan){.micro_batch = micro_batch};
        plan->seconds = cost.micro_seconds * (double)made->request.batch / (double)micro_batch;
        plan->token_seconds = token_seconds(made, program, values, micro_batch);
        status = place(made, program, values, scheduler, plan, err);
        made->plan_count += status == ULL_OK;
    }
    ull__scheduler_destroy(scheduler);
    ull__decision_finish(&decision);
    return status;
}

/* --- All of them --- */

static int by_memory(const void *left, const void *right)
{
    const struct ull__infer_plan *a = left, *b = right;
    if (a->peak_bytes != b->peak_bytes) {
        return a->peak_bytes < b->peak_bytes ? 1 : -1;
    }
    if (a->seconds != b->seconds) {
        return a->seconds > b->seconds ? 1 : -1;
    }
    return (a->micro_batch < b->micro_batch) - (a->micro_batch > b->micro_batch);
}

/* Leaves those that no other beats in both. */
static void thin(struct ull__inference *made)
{
    int kept = made->plan_count;
    double fastest = 1e300;
    qsort(made->plans, (size_t)made->plan_count, sizeof(*made->plans), by_memory);
    for (int i = made->plan_count - 1; i >= 0; --i) {
        /* Of equal bytes the faster one is in front, so the last of them is looked at first: it goes if the next is as small. */
        bool same = i > 0 && made->plans[i - 1].peak_bytes == made->plans[i].peak_bytes;
        if (!same && made->plans[i].seconds < fastest) {
            fastest = made->plans[i].seconds;
            made->plans[--kept] = made->plans[i];
        }
    }
    made->plan_count -= kept;
    memmove(made->plans, made->plans + kept, sizeof(*made->plans) * (size_t)made->plan_count);
}

static ull_status plan_all(struct ull__inference *made, struct ull_error *err)
{
    static const int64_t cuts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 1024};
    int64_t batch = made->request.batch, before = 0;
    ull_status status = ULL_OK;
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]) && status == ULL_OK; ++i) {
        int64_t values[ULL_SYMBOLS], micro_batch = (batch + cuts[i] - 1) / cuts[i];
        struct ull__program *program;
        if (micro_batch == before) {
            continue;
        }
        before = micro_batch;
        ull__graph_values(made->graph, micro_batch, values);
        status = ull__program_create(made->graph, values, &made->profile, &program, err);
        if (status != ULL_OK) {
            break;
        }
        status = add_plans(made, program, values, micro_batch, err);
        ull__program_destroy(program);
    }
    return status;
}

/* The type that everything but the weights has. */
static ull_status compute_type(const struct ull__infer_request *request, enum ull__type *type,
                               struct ull_error *err)
{
    const struct ull__profile *profile = request->profile;
    enum ull__weights weights = request->weights;
    *type = weights == ULL_WEIGHTS_FP32   ? ULL_TYPE_F32
            : weights == ULL_WEIGHTS_BF16 ? ULL_TYPE_BF16
            : weights == ULL_WEIGHTS_FP16 ? ULL_TYPE_F16
            : profile->bf16               ? ULL_TYPE_BF16
                                          : ULL_TYPE_F16;
    if ((*type == ULL_TYPE_BF16 && !profile->bf16) || (*type == ULL_TYPE_F16 && !profile->f16)) {
        return ull__fail(err, ULL_E_INVALID,
                         "device %s has no products in %s: expected weights in %s", profile->name,
                         ull__type_text(*type),
                         profile->f16    ? "fp16 or fp32"
                         : profile->bf16 ? "bf16 or fp32"
                                         : "fp32");
    }
    return ULL_OK;
}

static ull_status prepare(struct ull__inference *made, struct ull_error *err)
{
    enum ull__type compute;
    struct ull__infer_request *request = &made->request;
    if (request->batch < 1 || request->batch > INT64_C(1) << 40) {
        return ull__fail(err, ULL_E_INVALID, "a batch of %lld: expected at least one sample",
                         (long long)request->batch);
    }
    ull_status status = compute_type(request, &compute, err);
    if (status != ULL_OK) {
        return status;
    }
    made->graph = ull__inference_graph(request->model, compute, weights_of[request->weights].type);
    if (made->graph == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to plan '%s'", request->model->name);
    }
    if (!ull__graph_ok(made->graph)) {
        return ull__fail(err, made->graph->status, "%s", made->graph->error.message);
    }
    status = find_attentions(made, err);
    if (status == ULL_OK && made->attention_count == 0 &&
        (request->context > 0 || request->requests > 0)) {
        return ull__fail(
            err, ULL_E_INVALID,
            "'%.60s' has no causal attention, so it keeps nothing of a context: expected "
            "neither --context nor --requests",
            request->model->name);
    }
    request->context = request->context > 0 ? request->context : made->sequence;
    request->requests = request->requests > 0 ? request->requests : request->batch;
    if (status == ULL_OK && cache_bytes(made, request->requests) < 0) {
        return ull__fail(err, ULL_E_INVALID, "the cache of %lld requests is larger than there can be",
                         (long long)request->requests);
    }
    return status;
}

ull_status ull__infer_create(const struct ull__infer_request *request,
                             struct ull__inference **inference, struct ull_error *err)
{
    struct ull__inference *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to plan '%s'", request->model->name);
    }
    made->profile = *request->profile;
    made->profile.most_workspace = request->max_workspace;
    made->request = *request;
    made->request.profile = &made->profile;
    ull_status status = prepare(made, err);
    if (status == ULL_OK) {
        status = plan_all(made, err);
    }
    if (status != ULL_OK) {
        ull__infer_destroy(made);
        return status;
    }
    thin(made);
    *inference = made;
    return ULL_OK;
}

void ull__infer_destroy(struct ull__inference *inference)
{
    if (inference != NULL) {
        ull__graph_destroy(inference->graph);
        free(inference->attentions);
        free(inference);
    }
}

const struct ull__infer_plan *ull__infer_plans(const struct ull__inference *inference, int *count)
{
    *count = inference->plan_count;
    return inference->plans;
}

int ull__infer_choose(const struct ull__inference *inference, int64_t budget)
{
    for (int i = 0; i < inference->plan_count; ++i) {
        if (inference->plans[i].peak_bytes + (int64_t)inference->profile.outside_bytes <= budget) {
            return i;
        }
    }
    return ULL_NONE;
}

int64_t ull__infer_cache_bytes(const struct ull__inference *inference)
{
    return cache_bytes(inference, inference->request.requests);
}

int64_t ull__infer_context(const struct ull__inference *inference)
{
    return inference->attention_count > 0 ? inference->request.context : 0;
}

int64_t ull__infer_requests(const struct ull__inference *inference)
{
    return inference->request.requests;
}

int64_t ull__infer_requests_most(const struct ull__inference *inference, int plan, int64_t budget)
{
    int64_t others = inference->plans[plan].peak_bytes - ull__infer_cache_bytes(inference) +
                     (int64_t)inference->profile.outside_bytes;
    int64_t low = 0, high = INT64_C(1) << 32;
    if (inference->attention_count == 0 || others > budget) {
        return 0;
    }
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2, bytes = cache_bytes(inference, middle);
        if (bytes >= 0 && bytes <= budget - others) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}
