/*
 * fuzz_safetensors.c: files of tensors (src/save). What is accepted has every byte in one tensor, is read without
 * an error, and is the same when it is written and read again.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "memory_file.h"
#include "safetensors.h"

const char *const fuzz_tokens[] = {"\"dtype\":",
                                   "\"shape\":",
                                   "\"data_offsets\":",
                                   "\"F32\"",
                                   "\"BF16\"",
                                   "\"U8\"",
                                   "[0,4]",
                                   "[]",
                                   "{}",
                                   "\"__metadata__\":",
                                   ",",
                                   "4294967296",
                                   "9223372036854775807",
                                   "-1",
                                   "1e3",
                                   NULL};

/* All tensors of the file into one block; the block and their places. Caller frees. */
static uint8_t *read_all(const struct ull__safetensors *file, struct ull__save_tensor *tensors,
                         uint64_t *total)
{
    size_t count = ull__safetensors_count(file);
    *total = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        tensors[i] = *ull__safetensors_at(file, i);
        FUZZ_EXPECT(ull__save_tensor_bytes(&tensors[i], &bytes));
        *total += bytes;
    }
    uint8_t *block = malloc(*total + 1);
    FUZZ_EXPECT(block);
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        ull__save_tensor_bytes(&tensors[i], &bytes);
        tensors[i].data = block + at;
        at += bytes;
        FUZZ_EXPECT(ull__safetensors_find(file, tensors[i].name) == ull__safetensors_at(file, i));
    }
    struct ull_error err;
    FUZZ_EXPECT(ull__safetensors_read_all(file, tensors, count, true, &err) == ULL_OK);
    return block;
}

static void write_again(const struct ull__save_tensor *tensors, size_t count, uint64_t total,
                        const uint8_t *block)
{
    int fd = memfd_create("again", MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    uint64_t size = 0;
    uint32_t checksum = 0;
    struct ull_error err;
    FUZZ_EXPECT(ull__safetensors_write(fd, path, tensors, count, NULL, 0, &size, &checksum, &err) ==
                ULL_OK);
    struct ull__safetensors *file = NULL;
    FUZZ_EXPECT(ull__safetensors_open(path, &file, &err) == ULL_OK);
    struct ull__save_tensor *again = malloc((count + 1) * sizeof *again);
    uint8_t *copy = malloc(total + 1), *at = copy;
    FUZZ_EXPECT(again && copy);
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        ull__save_tensor_bytes(&tensors[i], &bytes);
        again[i] = tensors[i];
        again[i].data = at;
        at += bytes;
    }
    FUZZ_EXPECT(ull__safetensors_read_all(file, again, count, true, &err) == ULL_OK);
    FUZZ_EXPECT(memcmp(copy, block, total) == 0);
    ull__safetensors_close(file);
    free(again);
    free(copy);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ull__safetensors *file = NULL;
    struct ull_error err = {""};
    ull_status status = ull__safetensors_open(memory_file(data, size), &file, &err);
    if (status != ULL_OK) {
        FUZZ_EXPECT(status == ULL_E_FORMAT && !file && err.message[0]);
        return 0;
    }
    size_t count = ull__safetensors_count(file);
    struct ull__save_tensor *tensors = malloc((count + 1) * sizeof *tensors);
    FUZZ_EXPECT(tensors);
    uint64_t total = 0;
    uint8_t *block = read_all(file, tensors, &total);
    FUZZ_EXPECT(total < size);
    write_again(tensors, count, total, block);
    ull__safetensors_close(file);
    free(block);
    free(tensors);
    return 0;
}
