/* test_documents.c: samples of their own lengths: where documents end, pieces, likely lengths, their order. */
#include <stdlib.h>

#include "world.h"

enum { IGNORED = ULL_DATA_IGNORED };

static struct ull__data_want window(int64_t t)
{
    return (struct ull__data_want){.window = t, .warn = world_warn};
}

/* The samples of a part, written as text: "|ab>ab|" for x and its targets, the mark as '|'. */
static void shows(const char *spec, int64_t t, enum ull__data_part part, const char *wanted)
{
    struct ull__data_want want = window(t);
    struct ull__data *data = world_open(spec, &want);
    const struct ull__data_info *info = ull__data_info(data);
    assert_true(info->documents && info->mark == info->classes - 1);
    char text[1024] = "";
    size_t used = 0;
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.part = part});
    for (uint64_t i = 0; i < info->samples[part]; i++) {
        int32_t x[64], y[64];
        world_batch(reader, i, 1, x, y);
        int64_t length = ull__data_longest(reader, i, 1);
        assert_int_equal(ull__data_valid(reader, i, 1), length);
        for (int turn = 0; turn < 2; turn++) {
            for (int64_t j = 0; j < t; j++) {
                int32_t id = turn ? y[j] : x[j];
                char bytes[4] = "|";
                if (j >= length) {
                    assert_int_equal(id, turn ? IGNORED : 0);
                    continue;
                }
                assert_true(id == info->mark || ull__data_decode(data, id, bytes) == 1);
                text[used++] = bytes[0];
            }
            text[used++] = turn ? ' ' : '>';
        }
    }
    assert_string_equal(text, wanted);
    ull__reader_destroy(reader);
    ull__data_close(data);
}

static void of_text(void **state)
{
    (void)state;
    world_text("a.txt", "ab\n\ncde\r\nf");
    shows("a.txt,documents=lines,split=none", 8, ULL_DATA_TRAIN, "|ab>ab| |cde>cde| |f>f| ");
    world_text("a.txt", "a\nb\n \n\ncde\n\n");
    shows("a.txt,documents=paragraphs,split=none", 8, ULL_DATA_TRAIN, "|a\nb>a\nb| |cde>cde| ");
    /* The beginning and the end of a file are a line's. */
    world_text("a.txt", " \nab\n\ncd\n");
    shows("a.txt,documents=paragraphs,split=none", 8, ULL_DATA_TRAIN, "|ab>ab| |cd>cd| ");
    world_text("a.txt", "ab\n\ncd\n \t");
    shows("a.txt,documents=paragraphs,split=none", 8, ULL_DATA_TRAIN, "|ab>ab| |cd>cd| ");
    world_text("a.txt", "<e>ab\n<e>\n<e>c<d<e>");
    world_warnings = 0;
    shows("a.txt,documents=at:<e>,split=none", 8, ULL_DATA_TRAIN, "|ab>ab| |c<d>c<d| ");
    assert_int_equal(world_warnings, 1);
    assert_non_null(strstr(world_warning, "1 documents are empty"));
    world_mkdir("d");
    world_text("d/1.txt", "ab");
    world_text("d/2.txt", "");
    world_text("d/3.txt", "c\nd");
    world_warnings = 0;
    shows("d,documents=files,split=none", 8, ULL_DATA_TRAIN, "|ab>ab| |c\nd>c\nd| ");
    assert_non_null(strstr(world_warning, "1 files are empty"));
    /* The end of a file ends a document in the others too. */
    shows("d,documents=lines,split=none", 8, ULL_DATA_TRAIN, "|ab>ab| |c>c| |d>d| ");
    world_text("d/train.txt", "ab\ncd");
    world_text("d/val.txt", "c");
    shows("d,documents=lines", 8, ULL_DATA_EVAL, "|c>c| ");
    shows("d,documents=lines", 8, ULL_DATA_TRAIN, "|ab>ab| |cd>cd| ");
    /* Each file by itself: the line's end of one is not half of the gap before the next. */
    world_text("d/train.txt", "ab\n");
    world_text("d/val.txt", "\nc");
    shows("d,documents=paragraphs", 8, ULL_DATA_EVAL, "|c>c| ");
    shows("d,documents=paragraphs", 8, ULL_DATA_TRAIN, "|ab>ab| ");
}

/* A file that was cut off within a character, which the next one begins with: documents are found behind it all the same. */
static void a_character_of_two_files(void **state)
{
    (void)state;
    world_mkdir("c");
    world_text("c/1.txt", "a\xc3");
    world_text("c/2.txt", "\xa9\nb\nc");
    struct ull__data_want want = window(8);
    struct ull__data *data = world_open("c,documents=lines,split=none", &want);
    assert_int_equal(ull__data_info(data)->samples[ULL_DATA_TRAIN], 3);
    ull__data_close(data);
}

/* Two files of a folder that are named for their parts, and what is said of a place in the second. */
static void of_named_files(void **state)
{
    (void)state;
    struct ull__data_want want = window(2);
    world_mkdir("n");
    world_text("n/train.txt", "");
    world_text("n/val.txt", "abcabc");
    world_bad("n", &want, ULL_E_FORMAT, "n/train.txt' is empty: expected text to train on");
    world_text("n/train.txt", "abcabc");
    world_text("n/val.txt", "");
    world_bad("n", &want, ULL_E_FORMAT, "n/val.txt' is empty: expected text to evaluate");
    world_text("n/val.txt", "ab\xff");
    world_bad("n,unit=characters", &want, ULL_E_FORMAT, "n/val.txt' is not UTF-8 from byte 2 on");
    world_text("n/val.txt", "abz");
    want.like = "{\"unit\": \"characters\", \"vocabulary\": [97, 98, 99]}";
    world_bad("n", &want, ULL_E_FORMAT, "n/val.txt': U+007A at byte 2 is not in the vocabulary");
}

static void pieces_and_parts(void **state)
{
    (void)state;
    world_text("a.txt", "abcdefgh\nab\n");
    world_warnings = 0;
    shows("a.txt,documents=lines,split=none", 4, ULL_DATA_TRAIN, "|abc>abcd defg>efgh h>| |ab>ab| ");
    assert_non_null(
        strstr(world_warning, "1 of 2 documents are longer than the longest sample, 4"));
    /* Nine tokens with their mark are three pieces of three. */
    shows("a.txt,documents=lines,split=none", 3, ULL_DATA_TRAIN, "|ab>abc cde>def fgh>gh| |ab>ab| ");
    /* The cut is where a document ends. */
    world_text("b.txt", "abcdef\nabcd\nef");
    shows("b.txt,documents=lines,split=0.4", 16, ULL_DATA_TRAIN, "|abcdef>abcdef| |abcd>abcd| ");
    shows("b.txt,documents=lines,split=0.4", 16, ULL_DATA_EVAL, "|ef>ef| ");
    shows("b.txt,documents=lines,split=0.1", 16, ULL_DATA_EVAL, "|ef>ef| ");
    /* One document is in one part, whatever is before it, and that is said. */
    world_text("c.txt", "\nabcdef");
    world_warnings = 0;
    shows("c.txt,documents=lines,split=0.4", 16, ULL_DATA_TRAIN, "|abcdef>abcdef| ");
    assert_int_equal(world_warnings, 1);
    assert_non_null(strstr(world_warning, "has 1 documents: none is held out"));
    struct ull__data_want want = window(4);
    struct ull__data *data = world_open("c.txt,documents=lines,split=0.4", &want);
    assert_int_equal(ull__data_info(data)->samples[ULL_DATA_EVAL], 0);
    ull__data_close(data);
    world_bad("c.txt,documents=at:<\xff>", &want, ULL_E_INVALID, "is not what 'documents=' takes");
    world_text("c.txt", "\n\n");
    world_bad("c.txt,documents=lines,split=none", &want, ULL_E_FORMAT, "no document to train on");
}

static void write_tokens(const char *name, const uint16_t *ids, size_t count)
{
    FILE *file = fopen(world_path("%s", name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(ids, 2, count, file), count);
    fclose(file);
}

static void of_tokens(void **state)
{
    (void)state;
    const uint16_t ids[] = {9, 1, 2, 9, 9, 3, 4, 5, 9, 7};
    write_tokens("t.bin", ids, 10);
    struct ull__data_want want = window(4);
    world_warnings = 0;
    struct ull__data *data = world_open("t.bin,documents=at:9,ignore=4,split=none", &want);
    assert_int_equal(ull__data_info(data)->samples[0], 3);
    assert_int_equal(world_warnings, 1);
    struct ull__reader *reader = world_reader(data, &(struct ull__reader_options){.threads = 0});
    int32_t x[12], y[12];
    world_batch(reader, 0, 3, x, y);
    const int32_t xs[] = {9, 1, 2, 0, 9, 3, 4, 5, 9, 7, 0, 0};
    const int32_t ys[] = {1, 2, 9, IGNORED, 3, IGNORED, 5, 9, 7, 9, IGNORED, IGNORED};
    assert_memory_equal(x, xs, sizeof x);
    assert_memory_equal(y, ys, sizeof y);
    assert_int_equal(ull__data_valid(reader, 0, 3), 8);
    assert_int_equal(ull__data_longest(reader, 0, 3), 4);
    ull__reader_destroy(reader);
    char *json;
    assert_int_equal(ull__data_describe(data, &json, NULL), ULL_OK);
    ull__data_close(data);
    /* Other data are cut as those of the training, unless they say how. */
    want.like = json;
    data = world_open("t.bin,split=none", &want);
    assert_true(ull__data_info(data)->documents);
    ull__data_close(data);
    data = world_open("t.bin,documents=none,split=none", &want);
    assert_false(ull__data_info(data)->documents);
    ull__data_close(data);
    free(json);
    want.like = NULL;
    world_bad("t.bin,documents=lines", &want, ULL_E_INVALID,
              "'documents=lines' is nothing for tokens");
    world_bad("t.bin,documents=at:x", &want, ULL_E_INVALID, "as at:50256");
    world_bad("t.bin,documents=at:10", &want, ULL_E_INVALID, "ids 0 to 9");
    world_bad("t.bin,documents=words", &want, ULL_E_INVALID, "expected none, files, lines");
    world_bad("t.bin,documents=at:", &want, ULL_E_INVALID, "expected none, files, lines");
    world_text("a.txt", "ab");
    want.like = "{\"unit\":\"characters\",\"vocabulary\":[97,98]}";
    world_bad("a.txt,documents=lines,split=none", &want, ULL_E_INVALID, "no mark between documents");
}

enum { DOCUMENTS = 101, BATCH = 4 };

/* Document i has i * 37 % 60 + 1 tokens and a mark. */
static struct ull__data *open_many(void)
{
    uint16_t ids[DOCUMENTS * 62];
    size_t count = 0;
    for (uint16_t i = 0; i < DOCUMENTS; i++) {
        for (int j = 0; j <= i * 37 % 60; j++)
            ids[count++] = (uint16_t)(i + 1);
        ids[count++] = 0;
    }
    write_tokens("many.bin", ids, count);
    struct ull__data_want want = window(64);
    return world_open("many.bin,documents=at:0,split=none", &want);
}

static void like_lengths_together(void **state)
{
    (void)state;
    struct ull__data *data = open_many();
    const struct ull__reader_options options = {
        .seed = 3, .shuffle = true, .batch = BATCH, .threads = 2, .buffer_bytes = 1 << 16};
    struct ull__reader *reader = world_reader(data, &options);
    struct ull__reader_options without = options;
    without.batch = without.threads = 0;
    struct ull__reader *other = world_reader(data, &without);
    enum { EPOCHS = 3, ALL = EPOCHS * DOCUMENTS };
    int32_t(*x)[64] = calloc(ALL, sizeof *x), (*y)[64] = calloc(ALL, sizeof *y);
    int first[ALL];
    uint64_t filled = 0, unsorted = 0, real = 0;
    for (uint64_t i = 0; i + BATCH <= ALL; i += BATCH) {
        world_batch(reader, i, BATCH, x[i], y[i]);
        filled += (uint64_t)ull__data_longest(reader, i, BATCH) * BATCH;
        unsorted += (uint64_t)ull__data_longest(other, i, BATCH) * BATCH;
        real += ull__data_valid(reader, i, BATCH);
    }
    world_batch(reader, ALL / BATCH * BATCH, ALL % BATCH, x[ALL / BATCH * BATCH],
                y[ALL / BATCH * BATCH]);
    assert_true(filled < real * 21 / 20 && unsorted > real * 5 / 4);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        bool seen[DOCUMENTS + 1] = {false};
        for (int i = 0; i < DOCUMENTS; i++) {
            first[epoch * DOCUMENTS + i] = y[epoch * DOCUMENTS + i][0];
            assert_false(seen[y[epoch * DOCUMENTS + i][0]]);
            seen[y[epoch * DOCUMENTS + i][0]] = true;
        }
    }
    assert_memory_not_equal(first, first + DOCUMENTS, DOCUMENTS * sizeof *first);
    /* From any position, backwards too, by another reader: the same. */
    struct ull__reader *again = world_reader(data, &options);
    for (int i = ALL - 1; i >= 0; i -= 7) {
        int32_t one[64], targets[64];
        world_batch(again, (uint64_t)i, 1, one, targets);
        assert_memory_equal(one, x[i], sizeof one);
        assert_memory_equal(targets, y[i], sizeof targets);
    }
    ull__reader_destroy(again);
    ull__reader_destroy(other);
    ull__reader_destroy(reader);
    /* The first of a part alone. */
    reader = world_reader(data, &(struct ull__reader_options){.batch = BATCH, .most = 10});
    bool seen[DOCUMENTS + 1] = {false};
    for (uint64_t i = 0; i < 10; i++) {
        world_batch(reader, i, 1, x[0], y[0]);
        assert_true(y[0][0] <= 10 && !seen[y[0][0]]);
        seen[y[0][0]] = true;
    }
    ull__reader_destroy(reader);
    free(x);
    free(y);
    ull__data_close(data);
}

static void lengths_that_are_likely(void **state)
{
    (void)state;
    struct ull__data *data = open_many();
    int64_t lengths[8];
    int count = ull__data_buckets(data, ULL_DATA_TRAIN, 4, lengths);
    assert_int_equal(count, 4);
    for (int i = 0; i < count; i++)
        assert_true(lengths[i] % 8 == 0 && (i == 0 || lengths[i] > lengths[i - 1]));
    assert_int_equal(lengths[3], 64); /* 61 */
    ull__data_close(data);
    /* All of one length: one is enough, and rows become as short as that. */
    uint16_t ids[60] = {0};
    for (int i = 0; i < 60; i++)
        ids[i] = i % 6 < 5;
    write_tokens("same.bin", ids, 60);
    struct ull__data_want want = window(64);
    data = world_open("same.bin,documents=at:0,split=none", &want);
    assert_int_equal(ull__data_buckets(data, ULL_DATA_TRAIN, 4, lengths), 1);
    assert_int_equal(lengths[0], 8);
    ull__data_narrow(data, 5); /* does not hold them */
    assert_int_equal(ull__data_info(data)->window, 64);
    ull__data_narrow(data, 8);
    assert_true(ull__data_info(data)->window == 8 && ull__data_info(data)->sample_bytes == 32);
    ull__data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(of_text, world_begin, world_end),
        cmocka_unit_test_setup_teardown(of_named_files, world_begin, world_end),
        cmocka_unit_test_setup_teardown(a_character_of_two_files, world_begin, world_end),
        cmocka_unit_test_setup_teardown(pieces_and_parts, world_begin, world_end),
        cmocka_unit_test_setup_teardown(of_tokens, world_begin, world_end),
        cmocka_unit_test_setup_teardown(like_lengths_together, world_begin, world_end),
        cmocka_unit_test_setup_teardown(lengths_that_are_likely, world_begin, world_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
