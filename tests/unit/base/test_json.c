/* test_json.c: what the writer writes must be read back by another program's reader. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "json.h"

static json_t *parse(struct ull_json *json)
{
    json_error_t error;
    assert_true(ull__json_finish(json));
    json_t *root = json_loads(json->text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("%s in: %s", error.text, json->text);
    ull__json_free(json);
    return root;
}

static void writes_every_kind(void **state)
{
    struct ull_json json;
    (void)state;
    ull__json_init(&json, NULL);
    ull__json_object(&json);
    ull__json_key(&json, "big");
    ull__json_u64(&json, INT64_MAX);
    ull__json_key(&json, "negative");
    ull__json_i64(&json, INT64_MIN);
    ull__json_key(&json, "ratio");
    ull__json_number(&json, 0.25);
    ull__json_key(&json, "nan");
    ull__json_number(&json, nan(""));
    ull__json_key(&json, "infinity");
    ull__json_number(&json, INFINITY);
    ull__json_key(&json, "list");
    ull__json_array(&json);
    ull__json_bool(&json, true);
    ull__json_string(&json, NULL);
    ull__json_array(&json);
    ull__json_array_end(&json);
    ull__json_object(&json);
    ull__json_object_end(&json);
    ull__json_array_end(&json);
    ull__json_object_end(&json);
    json_t *root = parse(&json);
    assert_true(json_integer_value(json_object_get(root, "big")) == INT64_MAX);
    assert_true(json_integer_value(json_object_get(root, "negative")) == INT64_MIN);
    assert_true(json_real_value(json_object_get(root, "ratio")) == 0.25);
    assert_true(json_is_null(json_object_get(root, "nan")));
    assert_true(json_is_null(json_object_get(root, "infinity")));
    json_t *list = json_object_get(root, "list");
    assert_int_equal(json_array_size(list), 4);
    assert_true(json_is_true(json_array_get(list, 0)));
    assert_true(json_is_null(json_array_get(list, 1)));
    json_decref(root);
}

/* Every string of one and two bytes, and many longer ones. */
static void any_bytes_are_valid(void **state)
{
    (void)state;
    srand(1);
    for (unsigned int round = 0; round < 65536 + 2000; round++) {
        char text[24];
        size_t size = round < 65536 ? 2 : (size_t)rand() % sizeof text;
        for (size_t i = 0; i < size; i++)
            text[i] = (char)rand();
        if (round < 65536) {
            text[0] = (char)(round >> 8);
            text[1] = (char)round;
        }
        struct ull_json json;
        ull__json_init(&json, NULL);
        ull__json_array(&json);
        ull__json_bytes(&json, text, size);
        ull__json_array_end(&json);
        json_error_t error;
        assert_true(ull__json_finish(&json));
        json_t *root = json_loads(json.text, JSON_ALLOW_NUL, &error);
        if (!root)
            fail_msg("round %u: %s", round, error.text);
        json_decref(root);
        ull__json_free(&json);
    }
}

static void keeps_good_text(void **state)
{
    static const char text[] = "a\"b\\c\n\t\x01 \xc2\xb7 \xe2\x80\xa6 \xf0\x9f\x98\x80 \x7f";
    struct ull_json json;
    (void)state;
    ull__json_init(&json, NULL);
    ull__json_string(&json, text);
    json_t *root = parse(&json);
    assert_string_equal(json_string_value(root), text);
    json_decref(root);
}

static void replaces_bad_text(void **state)
{
    struct ull_json json;
    (void)state;
    ull__json_init(&json, NULL);
    ull__json_string(&json, "x\xff\xc0\xaf\xed\xa0\x80y\xe2\x80");
    json_t *root = parse(&json);
    const char *value = json_string_value(root);
    assert_true(value[0] == 'x' && strstr(value, "\xef\xbf\xbd") && strchr(value, 'y'));
    json_decref(root);
}

static void tells_failures(void **state)
{
    struct ull_json json;
    (void)state;
    ull__json_init(&json, NULL);
    ull__json_object(&json);
    assert_false(ull__json_finish(&json)); /* not closed */
    ull__json_free(&json);
    ull__json_init(&json, NULL);
    for (int i = 0; i <= ULL_JSON_DEPTH; i++)
        ull__json_array(&json);
    assert_true(json.failed);
    ull__json_free(&json);
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    ull__json_init(&json, full);
    ull__json_u64(&json, 1);
    assert_false(ull__json_finish(&json));
    fclose(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_every_kind), cmocka_unit_test(any_bytes_are_valid),
        cmocka_unit_test(keeps_good_text),   cmocka_unit_test(replaces_bad_text),
        cmocka_unit_test(tells_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
