/*
 * fuzz_save_state.c: the state of a training as JSON (src/save/state.c). The checksum of an input is put right first,
 * so that mutations get beyond it. What is accepted is the same when it is written and read again.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <zlib.h>

#include "save_private.h"

const char *const fuzz_tokens[] = {"null",
                                   "-1",
                                   "1e308",
                                   "9223372036854775807",
                                   "\"switches\": [",
                                   "\"plan\": \"\"",
                                   "\"crc32\": \"00000000\"",
                                   "{}",
                                   "[]",
                                   "\"0123456789abcdef\"",
                                   "\\u0000",
                                   ",",
                                   NULL};

/* The input with "check" as it should be, or NULL. Caller frees. */
static char *put_right(const uint8_t *data, size_t size)
{
    json_error_t error;
    json_t *document = json_loadb((const char *)data, size, 0, &error);
    char *out = NULL;
    if (json_is_object(document)) {
        json_object_del(document, "check");
        char *text = json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
        char check[16];
        uLong sum = text ? crc32(0, (const unsigned char *)text, (unsigned int)strlen(text)) : 0;
        snprintf(check, sizeof check, "%08lx", (unsigned long)sum);
        json_object_set_new(document, "check", json_string(check));
        free(text);
        out = json_dumps(document, JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    }
    json_decref(document);
    return out;
}

static ull_status read_text(const char *text, size_t size, struct ull__save_state *state,
                            struct ull__save_file files[2], void **own)
{
    struct ull_error err = {""};
    *own = NULL;
    ull_status status = ull__save_state_read(text, size, state, &files[0], &files[1], own, &err);
    FUZZ_EXPECT(status == ULL_OK || (status == ULL_E_FORMAT && !*own && err.message[0]));
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ull__save_state state, again;
    struct ull__save_file files[2], more[2];
    void *own, *second;
    if (read_text((const char *)data, size, &state, files, &own) == ULL_OK)
        ull__save_state_free(own);
    char *right = put_right(data, size);
    if (!right)
        return 0;
    if (read_text(right, strlen(right), &state, files, &own) == ULL_OK) {
        char *text = NULL;
        FUZZ_EXPECT(ull__save_state_write(&state, files[0], files[1], &text, NULL) == ULL_OK);
        FUZZ_EXPECT(read_text(text, strlen(text), &again, more, &second) == ULL_OK);
        for (int i = 0; i < 2; i++)
            FUZZ_EXPECT(files[i].bytes == more[i].bytes && files[i].checksum == more[i].checksum);
        FUZZ_EXPECT(again.step == state.step);
        FUZZ_EXPECT(again.seed == state.seed && again.switch_count == state.switch_count);
        FUZZ_EXPECT(!state.switch_count || memcmp(again.switches, state.switches,
                                                  state.switch_count * sizeof *state.switches) == 0);
        free(text);
        ull__save_state_free(second);
        ull__save_state_free(own);
    }
    free(right);
    return 0;
}
