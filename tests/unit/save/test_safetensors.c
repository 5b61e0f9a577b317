/* test_safetensors.c: files to the byte, and every kind of bad file named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>

#include "safetensors.h"

#include "folder.h"

static char folder[256], path[300];

static int begin(void **state)
{
    (void)state;
    folder_make(folder);
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

static ull_status write_to(const struct ull__save_tensor *tensors, size_t count, uint64_t *size,
                           uint32_t *checksum, struct ull_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    const struct ull__save_text texts[] = {{"by", "a test"}};
    ull_status status =
        ull__safetensors_write(fd, path, tensors, count, texts, 1, size, checksum, err);
    close(fd);
    return status;
}

static struct ull__safetensors *opened(void)
{
    struct ull_error err = {""};
    struct ull__safetensors *file = NULL;
    if (ull__safetensors_open(path, &file, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return file;
}

static void bytes_are_the_formats(void **state)
{
    (void)state;
    float a[2] = {1.0f, -2.5f};
    uint8_t b[3] = {7, 8, 9};
    int64_t c = 5;
    const struct ull__save_tensor tensors[] = {
        {"b", ULL_SAVE_U8, 1, {3}, b},
        {"a", ULL_SAVE_F32, 2, {2, 1}, a},
        {"c", ULL_SAVE_I64, 0, {0}, &c},
    };
    uint64_t size = 0;
    uint32_t checksum = 0;
    assert_int_equal(write_to(tensors, 3, &size, &checksum, NULL), ULL_OK);
    size_t read = 0;
    char *bytes = file_read(path, &read);
    assert_int_equal(read, size);
    uint64_t head = 0;
    memcpy(&head, bytes, 8);
    assert_int_equal(head % 8, 0); /* so that wide types are aligned */
    assert_int_equal(read, 8 + head + 8 + 8 + 3);
    assert_int_equal(bytes[8], '{');
    assert_memory_equal(bytes + 8 + head, &c, 8); /* wide ones first */
    assert_memory_equal(bytes + 8 + head + 8, a, 8);
    assert_memory_equal(bytes + 8 + head + 16, b, 3);
    bytes[8 + head] = 0;
    assert_non_null(
        strstr(bytes + 8, "\"a\": {\"dtype\": \"F32\",\"shape\": [2,1],\"data_offsets\": [8,16]}"));
    free(bytes);
    uint64_t again = 0;
    uint32_t sum = 0;
    assert_int_equal(ull__safetensors_checksum(path, &again, &sum, NULL), ULL_OK);
    assert_true(again == size && sum == checksum);
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    struct ull__save_tensor tensors[COUNT], into[COUNT];
    static unsigned char data[COUNT][4096], back[COUNT][4096];
    char names[COUNT][32];
    unsigned int random = 1;
    for (int i = 0; i < COUNT; i++) {
        struct ull__save_tensor *t = &tensors[i];
        snprintf(names[i], sizeof names[i], i == 3 ? "layer.\"%d\"\xc3\xa9" : "layer.%d", i);
        *t = (struct ull__save_tensor){
            names[i], (enum ull__save_type)(i % ULL_SAVE_TYPES), i % 4, {1 + i % 5, i % 7, 3}, data[i]};
        uint64_t bytes = 0;
        assert_true(ull__save_tensor_bytes(t, &bytes) && bytes <= sizeof data[i]);
        for (uint64_t k = 0; k < bytes; k++)
            data[i][k] = (unsigned char)((random = random * 1103515245u + 12345u) >> 16);
        into[i] = *t;
        into[i].data = back[i];
    }
    uint64_t size = 0;
    uint32_t checksum = 0;
    assert_int_equal(write_to(tensors, COUNT, &size, &checksum, NULL), ULL_OK);
    struct ull__safetensors *file = opened();
    assert_int_equal(ull__safetensors_count(file), COUNT);
    assert_string_equal(ull__safetensors_text(file, "by"), "a test");
    assert_null(ull__safetensors_text(file, "no"));
    assert_null(ull__safetensors_find(file, "layer.77"));
    assert_int_equal(ull__safetensors_read_all(file, into, COUNT, true, NULL), ULL_OK);
    assert_memory_equal(data, back, sizeof data);
    struct ull_error err = {""};
    assert_int_equal(ull__safetensors_read_all(file, into, COUNT - 1, true, &err), ULL_E_FORMAT);
    assert_int_equal(ull__safetensors_read_all(file, into, COUNT - 1, false, &err), ULL_OK);
    /* One that does not fit: nothing at all is read. */
    memset(back, 0xaa, sizeof back);
    into[5].shape[0] = 9;
    assert_int_equal(ull__safetensors_read_all(file, into, COUNT, true, &err), ULL_E_FORMAT);
    assert_non_null(strstr(err.message, "layer.5"));
    for (size_t i = 0; i < sizeof back; i++)
        assert_int_equal(((unsigned char *)back)[i], 0xaa);
    into[5].name = "elsewhere";
    assert_int_equal(ull__safetensors_read(file, &into[5], &err), ULL_E_NOT_FOUND);
    ull__safetensors_close(file);
}

static void nothing_at_all_is_a_file(void **state)
{
    (void)state;
    uint64_t size = 0;
    uint32_t checksum = 0;
    assert_int_equal(write_to(NULL, 0, &size, &checksum, NULL), ULL_OK);
    struct ull__safetensors *file = opened();
    assert_int_equal(ull__safetensors_count(file), 0);
    ull__safetensors_close(file);
}

static void bad_tensors_are_not_written(void **state)
{
    (void)state;
    float a[4] = {0};
    uint64_t size = 77;
    uint32_t checksum = 88;
    struct ull_error err = {""};
    struct ull__save_tensor two[] = {{"x", ULL_SAVE_F32, 1, {4}, a}, {"x", ULL_SAVE_F32, 1, {4}, a}};
    assert_int_equal(write_to(two, 2, &size, &checksum, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "'x'"));
    const char *names[] = {"", "__metadata__", "\xff"};
    for (size_t i = 0; i < 3; i++) {
        two[0].name = names[i];
        assert_int_equal(write_to(two, 2, &size, &checksum, &err), ULL_E_INVALID);
    }
    two[0].name = "y";
    two[0].shape[0] = -1;
    assert_int_equal(write_to(two, 2, &size, &checksum, &err), ULL_E_INVALID);
    two[0].rank = 3;
    two[0].shape[0] = two[0].shape[1] = two[0].shape[2] = INT64_C(1) << 40;
    assert_int_equal(write_to(two, 2, &size, &checksum, &err), ULL_E_INVALID);
    assert_true(size == 77 && checksum == 88);
}

/* ---- reading what others wrote ------------------------------------------------------------------- */

static void put_file(const char *head, size_t data, uint64_t head_size)
{
    char bytes[4096] = {0};
    size_t length = strlen(head);
    memcpy(bytes, &head_size, 8);
    memcpy(bytes + 8, head, length);
    file_write(path, bytes, 8 + length + data);
}

static void bad(const char *head, size_t data, const char *word)
{
    struct ull_error err = {""};
    struct ull__safetensors *file = NULL;
    put_file(head, data, strlen(head));
    ull_status status = ull__safetensors_open(path, &file, &err);
    if (status != ULL_E_FORMAT || !strstr(err.message, word))
        fail_msg("%s: %d '%s' does not say '%s'", head, status, err.message, word);
    assert_null(file);
}

static void good(const char *head, size_t data)
{
    put_file(head, data, strlen(head));
    ull__safetensors_close(opened());
}

#define T(dtype, shape, from, to)                                                                  \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to "]}"

static void bad_files_are_refused(void **state)
{
    (void)state;
    good("{\"a\":" T("F32", "2", 0, 8) "}", 8);
    good("{\"a\":" T("F32", "2", 0, 8) "}    \n", 8);
    good("{\"b\":" T("F32", "2", 8, 16) ",\"a\":" T("F32", "", 4, 8) ",\"c\":" T("F32", "1", 0, 4) "}",
         16);
    good("{\"e\":" T("F32", "0,4", 0, 0) ",\"a\":" T("BF16", "2", 0, 4) "}", 4);
    good("{\"__metadata__\":{\"format\":\"pt\"}}", 0);
    bad("{\"a\":" T("F32", "2", 0, 8) "}", 7, "cut off");
    bad("{\"a\":" T("F32", "2", 0, 8) "}", 9, "too long");
    bad("{\"a\":" T("F32", "2", 0, 7) "}", 7, "as many bytes");
    bad("{\"a\":" T("F32", "2", 1, 9) "}", 9, "begins at byte 1");
    bad("{\"a\":" T("F32", "2", 0, 8) ",\"b\":" T("F32", "2", 4, 12) "}", 12, "begins at byte 4");
    bad("{\"a\":" T("F32", "2", 0, 8) ",\"b\":" T("F32", "2", 0, 8) "}", 8, "begins at byte 0");
    bad("{\"a\":" T("F32", "2", 0, 8) ",\"a\":" T("F32", "2", 0, 8) "}", 8, "duplicate");
    bad("{\"a\":" T("F32", "2", 8, 0) "}", 8, "no range");
    bad("{\"a\":" T("F32", "2", -8, 0) "}", 8, "no range");
    bad("{\"a\":" T("F9", "2", 0, 8) "}", 8, "dtype");
    bad("{\"a\":" T("F32", "-2", 0, 8) "}", 8, "shape");
    bad("{\"a\":" T("F32", "2.0", 0, 8) "}", 8, "shape");
    bad("{\"a\":" T("F32", "\"2\"", 0, 8) "}", 8, "shape");
    bad("{\"a\":" T("F32", "1,1,1,1,1,1,1,1,2", 0, 8) "}", 8, "8 dimensions");
    bad("{\"a\":" T("F32", "4294967296,4294967296", 0, 8) "}", 8, "as many bytes");
    bad("{\"a\":" T("F32", "9223372036854775807,3", 0, 8) "}", 8, "as many bytes");
    bad("{\"a\":" T("F32", "99999999999999999999", 0, 8) "}", 8, "head");
    bad("{\"a\":5}", 0, "object");
    bad("{\"\":" T("F32", "2", 0, 8) "}", 8, "name");
    bad("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "data_offsets");
    bad("{\"__metadata__\":[]}", 0, "__metadata__");
    bad("[1,2]", 0, "object");
    bad("{\"a\":", 0, "head");
    struct ull__safetensors *file = NULL;
    struct ull_error err = {""};
    put_file("{}", 0, 3);
    assert_int_equal(ull__safetensors_open(path, &file, &err), ULL_E_FORMAT);
    put_file("{}", 0, UINT64_MAX);
    assert_int_equal(ull__safetensors_open(path, &file, &err), ULL_E_FORMAT);
    file_write(path, "1234567", 7);
    assert_int_equal(ull__safetensors_open(path, &file, &err), ULL_E_FORMAT);
    assert_int_equal(ull__safetensors_open(folder, &file, &err), ULL_E_FORMAT);
    unlink(path);
    assert_int_equal(ull__safetensors_open(path, &file, &err), ULL_E_NOT_FOUND);
    assert_null(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_are_the_formats, begin, end),
        cmocka_unit_test_setup_teardown(what_was_written_is_read, begin, end),
        cmocka_unit_test_setup_teardown(nothing_at_all_is_a_file, begin, end),
        cmocka_unit_test_setup_teardown(bad_tensors_are_not_written, begin, end),
        cmocka_unit_test_setup_teardown(bad_files_are_refused, begin, end),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
