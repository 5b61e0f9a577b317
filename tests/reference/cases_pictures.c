/* cases_pictures.c: random cases of convolutions, pooling and batch norm. */
#include "cases.h"

static struct ull__window window_of(struct cases *c, bool pooling)
{
    struct ull__window window = {.groups = 1};
    for (int i = 0; i < 2; ++i) {
        window.kernel[i] = 1 + (int)cases_below(c, 3);
        window.stride[i] = 1 + (int)cases_below(c, 3);
        window.dilation[i] = cases_below(c, 3) == 0 ? 2 : 1;
        window.before[i] = (int)cases_below(c, 3);
        window.after[i] = cases_coin(c) ? window.before[i] : (int)cases_below(c, 3);
    }
    if (pooling) {
        window.ceil_mode = cases_coin(c);
        window.count_padding = cases_coin(c);
    } else if (cases_coin(c)) {
        window.groups = 1 + (int)cases_below(c, 3);
    }
    return window;
}

static ull__dim samples(struct cases *c)
{
    return cases_coin(c) ? c->graph->batch : 1 + cases_below(c, 3);
}

/* Of a group. Libraries are fast where they come in eights. */
static int64_t channels(struct cases *c)
{
    return c->large && cases_coin(c) ? 8 * (1 + cases_below(c, 4)) : cases_size(c, 3, 20);
}

static void build_conv(struct cases *c)
{
    struct ull__window window = window_of(c, false);
    int64_t in = channels(c), out = channels(c);
    ull__dim x[4] = {samples(c), in * window.groups, cases_size(c, 7, 14), cases_size(c, 7, 14)};
    ull__dim w[4] = {out * window.groups, in, window.kernel[0], window.kernel[1]};
    int of_x = cases_real(c, 4, x, FILL_GRID), of_w = cases_real(c, 4, w, FILL_GRID);
    int b = cases_coin(c) ? cases_real(c, 1, w, FILL_GRID) : ULL_NONE;
    cases_result(c, ull__conv2d(c->graph, of_x, of_w, b, window));
}

static void build_conv_transpose(struct cases *c)
{
    struct ull__window window = window_of(c, false);
    int64_t in = channels(c), out = channels(c);
    ull__dim x[4] = {samples(c), in * window.groups, cases_size(c, 4, 9), cases_size(c, 4, 9)};
    ull__dim w[4] = {in * window.groups, out, window.kernel[0], window.kernel[1]};
    int of_x = cases_real(c, 4, x, FILL_GRID), of_w = cases_real(c, 4, w, FILL_GRID);
    int b = cases_coin(c) ? cases_real(c, 1, (ull__dim[]){out * window.groups}, FILL_GRID) : ULL_NONE;
    cases_result(c, ull__conv_transpose2d(c->graph, of_x, of_w, b, window));
}

/* Whether some window has nothing of the picture: which of its elements is largest is not defined then. */
static bool is_empty_somewhere(const struct cases *c, int y, int x, const struct ull__window *window)
{
    for (int i = 0; i < 2; ++i) {
        int64_t size = c->graph->tensors[x].dims[2 + i], count = c->graph->tensors[y].dims[2 + i];
        for (int64_t at = 0; at < count; ++at) {
            bool any = false;
            for (int k = 0; k < window->kernel[i]; ++k) {
                int64_t place = at * window->stride[i] - window->before[i] + k * window->dilation[i];
                any |= place >= 0 && place < size;
            }
            if (!any) {
                return true;
            }
        }
    }
    return false;
}

static void build_pool(struct cases *c, int (*add)(struct ull__graph *, int, struct ull__window))
{
    struct ull__window window = window_of(c, true);
    if (cases_below(c, 16) == 0) {
        window.kernel[0] = window.kernel[1] = 17; /* more than 256 elements */
        window.before[0] = window.before[1] = window.after[0] = window.after[1] = 8;
    }
    ull__dim dims[4] = {samples(c), cases_size(c, 3, 20), cases_size(c, 7, 14), cases_size(c, 7, 14)};
    int x = cases_real(c, 4, dims, FILL_DISTINCT), y = add(c->graph, x, window);
    if (y != ULL_NONE && is_empty_somewhere(c, y, x, &window)) {
        ull__graph_fail(c->graph, ULL_E_INVALID, "a window without an element");
    }
    cases_result(c, y);
}

static void build_max_pool(struct cases *c)
{
    build_pool(c, ull__max_pool);
}

static void build_avg_pool(struct cases *c)
{
    build_pool(c, ull__avg_pool);
}

static void build_upsample(struct cases *c)
{
    ull__dim dims[4] = {samples(c), cases_size(c, 3, 20), cases_size(c, 4, 9), cases_size(c, 4, 9)};
    int x = cases_real(c, 4, dims, FILL_GRID);
    cases_result(c, ull__upsample_nearest(c->graph, x, 1 + (int)cases_below(c, 3)));
}

static void build_batch_norm(struct cases *c)
{
    struct ull__graph *g = c->graph;
    ull__dim dims[4] = {samples(c), cases_size(c, 4, 40), cases_size(c, 3, 12), cases_size(c, 3, 12)};
    struct ull__norm_attrs attrs = {.axis = 1,
                                    .epsilon = cases_coin(c) ? 0.01 : 0.1,
                                    .momentum = cases_coin(c) ? 0.1 : 0.5,
                                    .training = cases_below(c, 6) != 0,
                                    .group = cases_coin(c) ? 0 : 1 + cases_below(c, 3)};
    int x = cases_real(c, 2 + (int)cases_below(c, 3), dims, FILL_GRID);
    int scale = cases_single(c, 1, dims + 1, FILL_GRID),
        shift = cases_single(c, 1, dims + 1, FILL_GRID);
    int state[2];
    for (int i = 0; i < 2; ++i) {
        state[i] = cases_single(c, 1, dims + 1, i == 0 ? FILL_GRID : FILL_POSITIVE);
        g->tensors[state[i]].role = ULL_ROLE_STATE;
    }
    cases_result(c, ull__batch_norm(g, x, scale, shift, state[0], state[1], attrs));
    c->has_gradient = attrs.training;
}

const struct cases_builder cases_pictures[] = {
    {&ull__op_conv2d, build_conv},
    {&ull__op_conv_transpose2d, build_conv_transpose},
    {&ull__op_max_pool, build_max_pool},
    {&ull__op_avg_pool, build_avg_pool},
    {&ull__op_upsample_nearest, build_upsample},
    {&ull__op_batch_norm, build_batch_norm},
    {NULL, NULL},
};
