/* test_trace.c: good traces are read, every kind of bad one is refused with its line and value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "file.h"
#include "trace.h"

#define HEADER "time_us,action,id,size,stream\n"

static char path[] = "/tmp/ullage-test-trace-XXXXXX";

static void write_gzip(const char *text, size_t size)
{
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, text, (unsigned int)size), (int)size);
    gzclose(file);
}

static void reads_a_trace(void **state)
{
    static const char text[] = HEADER "0,a,7,100,0\n5,a,18446744073709551615,200,9\n9,f,7,100,0\n"
                                      "9,a,7,50,0\n10,f,7,50,0";
    struct trace trace;
    (void)state;
    write_gzip(text, strlen(text));
    assert_int_equal(trace_load(path, &trace, NULL), ULL_OK);
    assert_int_equal(trace.count, 5);
    assert_int_equal(trace.slots, 2);
    assert_int_equal(trace.peak_bytes, 300);
    assert_int_equal(trace.peak_event, 1);
    assert_int_equal(trace.events[3].slot, trace.events[0].slot);
    assert_true(trace.events[3].allocates && !trace.events[4].allocates);
    trace_free(&trace);
}

static void refuse(const char *text, size_t size, const char *says)
{
    struct ull_error err = {""};
    struct trace trace;
    write_gzip(text, size);
    assert_int_equal(trace_load(path, &trace, &err), ULL_E_FORMAT);
    if (!strstr(err.message, says))
        fail_msg("for '%s' the message lacks '%s': %s", text, says, err.message);
}

static void refuses_bad_lines(void **state)
{
    static const struct {
        const char *line;
        const char *says;
    } cases[] = {
        {"1,a,2,-5,0", "line 3: size is '-5'"},
        {"1,a,2,0,0", "size is '0'"},
        {"1,a,2,9223372036854775808,0", "size is"},
        {"1,a,2,9223372036854775807,0", "overflow"},
        {"1,a,2,99999999999999999999999,0", "size is"},
        {"1,a,1,5,0", "allocates the live id '1'"},
        {"1,f,3,10,0", "unknown id '3'"},
        {"1,f,1,11,0", "another size '11'"},
        {"1,x,2,5,0", "action is 'x'"},
        {"1,,2,5,0", "action is ''"},
        {"-1,a,2,5,0", "time_us is '-1'"},
        {"1,a,two,5,0", "id is 'two'"},
        {"1,a,18446744073709551616,5,0", "id is"},
        {"1,a,2,5,", "stream is ''"},
        {"1,a,2,5", "not five columns"},
        {"1,a,2,5,0,0", "not five columns"},
        {"", "not five columns"},
        {"garbage", "not five columns"},
        {"1,a,2,5 ,0", "size is '5 '"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        int size = snprintf(text, sizeof text, HEADER "0,a,1,10,0\n%s\n2,f,1,10,0\n", cases[i].line);
        refuse(text, (size_t)size, cases[i].says);
        refuse(text, (size_t)size, "line 3");
        refuse(text, (size_t)size, "expected");
    }
    refuse(HEADER "0,a,1,10,0\n0,f,1,10,0\n0,f,1,10,0\n", strlen(HEADER) + 33, "a second time");
    refuse("a,b\n", 4, "header");
    refuse("", 0, "no allocation");
    refuse(HEADER, strlen(HEADER), "no allocation");
    char endless[1000];
    memset(endless, '1', sizeof endless);
    memcpy(endless, HEADER, strlen(HEADER));
    refuse(endless, sizeof endless, "too long");
    static const char zero[] = HEADER "0,a,1,\0,0\n";
    refuse(zero, sizeof zero - 1, "line 2");
}

/* Cut at every length, a trace must never load, nor with any byte changed crash anything. */
static void refuses_cut_and_damaged_files(void **state)
{
    char text[4000], *whole;
    size_t size, used = (size_t)snprintf(text, sizeof text, HEADER);
    struct trace trace;
    struct ull_error err;
    (void)state;
    for (int i = 0; i < 100; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%d,a,%d,%d,0\n", i, i, i * 77 + 1);
    write_gzip(text, used);
    assert_int_equal(ull__file_read(path, 1 << 20, &whole, &size, NULL), ULL_OK);
    for (size_t cut = 0; cut < size; cut++) {
        assert_int_equal(ull__file_write(path, whole, cut, NULL), ULL_OK);
        assert_int_equal(trace_load(path, &trace, &err), ULL_E_FORMAT);
        if (cut > 100 && !strstr(err.message, "truncated"))
            fail_msg("cut at %zu of %zu: %s", cut, size, err.message);
    }
    for (size_t at = 0; at < size; at++) {
        whole[at] ^= 0x55;
        assert_int_equal(ull__file_write(path, whole, size, NULL), ULL_OK);
        if (trace_load(path, &trace, &err) == ULL_OK)
            trace_free(&trace);
        whole[at] ^= 0x55;
    }
    free(whole);
}

static void refuses_other_files(void **state)
{
    struct trace trace;
    struct ull_error err;
    (void)state;
    assert_int_equal(ull__file_write(path, HEADER, strlen(HEADER), NULL), ULL_OK);
    assert_int_equal(trace_load(path, &trace, &err), ULL_E_FORMAT);
    assert_non_null(strstr(err.message, "not gzip"));
    assert_int_equal(trace_load("/no/such/file", &trace, &err), ULL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "/no/such/file"));
    assert_int_not_equal(trace_load("/", &trace, &err), ULL_OK);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_trace),
        cmocka_unit_test(refuses_bad_lines),
        cmocka_unit_test(refuses_cut_and_damaged_files),
        cmocka_unit_test(refuses_other_files),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
