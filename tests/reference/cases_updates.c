/* cases_updates.c: random cases of what a step does with gradients. None of them has a gradient. */
#include "cases.h"

static int scalar(struct cases *c, enum ull__type type, enum fill fill, double limit)
{
    return cases_input(c, type, 0, NULL, fill, limit);
}

static void build_accumulate(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 0, 3, dims), sum = cases_single(c, rank, dims, FILL_GRID);
    int gradient = cases_real(c, rank, dims, FILL_GRID);
    int adds = scalar(c, ULL_TYPE_BOOL, FILL_BOOL, 0);
    ull__graph_node(c->graph, &ull__op_accumulate, NULL, (int[]){sum, gradient, adds}, 3);
    c->has_gradient = false;
}

static void build_of_all(struct cases *c, const struct ull__op *op)
{
    ull__dim dims[ULL_RANK];
    int list[6], count = 1 + (int)cases_below(c, 6);
    for (int i = 0; i < count; ++i) {
        int rank = cases_dims(c, 0, 3, dims);
        list[i] = cases_coin(c)
                      ? cases_real(c, rank, dims, FILL_GRID)
                      : cases_single(c, rank, dims, cases_below(c, 8) == 0 ? FILL_MASK : FILL_GRID);
    }
    ull__graph_node(c->graph, op, NULL, list, count);
    c->has_gradient = false;
}

static void build_finite(struct cases *c)
{
    build_of_all(c, &ull__op_finite);
}

static void build_norm_square(struct cases *c)
{
    build_of_all(c, &ull__op_norm_square);
}

static void build_clip(struct cases *c)
{
    union ull__attrs attrs = {.optimizer = {.limit = cases_coin(c) ? 1 : 100}};
    int scale = cases_coin(c) ? ULL_NONE : scalar(c, ULL_TYPE_F32, FILL_VALUE, 8);
    int norm =
        scale != ULL_NONE && cases_coin(c) ? ULL_NONE : scalar(c, ULL_TYPE_F32, FILL_VALUE, 900);
    ull__graph_node(c->graph, &ull__op_clip, &attrs, (int[]){scale, norm}, 2);
    c->has_gradient = false;
}

static void build_loss_scale(struct cases *c)
{
    static const double scales[] = {1, 65536, 16777216}, goods[] = {0, 7, 1999};
    int scale = scalar(c, ULL_TYPE_F32, FILL_VALUE, scales[cases_below(c, 3)]);
    int good = scalar(c, ULL_TYPE_I32, FILL_VALUE, goods[cases_below(c, 3)]);
    int left = scalar(c, ULL_TYPE_I32, FILL_VALUE, (double)cases_below(c, 3));
    int found = scalar(c, ULL_TYPE_BOOL, FILL_BOOL, 0);
    union ull__attrs attrs = {.scale = {.growth = 2,
                                        .backoff = 0.5,
                                        .interval = 2000,
                                        .hysteresis = 2,
                                        .floor = 1,
                                        .ceiling = 1 << 24}};
    ull__graph_node(c->graph, &ull__op_loss_scale, &attrs, (int[]){scale, good, left, found}, 4);
    c->has_gradient = false;
}

static void build_count_step(struct cases *c)
{
    int step = scalar(c, ULL_TYPE_I64, FILL_INDEX, 100000);
    ull__graph_node(c->graph, &ull__op_count_step, NULL, &step, 1);
    c->has_gradient = false;
}

/* Whether there is a weight of 16 bits beside. */
static int half_of(struct cases *c, int rank, const ull__dim *dims)
{
    int half = cases_coin(c) ? ULL_NONE : cases_single(c, rank, dims, FILL_GRID);
    if (half != ULL_NONE) {
        c->graph->tensors[half].type = cases_coin(c) ? ULL_TYPE_BF16 : ULL_TYPE_F16;
    }
    return half;
}

static void build_sgd(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    union ull__attrs attrs = {.optimizer = {.momentum = cases_coin(c) ? 0.9 : 0,
                                            .weight_decay = cases_coin(c) ? 0.01 : 0,
                                            .nesterov = cases_coin(c)}};
    int rank = cases_dims(c, 0, 3, dims), w = cases_single(c, rank, dims, FILL_GRID);
    int gradient = cases_real(c, rank, dims, FILL_GRID);
    int rate = scalar(c, ULL_TYPE_F32, FILL_VALUE, 0.125);
    int factor = cases_coin(c) ? ULL_NONE : scalar(c, ULL_TYPE_F32, FILL_VALUE, 0.5);
    int momentum = attrs.optimizer.momentum > 0 ? cases_single(c, rank, dims, FILL_GRID) : ULL_NONE;
    int half = half_of(c, rank, dims);
    ull__graph_node(c->graph, &ull__op_sgd, &attrs,
                    (int[]){w, gradient, rate, factor, momentum, half}, 6);
    c->has_gradient = false;
}

static void build_adam(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    union ull__attrs attrs = {.optimizer = {.beta1 = 0.9,
                                            .beta2 = cases_coin(c) ? 0.999 : 0.95,
                                            .epsilon = 1e-8,
                                            .weight_decay = cases_coin(c) ? 0.01 : 0,
                                            .decoupled = cases_coin(c)}};
    int rank = cases_dims(c, 0, 3, dims), w = cases_single(c, rank, dims, FILL_GRID);
    int gradient = cases_real(c, rank, dims, FILL_GRID);
    int rate = scalar(c, ULL_TYPE_F32, FILL_VALUE, 0.125);
    int factor = cases_coin(c) ? ULL_NONE : scalar(c, ULL_TYPE_F32, FILL_VALUE, 0.5);
    int step = scalar(c, ULL_TYPE_I64, FILL_VALUE, (double)(1 + cases_below(c, 200)));
    int first = cases_single(c, rank, dims, FILL_GRID);
    int second = cases_single(c, rank, dims, FILL_POSITIVE), half = half_of(c, rank, dims);
    ull__graph_node(c->graph, &ull__op_adam, &attrs,
                    (int[]){w, gradient, rate, factor, step, first, second, half}, 8);
    c->has_gradient = false;
}

static void build_copy(struct cases *c)
{
    ull__dim dims[ULL_RANK];
    int rank = cases_dims(c, 0, 3, dims), x = cases_real(c, rank, dims, FILL_GRID);
    union ull__attrs attrs = {.copy = {.space = cases_coin(c) ? ULL_SPACE_PINNED : ULL_SPACE_DEVICE}};
    ull__graph_node(c->graph, &ull__op_copy, &attrs, &x, 1);
    c->has_gradient = false;
}

const struct cases_builder cases_updates[] = {
    {&ull__op_accumulate, build_accumulate},
    {&ull__op_finite, build_finite},
    {&ull__op_norm_square, build_norm_square},
    {&ull__op_clip, build_clip},
    {&ull__op_loss_scale, build_loss_scale},
    {&ull__op_count_step, build_count_step},
    {&ull__op_sgd, build_sgd},
    {&ull__op_adam, build_adam},
    {&ull__op_copy, build_copy},
    {NULL, NULL},
};
