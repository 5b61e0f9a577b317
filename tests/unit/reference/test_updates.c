/*
 * test_updates.c: optimizers on a loss whose gradient is constant, where what they do is a formula; clipping, the loss
 * scale and steps that do not count.
 */
#include "models.h"

enum { STEPS = 10 };

static const double slopes[3] = {0.5, -2, 0.25}, first[3] = {1, -0.75, 2};

/* loss = sum of w * c. */
static struct ull__graph *line(int *w, const struct ull__step_options *options)
{
    struct ull__graph *g = ull__graph_create();
    *w = ull__graph_parameter(g, "w", 1, (ull__dim[]){3}, ULL_INIT_ZERO, 0);
    int c = ull__graph_input(g, "c", ULL_TYPE_F32, 1, (ull__dim[]){3});
    ull__graph_loss(
        g, ull__reduce(g, ULL_REDUCE_SUM, ull__binary(g, ULL_BINARY_MUL, *w, c), 1, false), 1);
    struct ull_error err = {{0}};
    if (ull__step_build(g, options, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    return g;
}

static struct ref *start(const struct ull__graph *g, int w, double rate)
{
    struct ref *ref = reference_of(g, 1);
    memcpy(ref_data(ref, w), first, sizeof(first));
    memcpy(ref_data(ref, tensor_named(g, "c")), slopes, sizeof(slopes));
    ref_control(ref, "learning_rate", rate);
    return ref;
}

/* formula(first value, slope, steps, rate) is the weight after so many steps. */
static void check(const struct ull__step_options *options, double rate,
                  double (*formula)(double, double, int, double), double tolerance)
{
    int w;
    struct ull__graph *g = line(&w, options);
    struct ref *ref = start(g, w, rate);
    for (int step = 1; step <= STEPS; ++step) {
        ref_run(ref, ULL_PHASE_MICRO);
        ref_run(ref, ULL_PHASE_UPDATE);
        for (int i = 0; i < 3; ++i) {
            double expected = formula(first[i], slopes[i], step, rate);
            if (!(fabs(ref_data(ref, w)[i] - expected) <= tolerance)) {
                fail_msg("step %d, weight %d: %.15g, expected %.15g", step, i, ref_data(ref, w)[i],
                         expected);
            }
        }
    }
    assert_true(ref_data(ref, tensor_named(g, "step"))[0] == STEPS);
    ref_destroy(ref);
    ull__graph_destroy(g);
}

static double plain(double w, double c, int t, double rate)
{
    return w - t * rate * c;
}

/* Decay alone: w' = (1 - rate * decay) w - rate * c, a geometric series. */
static double decayed(double w, double c, int t, double rate)
{
    double a = 1 - rate * 0.1;
    return pow(a, t) * w - rate * c * (1 - pow(a, t)) / (1 - a);
}

/* The momentum after i steps is c (1 - m^i) / (1 - m). */
static double with_momentum(double w, double c, int t, double rate)
{
    double m = 0.9;
    return w - rate * c / (1 - m) * (t - m * (1 - pow(m, t)) / (1 - m));
}

/* Nesterov's adds c and m times that. */
static double nesterov(double w, double c, int t, double rate)
{
    double m = 0.9;
    return w - rate * c * t - m * (w - with_momentum(w, c, t, rate));
}

/* Both moments of a constant are, corrected, the constant and its square. */
static double adam(double w, double c, int t, double rate)
{
    return w - t * rate * c / (fabs(c) + 1e-3);
}

static double adamw(double w, double c, int t, double rate)
{
    double a = 1 - rate * 0.1;
    return pow(a, t) * w - rate * c / (fabs(c) + 1e-3) * (1 - pow(a, t)) / (1 - a);
}

/* The norm of the slopes is sqrt(4.3125), the limit a half of it. */
static double clipped(double w, double c, int t, double rate)
{
    return w - t * rate * c / 2;
}

static void optimizers_follow_their_formulas(void **state)
{
    struct ull__step_options sgd = {.optimizer = ULL_OPTIMIZER_SGD};
    struct ull__step_options of_adam = {.optimizer = ULL_OPTIMIZER_ADAM,
                                        .attrs = {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-3}};
    (void)state;
    check(&sgd, 0.1, plain, 1e-14);
    sgd.attrs.weight_decay = 0.1;
    check(&sgd, 0.1, decayed, 1e-14);
    sgd.attrs.weight_decay = 0;
    sgd.attrs.momentum = 0.9;
    check(&sgd, 0.1, with_momentum, 1e-13);
    sgd.attrs.nesterov = true;
    check(&sgd, 0.1, nesterov, 1e-13);
    check(&of_adam, 0.1, adam, 1e-13);
    of_adam.optimizer = ULL_OPTIMIZER_ADAMW;
    of_adam.attrs.weight_decay = 0.1;
    check(&of_adam, 0.1, adamw, 1e-13);
}

static void clipping_counts_without_the_scale(void **state)
{
    struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_SGD,
                                        .attrs = {.limit = sqrt(4.3125) / 2}};
    (void)state;
    check(&options, 0.1, clipped, 1e-14);
    options.attrs.limit = 100;
    check(&options, 0.1, plain, 1e-14);
    options.attrs.limit = sqrt(4.3125) / 2;
    int w;
    options.loss_scale = true;
    struct ull__graph *g = line(&w, &options);
    struct ref *ref = start(g, w, 0.1);
    ref_control(ref, "loss_scale", 1024);
    ref_control(ref, "hysteresis_left", 2);
    ref_run(ref, ULL_PHASE_MICRO);
    ref_run(ref, ULL_PHASE_UPDATE);
    for (int i = 0; i < 3; ++i) {
        assert_true(fabs(ref_data(ref, w)[i] - clipped(first[i], slopes[i], 1, 0.1)) < 1e-14);
    }
    ref_destroy(ref);
    ull__graph_destroy(g);
}

/* Steps with infinite gradients change nothing but the scale: the second and each further one halve it. */
static void infinite_steps_do_not_count(void **state)
{
    struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_ADAM,
                                        .attrs = {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-3},
                                        .loss_scale = true,
                                        .scale = {.interval = 3}};
    static const struct {
        double slope, scale, step;
    } steps[] = {
        {INFINITY, 1024, 0}, {NAN, 512, 0},      {-INFINITY, 256, 0}, {0.5, 256, 1},
        {0.5, 256, 2},       {INFINITY, 128, 2}, {0.5, 128, 3},       {0.5, 128, 4},
        {0.5, 256, 5},       {INFINITY, 256, 5}, {0.5, 256, 6},       {INFINITY, 128, 6},
    };
    int w;
    struct ull__graph *g = line(&w, &options);
    struct ref *ref = start(g, w, 0.1);
    (void)state;
    ref_control(ref, "loss_scale", 1024);
    ref_control(ref, "hysteresis_left", 2);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i) {
        ref_data(ref, tensor_named(g, "c"))[0] = steps[i].slope;
        ref_run(ref, ULL_PHASE_MICRO);
        ref_run(ref, ULL_PHASE_UPDATE);
        double expected = adam(first[0], 0.5, (int)steps[i].step, 0.1);
        assert_true(fabs(ref_data(ref, w)[0] - expected) < 1e-13);
        assert_true(ref_data(ref, tensor_named(g, "step"))[0] == steps[i].step);
        if (ref_data(ref, tensor_named(g, "loss_scale"))[0] != steps[i].scale) {
            fail_msg("after step %zu the scale is %g, expected %g", i,
                     ref_data(ref, tensor_named(g, "loss_scale"))[0], steps[i].scale);
        }
    }
    ref_destroy(ref);
    ull__graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers_follow_their_formulas),
        cmocka_unit_test(clipping_counts_without_the_scale),
        cmocka_unit_test(infinite_steps_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
