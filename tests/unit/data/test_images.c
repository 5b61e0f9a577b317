/* test_images.c: pictures of all kinds become the right numbers; folders that are wrong are named. */
#include "world.h"

#include <math.h>

#include <png.h>

static const struct ull__data_want any = {.window = 0};

/* One sample of a part as it is, its values from 0 to 255. */
static int32_t read_one(const char *spec, const int64_t shape[3], uint64_t index, float *x)
{
    char text[600];
    snprintf(text, sizeof text, "%s,mean=0,std=1,split=none", spec);
    struct ull__data_want want = {.shape = {shape[0], shape[1], shape[2]}};
    struct ull__data *data = world_open(text, &want);
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    int32_t label = -1;
    world_batch(reader, index, 1, x, &label);
    for (int64_t i = 0; i < shape[0] * shape[1] * shape[2]; i++)
        x[i] *= 255;
    ull__reader_destroy(reader);
    ull__data_close(data);
    return label;
}

/* Values of a picture that is w x h and cut to the middle 7/8, which for 8 x 8 is 7 x 7 from 0, 0 on. */
static void expect_middle(const float *x, const uint8_t *pixels, int channels, double bound)
{
    for (int c = 0; c < channels; c++)
        for (int r = 0; r < 7; r++)
            for (int k = 0; k < 7; k++) {
                double want = pixels[(r * 8 + k) * channels + c], got = (double)x[c * 49 + r * 7 + k];
                if (fabs(want - got) > bound)
                    fail_msg("channel %d, row %d, column %d: %g, expected %g", c, r, k, got, want);
            }
}

static uint8_t colours[8 * 8 * 3], grays[8 * 8];

static int begin(void **state)
{
    for (int i = 0; i < 64; i++) {
        grays[i] = (uint8_t)(40 + 3 * (i % 8) + 9 * (i / 8));
        colours[3 * i] = grays[i];
        colours[3 * i + 1] = (uint8_t)(255 - grays[i]);
        colours[3 * i + 2] = (uint8_t)(i * 2);
    }
    world_begin(state);
    world_mkdir("d");
    world_mkdir("d/a");
    return 0;
}

static void png_of_all_kinds(void **state)
{
    (void)state;
    float x[3 * 49];
    const int64_t shape[3] = {3, 7, 7}, gray[3] = {1, 7, 7};
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        world_png("d/a/x.png", 8, 8, PNG_COLOR_TYPE_RGB, 8, interlaced, colours);
        assert_int_equal(read_one("d", shape, 0, x), 0);
        expect_middle(x, colours, 3, 1e-3);
        world_png("d/a/x.png", 8, 8, PNG_COLOR_TYPE_GRAY, 8, interlaced, grays);
        read_one("d", gray, 0, x);
        expect_middle(x, grays, 1, 1e-3);
    }
    read_one("d", shape, 0, x); /* gray as colours */
    for (int c = 0; c < 3; c++)
        expect_middle(x + 49 * c, grays, 1, 1e-3);
    uint8_t alpha[8 * 8 * 4], wide[8 * 8 * 6], want[8 * 8 * 3], bits[8];
    for (int i = 0; i < 64; i++)
        for (int c = 0; c < 4; c++)
            alpha[4 * i + c] = c < 3 ? colours[3 * i + c] : (uint8_t)i;
    world_png("d/a/x.png", 8, 8, PNG_COLOR_TYPE_RGB_ALPHA, 8, false, alpha);
    read_one("d", shape, 0, x);
    expect_middle(x, colours, 3, 1e-3);
    for (int i = 0; i < 192; i++) {
        wide[2 * i] = colours[i];
        wide[2 * i + 1] = colours[i];
    }
    world_png("d/a/x.png", 8, 8, PNG_COLOR_TYPE_RGB, 16, false, wide);
    read_one("d", shape, 0, x);
    expect_middle(x, colours, 3, 1e-3);
    for (int i = 0; i < 64; i++) {
        want[3 * i] = grays[i];
        want[3 * i + 1] = (uint8_t)(255 - grays[i]);
        want[3 * i + 2] = 7;
    }
    world_png("d/a/x.png", 8, 8, PNG_COLOR_TYPE_PALETTE, 8, false, grays);
    read_one("d", shape, 0, x);
    expect_middle(x, want, 3, 1e-3);
    for (int i = 0; i < 8; i++)
        bits[i] = (uint8_t)(0xa5 + i);
    world_png("d/a/x.png", 8, 8, PNG_COLOR_TYPE_GRAY, 1, false, bits);
    read_one("d", gray, 0, x);
    for (int i = 0; i < 64; i++)
        want[i] = bits[i / 8] >> (7 - i % 8) & 1 ? 255 : 0;
    expect_middle(x, want, 1, 1e-3);
}

static void jpeg_of_all_kinds(void **state)
{
    (void)state;
    float x[3 * 49];
    const int64_t shape[3] = {3, 7, 7}, gray[3] = {1, 7, 7};
    world_jpeg("d/a/x.jpg", 8, 8, 1, grays);
    read_one("d", gray, 0, x);
    expect_middle(x, grays, 1, 3);
    read_one("d", shape, 0, x);
    for (int c = 0; c < 3; c++)
        expect_middle(x + 49 * c, grays, 1, 3);
    uint8_t plain[192], ink[256];
    for (int i = 0; i < 64; i++) {
        plain[3 * i] = 200;
        plain[3 * i + 1] = 100;
        plain[3 * i + 2] = 50;
        for (int c = 0; c < 4; c++)
            ink[4 * i + c] = c < 3 ? plain[3 * i + c] : 255; /* inverted, no black */
    }
    world_jpeg("d/a/x.jpg", 8, 8, 3, plain);
    read_one("d", shape, 0, x);
    expect_middle(x, plain, 3, 3);
    world_jpeg("d/a/x.jpg", 8, 8, 4, ink);
    read_one("d", shape, 0, x);
    expect_middle(x, plain, 3, 3);
    read_one("d", gray, 0, x);
    for (int i = 0; i < 49; i++)
        assert_true(fabsf(x[i] - (0.299f * 200 + 0.587f * 100 + 0.114f * 50)) < 3);
}

/* A picture that is much larger keeps its mean colours and its halves in place, by whichever way. */
static void made_smaller(void **state)
{
    (void)state;
    enum { SIDE = 400 };
    uint8_t *pixels = malloc(SIDE * SIDE * 3);
    for (int i = 0; i < SIDE * SIDE; i++) {
        pixels[3 * i] = i % SIDE < SIDE / 2 ? 250 : 10;
        pixels[3 * i + 1] = i / SIDE < SIDE / 2 ? 250 : 10;
        pixels[3 * i + 2] =
            (i + i / SIDE) % 2 ? 255 : 0; /* a board, whose mean is all that may remain */
    }
    float x[2][3 * 20 * 20];
    const int64_t shape[3] = {3, 20, 20};
    world_png("d/a/x.png", SIDE, SIDE, PNG_COLOR_TYPE_RGB, 8, false, pixels);
    read_one("d", shape, 0, x[0]);
    unlink(world_path("d/a/x.png"));
    world_jpeg("d/a/x.jpg", SIDE, SIDE, 3, pixels);
    read_one("d", shape, 0, x[1]);
    free(pixels);
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < 400; i++) {
            int row = i / 20, column = i % 20;
            bool seam = (row >= 9 && row <= 10) || (column >= 9 && column <= 10);
            if (fabsf(x[f][800 + i] - 127.5f) > (f ? 40 : 3)) /* JPEG halves the colours' resolution */
                fail_msg("file %d: the board is %g at %d", f, (double)x[f][800 + i], i);
            if (seam)
                continue;
            float bound = f ? 40 : 1;
            assert_true(fabsf(x[f][i] - (column < 10 ? 250 : 10)) < bound);
            assert_true(fabsf(x[f][400 + i] - (row < 10 ? 250 : 10)) < bound);
        }
}

/* Made larger, a ramp stays one. */
static void made_larger(void **state)
{
    (void)state;
    uint8_t ramp[64];
    for (int i = 0; i < 64; i++)
        ramp[i] = (uint8_t)(20 * (i % 8) + 10);
    world_png("d/a/x.png", 8, 8, PNG_COLOR_TYPE_GRAY, 8, false, ramp);
    float x[28 * 28];
    const int64_t shape[3] = {1, 28, 28};
    read_one("d", shape, 0, x);
    for (int r = 0; r < 28; r++)
        for (int k = 2; k < 26; k++) {
            float want = 20 * ((float)k + 0.5f) / 4; /* 7 pixels on 28, value 20 a pixel from 10 on */
            assert_true(fabsf(x[28 * r + k] - want) < 0.01f);
        }
}

static void crops_stay_inside_and_differ(void **state)
{
    (void)state;
    world_png("d/a/x.png", 8, 8, PNG_COLOR_TYPE_RGB, 8, false, colours);
    struct ull__data_want want = {.shape = {3, 5, 5}};
    struct ull__data *data = world_open("d,mean=0,std=1,split=none", &want);
    struct ull__reader_options options = {.augment = true, .seed = 4};
    struct ull__reader *reader = world_reader(data, &options);
    float first[75], x[75], again[75];
    int32_t y;
    int mirrored = 0, same = 0;
    world_batch(reader, 0, 1, first, &y);
    for (uint64_t p = 0; p < 200; p++) {
        world_batch(reader, p, 1, x, &y);
        for (int i = 0; i < 50; i++)
            assert_true(x[i] * 255 >= 39.9f && x[i] * 255 <= 215.1f);
        mirrored += x[0] > x[4];
        same += p && memcmp(x, first, sizeof x) == 0;
        world_batch(reader, p, 1, again, &y);
        assert_memory_equal(x, again, sizeof x);
    }
    assert_in_range(mirrored, 60, 140);
    assert_in_range(same, 0, 5);
    ull__reader_destroy(reader);
    ull__data_close(data);
}

static void parts_and_classes(void **state)
{
    (void)state;
    static const char *const classes[] = {"a", "b", "c"};
    for (int c = 0; c < 3; c++) {
        char name[64];
        snprintf(name, sizeof name, "d/%s", classes[c]);
        mkdir(world_path("%s", name), 0700);
        for (int i = 0; i < 20; i++) {
            snprintf(name, sizeof name, "d/%s/%02d.%s", classes[c], i, i % 2 ? "PNG" : "jpeg");
            if (i % 2)
                world_png(name, 8, 8, PNG_COLOR_TYPE_GRAY, 8, false, grays);
            else
                world_jpeg(name, 8, 8, 1, grays);
        }
    }
    world_text("d/a/notes.md", "not a picture");
    struct ull__data *data = world_open("d", &any);
    const struct ull__data_info *info = ull__data_info(data);
    assert_int_equal(world_warnings, 1); /* what is left out is said */
    assert_int_equal(info->samples[0] + info->samples[1], 60);
    assert_in_range(info->samples[1], 1, 15);
    assert_int_equal(info->classes, 3);
    assert_true(info->shape[0] == 3 && info->shape[1] == 224 && info->shape[2] == 224);
    assert_string_equal(ull__data_class_name(data, 2), "c");
    assert_null(ull__data_class_name(data, 3));
    char *json;
    assert_int_equal(ull__data_describe(data, &json, NULL), ULL_OK);
    ull__data_close(data);
    /* A file that comes moves no other: at most this one file is new in either part. */
    uint64_t before = 60;
    world_plain("d/b/new.png", 4, 4, 1, 2, 3);
    data = world_open("d", &any);
    assert_int_equal(ull__data_info(data)->samples[0] + ull__data_info(data)->samples[1], before + 1);
    ull__data_close(data);

    /* Other pictures in the terms of the training: labels by name. */
    world_mkdir("e");
    world_mkdir("e/c");
    world_plain("e/c/x.png", 4, 4, 1, 2, 3);
    struct ull__data_want want = {.like = json};
    data = world_open("e,split=none", &want);
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    float *x = malloc(ull__data_info(data)->sample_bytes);
    int32_t label;
    world_batch(reader, 0, 1, x, &label);
    assert_int_equal(label, 2);
    free(x);
    ull__reader_destroy(reader);
    ull__data_close(data);
    world_mkdir("e/z");
    world_plain("e/z/x.png", 4, 4, 1, 2, 3);
    world_bad("e,split=none", &want, ULL_E_FORMAT, "training has not");
    free(json);
    want = (struct ull__data_want){.classes = 2};
    world_bad("d", &want, ULL_E_INVALID, "tells 2 apart");
}

static void train_and_val(void **state)
{
    (void)state;
    const char *folders[] = {"t", "t/train", "t/val", "t/train/a", "t/train/b", "t/val/b"};
    for (int i = 0; i < 6; i++)
        world_mkdir(folders[i]);
    world_plain("t/train/a/1.png", 4, 4, 0, 0, 0);
    world_bad("t", &any, ULL_E_FORMAT, "has no picture");
    world_plain("t/train/b/1.png", 4, 4, 0, 0, 0);
    world_plain("t/val/b/1.png", 4, 4, 0, 0, 0);
    struct ull__data *data = world_open("t", &any);
    assert_int_equal(ull__data_info(data)->samples[0], 2);
    assert_int_equal(ull__data_info(data)->samples[1], 1);
    ull__data_close(data);
    world_bad("t,split=0.5", &any, ULL_E_INVALID, "'split='");
    world_mkdir("t/val/c");
    world_plain("t/val/c/1.png", 4, 4, 0, 0, 0);
    world_bad("t", &any, ULL_E_FORMAT, "t/val/c");
    struct ull__data_want want = {.shape = {2, 8, 8}};
    unlink(world_path("t/val/c/1.png"));
    rmdir(world_path("t/val/c"));
    world_bad("t", &want, ULL_E_INVALID, "1 or 3 channels");
    world_mkdir("only");
    world_bad("only,format=images", &any, ULL_E_FORMAT, "has no folders");
}

/* ---- broken pictures --------------------------------------------------------------------------- */

/* Each cut of a file is either refused or, where only its very end is missing, the same picture. */
static void cut_off_anywhere(void **state)
{
    (void)state;
    const int64_t shape[3] = {3, 7, 7};
    static const char *const names[] = {"d/a/x.jpg", "d/a/x.png"};
    for (int f = 0; f < 2; f++) {
        float want[147], x[147];
        unlink(world_path("%s", names[!f]));
        if (f)
            world_png(names[f], 8, 8, PNG_COLOR_TYPE_RGB, 8, false, colours);
        else
            world_jpeg(names[f], 8, 8, 3, colours);
        read_one("d", shape, 0, want);
        size_t size;
        char *bytes = file_read(world_path("%s", names[f]), &size);
        int refused = 0;
        for (size_t length = 0; length < size; length++) {
            file_write(world_path("%s", names[f]), bytes, length);
            struct ull__data_want as = {.shape = {3, 7, 7}};
            struct ull__data *data = world_open("d,mean=0,std=1,split=none", &as);
            struct ull__reader *reader =
                world_reader(data, &(struct ull__reader_options){.threads = 0});
            int32_t label;
            struct ull_error err = {""};
            ull_status status = ull__data_batch(reader, 0, 1, x, &label, &err);
            if (status != ULL_OK) {
                refused++;
                assert_non_null(strstr(err.message, "none of the 1 pictures"));
                assert_non_null(strstr(world_warning, names[f]));
            } else {
                for (int i = 0; i < 147; i++)
                    assert_true(fabsf(255 * x[i] - want[i]) < 1e-3f);
            }
            ull__reader_destroy(reader);
            ull__data_close(data);
        }
        free(bytes);
        assert_in_range(size - (size_t)refused, 0, 16);
    }
}

static void broken_ones_are_replaced(void **state)
{
    (void)state;
    enum { N = 12 };
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof name, "d/a/%02d.png", i);
        world_plain(name, 4, 4, (uint8_t)(i * 20), 0, 0);
    }
    world_text("d/a/03.png", "not a picture at all");
    world_text("d/a/04.png", "");
    world_text("d/a/11.png", "\xff\xd8\xff\xe0 but no JPEG after that");
    struct ull__data_want want = {.shape = {3, 2, 2}};
    struct ull__data *data = world_open("d,mean=0,std=1,split=none", &want);
    float expected[N][12];
    for (int threads = 0; threads <= 3; threads++) {
        struct ull__reader_options options = {.threads = threads, .buffer_bytes = 1000};
        struct ull__reader *reader = world_reader(data, &options);
        float x[N][12];
        int32_t y[N];
        world_warnings = 0;
        for (int epoch = 0; epoch < 2; epoch++)
            world_batch(reader, (uint64_t)(epoch * N), N, x, y);
        assert_int_equal(world_warnings, 3); /* each once */
        assert_non_null(strstr(world_warning, "11.png"));
        for (int i = 0; i < N; i++) {
            int from = i == 3 || i == 4 ? 5 : i == 11 ? 0 : i; /* the next good one */
            assert_true(fabsf(x[i][0] * 255 - (float)(from * 20)) < 0.01f);
        }
        assert_int_equal(ull__data_valid(reader, 0, N), N);
        if (threads)
            assert_memory_equal(x, expected, sizeof x);
        memcpy(expected, x, sizeof x);
        ull__reader_destroy(reader);
    }
    ull__data_close(data);
    /* Evaluated, they count for nothing. */
    world_mkdir("t");
    assert_int_equal(rename(world_path("d"), world_path("t/val")), 0);
    world_mkdir("t/train");
    world_mkdir("t/train/a");
    world_plain("t/train/a/x.png", 4, 4, 1, 1, 1);
    data = world_open("t", &want);
    struct ull__reader *reader =
        world_reader(data, &(struct ull__reader_options){.part = ULL_DATA_EVAL});
    float x[N][12];
    int32_t y[N];
    world_warnings = 0;
    assert_int_equal(ull__data_valid(reader, 0, N), N - 3); /* before anything was read */
    world_batch(reader, 0, N, x, y);
    assert_int_equal(world_warnings, 3);
    assert_int_equal(ull__data_count_valid(y, N), N - 3);
    assert_int_equal(ull__data_valid(reader, 0, N), N - 3);
    assert_int_equal(y[3], ULL_DATA_IGNORED);
    assert_true(x[3][0] == 0);
    ull__reader_destroy(reader);
    ull__data_close(data);
}

static void none_that_is_good(void **state)
{
    (void)state;
    world_text("d/a/1.png", "no");
    world_text("d/a/2.jpg", "no");
    struct ull__data_want want = {.shape = {3, 2, 2}};
    struct ull__data *data = world_open("d,split=none", &want);
    for (int threads = 0; threads <= 2; threads++) {
        struct ull__reader_options options = {.threads = threads, .buffer_bytes = 1000};
        struct ull__reader *reader = world_reader(data, &options);
        float x[12];
        int32_t y;
        struct ull_error err = {""};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ull__data_batch(reader, 5, 1, x, &y, &err), ULL_E_FORMAT);
            assert_non_null(strstr(err.message, "none of the 2 pictures"));
        }
        ull__reader_destroy(reader);
    }
    ull__data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(png_of_all_kinds, begin, world_end),
        cmocka_unit_test_setup_teardown(jpeg_of_all_kinds, begin, world_end),
        cmocka_unit_test_setup_teardown(made_smaller, begin, world_end),
        cmocka_unit_test_setup_teardown(made_larger, begin, world_end),
        cmocka_unit_test_setup_teardown(crops_stay_inside_and_differ, begin, world_end),
        cmocka_unit_test_setup_teardown(parts_and_classes, begin, world_end),
        cmocka_unit_test_setup_teardown(train_and_val, begin, world_end),
        cmocka_unit_test_setup_teardown(cut_off_anywhere, begin, world_end),
        cmocka_unit_test_setup_teardown(broken_ones_are_replaced, begin, world_end),
        cmocka_unit_test_setup_teardown(none_that_is_good, begin, world_end),
    };
    return cmocka_run_group_tests_name("images", tests, NULL, NULL);
}
