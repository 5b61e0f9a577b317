/*
 * state.c: the numbers of a training as JSON and back.
 *
 * "check" is the crc32 of the document without it, written compactly with its keys in order; so a
 * change anywhere is seen, and the file stays readable. Identities and seeds have all 64 bits and are
 * written as hexadecimal texts, since JSON's numbers end before that. A number that is no number is null.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <zlib.h>

#include "error.h"
#include "save_private.h"

enum { VERSION = 1 };

#define COUNTS(X)                                                                                  \
    X(step)                                                                                        \
    X(epoch)                                                                                       \
    X(position)                                                                                    \
    X(schedule_step)                                                                               \
    X(scale_good_steps)                                                                            \
    X(scale_hysteresis)                                                                            \
    X(scale_low_steps)                                                                             \
    X(skipped)
#define BITS(X)                                                                                    \
    X(seed)                                                                                        \
    X(model_identity)                                                                              \
    X(data_identity)
#define REALS(X)                                                                                   \
    X(learning_rate)                                                                               \
    X(loss_scale)                                                                                  \
    X(loss)                                                                                        \
    X(accuracy)                                                                                    \
    X(seconds)

static json_t *bits(uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *file_object(struct ull__save_file file)
{
    char text[16];
    snprintf(text, sizeof text, "%08" PRIx32, file.checksum);
    return json_pack("{s:I, s:s}", "bytes", (json_int_t)file.bytes, "crc32", text);
}

static json_t *switch_array(const struct ull__save_state *state)
{
    json_t *array = json_array();
    for (size_t i = 0; i < state->switch_count; i++) {
        const struct ull__save_switch *at = &state->switches[i];
        json_array_append_new(
            array, json_pack("{s:I, s:I, s:I, s:s, s:s}", "step", (json_int_t)at->step,
                             "micro_batch", (json_int_t)at->micro_batch, "budget_bytes",
                             (json_int_t)at->budget_bytes, "plan", at->plan, "why", at->why));
    }
    return array;
}

/* Of the document without "check". */
static bool checksum(json_t *document, char text[16])
{
    char *compact = json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    if (!compact)
        return false;
    uLong sum =
        crc32(crc32(0, NULL, 0), (const unsigned char *)compact, (unsigned int)strlen(compact));
    snprintf(text, 16, "%08lx", (unsigned long)sum);
    free(compact);
    return true;
}

/* A text that must be JSON, as a part of the document. */
static ull_status embed(json_t *document, const char *key, const char *text, struct ull_error *err)
{
    json_error_t error;
    json_t *value = text ? json_loads(text, JSON_DECODE_ANY, &error) : json_null();
    if (!value)
        return ull__fail(err, ULL_E_INVALID, "what is to be kept as '%s' is no JSON: %.200s", key,
                         error.text);
    json_object_set_new(document, key, value);
    return ULL_OK;
}

ull_status ull__save_state_write(const struct ull__save_state *state, struct ull__save_file model,
                                 struct ull__save_file rest, char **text, struct ull_error *err)
{
    json_t *document = json_object();
    json_object_set_new(document, "version", json_integer(VERSION));
#define X(name) json_object_set_new(document, #name, json_integer((json_int_t)state->name));
    COUNTS(X)
#undef X
#define X(name) json_object_set_new(document, #name, bits(state->name));
    BITS(X)
#undef X
#define X(name) json_object_set_new(document, #name, real(state->name));
    REALS(X)
#undef X
    json_object_set_new(document, "model", state->model ? json_string(state->model) : json_null());
    json_object_set_new(document, "switches", switch_array(state));
    json_t *files = json_object();
    json_object_set_new(files, ULL_SAVE_MODEL, file_object(model));
    json_object_set_new(files, ULL_SAVE_REST, file_object(rest));
    json_object_set_new(document, "files", files);
    ull_status status = embed(document, "data", state->data, err);
    if (status == ULL_OK)
        status = embed(document, "options", state->options, err);
    char check[16];
    char *out = NULL;
    if (status == ULL_OK && checksum(document, check) &&
        json_object_set_new(document, "check", json_string(check)) == 0)
        out = json_dumps(document, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    json_decref(document);
    if (status != ULL_OK)
        return status;
    if (!out)
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for the state of the training");
    *text = out;
    return ULL_OK;
}

/* ---- reading ----------------------------------------------------------------------------------- */

struct own {
    json_t *document;
    char *data, *options;
    struct ull__save_switch *switches;
};

void ull__save_state_free(void *pointer)
{
    struct own *own = pointer;
    if (!own)
        return;
    json_decref(own->document);
    free(own->data);
    free(own->options);
    free(own->switches);
    free(own);
}

static bool get_count(json_t *object, const char *key, uint64_t *value)
{
    json_t *number = json_object_get(object, key);
    if (!json_is_integer(number) || json_integer_value(number) < 0)
        return false;
    *value = (uint64_t)json_integer_value(number);
    return true;
}

static bool get_bits(json_t *object, const char *key, uint64_t *value)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strspn(text, "0123456789abcdef") != 16 || text[16])
        return false;
    *value = strtoull(text, NULL, 16);
    return true;
}

static bool get_real(json_t *object, const char *key, double *value)
{
    json_t *number = json_object_get(object, key);
    if (!json_is_number(number) && !json_is_null(number))
        return false;
    *value = json_is_null(number) ? NAN : json_number_value(number);
    return true;
}

static bool get_file(json_t *files, const char *name, struct ull__save_file *file)
{
    json_t *object = json_object_get(files, name);
    const char *text = json_string_value(json_object_get(object, "crc32"));
    if (!get_count(object, "bytes", &file->bytes) || !text || strlen(text) != 8 ||
        strspn(text, "0123456789abcdef") != 8)
        return false;
    file->checksum = (uint32_t)strtoul(text, NULL, 16);
    return true;
}

static bool get_switches(json_t *array, struct own *own, struct ull__save_state *state)
{
    size_t count = json_array_size(array);
    own->switches = calloc(count + 1, sizeof *own->switches);
    if (!own->switches || !json_is_array(array))
        return false;
    for (size_t i = 0; i < count; i++) {
        json_t *object = json_array_get(array, i);
        struct ull__save_switch *at = &own->switches[i];
        const char *plan = json_string_value(json_object_get(object, "plan")),
                   *why = json_string_value(json_object_get(object, "why"));
        if (!get_count(object, "step", &at->step) ||
            !get_count(object, "micro_batch", &at->micro_batch) ||
            !get_count(object, "budget_bytes", &at->budget_bytes) || !plan || !why)
            return false;
        snprintf(at->plan, sizeof at->plan, "%s", plan);
        snprintf(at->why, sizeof at->why, "%s", why);
    }
    state->switches = own->switches;
    state->switch_count = count;
    return true;
}

/* A part of the document as text again. */
static bool extract(json_t *document, const char *key, char **text)
{
    json_t *value = json_object_get(document, key);
    *text = NULL;
    if (!value || json_is_null(value))
        return value;
    *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    return *text;
}

/* Whether the document is what was written. */
static bool is_whole(json_t *document)
{
    char check[16];
    json_t *kept = json_incref(json_object_get(document, "check"));
    const char *wanted = json_string_value(kept);
    bool whole = wanted && json_object_del(document, "check") == 0 && checksum(document, check) &&
                 strcmp(check, wanted) == 0;
    json_decref(kept);
    return whole;
}

static bool get_all(json_t *document, struct own *own, struct ull__save_state *state,
                    struct ull__save_file *model, struct ull__save_file *rest)
{
    bool good = true;
#define X(name) good = good && get_count(document, #name, &state->name);
    COUNTS(X)
#undef X
#define X(name) good = good && get_bits(document, #name, &state->name);
    BITS(X)
#undef X
#define X(name) good = good && get_real(document, #name, &state->name);
    REALS(X)
#undef X
    json_t *files = json_object_get(document, "files");
    good = good && get_file(files, ULL_SAVE_MODEL, model) && get_file(files, ULL_SAVE_REST, rest) &&
           get_switches(json_object_get(document, "switches"), own, state) &&
           extract(document, "data", &own->data) && extract(document, "options", &own->options);
    state->model = json_string_value(json_object_get(document, "model"));
    state->data = own->data;
    state->options = own->options;
    return good;
}

ull_status ull__save_state_read(const char *text, size_t size, struct ull__save_state *state,
                                struct ull__save_file *model, struct ull__save_file *rest,
                                void **out, struct ull_error *err)
{
    json_error_t error;
    struct own *own = calloc(1, sizeof *own);
    if (!own)
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for the state of a training");
    own->document = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    struct ull__save_state read = {.step = 0};
    ull_status status = ULL_OK;
    json_int_t version = json_integer_value(json_object_get(own->document, "version"));
    if (!json_is_object(own->document))
        status = ull__fail(err, ULL_E_FORMAT, "it is no JSON object: %.200s",
                           own->document ? "" : error.text);
    else if (version > VERSION)
        status = ull__fail(err, ULL_E_FORMAT, "it is of a newer ullage (version %lld, %d is known)",
                           (long long)version, VERSION);
    else if (!is_whole(own->document))
        status = ull__fail(err, ULL_E_FORMAT, "it was changed after it was written");
    else if (!get_all(own->document, own, &read, model, rest))
        status = ull__fail(err, ULL_E_FORMAT, "something in it is missing or no number");
    if (status != ULL_OK) {
        ull__save_state_free(own);
        return status;
    }
    *state = read;
    *out = own;
    return ULL_OK;
}
