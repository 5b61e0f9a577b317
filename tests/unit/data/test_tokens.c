/* test_tokens.c: text and token files: vocabularies, windows, targets, parts. */
#include "world.h"

static struct ull__data_want window(int64_t t)
{
    return (struct ull__data_want){.window = t};
}

static void text_of_characters(void **state)
{
    (void)state;
    world_text("a.txt", "h\xc3\xa9llo w\xe2\x82\xacrld \xf0\x9f\x99\x82! hello");
    struct ull__data_want want = window(4);
    struct ull__data *data = world_open("a.txt,split=none", &want);
    const struct ull__data_info *info = ull__data_info(data);
    /* sorted: space ! d e h l o r w é € 🙂 */
    assert_true(info->classes == 12 && info->tokens && info->sample_targets == 4);
    assert_int_equal(info->sample_bytes, 16);
    assert_int_equal(info->samples[1], 0);
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    int32_t x[4], y[4];
    world_batch(reader, 0, 1, x, y);
    const int32_t hell[] = {4, 9, 5, 5, 6};
    assert_memory_equal(x, hell, sizeof x);
    assert_memory_equal(y, hell + 1, sizeof y);
    char bytes[4];
    assert_int_equal(ull__data_decode(data, 9, bytes), 2);
    assert_memory_equal(bytes, "\xc3\xa9", 2);
    assert_int_equal(ull__data_decode(data, 10, bytes), 3);
    assert_memory_equal(bytes, "\xe2\x82\xac", 3);
    assert_int_equal(ull__data_decode(data, 11, bytes), 4);
    assert_memory_equal(bytes, "\xf0\x9f\x99\x82", 4);
    assert_int_equal(ull__data_decode(data, 12, bytes), 0);
    assert_int_equal(ull__data_decode(data, -1, bytes), 0);
    int32_t ids[8];
    size_t count = 0;
    assert_int_equal(ull__data_encode(data, "h\xc3\xa9!", 4, ids, 8, &count, NULL), ULL_OK);
    assert_true(count == 3 && ids[0] == 4 && ids[1] == 9 && ids[2] == 1);
    assert_int_equal(ull__data_encode(data, "hello", 5, ids, 2, &count, NULL), ULL_OK);
    assert_int_equal(count, 2);
    struct ull_error err = {""};
    assert_int_equal(ull__data_encode(data, "hex", 3, ids, 8, &count, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "U+0078 at byte 2"));
    assert_int_equal(ull__data_encode(data, "h\xff", 2, ids, 8, &count, &err), ULL_E_INVALID);
    ull__reader_destroy(reader);
    char *json;
    assert_int_equal(ull__data_describe(data, &json, NULL), ULL_OK);
    ull__data_close(data);

    /* Other text in the same vocabulary. */
    world_text("b.txt", "hold");
    want.like = json;
    want.window = 2;
    data = world_open("b.txt,split=none", &want);
    assert_int_equal(ull__data_info(data)->classes, 12);
    reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    world_batch(reader, 0, 1, x, y);
    assert_true(x[0] == 4 && x[1] == 6 && y[1] == 5);
    ull__reader_destroy(reader);
    ull__data_close(data);
    world_text("c.txt", "help");
    world_bad("c.txt,split=none", &want, ULL_E_FORMAT, "U+0070 at byte 3");
    free(json);
    want = window(4);
    want.classes = 11;
    world_bad("a.txt", &want, ULL_E_INVALID, "vocabulary of 11");
}

static void text_of_bytes(void **state)
{
    (void)state;
    file_write(world_path("a.txt"), "\xffgarb\xfe\x01\x02 abc", 12);
    struct ull__data_want want = window(3);
    struct ull__data *data = world_open("a.txt,split=none", &want);
    assert_int_equal(world_warnings, 1);
    assert_non_null(strstr(world_warning, "byte 0"));
    assert_int_equal(ull__data_info(data)->classes, 10);
    char bytes[4];
    assert_int_equal(ull__data_decode(data, 9, bytes), 1);
    assert_int_equal((unsigned char)bytes[0], 0xff);
    ull__data_close(data);
    world_bad("a.txt,unit=characters", &want, ULL_E_FORMAT, "not UTF-8 from byte 0");
    world_text("b.txt", "\xc3\xa9");
    want.window = 1;
    data = world_open("b.txt,unit=bytes,split=none", &want);
    assert_int_equal(ull__data_info(data)->classes, 2);
    ull__data_close(data);
    world_text("e.txt", "");
    world_bad("e.txt", &want, ULL_E_FORMAT, "empty");
    world_text("o.txt", "x");
    world_bad("o.txt", &want, ULL_E_FORMAT, "1 tokens to train on");
}

/* Over many characters the ids take two bytes; every one comes back. */
static void text_with_a_large_vocabulary(void **state)
{
    (void)state;
    char text[3000 * 3];
    for (int i = 0; i < 3000; i++) {
        int code = 0x4e00 + (i * 7) % 3000;
        text[3 * i] = (char)(0xe0 | code >> 12);
        text[3 * i + 1] = (char)(0x80 | (code >> 6 & 0x3f));
        text[3 * i + 2] = (char)(0x80 | (code & 0x3f));
    }
    file_write(world_path("a.txt"), text, sizeof text);
    struct ull__data_want want = window(1000);
    struct ull__data *data = world_open("a.txt,split=none", &want);
    assert_int_equal(ull__data_info(data)->classes, 3000);
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    int32_t x[1000], y[1000];
    world_batch(reader, 1, 1, x, y);
    for (int i = 0; i < 1000; i++)
        assert_true(x[i] == (i + 1000) * 7 % 3000 && y[i] == (i + 1001) * 7 % 3000);
    ull__reader_destroy(reader);
    ull__data_close(data);
}

static void folders_of_text(void **state)
{
    (void)state;
    world_mkdir("d");
    world_text("d/b.txt", "def");
    world_text("d/a.txt", "abc");
    struct ull__data_want want = window(5);
    struct ull__data *data = world_open("d,split=none", &want);
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    int32_t x[5], y[5];
    world_batch(reader, 0, 1, x, y);
    for (int i = 0; i < 5; i++)
        assert_true(x[i] == i && y[i] == i + 1);
    ull__reader_destroy(reader);
    ull__data_close(data);
    world_mkdir("p");
    world_text("p/val.txt", "fa");
    world_text("p/train.txt", "abcdef");
    data = world_open("p", &want);
    assert_true(ull__data_info(data)->samples[0] == 1 && ull__data_info(data)->samples[1] == 1);
    reader = world_reader(data, &(struct ull__reader_options){.part = ULL_DATA_EVAL});
    world_batch(reader, 0, 1, x, y);
    assert_true(x[0] == 5 && y[0] == 0 && y[1] == ULL_DATA_IGNORED);
    assert_int_equal(ull__data_valid(reader, 0, 1), 1);
    ull__reader_destroy(reader);
    ull__data_close(data);
    world_bad("p,split=0.5", &want, ULL_E_INVALID, "'split='");
    world_text("p/test.txt", "ab");
    world_bad("p", &want, ULL_E_FORMAT, "several");
}

/* In evaluation each token but the first is a target once, in order; in training none twice an epoch. */
static void every_token_once(void **state)
{
    (void)state;
    for (int length = 40; length < 60; length++) {
        uint16_t ids[60];
        for (int i = 0; i < length; i++)
            ids[i] = (uint16_t)(100 + i);
        file_write(world_path("a.bin"), ids, 2 * (size_t)length);
        for (int64_t t = 1; t < 12; t++) {
            struct ull__data_want want = window(t);
            struct ull__data *data = world_open("a.bin,split=0.4", &want);
            const struct ull__data_info *info = ull__data_info(data);
            assert_int_equal(info->classes, 100 + length);
            int held = (int)(length * 0.4 + 0.5), next = 100 + length - held + 1;
            struct ull__reader *reader =
                world_reader(data, &(struct ull__reader_options){.part = ULL_DATA_EVAL});
            for (uint64_t i = 0; i < info->samples[1]; i++) {
                int32_t x[12], y[12];
                world_batch(reader, i, 1, x, y);
                uint64_t valid = 0;
                for (int64_t k = 0; k < t; k++) {
                    if (y[k] == ULL_DATA_IGNORED)
                        continue;
                    assert_true(y[k] == next && x[k] == next - 1);
                    next++;
                    valid++;
                }
                assert_int_equal(ull__data_valid(reader, i, 1), valid);
                assert_int_equal(ull__data_count_valid(y, (size_t)t), valid);
            }
            assert_int_equal(next, 100 + length);
            ull__reader_destroy(reader);
            struct ull__reader_options options = {.shuffle = true, .seed = (uint64_t)length};
            reader = world_reader(data, &options);
            int firsts[200] = {0};
            for (uint64_t epoch = 0; epoch < 20; epoch++) {
                int seen[200] = {0};
                for (uint64_t i = 0; i < info->samples[0]; i++) {
                    int32_t x[12], y[12];
                    world_batch(reader, epoch * info->samples[0] + i, 1, x, y);
                    firsts[x[0]]++;
                    for (int64_t k = 0; k < t; k++) {
                        assert_true(y[k] == x[k] + 1 && (k == 0 || x[k] == y[k - 1]));
                        assert_in_range(y[k], 101, 100 + length - held - 1);
                        assert_int_equal(seen[y[k]]++, 0);
                    }
                }
            }
            int different = 0;
            for (int i = 0; i < 200; i++)
                different += firsts[i] > 0;
            if (t > 2) /* windows begin elsewhere in other epochs */
                assert_true(different > (int)info->samples[0]);
            ull__reader_destroy(reader);
            ull__data_close(data);
        }
    }
}

static void files_of_tokens(void **state)
{
    (void)state;
    struct ull__data_want want = window(3);
    uint32_t wide[12] = {0, 70000, 5, 5, 6, 70000, 1, 2, 3, 4, 5, 6};
    file_write(world_path("a.u32"), wide, sizeof wide);
    struct ull__data *data = world_open("a.u32,ignore=5,split=none", &want);
    assert_int_equal(ull__data_info(data)->classes, 70001);
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    int32_t x[6], y[6];
    world_batch(reader, 0, 2, x, y);
    assert_true(x[1] == 70000 && y[0] == 70000 && y[1] == ULL_DATA_IGNORED && x[2] == 5);
    assert_true(y[2] == ULL_DATA_IGNORED && y[3] == 6);
    assert_int_equal(ull__data_valid(reader, 0, 2), 4);
    assert_int_equal(ull__data_count_valid(y, 6), 4);
    /* The file got shorter meanwhile. */
    assert_int_equal(truncate(world_path("a.u32"), 8), 0);
    struct ull_error err = {""};
    assert_int_equal(ull__data_batch(reader, 0, 2, x, y, &err), ULL_E_SYSTEM);
    assert_non_null(strstr(err.message, "shorter"));
    ull__reader_destroy(reader);
    ull__data_close(data);
    file_write(world_path("a.u32"), wide, sizeof wide);
    world_bad("a.u32,vocab=70000", &want, ULL_E_FORMAT, "token 1 of the training part is 70000");
    want.classes = 1000;
    world_bad("a.u32", &want, ULL_E_FORMAT, "ids 0 to 999");
    world_bad("a.u32,vocab=1001", &want, ULL_E_INVALID, "vocabulary of 1000");
    want.classes = 0;
    wide[3] = 0xffffffffu;
    file_write(world_path("a.u32"), wide, sizeof wide);
    world_bad("a.u32", &want, ULL_E_FORMAT, "4294967295");
    file_write(world_path("b.bin"), wide, 7);
    world_bad("b.bin", &want, ULL_E_FORMAT, "no whole number of tokens");
    file_write(world_path("c.bin"), wide, 0);
    world_bad("c.bin", &want, ULL_E_FORMAT, "empty");
    file_write(world_path("d.bin"), wide, 6);
    world_bad("d.bin", &want, ULL_E_FORMAT, "3 tokens");
    world_mkdir("f");
    file_write(world_path("f/val.bin"), wide, 12);
    world_bad("f", &want, ULL_E_FORMAT, "no train.bin");
    file_write(world_path("f/train.bin"), wide, 24);
    data = world_open("f", &want);
    assert_true(ull__data_info(data)->samples[0] > 0 && ull__data_info(data)->samples[1] == 2);
    assert_true(ull__data_info(data)->resident_bytes == 0);
    ull__data_close(data);
    file_write(world_path("f/test.bin"), wide, 12);
    world_bad("f", &want, ULL_E_FORMAT, "several");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(text_of_characters, world_begin, world_end),
        cmocka_unit_test_setup_teardown(text_of_bytes, world_begin, world_end),
        cmocka_unit_test_setup_teardown(text_with_a_large_vocabulary, world_begin, world_end),
        cmocka_unit_test_setup_teardown(folders_of_text, world_begin, world_end),
        cmocka_unit_test_setup_teardown(every_token_once, world_begin, world_end),
        cmocka_unit_test_setup_teardown(files_of_tokens, world_begin, world_end),
    };
    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
