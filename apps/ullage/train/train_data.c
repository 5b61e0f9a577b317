/* train_data.c: a training's data, and a model whose sizes are those of the data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../plan/model.h"
#include "error.h"
#include "train_cmd.h"
#include "zoo.h"

/* Value of KEY= in "KEY=VALUE,KEY=VALUE"; NULL: it is not there. */
static const char *argument_of(const char *list, const char *key, const char *separators)
{
    size_t length = strlen(key);
    while (list != NULL && *list != '\0') {
        if (strncmp(list, key, length) == 0 && list[length] == '=') {
            return list + length + 1;
        }
        list = strpbrk(list, separators);
        list = list != NULL ? list + 1 : NULL;
    }
    return NULL;
}

/* NULL: not of the zoo. */
static const struct ull__zoo_model *zoo_model(const char *text)
{
    size_t length = strcspn(text, ":");
    for (const struct ull__zoo_model *model = ull__zoo; model->name != NULL; ++model) {
        if (strlen(model->name) == length && strncmp(model->name, text, length) == 0) {
            return model;
        }
    }
    return NULL;
}

static bool is_free(const struct ull__zoo_model *model, const char *given, const char *key)
{
    return argument_of(model->arguments, key, " ") != NULL && argument_of(given, key, ",") == NULL;
}

bool train_model_leaves_free(const char *model, const char *key)
{
    const struct ull__zoo_model *zoo = zoo_model(model);
    const char *given = strchr(model, ':');
    return zoo != NULL && is_free(zoo, given != NULL ? given + 1 : NULL, key);
}

static void append(char text[512], const char *key, long long a, long long b)
{
    size_t at = strlen(text);
    const char *mark = strchr(text, ':') != NULL ? "," : ":";
    if (b > 0 && b != a) {
        snprintf(text + at, 512 - at, "%s%s=%lldx%lld", mark, key, a, b);
    } else {
        snprintf(text + at, 512 - at, "%s%s=%lld", mark, key, a);
    }
}

static void fill_sizes(const struct ull__zoo_model *model, const char *given,
                       const struct ull__data_info *info, char text[512])
{
    if (info->tokens) {
        if (is_free(model, given, "vocab")) {
            append(text, "vocab", (long long)info->classes, 0);
        }
        return;
    }
    if (is_free(model, given, "image")) {
        append(text, "image", (long long)info->shape[1], (long long)info->shape[2]);
    }
    if (is_free(model, given, "channels")) {
        append(text, "channels", (long long)info->shape[0], 0);
    }
    if (is_free(model, given, "inputs")) {
        append(text, "inputs", (long long)(info->shape[0] * info->shape[1] * info->shape[2]), 0);
    }
    if (is_free(model, given, "classes")) {
        append(text, "classes", (long long)info->classes, 0);
    }
}

static int64_t number_of(const struct ull__zoo_model *model, const char *given, const char *key)
{
    const char *text = argument_of(given, key, ",");
    text = text != NULL ? text : argument_of(model->arguments, key, " ");
    return text != NULL ? strtoll(text, NULL, 10) : 0;
}

/* What pictures are made into where the user or the model says so; else as they are. */
static void wanted_shape(const struct ull__zoo_model *model, const char *given, bool defaults,
                         int64_t shape[3])
{
    const char *image = argument_of(given, "image", ",");
    image = image == NULL && defaults ? argument_of(model->arguments, "image", " ") : image;
    const char *channels = argument_of(given, "channels", ",");
    channels =
        channels == NULL && defaults ? argument_of(model->arguments, "channels", " ") : channels;
    if (image != NULL) {
        char *end;
        shape[1] = shape[2] = strtoll(image, &end, 10);
        shape[2] = *end == 'x' ? strtoll(end + 1, NULL, 10) : shape[2];
    }
    shape[0] = channels != NULL ? strtoll(channels, NULL, 10) : shape[0];
}

/* A file of ONNX says itself what it takes; made-up data has as many classes as that tells apart. */
static ull_status want_of_file(const char *model, bool made_up, struct ull__data_want *want,
                               struct ull_error *err)
{
    struct ull__graph *graph;
    ull_status status = model_build(model, false, &graph, err);
    if (status != ULL_OK) {
        return status;
    }
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(graph, 1, values);
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->role != ULL_ROLE_INPUT || strncmp(tensor->name, "target", 6) == 0) {
            continue;
        }
        if (!ull__type_is_float(tensor->type)) {
            want->window = ull__tensor_elements(graph, i, values);
        } else if (tensor->rank == 4) {
            for (int j = 0; j < 3; ++j) {
                want->shape[j] = ull__dim_value(graph->symbols, tensor->dims[1 + j], values);
            }
        }
    }
    if (made_up && graph->output_count > 0) {
        const struct ull__tensor *logits = &graph->tensors[graph->outputs[0]];
        want->classes = ull__dim_value(graph->symbols, logits->dims[logits->rank - 1], values);
    }
    ull__graph_destroy(graph);
    return ULL_OK;
}

/* Tokens of a sample: the context, or the shorter length that was given. */
static int64_t window_of(const struct ull__zoo_model *model, const char *given)
{
    int64_t length = number_of(model, given, "length");
    return length > 0 ? length : number_of(model, given, "context");
}

ull_status train_open_data(const char *model, const char *data, const char *like, uint64_t seed,
                           int64_t longest, char model_text[512], struct ull__data **opened,
                           struct ull_error *err)
{
    struct ull__data_spec spec;
    struct ull__data_want want = {.seed = seed, .like = like, .warn = train_warn};
    const struct ull__zoo_model *zoo = zoo_model(model);
    const char *given = strchr(model, ':');
    given = given != NULL ? given + 1 : NULL;
    snprintf(model_text, 512, "%s", model);
    ull_status status = ull__data_spec_parse(data, &spec, err);
    if (status == ULL_OK && zoo == NULL) {
        status = want_of_file(model, spec.format == ULL_DATA_SYNTHETIC, &want, err);
    } else if (status == ULL_OK) {
        bool tokens = argument_of(zoo->arguments, "vocab", " ") != NULL;
        want.window = tokens ? window_of(zoo, given) : 0;
        wanted_shape(zoo, given, spec.format == ULL_DATA_SYNTHETIC, want.shape);
        const char *classes = argument_of(given, tokens ? "vocab" : "classes", ",");
        want.classes = classes != NULL ? strtoll(classes, NULL, 10)
                       : spec.format == ULL_DATA_SYNTHETIC
                           ? number_of(zoo, given, tokens ? "vocab" : "classes")
                           : 0;
    }
    if (status == ULL_OK && longest > 0 && want.window > 0 && longest > want.window) {
        status = ull__fail(err, ULL_E_INVALID,
                           "--buckets: %lld is above the %lld tokens that '%s' takes",
                           (long long)longest, (long long)want.window, model);
    }
    want.window = longest > 0 && want.window > 0 ? longest : want.window;
    if (status == ULL_OK) {
        status = ull__data_open(&spec, &want, opened, err);
    }
    if (status == ULL_OK && zoo != NULL) {
        const struct ull__data_info *info = ull__data_info(*opened);
        int64_t shape[3] = {0, 0, 0};
        wanted_shape(zoo, given, true, shape);
        /* Pictures of many sizes have none of their own: the model's counts. */
        if (info->format == ULL_DATA_IMAGES && want.shape[1] == 0 && shape[1] > 0 && like == NULL) {
            memcpy(want.shape, shape, sizeof(shape));
            ull__data_close(*opened);
            *opened = NULL;
            status = ull__data_open(&spec, &want, opened, err);
        }
        if (status == ULL_OK) {
            fill_sizes(zoo, given, ull__data_info(*opened), model_text);
        }
    }
    return status;
}
