/* fuzz_size.c: texts of sizes and shares (src/base/size.c), against a reading in floating point. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "size.h"

const char *const fuzz_tokens[] = {"B",   "K",    "Ki",   "KiB",  "M",  "MiB", "G",
                                   "GiB", "T",    "TiB",  "KB",   "GB", "%",   ".",
                                   ".5",  "8EiB", "100%", "0x10", NULL};

static void check_message(ull_status status, const struct ull_error *error)
{
    FUZZ_EXPECT(status == ULL_OK || status == ULL_E_INVALID);
    FUZZ_EXPECT(memchr(error->message, 0, sizeof error->message) != NULL);
    FUZZ_EXPECT(status == ULL_OK || error->message[0] != 0);
}

/* What was read is what the number times its unit is, rounded down; long double has 64 bits. */
static void check_value(const char *text, uint64_t bytes)
{
    static const char letters[] = "KMGT";
    char *unit;
    long double value = strtold(text, &unit);
    const char *letter = *unit ? strchr(letters, *unit) : NULL;
    if (letter)
        value *= powl(unit[1] == 'B' ? 1000 : 1024, (long double)(letter - letters + 1));
    FUZZ_EXPECT((long double)bytes <= value + 0.6L && (long double)bytes > value - 1.6L);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), buffer[ULL_SIZE_TEXT];
    struct ull_error error = {.message = ""};
    struct ull_size either = {.bytes = 77, .percent = 77};
    uint64_t bytes = 77;
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    ull_status status = ull__size_parse(text, &bytes, &error);
    check_message(status, &error);
    if (status == ULL_OK) {
        FUZZ_EXPECT(bytes > 0 && bytes <= INT64_MAX);
        check_value(text, bytes);
    } else {
        FUZZ_EXPECT(bytes == 77);
    }
    error.message[0] = 0;
    ull_status second = ull__size_or_share_parse(text, &either, &error);
    check_message(second, &error);
    FUZZ_EXPECT(status != ULL_OK || (second == ULL_OK && either.bytes == bytes));
    if (second != ULL_OK)
        FUZZ_EXPECT(either.bytes == 77 && either.percent == 77);
    else
        FUZZ_EXPECT(either.percent == 0 ? either.bytes > 0
                                        : either.percent > 0 && either.percent <= 100);
    memcpy(&bytes, data, size < sizeof bytes ? size : sizeof bytes);
    ull__size_text(bytes, buffer);
    FUZZ_EXPECT(memchr(buffer, 0, sizeof buffer) != NULL && strlen(buffer) >= 3);
    free(text);
    return 0;
}
