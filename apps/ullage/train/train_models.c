/*
 * train_models.c: documents have their own lengths: the model with as many tokens as each of some lengths.
 *
 * A model of the zoo has an argument for that, `length`. A file of ONNX must leave its length open; then it is the size that was
 * given on the command line with as many tokens as the input has.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../plan/model.h"
#include "error.h"
#include "train_cmd.h"

enum { MOST_BY_ITSELF = 4 };

/* "model.onnx:time=128,loss=mse" with another number for the `at`-th argument; false: there is none, or it is no size. */
static bool replaced(const char *model, int at, int64_t from, int64_t to, char text[1024])
{
    const char *one = strrchr(model, ':');
    for (int i = 0; one != NULL && i < at; ++i) {
        one = strchr(one + 1, ',');
    }
    const char *value = one != NULL ? strchr(one, '=') : NULL;
    char *end;
    if (value == NULL || strtoll(value + 1, &end, 10) != from || (*end != ',' && *end != '\0')) {
        return false;
    }
    return snprintf(text, 1024, "%.*s%lld%s", (int)(value + 1 - model), model, (long long)to, end) <
           1024;
}

/* Tokens of a sample; 0: it takes none. */
static int64_t tokens_of(const struct ull__graph *graph)
{
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(graph, 1, values);
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->role == ULL_ROLE_INPUT && strncmp(tensor->name, "target", 6) != 0 &&
            !ull__type_is_float(tensor->type)) {
            return ull__tensor_elements(graph, i, values);
        }
    }
    return 0;
}

/* NULL in *graph without an error: the model has one length. */
static ull_status build(const char *model, int64_t whole, int64_t length, struct ull__graph **graph,
                        struct ull_error *err)
{
    char text[1024];
    *graph = NULL;
    if (!model_is_file(model)) {
        if (!train_model_leaves_free(model, "length")) {
            return ULL_OK;
        }
        snprintf(text, sizeof(text), "%s%clength=%lld", model,
                 strchr(model, ':') != NULL ? ',' : ':', (long long)length);
        return model_build(text, true, graph, err);
    }
    for (int i = 0; strrchr(model, ':') != NULL && i < 16; ++i) {
        if (!replaced(model, i, whole, length, text)) {
            continue;
        }
        ull_status status = model_build(text, true, graph, err);
        if (status != ULL_OK || tokens_of(*graph) == length) {
            return status;
        }
        ull__graph_destroy(*graph);
        *graph = NULL;
    }
    return ULL_OK;
}

static ull_status build_all(const char *model, int64_t whole, bool asked,
                            struct train_models *models, struct ull_error *err)
{
    ull_status status = ULL_OK;
    for (int i = 0; i < models->count && status == ULL_OK; ++i) {
        status = models->lengths[i] == whole
                     ? model_build(model, true, &models->graphs[i], err)
                     : build(model, whole, models->lengths[i], &models->graphs[i], err);
        if (status != ULL_OK || models->graphs[i] != NULL) {
            continue;
        }
        if (asked) {
            return ull__fail(
                err, ULL_E_INVALID,
                "'%s' takes %lld tokens and no fewer, --buckets says %lld: expected a model "
                "with an argument 'length', or a file of ONNX that leaves its length "
                "open, with that as in model.onnx:time=%lld",
                model, (long long)whole, (long long)models->lengths[i], (long long)whole);
        }
        models->lengths[0] = whole;
        models->count = 1;
        return model_build(model, true, &models->graphs[0], err);
    }
    return status;
}

ull_status train_models_build(const char *model, struct ull__data *data, enum ull__data_part part,
                              const int64_t *lengths, int count, struct train_models *models,
                              struct ull_error *err)
{
    const struct ull__data_info *info = ull__data_info(data);
    int64_t whole = 0;
    *models = (struct train_models){.count = 1};
    if (!info->documents) {
        return count == 0
                   ? model_build(model, true, &models->graphs[0], err)
                   : ull__fail(err, ULL_E_INVALID,
                               "--buckets is for documents: the samples of this data are all as "
                               "long as the model's (see documents= in docs/data.md)");
    }
    struct ull__graph *graph;
    ull_status status = model_build(model, false, &graph, err);
    if (status != ULL_OK) {
        return status;
    }
    whole = tokens_of(graph);
    ull__graph_destroy(graph);
    if (count > 0) {
        memcpy(models->lengths, lengths, (size_t)count * sizeof(*lengths));
        models->count = count;
    } else {
        models->count = ull__data_buckets(data, part, MOST_BY_ITSELF, models->lengths);
    }
    status = build_all(model, whole, count > 0, models, err);
    ull__data_narrow(data, models->lengths[models->count - 1]);
    return status;
}

void train_models_keep_longest(struct train_models *models)
{
    for (int i = 0; i < models->count - 1; ++i) {
        ull__graph_destroy(models->graphs[i]);
    }
    models->graphs[0] = models->graphs[models->count - 1];
    models->lengths[0] = models->lengths[models->count - 1];
    models->count = 1;
}

void train_models_finish(struct train_models *models)
{
    for (int i = 0; i < models->count; ++i) {
        ull__graph_destroy(models->graphs[i]);
    }
    models->count = 0;
}

ull_status train_models_check(const char *model, const struct ull__data *data,
                              struct ull__session *session, struct ull_error *err)
{
    struct ull__session_info info;
    ull__session_info(session, &info);
    /* A place that no shorter model has. */
    int64_t tokens = info.sample_elements;
    int64_t at = info.bucket_count > 1 ? info.buckets[info.bucket_count - 2].length : 0;
    if (!ull__data_info(data)->documents || at + 1 >= tokens || info.classes < 2) {
        return ULL_OK;
    }
    int32_t *x = calloc((size_t)tokens, sizeof(*x));
    float *logits = calloc((size_t)info.classes * 2, sizeof(*logits));
    ull_status status = x != NULL && logits != NULL
                            ? ULL_OK
                            : ull__fail(err, ULL_E_NO_MEMORY, "no memory to look at a model");
    double largest = 0, difference = 0;
    /* The same tokens up to there, others behind. */
    for (int turn = 0; turn < 2 && status == ULL_OK; ++turn) {
        for (int64_t i = at + 1; i < tokens; ++i) {
            x[i] = turn;
        }
        status = ull__session_logits(session, x, at, logits + turn * info.classes, err);
    }
    for (int64_t i = 0; i < info.classes && status == ULL_OK; ++i) {
        largest = fmax(largest, fabs((double)logits[i]));
        difference = fmax(difference, fabs((double)logits[i] - (double)logits[info.classes + i]));
    }
    free(x);
    free(logits);
    if (status == ULL_OK && !(difference <= 1e-5 * largest)) {
        status =
            ull__fail(err, ULL_E_INVALID,
                      "'%s' looks ahead: what it says of a token depends on those behind it, so "
                      "documents cannot be filled up to a length; train it without documents=",
                      model);
    }
    return status;
}
