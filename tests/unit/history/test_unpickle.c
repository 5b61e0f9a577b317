/* test_unpickle.c: what each opcode builds, what is shared, and what is refused with which offset. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unpickle.h"

#define BYTES(text) text, sizeof(text) - 1

static struct ull__pickle *read_good(const char *data, size_t size)
{
    struct ull__pickle *pickle = NULL;
    struct ull_error err = {""};
    if (ull__unpickle_bytes(data, size, &pickle, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return pickle;
}

static void refused(const char *data, size_t size, const char *message)
{
    struct ull__pickle *pickle = NULL;
    struct ull_error err = {""};
    assert_int_equal(ull__unpickle_bytes(data, size, &pickle, &err), ULL_E_FORMAT);
    assert_null(pickle);
    if (!strstr(err.message, message))
        fail_msg("'%s' does not say '%s'", err.message, message);
}

static ull__pickled item(ull__pickled of, unsigned int index)
{
    struct ull__pickled_walk walk;
    ull__pickled value = ULL_PICKLED_MISSING;
    ull__pickled_walk(&walk, of);
    for (unsigned int i = 0; i <= index; i++)
        if (!ull__pickled_next(&walk, &value))
            return ULL_PICKLED_MISSING;
    return value;
}

static void is_int(ull__pickled value, int64_t wanted)
{
    int64_t number = 0;
    assert_true(ull__pickled_i64(value, &number));
    assert_true(number == wanted);
}

static void numbers(void **state)
{
    (void)state;
    struct ull__pickle *pickle = read_good(BYTES("\x80\x02]("
                                                 "K\xff"
                                                 "M\xff\xff"
                                                 "J\xff\xff\xff\xff"
                                                 "\x8a\x00"
                                                 "\x8a\x01\xff"
                                                 "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"
                                                 "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"
                                                 "\x8b\x02\x00\x00\x00\x00\x80"
                                                 "G\x3f\xf8\x00\x00\x00\x00\x00\x00"
                                                 "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff"
                                                 "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x10"
                                                 "e."));
    ull__pickled list = ull__pickle_root(pickle);
    is_int(item(list, 0), 255);
    is_int(item(list, 1), 65535);
    is_int(item(list, 2), -1);
    is_int(item(list, 3), 0);
    is_int(item(list, 4), -1);
    is_int(item(list, 5), INT64_MIN);
    int64_t number = 7;
    uint64_t bits = 0;
    assert_false(ull__pickled_i64(item(list, 6), &number)); /* 2^63 */
    assert_true(ull__pickled_u64(item(list, 6), &bits));
    assert_true(bits == UINT64_C(1) << 63);
    is_int(item(list, 7), -32768);
    double real = 0;
    assert_true(ull__pickled_float(item(list, 8), &real));
    assert_true(real == 1.5);
    is_int(item(list, 9), -1);
    is_int(item(list, 10), INT64_C(1) << 60); /* just too wide to be kept inside a value */
    assert_int_equal(item(list, 11), ULL_PICKLED_MISSING);
    assert_int_equal(number, 7);
    ull__pickle_destroy(pickle);
}

static void constants_and_tuples(void **state)
{
    (void)state;
    struct ull__pickle *pickle = read_good(
        BYTES("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00(N\x88\x89)K\x01\x85K\x01K\x02\x86K\x01K"
              "\x02K\x03\x87(K\x01K\x02K\x03K\x04tt."));
    ull__pickled all = ull__pickle_root(pickle);
    bool yes = false;
    assert_int_equal(ull__pickled_kind(item(all, 0)), ULL_PICKLED_NONE);
    assert_true(ull__pickled_bool(item(all, 1), &yes) && yes);
    assert_true(ull__pickled_bool(item(all, 2), &yes) && !yes);
    for (unsigned int length = 0; length < 5; length++) {
        ull__pickled tuple = item(all, 3 + length);
        assert_int_equal(ull__pickled_kind(tuple), ULL_PICKLED_TUPLE);
        if (length > 0)
            is_int(item(tuple, length - 1), (int)length);
        assert_int_equal(item(tuple, length), ULL_PICKLED_MISSING);
    }
    ull__pickle_destroy(pickle);
}

/* {'a': 1, 'b': [1, 2, 3], 'a': 2} by three ways to set and three ways to append. */
static void containers(void **state)
{
    (void)state;
    struct ull__pickle *pickle = read_good(BYTES("\x80\x04}(\x8c\x01"
                                                 "aK\x01u\x8c\x01"
                                                 "b](K\x01"
                                                 "e(K\x02"
                                                 "eK\x03"
                                                 "as(X\x01\x00\x00\x00"
                                                 "aK\x02u."));
    ull__pickled dict = ull__pickle_root(pickle);
    assert_int_equal(ull__pickled_kind(dict), ULL_PICKLED_DICT);
    is_int(ull__pickled_get(dict, ull__pickle_text(pickle, "a")), 2);
    ull__pickled list = ull__pickled_get(dict, ull__pickle_text(pickle, "b"));
    for (unsigned int i = 0; i < 3; i++)
        is_int(item(list, i), i + 1);
    assert_int_equal(item(list, 3), ULL_PICKLED_MISSING);
    assert_int_equal(ull__pickle_text(pickle, "c"), ULL_PICKLED_MISSING);
    assert_int_equal(ull__pickled_get(list, ull__pickle_text(pickle, "a")), ULL_PICKLED_MISSING);
    ull__pickle_destroy(pickle);

    pickle = read_good(BYTES("\x80\x02(K\x05(K\x07"
                             "K\x08lX\x01\x00\x00\x00"
                             "aNd."));
    struct ull__pickled_walk walk;
    ull__pickled key, value;
    ull__pickled_walk(&walk, ull__pickle_root(pickle));
    assert_true(ull__pickled_next_pair(&walk, &key, &value));
    is_int(key, 5);
    is_int(item(value, 1), 8);
    assert_true(ull__pickled_next_pair(&walk, &key, &value));
    assert_int_equal(ull__pickled_kind(value), ULL_PICKLED_NONE);
    assert_false(ull__pickled_next_pair(&walk, &key, &value));
    ull__pickle_destroy(pickle);
}

/* Lists that begin alike share their items until one of them grows. */
static void lists_that_begin_alike(void **state)
{
    (void)state;
    struct ull__pickle *pickle = read_good(BYTES("\x80\x04](](K\x01K\x02"
                                                 "e](K\x01K\x02"
                                                 "eK\x03"
                                                 "a](K\x01K\x02"
                                                 "ee."));
    ull__pickled all = ull__pickle_root(pickle);
    assert_true(ull__pickled_content(item(all, 0)) == ull__pickled_content(item(all, 2)));
    assert_true(ull__pickled_content(item(all, 0)) != ull__pickled_content(item(all, 1)));
    for (unsigned int i = 0; i < 3; i++) {
        is_int(item(item(all, i), 0), 1);
        is_int(item(item(all, i), 1), 2);
    }
    assert_int_equal(item(item(all, 0), 2), ULL_PICKLED_MISSING);
    is_int(item(item(all, 1), 2), 3);
    assert_int_equal(item(item(all, 2), 2), ULL_PICKLED_MISSING);
    ull__pickle_destroy(pickle);
}

/* Both ways to number objects; a list that holds itself is no trouble. */
static void references(void **state)
{
    (void)state;
    struct ull__pickle *pickle =
        read_good(BYTES("\x80\x04]\x94(\x8c\x01x\x94h\x01j\x01\x00\x00\x00h\x00"
                        "e."));
    ull__pickled list = ull__pickle_root(pickle);
    assert_true(item(list, 0) == item(list, 1) && item(list, 0) == item(list, 2));
    assert_true(item(list, 3) == list);
    ull__pickle_destroy(pickle);
    pickle = read_good(BYTES("\x80\x02]q\x00(X\x01\x00\x00\x00xr\x01\x00\x00\x00h\x01h\x00"
                             "e."));
    list = ull__pickle_root(pickle);
    assert_true(item(list, 0) == item(list, 1) && item(list, 2) == list);
    ull__pickle_destroy(pickle);
}

static void texts(void **state)
{
    (void)state;
    const char *text;
    size_t size;
    struct ull__pickle *pickle = read_good(BYTES("\x80\x04\x8d\x03\x00\x00\x00\x00\x00\x00\x00"
                                                 "a\x00z."));
    assert_true(ull__pickled_string(ull__pickle_root(pickle), &text, &size));
    assert_int_equal(size, 3);
    assert_memory_equal(text, "a\0z", 4);
    ull__pickle_destroy(pickle);

    enum { LONG = 300000 }; /* longer than is read at once, longer than is looked for */
    char *data = malloc(LONG + 8);
    memcpy(data, "\x80\x04X\xe0\x93\x04\x00", 7);
    memset(data + 7, 'x', LONG);
    data[7 + LONG] = '.';
    pickle = read_good(data, LONG + 8);
    assert_true(ull__pickled_string(ull__pickle_root(pickle), &text, &size));
    assert_int_equal(size, LONG);
    assert_int_equal(text[LONG - 1], 'x');
    ull__pickle_destroy(pickle);
    refused(data, LONG, "offset 300000: the file ends here");
    free(data);
}

static void refusals(void **state)
{
    (void)state;
    refused(BYTES(""), "offset 0: the file ends here");
    refused(BYTES("\x80"), "truncated");
    refused(BYTES("(lp0\n."), "offset 0: byte 0x28");
    refused(BYTES("\x80\x01]."), "pickle protocol 1: 2 to 5");
    refused(BYTES("\x80\x06]."), "pickle protocol 6: 2 to 5");
    refused(BYTES("\x80\x02\x80\x02]."), "offset 2: a second beginning");
    refused(BYTES("\x80\x04]"), "offset 3: the file ends here");
    refused(BYTES("\x80\x02"
                  "cos\nsystem\n(X\x02\x00\x00\x00idtR."),
            "offset 2: opcode GLOBAL (0x63)");
    refused(BYTES("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R."),
            "offset 14: opcode STACK_GLOBAL");
    refused(BYTES("\x80\x02]R."), "offset 3: opcode REDUCE");
    refused(BYTES("\x80\x02]b."), "opcode BUILD");
    refused(BYTES("\x80\x02(i"), "opcode INST");
    refused(BYTES("\x80\x02Q."), "opcode BINPERSID");
    refused(BYTES("\x80\x02\x82\x01."), "opcode EXT1");
    refused(BYTES("\x80\x05\x97."), "opcode NEXT_BUFFER");
    refused(BYTES("\x80\x04\x8f."), "opcode EMPTY_SET");
    refused(BYTES("\x80\x04\xff."), "byte 0xff is no opcode");
    refused(BYTES("\x80\x02."), "0 values and 0 marks");
    refused(BYTES("\x80\x02]]."), "2 values");
    refused(BYTES("\x80\x02]("
                  "."),
            "1 marks");
    refused(BYTES("\x80\x02"
                  "e."),
            "no mark");
    refused(BYTES("\x80\x02K\x01(K\x01"
                  "e."),
            "no list");
    refused(BYTES("\x80\x02](]K\x01"
                  "u."),
            "no dict");
    refused(BYTES("\x80\x02}(K\x01u."), "a key without a value");
    refused(BYTES("\x80\x02}(]K\x01u."), "a list or dict as the key");
    refused(BYTES("\x80\x02](K\x01\x87."), "takes 3 values from a stack that has 1");
    refused(BYTES("\x80\x02](a."), "takes 2 values from a stack that has 0");
    refused(BYTES("\x80\x02h\x00."), "object number 0, which the file did not name");
    refused(BYTES("\x80\x02]r\xff\xff\xff\x7f."), "object number 2147483647 so early");
    refused(BYTES("\x80\x02\x8a\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00."),
            "integer of 10 bytes");
    refused(BYTES("\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."), "not fit in 64 bits");
    refused(BYTES("\x80\x02\x8b\xff\xff\xff\xff."), "integer of 4294967295 bytes");
    refused(BYTES("\x80\x02X\xff\xff\xff\xff."), "a text of 4294967295 bytes");
    refused(BYTES("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff."),
            "a text of 18446744073709551615 bytes");
    refused(BYTES("\x80\x04X\x00\x00\x00\x01."), "the file ends here");
}

/* A file of 16 MiB whose values would take far more than four times that. */
static void made_to_fill_memory(void **state)
{
    (void)state;
    enum { SIZE = 16 << 20 };
    char *data = malloc(SIZE);
    memcpy(data, "\x80\x02]", 3);
    memset(data + 3, 'N', SIZE - 3);
    refused(data, SIZE, "unfolds to more than 128 MiB");
    memset(data + 3, '(', SIZE - 3);
    refused(data, SIZE, "unfolds to more than 128 MiB");
    memset(data + 3, ']', SIZE - 3);
    refused(data, SIZE, "unfolds to more than 128 MiB");
    free(data);
}

/* A million lists in each other, and out again. */
static void deep(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    char *data = malloc(2 * DEPTH + 8);
    memcpy(data, "\x80\x02", 2);
    memset(data + 2, ']', DEPTH);
    memset(data + 2 + DEPTH, 'a', DEPTH - 1);
    data[2 * DEPTH + 1] = '.';
    struct ull__pickle *pickle = read_good(data, 2 * DEPTH + 2);
    unsigned int depth = 0;
    for (ull__pickled at = ull__pickle_root(pickle); at != ULL_PICKLED_MISSING; at = item(at, 0))
        depth++;
    assert_int_equal(depth, DEPTH);
    ull__pickle_destroy(pickle);
    free(data);
}

static void no_file(void **state)
{
    (void)state;
    struct ull__pickle *pickle = NULL;
    struct ull_error err = {""};
    assert_int_equal(ull__unpickle("/nowhere/at/all", &pickle, &err), ULL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nowhere/at/all"));
    assert_int_equal(ull__unpickle("/", &pickle, &err), ULL_E_SYSTEM);
    assert_int_equal(ull__unpickle("/dev/null", &pickle, &err), ULL_E_FORMAT);
    assert_null(pickle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers),    cmocka_unit_test(constants_and_tuples),
        cmocka_unit_test(containers), cmocka_unit_test(lists_that_begin_alike),
        cmocka_unit_test(references), cmocka_unit_test(texts),
        cmocka_unit_test(refusals),   cmocka_unit_test(made_to_fill_memory),
        cmocka_unit_test(deep),       cmocka_unit_test(no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
