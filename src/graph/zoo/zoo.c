/*
 * zoo.c: finding a model by name, and reading its arguments. See zoo.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../zoo.h"
#include "error.h"
#include "zoo_internal.h"

enum { LARGEST = 1 << 24 };

/* X(name, what, arguments, build, sizes...) */
const struct ull__zoo_model ull__zoo[] = {
    {"mlp", "layers of neurons", "inputs=784 hidden=256 layers=2 classes=10", ull__zoo_mlp, {0}},
    {"lenet", "LeNet-5", "image=32 channels=1 classes=10", ull__zoo_lenet, {0}},
    {"resnet20",
     "a residual network for small pictures",
     "image=32 channels=3 width=16 classes=10",
     ull__zoo_resnet_small,
     {3}},
    {"resnet18", "residual network", RESNET_ARGUMENTS, ull__zoo_resnet, {2, 2, 2, 2, 1}},
    {"resnet34", "residual network", RESNET_ARGUMENTS, ull__zoo_resnet, {3, 4, 6, 3, 1}},
    {"resnet50", "residual network of bottlenecks", RESNET_ARGUMENTS, ull__zoo_resnet, {3, 4, 6, 3, 4}},
    {"vit-b16",
     "vision transformer",
     "image=224 classes=1000 layers=12 width=768 heads=12 patch=16",
     ull__zoo_vit,
     {0}},
    {"unet", "U-Net with batch norm", "image=572 channels=3 width=64 classes=2", ull__zoo_unet, {0}},
    {"bert-base",
     "BERT with pooler",
     "context=512 vocab=30522 layers=12 width=768 heads=12 classes=0",
     ull__zoo_bert,
     {0}},
    {"gpt2-124m", "GPT-2", GPT_ARGUMENTS(12, 768, 12), ull__zoo_gpt, {0}},
    {"gpt2-355m", "GPT-2 medium", GPT_ARGUMENTS(24, 1024, 16), ull__zoo_gpt, {0}},
    {"gpt2-774m", "GPT-2 large", GPT_ARGUMENTS(36, 1280, 20), ull__zoo_gpt, {0}},
    {"gpt2-1558m", "GPT-2 XL", GPT_ARGUMENTS(48, 1600, 25), ull__zoo_gpt, {0}},
    {"gpt-char",
     "a small GPT over characters",
     "context=256 vocab=96 layers=5 width=128 heads=4 dropout=0 length=0",
     ull__zoo_gpt,
     {0}},
    {"llama",
     "a model in the style of Llama",
     "context=2048 vocab=32000 layers=16 width=2048 heads=32 kv_heads=8 hidden=5632 length=0",
     ull__zoo_llama,
     {0}},
    {NULL, NULL, NULL, NULL, {0}},
};

/* Finds "key=" in a list that is separated by `separator`; the value goes up to the next one. */
static const char *value_of(const char *list, const char *key, size_t length, char separator)
{
    while (list != NULL && *list != '\0') {
        if (strncmp(list, key, length) == 0 && list[length] == '=') {
            return list + length + 1;
        }
        list = strchr(list, separator);
        list = list != NULL ? list + 1 : NULL;
    }
    return NULL;
}

/* A number up to the end of a value. False: something else, or out of range. */
static bool number(const char *text, const char *ends, int64_t *value)
{
    char *end;
    errno = 0;
    long long read = strtoll(text, &end, 10);
    if (end == text || errno != 0 || strchr(ends, *end) == NULL || read < 0 || read > LARGEST) {
        return false;
    }
    *value = read;
    return true;
}

int64_t ull__zoo_number(const struct ull__zoo_args *args, const char *key)
{
    int64_t value = 0;
    const char *text = value_of(args->given, key, strlen(key), ',');
    if (text == NULL) {
        text = value_of(args->defaults, key, strlen(key), ' ');
    }
    if (text != NULL && !number(text, ", ", &value)) {
        ull__graph_fail(args->graph, ULL_E_INVALID,
                        "'%s=%.*s' of model '%s': expected a whole number up to %d", key,
                        (int)strcspn(text, ", "), text, args->name, LARGEST);
    }
    return value;
}

int64_t ull__zoo_length(const struct ull__zoo_args *args, int64_t context)
{
    int64_t length = ull__zoo_number(args, "length");
    if (length > context) {
        ull__graph_fail(args->graph, ULL_E_INVALID,
                        "'length=%lld' of model '%s': expected at most its context, %lld",
                        (long long)length, args->name, (long long)context);
    }
    return length > 0 ? length : context;
}

double ull__zoo_real(const struct ull__zoo_args *args, const char *key)
{
    const char *text = value_of(args->given, key, strlen(key), ',');
    char *end;
    if (text == NULL) {
        return 0;
    }
    double value = strtod(text, &end);
    if (end == text || (*end != ',' && *end != '\0') || !(value >= 0 && value < 1)) {
        ull__graph_fail(args->graph, ULL_E_INVALID,
                        "'%s=%.*s' of model '%s': expected a number from 0 to below 1", key,
                        (int)strcspn(text, ","), text, args->name);
        return 0;
    }
    return value;
}

void ull__zoo_image(const struct ull__zoo_args *args, int64_t size[2])
{
    const char *text = value_of(args->given, "image", 5, ',');
    if (text == NULL) {
        text = value_of(args->defaults, "image", 5, ' ');
    }
    const char *cross = text + strcspn(text, "x, ");
    bool fits = number(text, "x, ", &size[0]);
    size[1] = size[0];
    if (fits && *cross == 'x') {
        fits = number(cross + 1, ", ", &size[1]);
    }
    if (!fits || size[0] < 1 || size[1] < 1) {
        ull__graph_fail(
            args->graph, ULL_E_INVALID,
            "'image=%.*s' of model '%s': expected a size such as 224 or 216x3840 (height x "
            "width)",
            (int)strcspn(text, ", "), text, args->name);
        size[0] = size[1] = 1;
    }
}

/* Every argument that was given is one that the model has, once. */
static ull_status known(const struct ull__zoo_model *model, const char *given, struct ull_error *err)
{
    while (given != NULL && *given != '\0') {
        size_t length = strcspn(given, "=,");
        if (length == 0 || given[length] != '=' ||
            value_of(model->arguments, given, length, ' ') == NULL) {
            return ull__fail(err, ULL_E_INVALID,
                             "model '%s' has no argument '%.*s': expected KEY=VALUE of %s",
                             model->name, (int)strcspn(given, ","), given, model->arguments);
        }
        const char *next = strchr(given, ',');
        if (next != NULL && value_of(next + 1, given, length, ',') != NULL) {
            return ull__fail(err, ULL_E_INVALID, "argument '%.*s' is given twice", (int)length,
                             given);
        }
        given = next != NULL ? next + 1 : NULL;
    }
    return ULL_OK;
}

/* Edits from one name to another: the distance of Levenshtein, up to what is worth a hint. */
static int distance(const char *a, size_t length, const char *b)
{
    int row[64];
    size_t other = strlen(b);
    if (length > 60 || other > 60) {
        return 99;
    }
    for (size_t j = 0; j <= other; ++j) {
        row[j] = (int)j;
    }
    for (size_t i = 1; i <= length; ++i) {
        int before = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= other; ++j) {
            int above = row[j], best = before + (a[i - 1] != b[j - 1]);
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            before = above;
            row[j] = best;
        }
    }
    return row[other];
}

static ull_status unknown(const char *name, size_t length, struct ull_error *err)
{
    char near[160] = "";
    for (int most = 1; length > 1 && most <= 4 && near[0] == '\0'; ++most) {
        for (int i = 0; ull__zoo[i].name != NULL; ++i) {
            bool begins = length >= 3 && strncmp(ull__zoo[i].name, name, length) == 0;
            if ((distance(name, length, ull__zoo[i].name) <= most || begins) &&
                strlen(near) + strlen(ull__zoo[i].name) + 3 < sizeof(near)) {
                strcat(near, near[0] != '\0' ? ", " : "");
                strcat(near, ull__zoo[i].name);
            }
        }
    }
    if (near[0] != '\0') {
        return ull__fail(err, ULL_E_INVALID, "no model '%.*s': did you mean %s?", (int)length, name,
                         near);
    }
    char all[320] = "";
    for (int i = 0; ull__zoo[i].name != NULL; ++i) {
        strcat(all, i > 0 ? ", " : "");
        strcat(all, ull__zoo[i].name);
    }
    return ull__fail(err, ULL_E_INVALID, "no model '%.*s': expected a file of ONNX, or %s",
                     (int)(length < 60 ? length : 60), name, all);
}

ull_status ull__zoo_build(const char *text, struct ull__graph **graph, struct ull_error *err)
{
    size_t length = strcspn(text, ":");
    const struct ull__zoo_model *model = ull__zoo;
    while (model->name != NULL &&
           (strlen(model->name) != length || strncmp(model->name, text, length) != 0)) {
        model += 1;
    }
    if (model->name == NULL) {
        return unknown(text, length, err);
    }
    const char *given = text[length] == ':' ? text + length + 1 : "";
    ull_status status = known(model, given, err);
    if (status != ULL_OK) {
        return status;
    }
    struct ull__graph *made = ull__graph_create();
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a model");
    }
    made->name = ull__graph_text(made, "%s", model->name);
    struct ull__zoo_args args = {made, model->name, given, model->arguments};
    model->build(made, model, &args);
    if (!ull__graph_ok(made)) {
        status = ull__fail(err, made->status, "%s: %.400s", text, made->error.message);
        ull__graph_destroy(made);
        return status;
    }
    *graph = made;
    return ULL_OK;
}
