/* test_idx.c: IDX files: values, parts, and all that can be wrong with them; Fashion-MNIST if it is there. */
#include "world.h"

#include <math.h>

static const struct ull__data_want any = {.window = 0};

enum { N = 40, H = 3, W = 4 };
static uint8_t pixels[N * H * W], labels[N];

static int begin(void **state)
{
    for (int i = 0; i < N * H * W; i++)
        pixels[i] = (uint8_t)(i * 37 % 256);
    for (int i = 0; i < N; i++)
        labels[i] = (uint8_t)(i % 5);
    return world_begin(state);
}

static void values_and_labels(const char *ending)
{
    world_pair("train", ending, N, H, W, pixels, labels);
    world_pair("t10k", ending, 7, H, W, pixels + 5, labels);
    struct ull__data *data = world_open("", &any);
    const struct ull__data_info *info = ull__data_info(data);
    assert_int_equal(info->format, ULL_DATA_IDX);
    assert_true(info->samples[0] == N && info->samples[1] == 7 && info->classes == 5);
    assert_true(info->shape[0] == 1 && info->shape[1] == H && info->shape[2] == W);
    assert_int_equal(info->sample_bytes, 4 * H * W);
    assert_null(ull__data_class_name(data, 1));
    double sum = 0, squares = 0;
    for (int i = 0; i < N * H * W; i++) {
        sum += pixels[i] / 255.0;
        squares += pixels[i] / 255.0 * pixels[i] / 255.0;
    }
    double mean = sum / (N * H * W), deviation = sqrt(squares / (N * H * W) - mean * mean);
    float x[7][H * W];
    int32_t y[7];
    for (int part = 0; part < 2; part++) {
        struct ull__reader *reader = world_reader(
            data, &(struct ull__reader_options){.part = (enum ull__data_part)part, .augment = true});
        world_batch(reader, 0, 7, x, y);
        for (int i = 0; i < 7; i++)
            for (int k = 0; k < H * W; k++)
                assert_true(fabs((pixels[5 * part + i * H * W + k] / 255.0 - mean) / deviation -
                                 (double)x[i][k]) < 1e-5);
        for (int i = 0; i < 7; i++)
            assert_int_equal(y[i], labels[i]);
        ull__reader_destroy(reader);
    }
    ull__data_close(data);
}

static void plain_files(void **state)
{
    (void)state;
    values_and_labels("");
}

static void gzipped_files(void **state)
{
    (void)state;
    values_and_labels(".gz");
    world_pair("train", "", N, H, W, pixels, labels); /* one of them unpacked beside it */
    values_and_labels(".gz");
}

/* Each length of each file that is shorter is an error that names the file. */
static void cut_off_anywhere(void **state)
{
    (void)state;
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"};
    for (int zipped = 0; zipped < 2; zipped++) {
        world_pair("train", zipped ? ".gz" : "", N, H, W, pixels, labels);
        for (int f = 2 * zipped; f < 2 * zipped + 2; f++) {
            size_t size;
            char *bytes = file_read(world_path("%s", names[f]), &size);
            for (size_t length = 0; length < size; length++) {
                file_write(world_path("%s", names[f]), bytes, length);
                world_bad("", &any, ULL_E_FORMAT, names[f]);
            }
            file_write(world_path("%s", names[f]), bytes, size);
            free(bytes);
        }
        unlink(world_path("%s", names[2 * zipped]));
        unlink(world_path("%s", names[2 * zipped + 1]));
    }
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    const uint32_t sizes[4] = {N, H, W, 1};
    world_bad(",format=idx", &any, ULL_E_FORMAT, "no IDX files");
    world_idx("train-images-idx3-ubyte", 8, 3, sizes, pixels, N * H * W);
    world_bad("", &any, ULL_E_FORMAT, "no labels");
    const uint32_t less[1] = {N - 1};
    world_idx("train-labels-idx1-ubyte", 8, 1, less, labels, N - 1);
    world_bad("", &any, ULL_E_FORMAT, "39 labels");
    world_idx("train-labels-idx1-ubyte", 8, 1, sizes, labels, N + 0u);
    ull__data_close(world_open("", &any));
    world_idx("train-labels-idx1-ubyte", 8, 2, sizes, pixels, N * H);
    world_bad("", &any, ULL_E_FORMAT, "2 dimensions");
    world_idx("train-labels-idx1-ubyte", 9, 1, sizes, labels, N);
    world_bad("", &any, ULL_E_FORMAT, "0x09");
    world_idx("train-labels-idx1-ubyte", 8, 1, sizes, labels, N);
    world_idx("train-images-idx3-ubyte", 8, 3, sizes, pixels, N * H * W - 1);
    world_bad("", &any, ULL_E_FORMAT, "after 39 of 40 pictures");
    uint8_t more[N * H * W + 1] = {0};
    world_idx("train-images-idx3-ubyte", 8, 3, sizes, more, N * H * W + 1);
    world_bad("", &any, ULL_E_FORMAT, "goes on after the 40 pictures");
    world_idx("train-images-idx3-ubyte", 8, 2, sizes, pixels, N * H);
    world_bad("", &any, ULL_E_FORMAT, "expected n x h x w");
    world_idx("train-images-idx3-ubyte", 0x0b, 3, sizes, pixels, N * H * W);
    world_bad("", &any, ULL_E_FORMAT, "0x0b");
    const uint32_t vast[3] = {0x7fffffff, 16384, 16384};
    world_idx("train-images-idx3-ubyte", 8, 3, vast, pixels, 10);
    world_bad("", &any, ULL_E_FORMAT, "cannot be in 26 bytes");
    world_text("train-images-idx3-ubyte", "\x89PNG....");
    world_bad("", &any, ULL_E_FORMAT, "89 50 4e 47");
    world_idx("train-images-idx3-ubyte", 8, 3, sizes, pixels, N * H * W);
    world_idx("train2-images-idx3-ubyte", 8, 3, sizes, pixels, N * H * W);
    world_bad("", &any, ULL_E_FORMAT, "keep one");
}

static void labels_out_of_range(void **state)
{
    (void)state;
    world_pair("train", "", N, H, W, pixels, labels);
    struct ull__data_want want = {.classes = 5};
    ull__data_close(world_open("", &want));
    want.classes = 4;
    world_bad("", &want, ULL_E_FORMAT, "label 4 of picture 4");
    uint8_t other[N];
    memset(other, 5, sizeof other);
    world_pair("t10k", "", 3, H, W, pixels, other);
    world_bad("", &any, ULL_E_FORMAT, "the training part has classes 0 to 4");
    const uint32_t sizes[1] = {3};
    const unsigned char negative[12] = {0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 2};
    world_idx("t10k-labels-idx1-ubyte", 0x0c, 1, sizes, negative, sizeof negative);
    world_bad("", &any, ULL_E_FORMAT, "label -1 of picture 1");
}

static void floats_with_nan(void **state)
{
    (void)state;
    const uint32_t sizes[4] = {2, 2, 2, 2}; /* n, c, h, w */
    static unsigned char bytes[16 * 4];
    for (int i = 0; i < 16; i++) {
        float value = (float)i / 4 - 1;
        uint32_t word;
        memcpy(&word, &value, 4);
        for (int b = 0; b < 4; b++)
            bytes[4 * i + b] = (unsigned char)(word >> (24 - 8 * b));
    }
    world_idx("train-images-idx4-float", 0x0d, 4, sizes, bytes, sizeof bytes);
    world_idx("train-labels-idx1-ubyte", 8, 1, sizes, labels, 2);
    struct ull__data *data = world_open(",mean=0,std=1,split=none", &any);
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    float x[16];
    int32_t y[2];
    world_batch(reader, 0, 2, x, y);
    for (int i = 0; i < 16; i++)
        assert_true(x[i] == (float)i / 4 - 1);
    ull__reader_destroy(reader);
    ull__data_close(data);
    struct ull__data_want want = {.shape = {2, 4, 4}};
    world_bad(",split=none", &want, ULL_E_INVALID, "floats");
    memcpy(bytes + 4 * 11, "\x7f\xc0\x00\x01", 4);
    world_idx("train-images-idx4-float", 0x0d, 4, sizes, bytes, sizeof bytes);
    world_bad(",split=none", &any, ULL_E_FORMAT, "picture 1 has NaN at value 3");
    memcpy(bytes + 4 * 11, "\xff\x80\x00\x00", 4);
    world_idx("train-images-idx4-float", 0x0d, 4, sizes, bytes, sizeof bytes);
    world_bad(",split=none", &any, ULL_E_FORMAT, "an infinity");
}

static void a_share_is_held_out(void **state)
{
    (void)state;
    world_pair("train", "", N, H, W, pixels, labels);
    struct ull__data *data = world_open(",split=0.3,mean=0,std=1", &any);
    const struct ull__data_info *info = ull__data_info(data);
    assert_int_equal(info->samples[0] + info->samples[1], N);
    assert_in_range(info->samples[1], 4, 20);
    bool seen[N] = {false};
    for (int part = 0; part < 2; part++) {
        struct ull__reader *reader =
            world_reader(data, &(struct ull__reader_options){.part = (enum ull__data_part)part});
        for (uint64_t i = 0; i < info->samples[part]; i++) {
            float x[H * W];
            int32_t y;
            world_batch(reader, i, 1, x, &y);
            int which = 0; /* known by its bytes: no two are the same */
            while (which < N && fabsf(x[0] - (float)pixels[which * H * W] / 255) +
                                        fabsf(x[1] - (float)pixels[which * H * W + 1] / 255) >
                                    1e-6f)
                which++;
            assert_in_range(which, 0, N - 1);
            assert_int_equal(y, labels[which]);
            assert_false(seen[which]);
            seen[which] = true;
        }
        ull__reader_destroy(reader);
    }
    ull__data_close(data);
    world_bad(",split=0.0001", &any, ULL_E_INVALID, "nothing for evaluation");
    world_pair("t10k", "", 3, H, W, pixels, labels);
    world_bad(",split=0.3", &any, ULL_E_INVALID, "has a part for evaluation");
}

/* Every picture of a crop is the picture shifted by at most the pad, mirrored or not, black outside. */
static void crops_and_flips(void **state)
{
    (void)state;
    world_pair("train", "", N, H, W, pixels, labels);
    struct ull__data *data = world_open(",augment=flip+crop,pad=1,mean=0,std=1,split=none", &any);
    struct ull__reader *reader =
        world_reader(data, &(struct ull__reader_options){.augment = true, .seed = 3});
    bool seen[3][3][2] = {{{false}}};
    for (uint64_t position = 0; position < 10 * N; position++) {
        float x[H][W];
        int32_t y;
        world_batch(reader, position, 1, x, &y);
        const uint8_t *of = pixels + position % N * H * W;
        int found = 0;
        for (int down = -1; down <= 1; down++)
            for (int right = -1; right <= 1; right++)
                for (int mirror = 0; mirror < 2; mirror++) {
                    bool same = true;
                    for (int r = 0; r < H; r++)
                        for (int c = 0; c < W; c++) {
                            int row = r + down, column = (mirror ? W - 1 - c : c) + right;
                            bool inside = row >= 0 && row < H && column >= 0 && column < W;
                            float want = inside ? (float)of[row * W + column] / 255 : 0;
                            same = same && fabsf(want - x[r][c]) < 1e-6f;
                        }
                    found += same;
                    seen[down + 1][right + 1][mirror] |= same;
                }
        assert_int_equal(found, 1);
    }
    for (int i = 0; i < 18; i++)
        assert_true((&seen[0][0][0])[i]);
    ull__reader_destroy(reader);
    ull__data_close(data);
}

static void other_shapes(void **state)
{
    (void)state;
    uint8_t flat[N * H * W];
    for (int i = 0; i < N * H * W; i++)
        flat[i] = (uint8_t)(i / (H * W) * 5);
    world_pair("train", "", N, H, W, flat, labels);
    struct ull__data_want want = {.shape = {3, 7, 9}};
    struct ull__data *data = world_open(",mean=0.5,std=0.5,augment=flip+crop,split=none", &want);
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.augment = true});
    for (uint64_t i = 0; i < N; i++) {
        float x[3 * 7 * 9];
        int32_t y;
        world_batch(reader, i, 1, x, &y);
        for (int k = 0; k < 3 * 7 * 9; k++)
            assert_true(fabsf(x[k] - ((float)(i * 5) / 255 - 0.5f) / 0.5f) < 1e-5f);
    }
    ull__reader_destroy(reader);
    ull__data_close(data);
    want.shape[0] = 5;
    world_bad("", &want, ULL_E_INVALID, "5 channels");
    want.shape[0] = 3;
    world_bad(",shape=1x7x9", &want, ULL_E_INVALID, "'shape=' says 1 channels");
    world_bad(",mean=0/0,std=1/1", &want, ULL_E_INVALID, "2 numbers for mean and std");
    want = (struct ull__data_want){.host_bytes = 100};
    world_bad("", &want, ULL_E_NO_MEMORY, "host memory");
}

/* Other data in the terms of the training: its normalization, its classes. */
static void like_those_of_the_training(void **state)
{
    (void)state;
    world_pair("train", "", N, H, W, pixels, labels);
    struct ull__data *data = world_open(",split=none", &any);
    char *json = NULL;
    assert_int_equal(ull__data_describe(data, &json, NULL), ULL_OK);
    float x[2][H * W];
    int32_t y;
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    world_batch(reader, 0, 1, x[0], &y);
    ull__reader_destroy(reader);
    uint64_t identity = ull__data_info(data)->identity[0];
    ull__data_close(data);
    data = world_open(",split=none", &any);
    assert_true(identity == ull__data_info(data)->identity[0]);
    ull__data_close(data);
    static const char *const others[] = {",split=none,augment=flip", ",split=none,shape=3x3x4",
                                         ",split=none,mean=0,std=1", ",split=0.3"};
    for (int i = 0; i < 4; i++) { /* other options make other data */
        data = world_open(others[i], &any);
        assert_true(identity != ull__data_info(data)->identity[0]);
        ull__data_close(data);
    }

    world_pair("train", "", 2, H, W, pixels, labels); /* another mean of its own */
    struct ull__data_want want = {.like = json};
    data = world_open(",split=none", &want);
    assert_int_equal(ull__data_info(data)->classes, 5);
    assert_true(identity != ull__data_info(data)->identity[0]);
    reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    world_batch(reader, 0, 1, x[1], &y);
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    ull__reader_destroy(reader);
    ull__data_close(data);
    const uint8_t seven[2] = {7, 0};
    world_pair("train", "", 2, H, W, pixels, seven);
    world_bad("", &want, ULL_E_FORMAT, "classes 0 to 4");
    free(json);
    want.like = "{";
    world_bad("", &want, ULL_E_FORMAT, "damaged");
}

static void fashion_mnist(void **state)
{
    (void)state;
    const char *folder = "/usr/share/datasets/fashion-mnist";
    if (access(folder, R_OK) != 0)
        skip();
    struct ull__data_spec spec;
    struct ull__data *data = NULL;
    assert_int_equal(ull__data_spec_parse(folder, &spec, NULL), ULL_OK);
    assert_int_equal(ull__data_open(&spec, &any, &data, NULL), ULL_OK);
    const struct ull__data_info *info = ull__data_info(data);
    assert_true(info->samples[0] == 60000 && info->samples[1] == 10000 && info->classes == 10);
    char *json = NULL;
    assert_int_equal(ull__data_describe(data, &json, NULL), ULL_OK);
    assert_non_null(strstr(json, "[0.28604")); /* the known mean and deviation of these data */
    assert_non_null(strstr(json, "[0.35302"));
    free(json);
    float *x = malloc(10 * info->sample_bytes);
    int32_t y[10];
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    world_batch(reader, 0, 10, x, y);
    const int32_t first[10] = {9, 0, 0, 3, 0, 2, 7, 2, 5, 5};
    assert_memory_equal(y, first, sizeof first);
    ull__reader_destroy(reader);
    free(x);
    ull__data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plain_files, begin, world_end),
        cmocka_unit_test_setup_teardown(gzipped_files, begin, world_end),
        cmocka_unit_test_setup_teardown(cut_off_anywhere, begin, world_end),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_named, begin, world_end),
        cmocka_unit_test_setup_teardown(labels_out_of_range, begin, world_end),
        cmocka_unit_test_setup_teardown(floats_with_nan, begin, world_end),
        cmocka_unit_test_setup_teardown(a_share_is_held_out, begin, world_end),
        cmocka_unit_test_setup_teardown(crops_and_flips, begin, world_end),
        cmocka_unit_test_setup_teardown(other_shapes, begin, world_end),
        cmocka_unit_test_setup_teardown(like_those_of_the_training, begin, world_end),
        cmocka_unit_test(fashion_mnist),
    };
    return cmocka_run_group_tests_name("idx", tests, NULL, NULL);
}
