/* cases.c: random cases: seeds, values, losses. The operators are in cases_*.c. See cases.h. */
#include "cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "step.h"

int64_t cases_below(struct cases *c, int64_t below)
{
    c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t mixed = c->seed ^ c->seed >> 29;
    mixed *= UINT64_C(0xbf58476d1ce4e5b9);
    return (int64_t)((mixed ^ mixed >> 32) % (uint64_t)below);
}

int64_t cases_size(struct cases *c, int64_t small, int64_t large)
{
    return 1 + cases_below(c, c->large ? large : small);
}

static void note(struct cases *c, int tensor, enum fill fill, double limit)
{
    if (tensor != ULL_NONE && c->fill_count < (int)(sizeof(c->fills) / sizeof(c->fills[0]))) {
        c->fills[c->fill_count].tensor = tensor;
        c->fills[c->fill_count].fill = fill;
        c->fills[c->fill_count++].limit = limit;
    }
}

int cases_single(struct cases *c, int rank, const ull__dim *dims, enum fill fill)
{
    int tensor = ull__graph_parameter(c->graph, "p", rank, dims, ULL_INIT_ZERO, 0);
    note(c, tensor, fill, 0);
    return tensor;
}

int cases_real(struct cases *c, int rank, const ull__dim *dims, enum fill fill)
{
    int tensor = cases_single(c, rank, dims, fill);
    if (tensor != ULL_NONE) {
        c->graph->tensors[tensor].type = c->type;
    }
    return tensor;
}

int cases_input(struct cases *c, enum ull__type type, int rank, const ull__dim *dims,
                enum fill fill, double limit)
{
    int tensor = ull__graph_input(c->graph, "i", type, rank, dims);
    note(c, tensor, fill, limit);
    return tensor;
}

void cases_result(struct cases *c, int tensor)
{
    if (tensor != ULL_NONE) {
        c->results[c->result_count++] = tensor;
    }
}

int cases_dims(struct cases *c, int least, int most, ull__dim *dims)
{
    int rank = least + (int)cases_below(c, most - least + 1);
    for (int i = 0; i < rank; ++i) {
        int64_t kind = cases_below(c, 24);
        bool last = i == rank - 1;
        dims[i] = kind == 0  ? 0
                  : kind < 6 ? c->graph->batch
                             : cases_size(c, 4,
                                          last            ? 300
                                          : i == rank - 2 ? 40
                                                          : 4);
    }
    return rank;
}

static const struct cases_builder *find(const struct ull__op *op)
{
    const struct cases_builder *const lists[] = {cases_pictures, cases_sequences, cases_elements,
                                                 cases_updates};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); ++i) {
        for (const struct cases_builder *at = lists[i]; at->op != NULL; ++at) {
            if (at->op == op) {
                return at;
            }
        }
    }
    return NULL;
}

bool cases_create(struct cases *c, const struct ull__op *op, uint64_t seed, enum ull__type type,
                  bool large)
{
    const struct cases_builder *builder = find(op);
    *c = (struct cases){0};
    if (builder == NULL) {
        return false;
    }
    /* Shapes that do not fit are drawn again. */
    for (uint64_t again = 0; again < 200; ++again) {
        *c = (struct cases){.seed = seed * 1000003 + again * 7919 + 17,
                            .type = type,
                            .large = large,
                            .has_gradient = true};
        c->graph = ull__graph_create();
        if (c->graph == NULL) {
            break;
        }
        int64_t batch = cases_below(c, 12);
        ull__graph_values(c->graph, batch == 0 ? 0 : 1 + batch % 4, c->values);
        builder->build(c);
        if (ull__graph_ok(c->graph)) {
            c->forward = c->graph->node_count;
            return true;
        }
        ull__graph_destroy(c->graph);
    }
    fprintf(stderr, "no case of %s fits: seed %llu\n", op->name, (unsigned long long)seed);
    abort();
}

void cases_finish(struct cases *c)
{
    ull__graph_destroy(c->graph);
    free(c->gradient);
    *c = (struct cases){0};
}

void cases_lose(struct cases *c)
{
    struct ull__graph *g = c->graph;
    for (int i = 0; i < c->result_count; ++i) {
        const struct ull__tensor of = g->tensors[c->results[i]];
        int weights = cases_input(c, of.type, of.rank, of.dims, FILL_GRID, 0);
        int sum =
            ull__reduce(g, ULL_REDUCE_SUM, ull__binary(g, ULL_BINARY_MUL, c->results[i], weights),
                        (1u << of.rank) - 1, false);
        ull__graph_loss(g, sum, i == 0 ? 1 : 0.5);
    }
    c->forward = g->node_count;
    c->gradient = malloc(sizeof(*c->gradient) * (size_t)(g->tensor_count + 1));
    if (c->gradient == NULL) {
        abort();
    }
    ull__differentiate(g, ULL_NONE, c->gradient, NULL, NULL);
}

static double real(struct cases *c)
{
    return (double)cases_below(c, 1 << 30) / (1 << 30);
}

static void fill_distinct(struct cases *c, double *data, int64_t count)
{
    for (int64_t i = 0; i < count; ++i) {
        data[i] = 4 * ((double)i + 0.5) / (double)count - 2;
    }
    for (int64_t i = count - 1; i > 0; --i) {
        int64_t j = cases_below(c, i + 1);
        double other = data[j];
        data[j] = data[i];
        data[i] = other;
    }
}

static double draw(struct cases *c, enum fill fill, double limit)
{
    double sign = cases_coin(c) ? 1 : -1;
    switch (fill) {
    case FILL_GRID:
    case FILL_OTHER:
        return ((double)cases_below(c, 40) - 20) * 0.1 + (fill == FILL_GRID ? 0.03 : 0.07) +
               0.01 * (real(c) - 0.5);
    case FILL_POSITIVE:
        return 0.3 + 2 * real(c);
    case FILL_AWAY:
        return sign * (0.3 + 2 * real(c));
    case FILL_INDEX:
        return (double)cases_below(c, (int64_t)limit);
    case FILL_TARGET:
        return cases_below(c, 4) == 0 ? -100 : (double)cases_below(c, (int64_t)limit);
    case FILL_BOOL:
        return cases_coin(c);
    case FILL_MASK:
        return cases_below(c, 4) == 0 ? -INFINITY : 0;
    default:
        return limit;
    }
}

void cases_fill(struct cases *c, struct ref *ref)
{
    uint64_t seed = c->seed;
    for (int i = 0; i < c->fill_count; ++i) {
        int tensor = c->fills[i].tensor;
        double *data = ref_data(ref, tensor);
        int64_t count = ref_count(ref, tensor);
        if (c->fills[i].fill == FILL_DISTINCT) {
            fill_distinct(c, data, count);
        } else {
            for (int64_t j = 0; j < count; ++j) {
                data[j] = draw(c, c->fills[i].fill, c->fills[i].limit);
            }
        }
        for (int64_t j = 0; j < count; ++j) {
            data[j] = ref_rounded(data[j], c->graph->tensors[tensor].type);
        }
    }
    ref_generator(ref, cases_below(c, 1000), cases_below(c, 1000), cases_below(c, 1000));
    c->seed = seed;
}

void cases_print(const struct cases *c)
{
    char text[160];
    for (int i = 0; i < c->graph->node_count; ++i) {
        const struct ull__node *node = &c->graph->nodes[i];
        fprintf(stderr, "  %s:", node->op->name);
        for (int j = 0; j < node->input_count; ++j) {
            fprintf(stderr, " %d=%s", node->inputs[j],
                    node->inputs[j] == ULL_NONE
                        ? "none"
                        : ull__tensor_text(c->graph, node->inputs[j], text, sizeof(text)));
        }
        for (int j = 0; j < node->output_count; ++j) {
            fprintf(stderr, "%s %d=%s", j == 0 ? " ->" : "", node->outputs[j],
                    ull__tensor_text(c->graph, node->outputs[j], text, sizeof(text)));
        }
        fputc('\n', stderr);
    }
    fprintf(stderr, "  batch %lld\n", (long long)c->values[0]);
}
