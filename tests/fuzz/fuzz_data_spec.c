/* fuzz_data_spec.c: what is typed after --data (src/data/spec.c). What is accepted is in the ranges that data.h says. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"

const char *const fuzz_tokens[] = {",format=",  ",split=",
                                   ",unit=",    ",type=",
                                   ",vocab=",   ",ignore=",
                                   ",classes=", ",samples=",
                                   ",shape=",   ",mean=",
                                   ",std=",     ",augment=",
                                   ",pad=",     "none",
                                   "3x8x8",     "0.5/0.5/1",
                                   "u16",       "1e999",
                                   "nan",       "0x1p3",
                                   "images",    "9223372036854775808",
                                   NULL};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ull__data_spec spec;
    struct ull_error err = {""};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    ull_status status = ull__data_spec_parse(text, &spec, &err);
    if (status == ULL_OK) {
        FUZZ_EXPECT(spec.path[0] && strlen(spec.path) <= size && spec.format < ULL_DATA_FORMATS);
        FUZZ_EXPECT(!(spec.split >= 1) && !isnan(spec.split));
        FUZZ_EXPECT(spec.vocab >= 0 && spec.classes >= 0 && spec.samples >= 0 && spec.ignore >= -1);
        FUZZ_EXPECT(spec.colours >= 0 && spec.colours <= ULL_DATA_CHANNELS);
        for (int i = 0; i < spec.colours; i++)
            FUZZ_EXPECT(isfinite(spec.mean[i]) && spec.deviation[i] > 0);
        for (int i = 0; i < 3; i++)
            FUZZ_EXPECT(spec.shape[i] >= 0 && spec.shape[i] <= 16384);
    } else {
        FUZZ_EXPECT(status == ULL_E_INVALID && err.message[0]);
    }
    free(text);
    return 0;
}
