/* test_offsets_csv.c: buffers as text: any order of columns, and every bad line named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "offsets_csv.h"

static void good(const char *text, struct ull__offsets_csv *csv)
{
    struct ull_error err = {.message = ""};
    if (ull__offsets_csv_parse(text, strlen(text), &err, csv) != ULL_OK)
        fail_msg("%s", err.message);
}

static void bad(const char *text, const char *word)
{
    struct ull_error err = {.message = ""};
    struct ull__offsets_csv csv = {.count = 77};
    assert_int_equal(ull__offsets_csv_parse(text, strlen(text), &err, &csv), ULL_E_FORMAT);
    assert_int_equal(csv.count, 77);
    if (!strstr(err.message, word))
        fail_msg("'%s' does not say '%s'", err.message, word);
}

static void columns(void **state)
{
    (void)state;
    struct ull__offsets_csv csv;
    good("id,lower,upper,size\n0,3,9,100\nb,-5,7,0\n", &csv);
    assert_int_equal(csv.count, 2);
    assert_string_equal(csv.ids[1], "b");
    assert_true(csv.buffers[0].lower == 3 && csv.buffers[0].upper == 9);
    assert_true(csv.buffers[1].lower == -5 && csv.buffers[1].size == 0);
    assert_true(!csv.buffers[0].pinned && csv.buffers[0].alignment == 1 && !csv.has_alignment);
    ull__offsets_csv_finish(&csv);

    good("size, offset ,upper,alignment,id,lower\r\n64,32,9,16,x,1\r\n\r\n8,, 9 ,,y,1", &csv);
    assert_int_equal(csv.count, 2);
    assert_true(csv.buffers[0].pinned && csv.buffers[0].offset == 32);
    assert_true(csv.buffers[0].alignment == 16 && csv.has_alignment);
    assert_true(!csv.buffers[1].pinned && csv.buffers[1].alignment == 1);
    assert_string_equal(csv.ids[1], "y");
    ull__offsets_csv_finish(&csv);

    good("id,lower,upper,size\n", &csv);
    assert_int_equal(csv.count, 0);
    ull__offsets_csv_finish(&csv);
}

static void bad_headers(void **state)
{
    (void)state;
    bad("", "empty");
    bad("\n \n", "empty");
    bad("0,1,2,3\n", "line 1: column '0' is not known");
    bad("\nid,lower,upper\n", "line 2: there is no column 'size'");
    bad("id,lower,upper,size,id\n", "column 'id' is there twice");
    bad("id,lower,upper,size,gaps\n", "column 'gaps' is not known");
}

static void bad_lines(void **state)
{
    (void)state;
#define HEADER "id,lower,upper,size,alignment,offset\n0,0,1,8,,\n"
    bad(HEADER "1,0,1,8\n", "line 3 has 4 fields: expected 6");
    bad(HEADER "1,0,1,8,,,\n", "line 3 has 7 fields");
    bad(HEADER ",0,1,8,,\n", "line 3: id is empty");
    bad(HEADER "1,x,1,8,,\n", "line 3: lower is 'x'");
    bad(HEADER "1,0,,8,,\n", "line 3: upper is ''");
    bad(HEADER "1,0,9223372036854775808,8,,\n", "line 3: upper");
    bad(HEADER "1,1,1,8,,\n", "line 3: upper is 1: expected more than lower");
    bad(HEADER "1,0,1,-8,,\n", "line 3: size is '-8'");
    bad(HEADER "1,0,1,8.0,,\n", "line 3: size is '8.0'");
    bad(HEADER "1,0,1,4611686018427387904,,\n", "line 3: size");
    bad(HEADER "1,0,1,99999999999999999999999,,\n", "line 3: size");
    bad(HEADER "1,0,1,4611686018427387900,,\n", "line 3: sizes, alignments and offsets add up");
    bad(HEADER "1,0,1,8,24,\n", "line 3: alignment is 24");
    bad(HEADER "1,0,1,8,0,\n", "line 3: alignment is 0");
    bad(HEADER "1,0,1,8,8,4\n", "line 3: offset is 4: expected a multiple of 8");
    bad(HEADER "0,0,1,8,,\n", "id '0' is there more than once");
#undef HEADER
}

static void bytes_of_zero(void **state)
{
    (void)state;
    static const char text[] = "id,lower,upper,size\n0,0,1,8\n\0";
    struct ull_error err = {.message = ""};
    struct ull__offsets_csv csv;
    assert_int_equal(ull__offsets_csv_parse(text, sizeof text, &err, &csv), ULL_E_FORMAT);
    assert_non_null(strstr(err.message, "byte 0"));
    ull__offsets_csv_finish(&(struct ull__offsets_csv){0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns),
        cmocka_unit_test(bad_headers),
        cmocka_unit_test(bad_lines),
        cmocka_unit_test(bytes_of_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
