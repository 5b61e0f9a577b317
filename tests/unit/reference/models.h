/* models.h: models of the zoo that are small enough for the reference, with inputs. For the tests beside it. */
#ifndef ULLAGE_TEST_REFERENCE_MODELS_H
#define ULLAGE_TEST_REFERENCE_MODELS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reference.h"
#include "step.h"
#include "zoo.h"

struct model {
    struct ull__graph *graph;
    int64_t batch;
    int64_t classes, words, kinds; /* bounds of "target", "input_ids", "token_type_ids" */
};

struct model_case {
    const char *text;
    int64_t batch, classes, words;
};

static inline struct model model_of(const struct model_case *of)
{
    struct model model = {.batch = of->batch, .classes = of->classes, .words = of->words, .kinds = 2};
    struct ull_error err = {{0}};
    if (ull__zoo_build(of->text, &model.graph, &err) != ULL_OK) {
        fail_msg("%s: %s", of->text, err.message);
    }
    return model;
}

static inline int tensor_named(const struct ull__graph *graph, const char *name)
{
    for (int i = 0; i < graph->tensor_count; ++i) {
        if (graph->tensors[i].node == ULL_NONE && strcmp(graph->tensors[i].name, name) == 0) {
            return i;
        }
    }
    return ULL_NONE;
}

static inline double random_real(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-53;
}

static inline bool is_parameter(const struct ull__graph *graph, int tensor)
{
    return graph->tensors[tensor].role == ULL_ROLE_PARAMETER &&
           graph->tensors[tensor].node == ULL_NONE;
}

/* Input `tensor` of `samples` samples; one target in five does not count. */
static inline void draw_input(const struct model *model, int tensor, uint64_t seed, double *data,
                              int64_t count)
{
    const char *name = model->graph->tensors[tensor].name;
    seed += (uint64_t)tensor;
    for (int64_t i = 0; i < count; ++i) {
        double real = random_real(&seed);
        if (strcmp(name, "target") == 0) {
            data[i] = random_real(&seed) < 0.2 ? -100 : floor(real * (double)model->classes);
        } else if (ull__type_is_float(model->graph->tensors[tensor].type)) {
            data[i] = 4 * real - 2;
        } else {
            data[i] =
                floor(real * (double)(strcmp(name, "input_ids") == 0 ? model->words : model->kinds));
        }
    }
}

/*
 * Samples from `first` on of a batch of `whole` samples into the inputs of a reference of some of them, and the count
 * of all its targets that count.
 */
static inline void set_inputs(const struct model *model, struct ref *ref, uint64_t seed,
                              int64_t first, int64_t whole)
{
    const struct ull__graph *graph = model->graph;
    for (int i = 0; i < graph->tensor_count; ++i) {
        if (graph->tensors[i].role != ULL_ROLE_INPUT || graph->tensors[i].node != ULL_NONE) {
            continue;
        }
        int64_t count = ref_count(ref, i), here = ref_size(ref, i, 0), each = count / here;
        double *all = calloc((size_t)(each * whole), sizeof(*all)), valid = 0;
        draw_input(model, i, seed, all, each * whole);
        memcpy(ref_data(ref, i), all + first * each, sizeof(*all) * (size_t)count);
        if (strcmp(graph->tensors[i].name, "target") == 0) {
            for (int64_t j = 0; j < each * whole; ++j) {
                valid += all[j] != -100;
            }
            ref_control(ref, "target_count", valid);
        }
        free(all);
    }
}

static inline struct ref *reference_of(const struct ull__graph *graph, int64_t batch)
{
    int64_t values[ULL_SYMBOLS];
    ull__graph_values(graph, batch, values);
    return ref_create(graph, values);
}

#endif
