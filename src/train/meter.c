/* meter.c: see meter.h. */
#include "meter_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "error.h"
#include "op.h"

enum { TIMES = 3, MOST_SAMPLES = 64 };

/* --- What is known --- */

/* Layouts are asked for once for each graph and size. */
bool ull__meter_turn_to(struct ull__meter_of *meter, const struct ull__graph *graph,
                        const int64_t *values)
{
    size_t symbols = (size_t)ull__dim_symbols(graph->symbols) * sizeof(*values);
    if (meter->graph == graph && meter->tensors == graph->tensor_count &&
        memcmp(meter->values, values, symbols) == 0) {
        return true;
    }
    uint8_t *layouts = realloc(meter->layouts, (size_t)graph->tensor_count + 1);
    if (layouts == NULL) {
        return false;
    }
    meter->layouts = layouts;
    meter->graph = graph;
    meter->tensors = graph->tensor_count;
    memcpy(meter->values, values, symbols);
    return meter->backend->ops->layouts(meter->backend, graph, values, layouts, NULL) == ULL_OK;
}

static struct ull__selecting selecting(const struct ull__meter_of *meter, int node,
                                       const int64_t *values)
{
    return (struct ull__selecting){.graph = meter->graph,
                                   .node = node,
                                   .values = values,
                                   .layouts = meter->layouts,
                                   .most_workspace = ULL_NONE,
                                   .deterministic = true};
}

/* What the backend would run a node with; NULL without memory. */
static const struct ull__meter_entry *selected(struct ull__meter_of *meter,
                                               const struct ull__graph *graph, int node,
                                               const int64_t *values)
{
    if (!ull__meter_turn_to(meter, graph, values)) {
        return NULL;
    }
    uint64_t key = ull__meter_key(meter, node, true);
    struct ull__meter_entry *entry = ull__meter_entry_of(&meter->sized, key);
    if (entry != NULL && !entry->selected) {
        struct ull__selection selection;
        struct ull__selecting what = selecting(meter, node, values);
        struct ull_error error;
        bool fine = meter->backend->ops->select(meter->backend, &what, &selection, &error) == ULL_OK;
        if (!fine && meter->missing[0] == '\0') {
            snprintf(meter->missing, sizeof(meter->missing), "%.250s", error.message);
        }
        meter->sized.count += entry->key == 0;
        entry->key = key;
        entry->selected = true;
        entry->workspace = fine ? selection.workspace : -1;
        entry->algorithm = fine ? selection.algorithm : NULL;
    }
    return entry;
}

static int64_t workspace_of(void *context, const struct ull__graph *graph, int node,
                            const int64_t *values)
{
    if ((graph->nodes[node].op->flags & ULL_OP_COLLECTIVE) != 0) {
        return 0; /* no kernel: the backend's own */
    }
    const struct ull__meter_entry *entry = selected(context, graph, node, values);
    return entry != NULL ? entry->workspace : -1;
}

static const char *algorithm_of(void *context, const struct ull__graph *graph, int node,
                                const int64_t *values)
{
    const struct ull__meter_entry *entry = (graph->nodes[node].op->flags & ULL_OP_COLLECTIVE) == 0
                                               ? selected(context, graph, node, values)
                                               : NULL;
    return entry != NULL ? entry->algorithm : NULL;
}

static const uint8_t *layouts_of(void *context, const struct ull__graph *graph, const int64_t *values)
{
    struct ull__meter_of *meter = context;
    return ull__meter_turn_to(meter, graph, values) ? meter->layouts : NULL;
}

/* --- Measuring --- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool with_batch(const struct ull__meter_of *meter, int64_t batch, int64_t *values)
{
    int symbol = ull__dim_symbol_find(meter->graph->symbols, "batch");
    memcpy(values, meter->values, sizeof(meter->values));
    if (symbol >= 0) {
        values[symbol] = batch;
    }
    return symbol >= 0;
}

/* Bytes of all operands at these sizes; below 0: more than there can be. */
static int64_t operand_bytes(const struct ull__meter_of *meter, int node, const int64_t *values)
{
    const struct ull__node *of = &meter->graph->nodes[node];
    int64_t sum = 0;
    for (int i = 0; i < of->input_count + of->output_count; ++i) {
        int tensor = i < of->input_count ? of->inputs[i] : of->outputs[i - of->input_count];
        int64_t bytes = tensor != ULL_NONE ? ull__tensor_bytes(meter->graph, tensor, values) : 0;
        if (bytes < 0 || __builtin_add_overflow(sum, bytes + 64, &sum)) {
            return -1;
        }
    }
    return sum;
}

static char *take(struct ull__meter_of *meter, int64_t bytes)
{
    uint64_t size = ((uint64_t)bytes + 63) / 64 * 64;
    if (meter->at + size > meter->room) {
        meter->at = 0;
    }
    char *here = meter->scratch + meter->at;
    meter->at += size;
    return here;
}

static void place_operands(struct ull__meter_of *meter, int node, const int64_t *values,
                           void **operands)
{
    const struct ull__node *of = &meter->graph->nodes[node];
    for (int i = 0; i < of->input_count + of->output_count; ++i) {
        bool input = i < of->input_count;
        int tensor = input ? of->inputs[i] : of->outputs[i - of->input_count];
        operands[i] = NULL;
        if (tensor == ULL_NONE) {
            continue;
        }
        const struct ull__tensor *made = &meter->graph->tensors[tensor];
        for (int j = 0; j < of->input_count && !input && made->writes; ++j) {
            operands[i] = of->inputs[j] == made->alias ? operands[j] : operands[i];
        }
        if (operands[i] == NULL) {
            operands[i] = take(meter, ull__tensor_bytes(meter->graph, tensor, values));
        }
    }
}

/* The middle of some runs; below 0: it cannot be measured. */
static double measure(struct ull__meter_of *meter, int node, int64_t batch)
{
    int64_t values[ULL_SYMBOLS];
    with_batch(meter, batch, values);
    const struct ull__node *of = &meter->graph->nodes[node];
    const struct ull__backend_ops *ops = meter->backend->ops;
    struct ull__selecting what = selecting(meter, node, values);
    struct ull__selection selection;
    struct ull__kernel *kernel;
    void **operands = calloc((size_t)(of->input_count + of->output_count) + 1, sizeof(*operands));
    if (operands == NULL || ops->select(meter->backend, &what, &selection, NULL) != ULL_OK ||
        operand_bytes(meter, node, values) + selection.workspace > (int64_t)meter->room ||
        ops->compile(meter->backend, &what, &kernel, NULL) != ULL_OK) {
        free(operands);
        return -1;
    }
    double seconds[TIMES + 1];
    for (int i = 0; i <= TIMES; ++i) {
        place_operands(meter, node, values, operands);
        struct ull__launch launch = {.inputs = operands,
                                     .outputs = operands + of->input_count,
                                     .workspace = take(meter, selection.workspace)};
        double begin = now();
        ops->enqueue(meter->backend, of->queue, kernel, &launch);
        ops->synchronize(meter->backend, NULL);
        seconds[i] = now() - begin;
    }
    ops->release(meter->backend, kernel);
    free(operands);
    /* The first run loads code and libraries' own memory. */
    double a = seconds[1], b = seconds[2], c = seconds[3];
    double low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

static bool get_scratch(struct ull__meter_of *meter)
{
    if (meter->scratch == NULL && meter->room > 0) {
        void *memory = mmap(NULL, meter->room, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        meter->scratch = memory != MAP_FAILED ? memory : NULL;
        meter->room = meter->scratch != NULL ? meter->room : 0;
        if (meter->scratch != NULL) {
            memset(meter->scratch, 0, meter->room);
        }
    }
    return meter->scratch != NULL;
}

static void fit_line(struct ull__meter_of *meter, int node, int64_t planned,
                     struct ull__meter_entry *entry)
{
    int64_t values[ULL_SYMBOLS], many = planned < MOST_SAMPLES ? planned : MOST_SAMPLES;
    bool batched = with_batch(meter, many, values);
    int64_t large = operand_bytes(meter, node, values);
    while (many > 1 && (large < 0 || large > (int64_t)meter->room / 4)) {
        many /= 2;
        with_batch(meter, many, values);
        large = operand_bytes(meter, node, values);
    }
    with_batch(meter, many > 1 ? many / 2 : 1, values);
    batched = batched && large != operand_bytes(meter, node, values);
    double at_many = measure(meter, node, many);
    entry->fixed = at_many;
    entry->each = at_many < 0 ? -1 : 0;
    if (at_many < 0 || !batched || many < 4) {
        entry->each = at_many < 0 ? -1 : batched ? at_many / (double)many : 0;
        entry->fixed = batched ? 0 : at_many;
        return;
    }
    double at_few = measure(meter, node, many / 4);
    double each = (at_many - at_few) / (double)(many - many / 4);
    each = each > 0 ? each : at_many / (double)many;
    double fixed = at_many - each * (double)many;
    entry->each = fixed >= 0 ? each : at_many / (double)many;
    entry->fixed = fixed >= 0 ? fixed : 0;
}

int64_t ull__meter_batch(const struct ull__graph *graph, const int64_t *values)
{
    int symbol = ull__dim_symbol_find(graph->symbols, "batch");
    return symbol >= 0 ? values[symbol] : 1;
}

/* What is known of a node's times, measured now if there is room to; NULL: nothing. */
static struct ull__meter_entry *timed(struct ull__meter_of *meter, const struct ull__graph *graph,
                                      int node, const int64_t *values)
{
    if (!ull__meter_turn_to(meter, graph, values) || (meter->room == 0 && meter->times.count == 0) ||
        (graph->nodes[node].op->flags & (ULL_OP_COPY | ULL_OP_COLLECTIVE)) != 0) {
        return NULL;
    }
    uint64_t key = ull__meter_key(meter, node, false);
    struct ull__meter_entry *entry = ull__meter_entry_of(&meter->times, key);
    if (entry != NULL && entry->key == 0) {
        if (meter->room == 0 || !get_scratch(meter)) {
            return NULL;
        }
        entry->key = key;
        meter->times.count += 1;
        fit_line(meter, node, ull__meter_batch(graph, values), entry);
    }
    return entry != NULL && entry->each >= 0 ? entry : NULL;
}

static double seconds_of(void *context, const struct ull__graph *graph, int node,
                         const int64_t *values)
{
    struct ull__meter_of *meter = context;
    int64_t batch = ull__meter_batch(graph, values);
    if (timed(meter, graph, node, values) == NULL && meter->operator_count == 0) {
        return -1;
    }
    struct ull__meter_kernel kernel = ull__meter_kernel(meter, node, batch);
    return ull__meter_price(meter, &kernel);
}

ull_status ull__meter_create(struct ull__backend *backend, uint64_t room,
                             struct ull__meter_of **meter, struct ull_error *err)
{
    struct ull__meter_of *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to measure kernels");
    }
    made->meter = (struct ull__meter){.context = made,
                                      .workspace = workspace_of,
                                      .algorithm = algorithm_of,
                                      .layouts = layouts_of,
                                      .seconds = seconds_of};
    made->backend = backend;
    made->room = room;
    *meter = made;
    return ULL_OK;
}

void ull__meter_destroy(struct ull__meter_of *meter)
{
    if (meter == NULL) {
        return;
    }
    ull__meter_rest(meter);
    free(meter->sized.entries);
    free(meter->times.entries);
    free(meter->layouts);
    free(meter);
}

void ull__meter_rest(struct ull__meter_of *meter)
{
    if (meter->scratch != NULL) {
        munmap(meter->scratch, meter->room);
        meter->scratch = NULL;
    }
    meter->room = 0;
}

const void *ull__meter_times(const struct ull__meter_of *meter, size_t *size)
{
    *size = meter->times.room * sizeof(*meter->times.entries);
    return meter->times.entries;
}

bool ull__meter_take_times(struct ull__meter_of *meter, const void *times, size_t size)
{
    struct ull__meter_table taken = {malloc(size + 1), size / sizeof(*taken.entries), 0};
    if (taken.entries == NULL) {
        return false;
    }
    memcpy(taken.entries, times, size);
    for (size_t i = 0; i < taken.room; ++i) {
        taken.count += taken.entries[i].key != 0;
    }
    free(meter->times.entries);
    meter->times = taken;
    return true;
}

const struct ull__meter *ull__meter_for(struct ull__meter_of *meter)
{
    return &meter->meter;
}

const char *ull__meter_missing(const struct ull__meter_of *meter)
{
    return meter->missing;
}
