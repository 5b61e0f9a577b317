/*
 * rungs.c: predicted against measured seconds of a step, at every rung of a training's ladder of plans.
 *
 *     bench_rungs MODEL [-b BATCH] [-n STEPS] [-t THREADS] [-p PRECISION] [-s SHRINK] [-o]
 *
 * Starts with all memory, and takes away as much that the plan in force does not fit any more, until nothing fits; SHRINK below 1
 * takes at least so much away (0.9: a tenth), for fewer rungs. Each rung is run for six steps, and then for STEPS. Printed of each: what
 * was predicted from kernels timed alone at the start; what was just before it ran, learned from the rungs before; what was after
 * the six; and the median of the STEPS behind them. -o: with the optimizer's state in the second region.
 *
 * Samples are made up here, so that reading them takes no time; the rest is `ullage train`.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "cpu.h"
#include "session.h"
#include "zoo.h"

/* Steps of a rung before those that are measured: the first touches memory for the first time, from the others is learned. */
enum { LEARNING = 6 };

struct drawn {
    int64_t elements, targets, classes;
    bool tokens;
};

static uint64_t valid(void *context, int64_t first, int64_t count)
{
    const struct drawn *drawn = context;
    (void)first;
    return (uint64_t)(count * drawn->targets);
}

static uint32_t draw(uint64_t at)
{
    at = (at + 1) * UINT64_C(0x9e3779b97f4a7c15);
    at = (at ^ at >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(at >> 32);
}

static ull_status read_samples(void *context, int64_t first, int64_t count, void *x,
                               int32_t *targets, struct ull_error *err)
{
    const struct drawn *drawn = context;
    (void)err;
    for (int64_t i = 0; i < count * drawn->elements; ++i) {
        uint32_t what = draw((uint64_t)(first * drawn->elements + i));
        if (drawn->tokens) {
            ((int32_t *)x)[i] = (int32_t)(what % (uint64_t)drawn->classes);
        } else {
            ((float *)x)[i] = (float)(what % 2001) / 1000 - 1;
        }
    }
    for (int64_t i = 0; i < count * drawn->targets; ++i) {
        targets[i] =
            (int32_t)(draw((uint64_t)(first * drawn->targets + i) + 7) % (uint64_t)drawn->classes);
    }
    return ULL_OK;
}

static bool has_state_there(void *context, int64_t length, const struct ull__plan *plan)
{
    (void)length;
    return plan->offload_optimizer == *(const bool *)context;
}

static int by_seconds(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

struct tally {
    int rungs, within[3]; /* at the start, before, after */
    double low[3], high[3];
};

static void count(struct tally *tally, const double predicted[3], double measured)
{
    tally->rungs += 1;
    for (int i = 0; i < 3; ++i) {
        double ratio = predicted[i] / measured;
        tally->within[i] += ratio >= 0.85 && ratio <= 1.15;
        tally->low[i] = tally->low[i] == 0 || ratio < tally->low[i] ? ratio : tally->low[i];
        tally->high[i] = ratio > tally->high[i] ? ratio : tally->high[i];
    }
}

/* Runs the plan in force. */
static void run_rung(struct ull__session *session, const struct ull__source *source, int steps,
                     struct tally *tally)
{
    struct ull__session_info info;
    struct ull__step_result result;
    struct ull_error err = {{0}};
    double *took = calloc((size_t)steps + 1, sizeof(*took)), predicted[3];
    ull__session_info(session, &info);
    struct ull__plan plan = *info.chosen;
    predicted[0] = info.buckets[0].planned_seconds;
    predicted[1] = info.buckets[0].predicted_seconds;
    for (int i = 0; i < LEARNING + steps; ++i) {
        if (ull__session_step(session, source, 0.001, &result, &err) != ULL_OK) {
            bench_die("a step", err.message);
        }
        took[i < LEARNING ? 0 : i - LEARNING] = result.seconds;
        if (i + 1 == LEARNING) {
            ull__session_info(session, &info);
            predicted[2] = info.buckets[0].predicted_seconds;
        }
    }
    qsort(took, (size_t)steps, sizeof(*took), by_seconds);
    double measured = steps % 2 != 0 ? took[steps / 2] : (took[steps / 2] + took[steps / 2 - 1]) / 2;
    count(tally, predicted, measured);
    printf("| %lld x %lld%s | %.0f | %.0f | %.0f | %.4f | %.4f | %.4f | %.4f (%.4f to %.4f) | "
           "%.2f | %.2f | %.2f |\n",
           (long long)plan.accumulation, (long long)plan.micro_batch,
           plan.chunked_loss ? ", loss in turns" : "", (double)info.predicted_peak_bytes / 1048576,
           (double)plan.cost.dropped_bytes / 1048576, (double)plan.cost.sent_bytes / 1048576,
           predicted[0], predicted[1], predicted[2], measured, took[0], took[steps - 1],
           predicted[0] / measured, predicted[1] / measured, predicted[2] / measured);
    fflush(stdout);
    free(took);
}

static void walk(struct ull__session *session, int steps, double shrink)
{
    struct ull__session_info info;
    struct tally tally = {0};
    struct ull_error err = {{0}};
    ull__session_info(session, &info);
    struct drawn drawn = {info.sample_elements, info.sample_targets, info.classes, info.tokens};
    struct ull__source source = {.context = &drawn, .valid = valid, .read = read_samples};
    printf("| micro-batches | MiB | made again, MiB | sent, MiB | predicted at the start, s | "
           "before it "
           "ran | after | measured (range) | ratios: start | before | after |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (;;) {
        bool changed;
        run_rung(session, &source, steps, &tally);
        ull__session_info(session, &info);
        double next = shrink * (double)info.predicted_peak_bytes;
        uint64_t room = info.predicted_peak_bytes - 1;
        room = next < (double)room ? (uint64_t)next : room;
        if (ull__session_replan(session, room + ull__planner_profile(info.planner)->outside_bytes,
                                0, 0, &changed, &err) != ULL_OK) {
            printf("%s\n", err.message);
            break;
        }
    }
    static const char *const names[] = {"at the start", "before it ran", "after"};
    for (int i = 0; i < 3; ++i) {
        printf("%s: %d of %d rungs within 15 %%, ratios %.2f to %.2f\n", names[i], tally.within[i],
               tally.rungs, tally.low[i], tally.high[i]);
    }
}

int main(int argc, char **argv)
{
    int option, steps = 5, threads = 0;
    double shrink = 1;
    bool offload = false;
    struct ull__profile profile = {.name = "cpu",
                                   .memory_bytes = UINT64_C(1) << 36,
                                   .host_bytes = UINT64_C(1) << 36,
                                   .bytes_per_second = 9e9,
                                   .matrix_per_second = 3.3e10,
                                   .matrix_half_per_second = 3e10,
                                   .flops_per_second = 4e9,
                                   .link_per_second = 5e9,
                                   .host_bytes_per_second = 9e9,
                                   .launch_seconds = 3e-6,
                                   .bf16 = true,
                                   .f16 = true,
                                   .lean_convolution = 1,
                                   .alignment = 64};
    struct ull__session_options options = {
        .seed = 1,
        .budget_bytes = UINT64_C(1) << 35,
        .accepts = has_state_there,
        .context = &offload,
        .plan = {.profile = &profile,
                 .batch = 64,
                 .precision = ULL_PRECISION_F32,
                 .optimizer = ULL_OPTIMIZER_SGD,
                 .attrs = {.momentum = 0.9, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8}}};
    while ((option = getopt(argc, argv, "b:n:t:p:s:o")) != -1) {
        switch (option) {
        case 'b':
            options.plan.batch = strtoll(optarg, NULL, 10);
            break;
        case 'n':
            steps = (int)strtol(optarg, NULL, 10);
            break;
        case 't':
            threads = (int)strtol(optarg, NULL, 10);
            break;
        case 's':
            shrink = strtod(optarg, NULL);
            break;
        case 'o':
            offload = true;
            break;
        case 'p':
            if (ull__precision_parse(optarg, &options.plan.precision)) {
                break;
            }
            /* fall through */
        default:
            bench_die("usage",
                      "bench_rungs MODEL [-b BATCH] [-n STEPS] [-t THREADS] [-p PRECISION] "
                      "[-s SHRINK] [-o]");
        }
    }
    struct ull_error err = {{0}};
    struct ull__graph *model;
    struct ull__session *session;
    struct ull__cpu_options cpu = {.threads = threads};
    if (optind >= argc || steps < 1) {
        bench_die("usage", "which model?");
    }
    options.plan.host_bytes = ULL_NONE;
    if (strncmp(argv[optind], "gpt", 3) == 0) {
        options.plan.optimizer = ULL_OPTIMIZER_ADAMW;
        options.plan.attrs.weight_decay = 0.1;
        options.plan.attrs.limit = 1;
    }
    if (ull__zoo_build(argv[optind], &model, &err) != ULL_OK ||
        ull__cpu_create(&cpu, &options.backend, &err) != ULL_OK) {
        bench_die(argv[optind], err.message);
    }
    options.model = model;
    if (ull__session_create(&options, &session, &err) != ULL_OK) {
        bench_die(argv[optind], err.message);
    }
    walk(session, steps, shrink);
    ull__session_destroy(session);
    ull__graph_destroy(model);
    options.backend->ops->destroy(options.backend);
    return 0;
}
