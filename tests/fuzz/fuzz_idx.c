/*
 * fuzz_idx.c: IDX files of pictures, gzipped or not (src/data/idx.c), beside eight labels that are right. What is
 * accepted is read, and all of its values are numbers.
 */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "memory_file.h"

const char *const fuzz_tokens[] = {"\x1f\x8b", NULL};

static char folder[] = "/tmp/ullage-fuzz-XXXXXX";

static void finish(void)
{
    char path[100];
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/train-labels-idx1-ubyte", folder);
    unlink(path);
    rmdir(folder);
}

static void begin(const char *input)
{
    static const char labels[16] = {0, 0, 8, 1, 0, 0, 0, 8, 0, 1, 2, 0, 1, 2, 0, 1};
    char path[100];
    FUZZ_EXPECT(mkdtemp(folder));
    atexit(finish);
    snprintf(path, sizeof path, "%s/train-labels-idx1-ubyte", folder);
    FILE *file = fopen(path, "wb");
    FUZZ_EXPECT(file && fwrite(labels, 1, 16, file) == 16 && fclose(file) == 0);
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", folder);
    FUZZ_EXPECT(symlink(input, path) == 0);
}

static void read_all(const struct ull__data *data)
{
    const struct ull__data_info *info = ull__data_info(data);
    FUZZ_EXPECT(info->samples[0] + info->samples[1] == 8);
    size_t values = info->sample_bytes / 4;
    float *x = malloc(info->sample_bytes);
    FUZZ_EXPECT(x && values > 0);
    for (int part = 0; part < 2; part++) {
        struct ull__reader *reader = NULL;
        struct ull_error err;
        const struct ull__reader_options options = {.part = (enum ull__data_part)part,
                                                    .augment = true};
        if (ull__reader_create(data, &options, &reader, &err) != ULL_OK)
            continue;
        for (uint64_t i = 0; i < info->samples[part]; i++) {
            int32_t label = -1;
            FUZZ_EXPECT(ull__data_batch(reader, i, 1, x, &label, &err) == ULL_OK);
            FUZZ_EXPECT(label >= 0 && label < 3);
            for (size_t k = 0; k < values; k++)
                FUZZ_EXPECT(isfinite(x[k]));
        }
        ull__reader_destroy(reader);
    }
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static bool begun;
    const char *input = memory_file(bytes, size);
    if (!begun)
        begin(input);
    begun = true;
    struct ull__data_spec spec;
    struct ull__data *data = NULL;
    struct ull_error err = {""};
    char text[100];
    snprintf(text, sizeof text, "%s,format=idx,augment=flip+crop,split=0.5", folder);
    FUZZ_EXPECT(ull__data_spec_parse(text, &spec, &err) == ULL_OK);
    const struct ull__data_want want = {.classes = 3};
    ull_status status = ull__data_open(&spec, &want, &data, &err);
    if (status == ULL_OK)
        read_all(data);
    else
        FUZZ_EXPECT(!data && err.message[0] && (status == ULL_E_FORMAT || status == ULL_E_INVALID));
    ull__data_close(data);
    return 0;
}
