/*
 * data.c: opening data of any format, what they are, and what a later opening needs to be the same.
 */
#include "data.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data_private.h"
#include "size.h"

static const struct ull__source *const sources[ULL_DATA_FORMATS] = {
    NULL,
    &ull__source_idx,
    &ull__source_images,
    &ull__source_text,
    &ull__source_tokens,
    &ull__source_synthetic,
};

void ull__data_tell(const struct ull__data_want *want, const char *format, ...)
{
    if (!want->warn)
        return;
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    want->warn(want->context, message);
}

uint64_t ull__data_hash(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = ull__mix(hash, word);
        at += 8;
        size -= 8;
    }
    uint64_t rest = size;
    for (size_t i = 0; i < size; i++)
        rest = rest << 8 | at[i];
    return ull__mix(hash, rest);
}

bool ull__data_held_out(double share, uint64_t hash)
{
    return share > 0 && (double)(ull__mix(hash, 1) >> 11) * 0x1p-53 < share;
}

ull_status ull__data_no_memory(struct ull_error *err, uint64_t bytes, const char *what)
{
    char size[ULL_SIZE_TEXT];
    return ull__fail(err, ULL_E_NO_MEMORY, "no %s of host memory for %s",
                     ull__size_text_up(bytes, size), what);
}

ull_status ull__data_resident(const struct ull__data *data, const struct ull__data_want *want,
                              struct ull_error *err)
{
    char need[ULL_SIZE_TEXT], have[ULL_SIZE_TEXT];
    if (want->host_bytes == 0 || data->info.resident_bytes <= want->host_bytes)
        return ULL_OK;
    return ull__fail(
        err, ULL_E_NO_MEMORY,
        "the data '%.200s' take %s of host memory, %s is left for them: give more host "
        "memory%s",
        data->spec.path, ull__size_text_up(data->info.resident_bytes, need),
        ull__size_text(want->host_bytes, have),
        data->info.format == ULL_DATA_TEXT
            ? ", or make a file of tokens of them, which is read as it is needed"
            : "");
}

ull_status ull__data_shape(struct ull__data *data, const struct ull__data_want *want,
                           const int64_t given[3], struct ull_error *err)
{
    static const char *const names[3] = {"channels", "rows", "columns"};
    json_t *like = json_object_get(data->like, "shape");
    for (int i = 0; i < 3; i++) {
        int64_t wanted = want->shape[i], said = data->spec.shape[i];
        if (said && wanted && said != wanted)
            return ull__fail(err, ULL_E_INVALID, "'shape=' says %lld %s: the model takes %lld",
                             (long long)said, names[i], (long long)wanted);
        int64_t shape = said ? said : wanted;
        if (!shape)
            shape = json_integer_value(json_array_get(like, (size_t)i));
        if (!shape)
            shape = given[i];
        if (shape < 1 || shape > (i ? 16384 : ULL_DATA_CHANNELS))
            return ull__fail(err, ULL_E_INVALID,
                             "pictures of %lld %s cannot be made: expected 1 to %d",
                             (long long)shape, names[i], i ? 16384 : ULL_DATA_CHANNELS);
        data->info.shape[i] = shape;
    }
    return ULL_OK;
}

bool ull__data_normalization(struct ull__data *data)
{
    if (data->spec.colours) {
        data->colours = data->spec.colours;
        memcpy(data->mean, data->spec.mean, sizeof data->mean);
        memcpy(data->deviation, data->spec.deviation, sizeof data->deviation);
        return true;
    }
    json_t *mean = json_object_get(data->like, "mean"),
           *deviation = json_object_get(data->like, "std");
    size_t count = json_array_size(mean);
    if (count < 1 || count > ULL_DATA_CHANNELS || json_array_size(deviation) != count)
        return false;
    data->colours = (int)count;
    for (size_t i = 0; i < count; i++) {
        data->mean[i] = (float)json_number_value(json_array_get(mean, i));
        data->deviation[i] = (float)json_number_value(json_array_get(deviation, i));
        if (!isfinite(data->mean[i]) || !(data->deviation[i] > 0))
            return false;
    }
    return true;
}

static ull_status read_like(struct ull__data *data, const struct ull__data_want *want,
                            struct ull_error *err)
{
    if (!want->like)
        return ULL_OK;
    json_error_t error;
    data->like = json_loads(want->like, 0, &error);
    if (json_is_object(data->like))
        return ULL_OK;
    return ull__fail(err, ULL_E_FORMAT,
                     "what was kept of the data of the training is damaged: %.200s", error.text);
}

/* What the model takes is what these data are made of. */
static ull_status check_kind(const struct ull__data *data, const struct ull__data_want *want,
                             struct ull_error *err)
{
    enum ull__data_format format = data->info.format;
    bool tokens = format == ULL_DATA_TEXT || format == ULL_DATA_TOKENS ||
                  (format == ULL_DATA_SYNTHETIC && want->window > 0);
    if (tokens == (want->window > 0))
        return ULL_OK;
    return ull__fail(err, ULL_E_INVALID, "the model takes %s: '%.300s' has %s (format %s)",
                     tokens ? "pictures" : "tokens", data->spec.path, tokens ? "text" : "pictures",
                     ull__data_format_text(format));
}

static ull_status make_known(struct ull__data *data, struct ull_error *err)
{
    if (data->info.format != ULL_DATA_IMAGES)
        return ULL_OK;
    for (int part = 0; part < ULL_DATA_PARTS; part++) {
        size_t samples = data->info.samples[part];
        data->known[part] = calloc(samples ? samples : 1, 1);
        if (!data->known[part])
            return ull__data_no_memory(err, samples, "a list of pictures");
        data->info.resident_bytes += samples;
    }
    return ULL_OK;
}

/* What is made of the data is a part of what they are: a training goes on with the same. */
static void identify_options(struct ull__data *data)
{
    const struct ull__data_spec *spec = &data->spec;
    const int64_t numbers[] = {spec->augment,       spec->pad,           spec->ignore,
                               data->info.window,   data->info.shape[0], data->info.shape[1],
                               data->info.shape[2], data->info.classes};
    for (int part = 0; part < ULL_DATA_PARTS; part++) {
        uint64_t hash = ull__data_hash(data->info.identity[part], numbers, sizeof numbers);
        hash = ull__data_hash(hash, data->mean, sizeof data->mean);
        hash = ull__data_hash(hash, data->deviation, sizeof data->deviation);
        if (data->info.documents) {
            hash = ull__mix(hash, (uint64_t)spec->documents);
            hash = ull__data_hash(hash, spec->mark, sizeof spec->mark);
        }
        data->info.identity[part] = hash;
    }
}

/* What a document is: as it is said, else as in the training. */
static ull_status take_documents(struct ull__data *data, struct ull_error *err)
{
    const char *like = json_string_value(json_object_get(data->like, "documents"));
    if (data->spec.documents != ULL_DOCUMENTS_AUTO)
        return ULL_OK;
    data->spec.documents = ULL_DOCUMENTS_NONE;
    if (!like || data->info.format == ULL_DATA_SYNTHETIC ||
        ull__data_documents_parse(like, &data->spec))
        return ULL_OK;
    return ull__fail(err, ULL_E_FORMAT, "what was kept of the documents of the training is damaged");
}

static ull_status open_source(struct ull__data *data, const struct ull__data_want *want,
                              struct ull_error *err)
{
    ull_status status = ULL_OK;
    data->info.format = data->spec.format;
    if (data->info.format == ULL_DATA_AUTO)
        status = ull__data_recognize(data->spec.path, &data->info.format, err);
    if (status != ULL_OK)
        return status;
    data->spec.format = data->info.format;
    if ((status = ull__data_spec_check(&data->spec, err)) != ULL_OK ||
        (status = check_kind(data, want, err)) != ULL_OK ||
        (status = read_like(data, want, err)) != ULL_OK)
        return status;
    data->info.mark = -1;
    if ((status = take_documents(data, err)) != ULL_OK)
        return status;
    data->source = sources[data->info.format];
    if ((status = data->source->open(data, want, err)) != ULL_OK ||
        (status = make_known(data, err)) != ULL_OK)
        return status;
    struct ull__data_info *info = &data->info;
    info->tokens = want->window > 0;
    info->window = want->window;
    info->sample_targets = info->tokens ? info->window : 1;
    identify_options(data);
    info->sample_bytes =
        4 * (size_t)(info->tokens ? info->window : info->shape[0] * info->shape[1] * info->shape[2]);
    if (info->samples[ULL_DATA_TRAIN] == 0 && info->samples[ULL_DATA_EVAL] == 0)
        return ull__fail(err, ULL_E_FORMAT, "'%.300s' has no sample", data->spec.path);
    return ull__data_resident(data, want, err);
}

ull_status ull__data_open(const struct ull__data_spec *spec, const struct ull__data_want *want,
                          struct ull__data **out, struct ull_error *err)
{
    if (want->window < 0 || want->window > (1 << 24))
        return ull__fail(err, ULL_E_INVALID, "a window of %lld tokens: expected 1 to %d",
                         (long long)want->window, 1 << 24);
    struct ull__data *data = calloc(1, sizeof *data);
    if (!data)
        return ull__data_no_memory(err, sizeof *data, "the data");
    data->spec = *spec;
    ull_status status = open_source(data, want, err);
    json_decref(data->like);
    data->like = NULL;
    if (status == ULL_OK)
        *out = data;
    else
        ull__data_close(data);
    return status;
}

void ull__data_close(struct ull__data *data)
{
    if (!data)
        return;
    if (data->source)
        data->source->close(data);
    for (int part = 0; part < ULL_DATA_PARTS; part++)
        free(data->known[part]);
    free(data);
}

const struct ull__data_info *ull__data_info(const struct ull__data *data)
{
    return &data->info;
}

const char *ull__data_class_name(const struct ull__data *data, int64_t label)
{
    if (!data->source->class_name || label < 0 || label >= data->info.classes)
        return NULL;
    return data->source->class_name(data, label);
}

static void describe_numbers(struct ull_json *json, const char *key, const float *values, int count)
{
    ull__json_key(json, key);
    ull__json_array(json);
    for (int i = 0; i < count; i++)
        ull__json_number(json, (double)values[i]);
    ull__json_array_end(json);
}

ull_status ull__data_describe(const struct ull__data *data, char **out, struct ull_error *err)
{
    struct ull_json json;
    ull__json_init(&json, NULL);
    json.compact = true;
    ull__json_object(&json);
    ull__json_key(&json, "format");
    ull__json_string(&json, ull__data_format_text(data->info.format));
    ull__json_key(&json, "classes");
    ull__json_i64(&json, data->info.classes);
    if (!data->info.tokens) {
        ull__json_key(&json, "shape");
        ull__json_array(&json);
        for (int i = 0; i < 3; i++)
            ull__json_i64(&json, data->info.shape[i]);
        ull__json_array_end(&json);
        if (data->colours) {
            describe_numbers(&json, "mean", data->mean, data->colours);
            describe_numbers(&json, "std", data->deviation, data->colours);
        }
    }
    if (data->info.documents) {
        char text[ULL_DATA_MARK + 16];
        ull__data_documents_text(&data->spec, text);
        ull__json_key(&json, "documents");
        ull__json_string(&json, text);
    }
    if (data->source->describe)
        data->source->describe(data, &json);
    ull__json_object_end(&json);
    if (!ull__json_finish(&json)) {
        ull__json_free(&json);
        return ull__data_no_memory(err, 1, "the description of the data");
    }
    json.text[json.size - 1] = 0; /* the newline */
    *out = json.text;
    return ULL_OK;
}

uint64_t ull__data_count_valid(const int32_t *targets, size_t count)
{
    uint64_t valid = 0;
    for (size_t i = 0; i < count; i++)
        valid += targets[i] != ULL_DATA_IGNORED;
    return valid;
}
