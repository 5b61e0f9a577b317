/* test_reader.c: a batch depends on its position alone: not on threads, buffers, jumps or what was before. */
#include "world.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "data_private.h"

static struct ull__data *synthetic(const char *options, int64_t tokens)
{
    struct ull_error err = {""};
    struct ull__data_spec spec;
    struct ull__data *data = NULL;
    char text[200];
    snprintf(text, sizeof text, "synthetic,%s", options);
    struct ull__data_want want = {.window = tokens, .seed = 5};
    if (ull__data_spec_parse(text, &spec, &err) != ULL_OK ||
        ull__data_open(&spec, &want, &data, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return data;
}

enum { BATCH = 7, SIZE = 2 * 5 * 4 };

static void nothing_else_matters(void **state)
{
    (void)state;
    struct ull__data *data = synthetic("samples=50,classes=4,shape=2x5x4", 0);
    static float all[400][SIZE];
    static int32_t labels[400];
    struct ull__reader_options options = {.shuffle = true, .augment = true, .seed = 9};
    struct ull__reader *plain = world_reader(data, &options);
    world_batch(plain, 0, 400, all, labels);
    ull__reader_destroy(plain);
    static char memory[4096 + 3];
    for (int variant = 0; variant < 40; variant++) {
        options.threads = variant % 5;
        options.buffer_bytes = variant % 4 == 0 ? 0 : (size_t)(variant % 4) * 600;
        options.buffer = variant % 3 ? NULL : memory + 3;
        struct ull__reader *reader = world_reader(data, &options);
        uint64_t position = 0;
        struct ull__draws {
            uint64_t state;
        } draws = {(uint64_t)variant};
        for (int i = 0; i < 60; i++) {
            float x[BATCH][SIZE];
            int32_t y[BATCH];
            draws.state = draws.state * 6364136223846793005u + 1442695040888963407u;
            if (draws.state >> 62 == 0)
                position = draws.state % 390;
            size_t count = 1 + draws.state / 1000 % BATCH;
            if (position + count > 400)
                position = 0;
            world_batch(reader, position, count, x, y);
            assert_memory_equal(x, all[position], count * sizeof x[0]);
            assert_memory_equal(y, labels + position, count * sizeof y[0]);
            position += count;
        }
        ull__reader_destroy(reader);
    }
    ull__data_close(data);
}

/* --- What is made, counted --- */

static const struct ull__source *counted;
static _Atomic int made[100]; /* of each sample */

static ull_status count_sample(const struct ull__data *data, uint64_t index,
                               const struct ull__turn *turn, struct ull__scratch *scratch, void *x,
                               int32_t *targets)
{
    made[index]++;
    return counted->sample(data, index, turn, scratch, x, targets);
}

/* Data of which it is counted what is made; nothing was yet. */
static struct ull__data *open_counted(const char *options)
{
    static struct ull__source source;
    struct ull__data *data = synthetic(options, 0);
    counted = data->source;
    source = *counted;
    source.sample = count_sample;
    data->source = &source;
    for (int i = 0; i < 100; i++)
        made[i] = 0;
    return data;
}

/* Ends a reader whose threads had time to make what they should not. */
static void end_late(struct ull__reader *reader)
{
    nanosleep(&(struct timespec){0, 5000000}, NULL);
    ull__reader_destroy(reader);
}

/* Ranks of a batch of 12, over the ends of epochs and with another number of them from some step on; the parts that they read
   it in change, too. Each makes its own samples once, and what is in the buffer besides; nothing beyond the end of the run. */
static void ranks_make_their_own(void **state)
{
    (void)state;
    enum { WHOLE = 12, STEPS = 20, SAMPLES = 100 };
    struct ull__data *data = open_counted("samples=100,classes=100,shape=1x2x2");
    const size_t slot = 64; /* of 4 values and a label */
    static float all[STEPS * WHOLE][4];
    static int32_t labels[STEPS * WHOLE];
    struct ull__reader_options options = {.seed = 3};
    struct ull__reader *plain = world_reader(data, &options);
    world_batch(plain, 0, STEPS * WHOLE, all, labels);
    ull__reader_destroy(plain);
    options.threads = 2;
    for (uint64_t buffered = 1; buffered <= 16; buffered *= 4) {
        options.buffer_bytes = buffered * slot;
        for (uint64_t rank = 0, ranks = 3, first = 0; first < STEPS; rank++) {
            uint64_t until = ranks == 3 ? 11 : STEPS, own = WHOLE / ranks;
            for (int i = 0; i < SAMPLES; i++)
                made[i] = 0;
            options.share = (struct ull__data_share){rank * own, own, WHOLE};
            options.until = STEPS * WHOLE;
            struct ull__reader *reader = world_reader(data, &options);
            for (uint64_t step = first; step < until; step++) {
                uint64_t part = 1 + step % own;
                for (uint64_t at = 0, here; at < own; at += here) {
                    float x[WHOLE][4];
                    int32_t y[WHOLE];
                    here = own - at < part ? own - at : part;
                    uint64_t position = step * WHOLE + rank * own + at;
                    world_batch(reader, position, here, x, y);
                    assert_memory_equal(x, all[position], here * sizeof x[0]);
                    assert_memory_equal(y, labels + position, here * sizeof y[0]);
                }
            }
            end_late(reader);
            uint64_t sum = 0, most = ranks == 3 ? until * own + buffered : until * own;
            int due[SAMPLES] = {0};
            for (uint64_t number = first * own; number < most; number++) {
                uint64_t sample = (number / own * WHOLE + rank * own + number % own) % SAMPLES;
                due[sample]++;
            }
            for (int i = 0; i < SAMPLES; i++) {
                assert_true(made[i] <= due[i]);
                sum += (uint64_t)made[i];
            }
            assert_in_range(sum, (until - first) * own, most - first * own);
            if (rank + 1 == ranks) {
                rank = UINT64_MAX;
                first = until;
                ranks = 4;
            }
        }
    }
    ull__data_close(data);
}

/* Evaluated again and again, by ranks of which one has nothing: each part is made once each time, and nothing behind it. */
static void evaluations_end(void **state)
{
    (void)state;
    enum { RANKS = 3, TIMES = 3 };
    struct ull__data *data = open_counted("samples=100,classes=100,shape=1x2x2");
    for (uint64_t whole = 2; whole <= 8; whole += 3) {
        for (uint64_t rank = 0; rank < RANKS; rank++) {
            uint64_t first = whole * rank / RANKS, end = whole * (rank + 1) / RANKS;
            struct ull__reader_options options = {.part = ULL_DATA_EVAL,
                                                  .most = whole,
                                                  .share = {first, end - first, whole},
                                                  .threads = 2,
                                                  .buffer_bytes = 4096};
            for (int i = 0; i < 100; i++)
                made[i] = 0;
            struct ull__reader *reader = world_reader(data, &options);
            for (int i = 0; i < TIMES; i++) {
                float x[8][4];
                int32_t y[8];
                world_batch(reader, first, end - first, x, y);
            }
            end_late(reader);
            for (uint64_t i = 0; i < whole; i++)
                assert_int_equal(made[i], i >= first && i < end ? TIMES : 0);
        }
    }
    ull__data_close(data);
}

/* What is not in the share is read as well; a share larger than its row is none. */
static void others_samples(void **state)
{
    (void)state;
    struct ull__data *data = synthetic("samples=50,classes=50,shape=1x2x2", 0);
    float all[60][4], x[60][4];
    int32_t labels[60], y[60];
    struct ull__reader_options options = {.threads = 0};
    struct ull__reader *reader = world_reader(data, &options);
    world_batch(reader, 0, 60, all, labels);
    ull__reader_destroy(reader);
    options = (struct ull__reader_options){.share = {2, 3, 7}, .threads = 2, .buffer_bytes = 10 * 64};
    reader = world_reader(data, &options);
    for (uint64_t position = 0; position < 50; position += 3) {
        world_batch(reader, position, 10, x, y);
        assert_memory_equal(x, all[position], 10 * sizeof x[0]);
        assert_memory_equal(y, labels + position, 10 * sizeof y[0]);
    }
    ull__reader_destroy(reader);
    struct ull_error err = {""};
    options.share = (struct ull__data_share){5, 3, 7};
    assert_int_equal(ull__reader_create(data, &options, &reader, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "a share of 3 samples from 5 on: there are 7"));
    ull__data_close(data);
}

/* --- */

/* Each epoch has every sample once, in another order; another seed has another one. */
static void epochs(void **state)
{
    (void)state;
    struct ull__data *data = synthetic("samples=30,classes=30,shape=1x2x2", 0);
    int32_t order[4][30];
    for (int variant = 0; variant < 4; variant++) {
        struct ull__reader_options options = {.shuffle = variant > 0, .seed = variant == 3};
        struct ull__reader *reader = world_reader(data, &options);
        float x[30][4];
        world_batch(reader, variant == 2 ? 30 : 0, 30, x, order[variant]);
        bool seen[30] = {false};
        for (int i = 0; i < 30; i++) {
            assert_in_range(order[variant][i], 0, 29);
            assert_false(seen[order[variant][i]]);
            seen[order[variant][i]] = true;
        }
        for (int other = 0; other < variant; other++)
            assert_memory_not_equal(order[variant], order[other], sizeof order[0]);
        ull__reader_destroy(reader);
    }
    for (int i = 0; i < 30; i++)
        assert_int_equal(order[0][i], i);
    ull__data_close(data);
}

/* The nearest mean of a class says the class of most others: there is something to learn. */
static void made_up_pictures_can_be_learned(void **state)
{
    (void)state;
    enum { CLASSES = 10, PIXELS = 28 * 28, TRAIN = 400, EVAL = 200 };
    struct ull__data *data = synthetic("samples=1200,classes=10", 0);
    assert_int_equal(ull__data_info(data)->samples[1], 200);
    static float mean[CLASSES][PIXELS], x[PIXELS];
    int32_t y;
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    for (uint64_t i = 0; i < TRAIN; i++) {
        world_batch(reader, i, 1, x, &y);
        for (int k = 0; k < PIXELS; k++)
            mean[y][k] += x[k] / (TRAIN / CLASSES);
    }
    ull__reader_destroy(reader);
    reader = world_reader(data, &(struct ull__reader_options){.part = ULL_DATA_EVAL});
    int right = 0;
    double first = 0;
    for (uint64_t i = 0; i < EVAL; i++) {
        world_batch(reader, i, 1, x, &y);
        first += (double)x[0] * (double)x[1];
        int best = 0;
        double least = INFINITY;
        for (int c = 0; c < CLASSES; c++) {
            double distance = 0;
            for (int k = 0; k < PIXELS; k++)
                distance += (double)((x[k] - mean[c][k]) * (x[k] - mean[c][k]));
            if (distance < least) {
                least = distance;
                best = c;
            }
        }
        right += best == y;
    }
    assert_true(isfinite(first));
    assert_true(right > EVAL * 9 / 10);
    ull__reader_destroy(reader);
    ull__data_close(data);
}

static void made_up_tokens_can_be_learned(void **state)
{
    (void)state;
    enum { VOCAB = 16, WINDOW = 64 };
    struct ull__data *data = synthetic("samples=400,vocab=16", WINDOW);
    static int count[VOCAB][VOCAB];
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    for (uint64_t i = 0; i < 400; i++) {
        int32_t x[WINDOW], y[WINDOW];
        world_batch(reader, i, 1, x, y);
        for (int k = 0; k < WINDOW; k++) {
            assert_in_range(y[k], 0, VOCAB - 1);
            assert_true(k == 0 || x[k] == y[k - 1]);
            count[x[k]][y[k]]++;
        }
    }
    int total = 0, likely = 0;
    for (int a = 0; a < VOCAB; a++) {
        int most = 0;
        for (int b = 0; b < VOCAB; b++) {
            total += count[a][b];
            most = count[a][b] > most ? count[a][b] : most;
        }
        likely += most;
    }
    double share = (double)likely / total; /* 0.75 + 0.25 / 16 */
    assert_true(share > 0.75 && share < 0.78);
    ull__reader_destroy(reader);
    ull__data_close(data);
}

static void parts_that_are_not_there(void **state)
{
    (void)state;
    struct ull__data *data = synthetic("samples=3,split=none", 0);
    struct ull__reader *reader = NULL;
    struct ull_error err = {""};
    struct ull__reader_options options = {.part = ULL_DATA_EVAL};
    assert_int_equal(ull__reader_create(data, &options, &reader, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "evaluation"));
    assert_null(reader);
    ull__reader_destroy(NULL);
    ull__data_close(data);
    ull__data_close(NULL);
}

/* Ended at any moment, with threads in the middle of something. */
static void ended_early(void **state)
{
    (void)state;
    struct ull__data *data = synthetic("samples=100,shape=3x40x40", 0);
    float *x = malloc(20 * ull__data_info(data)->sample_bytes);
    int32_t y[20];
    for (int i = 0; i < 30; i++) {
        struct ull__reader_options options = {.threads = 4, .buffer_bytes = 1 << 20};
        struct ull__reader *reader = world_reader(data, &options);
        for (int k = 0; k < i % 4; k++)
            world_batch(reader, (uint64_t)(k * (i % 3 ? 20 : 37)), 20, x, y);
        ull__reader_destroy(reader);
    }
    free(x);
    ull__data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_else_matters),
        cmocka_unit_test(ranks_make_their_own),
        cmocka_unit_test(evaluations_end),
        cmocka_unit_test(others_samples),
        cmocka_unit_test(epochs),
        cmocka_unit_test(made_up_pictures_can_be_learned),
        cmocka_unit_test(made_up_tokens_can_be_learned),
        cmocka_unit_test(parts_that_are_not_there),
        cmocka_unit_test(ended_early),
    };
    return cmocka_run_group_tests_name("reader", tests, NULL, NULL);
}
