/* trainee.c: see trainee.h. */
#include "trainee.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "zoo.h"

const struct ull__profile trainee_profile = {.name = "test",
                                             .memory_bytes = UINT64_C(1) << 34,
                                             .host_bytes = UINT64_C(1) << 34,
                                             .bytes_per_second = 1e10,
                                             .matrix_per_second = 1e11,
                                             .matrix_half_per_second = 1e11,
                                             .flops_per_second = 1e10,
                                             .link_per_second = 5e9,
                                             .host_bytes_per_second = 1e10,
                                             .launch_seconds = 1e-6,
                                             .bf16 = true,
                                             .f16 = true,
                                             .lean_convolution = 1,
                                             .alignment = 64};

static uint32_t draw(uint64_t at)
{
    at = (at + 1) * UINT64_C(0x9e3779b97f4a7c15);
    at = (at ^ at >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(at >> 32);
}

/* Every ninth target does not count. */
static int32_t target_of(const struct trainee *trainee, int64_t i)
{
    return i % 9 == 8 ? -100 : (int32_t)(draw((uint64_t)i) % (uint64_t)trainee->classes);
}

static uint64_t valid(void *context, int64_t first, int64_t count)
{
    const struct trainee *trainee = context;
    uint64_t sum = 0;
    for (int64_t i = 0; i < count * trainee->targets; ++i) {
        sum += target_of(trainee, (trainee->first + first) * trainee->targets + i) != -100;
    }
    return sum;
}

static ull_status read_samples(void *context, int64_t first, int64_t count, void *x,
                               int32_t *targets, struct ull_error *err)
{
    const struct trainee *trainee = context;
    (void)err;
    int64_t from = trainee->first + first;
    for (int64_t i = 0; i < count * trainee->elements; ++i) {
        uint32_t drawn = draw((uint64_t)(from * trainee->elements + i) + 77);
        if (trainee->tokens) {
            ((int32_t *)x)[i] = (int32_t)(drawn % (uint64_t)trainee->classes);
        } else {
            ((float *)x)[i] = (float)(drawn % 2001) / 1000 - 1;
        }
    }
    for (int64_t i = 0; i < count * trainee->targets; ++i) {
        targets[i] = target_of(trainee, from * trainee->targets + i);
    }
    return ULL_OK;
}

struct trainee *trainee_create(const char *model, struct ull__session_options options)
{
    struct trainee *made = calloc(1, sizeof(*made));
    struct ull_error err = {{0}};
    struct ull__session_info info;
    if (ull__zoo_build(model, &made->graph, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    if (options.backend == NULL) {
        struct ull__cpu_options cpu = {.threads = 2};
        assert_int_equal(ull__cpu_create(&cpu, &made->cpu, &err), ULL_OK);
        options.backend = made->cpu;
    }
    options.model = made->graph;
    options.seed = options.seed > 0 ? options.seed : 5;
    options.plan.profile = options.plan.profile != NULL ? options.plan.profile : &trainee_profile;
    options.plan.attrs.momentum = options.plan.attrs.momentum > 0 ? options.plan.attrs.momentum : 0.9;
    options.plan.attrs.beta1 = 0.9;
    options.plan.attrs.beta2 = 0.99;
    options.plan.attrs.epsilon = 1e-8;
    options.plan.attrs.weight_decay = 1e-3;
    if (ull__session_create(&options, &made->session, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    ull__session_info(made->session, &info);
    made->elements = info.sample_elements;
    made->targets = info.sample_targets;
    made->classes = info.classes;
    made->tokens = info.tokens;
    made->source = (struct ull__source){.context = made, .valid = valid, .read = read_samples};
    return made;
}

void trainee_destroy(struct trainee *trainee)
{
    ull__session_destroy(trainee->session);
    ull__graph_destroy(trainee->graph);
    if (trainee->cpu != NULL) {
        trainee->cpu->ops->destroy(trainee->cpu);
    }
    free(trainee);
}

double trainee_step(struct trainee *trainee, double rate)
{
    struct ull__step_result result;
    struct ull_error err = {{0}};
    if (ull__session_step(trainee->session, &trainee->source, rate, &result, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    trainee->first += result.micro_batch * result.micro_steps;
    return result.loss;
}

bool trainee_same(struct trainee *a, struct trainee *b)
{
    int count, others;
    const struct ull__session_tensor *x = ull__session_tensors(a->session, &count);
    const struct ull__session_tensor *y = ull__session_tensors(b->session, &others);
    bool same = count == others;
    for (int i = 0; same && i < count; ++i) {
        same = strcmp(x[i].name, y[i].name) == 0 && x[i].bytes == y[i].bytes &&
               memcmp(x[i].data, y[i].data, x[i].bytes) == 0;
        if (!same) {
            print_message("%s differs\n", x[i].name);
        }
    }
    return same;
}

double trainee_difference(struct trainee *a, struct trainee *b)
{
    int count, others;
    const struct ull__session_tensor *x = ull__session_tensors(a->session, &count);
    const struct ull__session_tensor *y = ull__session_tensors(b->session, &others);
    double worst = 0;
    for (int i = 0, j = 0; i < count; ++i) {
        while (j < others && (strcmp(x[i].name, y[j].name) != 0 || x[i].role != y[j].role)) {
            j += 1;
        }
        if (j == others || x[i].role != ULL_ROLE_PARAMETER) {
            j = 0;
            continue;
        }
        const float *p = x[i].data, *q = y[j].data;
        double largest = 1e-6, difference = 0;
        for (size_t k = 0; k < x[i].bytes / sizeof(float); ++k) {
            largest = fmax(largest, fabs((double)p[k]));
            difference = fmax(difference, fabs((double)p[k] - (double)q[k]));
        }
        worst = fmax(worst, difference / largest);
    }
    return worst;
}
