/*
 * test_eager.c: PyTorch's memory, simulated, beside what PyTorch needed on an H200 (PyTorch 2.11, cuDNN 9.19; a GPT-2 with a
 * vocabulary of 50,304, torchvision's ResNet-50). Within half a percent on average, and 2 % each.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "eager.h"
#include "zoo.h"

static const struct {
    const char *model;
    int64_t batch;
    bool amp, checkpoint;
    int64_t accumulation;
    int64_t measured;
} rows[] = {
    {"gpt2-124m:vocab=50304", 32, false, false, 1, 40900723712},
    {"gpt2-124m:vocab=50304", 32, true, false, 1, 32654406656},
    {"gpt2-124m:vocab=50304", 32, true, true, 1, 22781527040},
    {"gpt2-124m:vocab=50304", 32, true, false, 8, 6181854208},
    {"gpt2-1558m:vocab=50304", 8, true, false, 1, 49833396224},
    {"resnet50", 256, false, false, 1, 22589681664},
    {"resnet50", 256, true, false, 1, 11920474112},
    {"resnet50", 256, true, false, 4, 3417463296},
    {"resnet50:image=2160x3840", 4, false, false, 1, 57753283072},
    {"resnet50:image=2160x3840", 4, true, false, 1, 30064245248},
    {"resnet50:image=2160x3840", 4, true, false, 4, 8042113024},
    {"resnet50:image=2160x3840", 4, false, false, 4, 14840826368},
    {"resnet50:image=2160x3840", 4, false, true, 4, 5104080384},
};

static void measured_peaks(void **state)
{
    double sum = 0;
    size_t count = sizeof(rows) / sizeof(rows[0]);
    (void)state;
    for (size_t i = 0; i < count; ++i) {
        struct ull__graph *graph;
        int64_t values[ULL_SYMBOLS], peak = 0;
        struct ull_error err = {{0}};
        struct ull__eager_mode mode = {.amp = rows[i].amp,
                                       .checkpoint = rows[i].checkpoint,
                                       .accumulation = rows[i].accumulation,
                                       .optimizer = ULL_OPTIMIZER_ADAMW};
        if (ull__zoo_build(rows[i].model, &graph, &err) != ULL_OK) {
            fail_msg("%s", err.message);
        }
        ull__graph_values(graph, rows[i].batch / rows[i].accumulation, values);
        if (ull__eager_peak(graph, values, &mode, &peak, &err) != ULL_OK) {
            fail_msg("%s", err.message);
        }
        double off = fabs((double)peak / (double)rows[i].measured - 1);
        if (off > 0.02) {
            fail_msg("%s: %lld bytes where %lld were measured", rows[i].model, (long long)peak,
                     (long long)rows[i].measured);
        }
        sum += off;
        ull__graph_destroy(graph);
    }
    assert_true(sum / (double)count < 0.005);
}

/* Every model of the zoo, in every mode: nothing is left behind, and each technique saves. */
static void techniques_save(void **state)
{
    (void)state;
    for (int i = 0; ull__zoo[i].name != NULL; ++i) {
        struct ull__graph *graph;
        int64_t values[ULL_SYMBOLS], plain, mixed, again, cut;
        assert_int_equal(ull__zoo_build(ull__zoo[i].name, &graph, NULL), ULL_OK);
        ull__graph_values(graph, 64, values);
        struct ull__eager_mode mode = {.accumulation = 1, .optimizer = ULL_OPTIMIZER_ADAM};
        assert_int_equal(ull__eager_peak(graph, values, &mode, &plain, NULL), ULL_OK);
        mode.checkpoint = true;
        assert_int_equal(ull__eager_peak(graph, values, &mode, &again, NULL), ULL_OK);
        mode.checkpoint = false;
        mode.amp = true;
        assert_int_equal(ull__eager_peak(graph, values, &mode, &mixed, NULL), ULL_OK);
        mode.amp = false;
        mode.accumulation = 4;
        ull__graph_values(graph, 16, values);
        assert_int_equal(ull__eager_peak(graph, values, &mode, &cut, NULL), ULL_OK);
        assert_true(again <= plain);
        /* Where weights are most of it, 16 bits and sums of gradients cost more than they save. */
        if (plain > 20 * 16 * ull__graph_parameters(graph)) {
            assert_true(mixed < plain);
            assert_true(cut < plain);
        }
        ull__graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_peaks),
        cmocka_unit_test(techniques_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
