/* suite.c: reading ONNX's own test models. See suite.h. */
#include "suite.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file.h"
#include "onnx.pb-c.h"

enum { MOST = 1 << 26, CASES = 4096 };

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_folder(const char *data, const char *part, char **names, int count)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", data, part);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        struct stat info;
        snprintf(path, sizeof(path), "%s/%s/%.200s/model.onnx", data, part, entry->d_name);
        if (stat(path, &info) == 0 && count < CASES) {
            char name[300];
            snprintf(name, sizeof(name), "%s/%.200s", part, entry->d_name);
            names[count++] = strdup(name);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

char **suite_names(const char *data)
{
    static const char *const parts[] = {"node", "pytorch-converted", "pytorch-operator", "simple"};
    char **names = calloc(CASES + 1, sizeof(*names));
    int count = 0;
    for (size_t i = 0; names != NULL && i < sizeof(parts) / sizeof(parts[0]); ++i) {
        count = list_folder(data, parts[i], names, count);
    }
    if (names != NULL) {
        qsort(names, (size_t)count, sizeof(*names), by_name);
    }
    return names;
}

/* The tensors input_0.pb, input_1.pb ... How many; -1: one of them is none. */
static int load_tensors(const char *folder, const char *what, struct ull__onnx_tensor *tensors)
{
    for (int i = 0; i < SUITE_TENSORS; ++i) {
        char path[600], *data;
        size_t size;
        struct ull_error err;
        snprintf(path, sizeof(path), "%s/test_data_set_0/%s_%d.pb", folder, what, i);
        if (ull__file_read(path, MOST, &data, &size, &err) != ULL_OK) {
            return i;
        }
        ull_status status = ull__onnx_tensor_parse(data, size, &tensors[i], &err);
        free(data);
        if (status != ULL_OK) {
            for (int j = 0; j < i; ++j) {
                ull__onnx_tensor_finish(&tensors[j]);
            }
            return -1;
        }
    }
    return SUITE_TENSORS;
}

/* Files of inputs have no names, or others: they are in the order of those that are no initializers. */
static void name_inputs(struct suite_case *c)
{
    char path[600], *data;
    size_t size;
    struct ull_error err;
    snprintf(path, sizeof(path), "%s/model.onnx", c->folder);
    if (ull__file_read(path, MOST, &data, &size, &err) != ULL_OK) {
        return;
    }
    Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, size, (uint8_t *)data);
    int at = 0;
    for (size_t i = 0; model != NULL && i < model->graph->n_input; ++i) {
        const char *name = model->graph->input[i]->name;
        bool initializer = false;
        for (size_t j = 0; j < model->graph->n_initializer; ++j) {
            initializer |= strcmp(model->graph->initializer[j]->name, name) == 0;
        }
        if (!initializer && at < c->input_count) {
            snprintf(c->inputs[at++].name, sizeof(c->inputs[0].name), "%s", name);
        }
    }
    if (model != NULL) {
        onnx__model_proto__free_unpacked(model, NULL);
    }
    free(data);
}

bool suite_load(const char *data, const char *name, struct suite_case *c)
{
    struct stat info;
    *c = (struct suite_case){.input_count = 0};
    snprintf(c->name, sizeof(c->name), "%s", name);
    snprintf(c->folder, sizeof(c->folder), "%s/%s", data, name);
    if (stat(c->folder, &info) != 0) {
        return false;
    }
    c->input_count = load_tensors(c->folder, "input", c->inputs);
    c->input_count = c->input_count < 0 ? 0 : c->input_count;
    c->output_count = load_tensors(c->folder, "output", c->outputs);
    name_inputs(c);
    return true;
}

void suite_finish(struct suite_case *c)
{
    for (int i = 0; i < c->input_count; ++i) {
        ull__onnx_tensor_finish(&c->inputs[i]);
    }
    for (int i = 0; i < c->output_count; ++i) {
        ull__onnx_tensor_finish(&c->outputs[i]);
    }
}

static bool try_given(const struct suite_case *c, unsigned given, struct suite_result *result)
{
    struct ull__onnx_tensor list[SUITE_TENSORS];
    struct ull__onnx_options options = {.values = true, .as_is = true, .given = list};
    char path[600];
    for (int i = 0; i < c->input_count; ++i) {
        if ((given >> i & 1) != 0) {
            list[options.given_count++] = c->inputs[i];
        }
    }
    snprintf(path, sizeof(path), "%s/model.onnx", c->folder);
    result->given = given;
    return ull__onnx_read(path, &options, &result->graph, &result->why) == ULL_OK;
}

void suite_read(const struct suite_case *c, struct suite_result *result)
{
    *result = (struct suite_result){.graph = NULL};
    unsigned all = (1u << c->input_count) - 1, small = 0;
    for (int i = 1; i < c->input_count; ++i) {
        small |= c->inputs[i].rank <= 1 ? 1u << i : 0;
    }
    unsigned whole = 0;
    for (int i = 0; i < c->input_count; ++i) {
        whole |= !ull__type_is_float(c->inputs[i].type) && c->inputs[i].rank <= 1 ? 1u << i : 0;
    }
    const unsigned tries[] = {0, whole & ~1u, whole, small, all & ~1u, all};
    struct ull_error first;
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); ++i) {
        if ((i == 0 || tries[i] != tries[i - 1]) && try_given(c, tries[i], result)) {
            return;
        }
        first = i == 0 ? result->why : first;
    }
    result->why = first;
}
