/* golden.c: reads tests/data/golden, and makes the numbers that tools/make_golden.py makes. See golden.h. */
#include "golden.h"

#include <stdio.h>

#include "call.h"

static void read_list(struct golden *golden, FILE *file, const char *path)
{
    long long count;
    golden->lists = realloc(golden->lists, sizeof(*golden->lists) * (size_t)(golden->count + 1));
    if (golden->lists == NULL) {
        ref__die("no memory for %s", path);
    }
    struct golden_list *list = &golden->lists[golden->count];
    if (fscanf(file, "%95s %lld", list->name, &count) != 2) {
        if (!feof(file)) {
            ref__die("%s: expected a name and a count", path);
        }
        return;
    }
    list->count = count;
    list->values = ref__alloc((size_t)count, sizeof(double));
    for (long long i = 0; i < count; ++i) {
        if (fscanf(file, "%lf", &list->values[i]) != 1) {
            ref__die("%s: '%s' ends after %lld of %lld numbers", path, list->name, i, count);
        }
    }
    golden->count += 1;
}

struct golden *golden_open(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.txt", folder, name);
    FILE *file = fopen(path, "r");
    struct golden *golden = ref__alloc(1, sizeof(*golden));
    long long batch;
    if (file == NULL || fscanf(file, "model %159s batch %lld", golden->model, &batch) != 2) {
        ref__die("%s: no file of tools/make_golden.py", path);
    }
    golden->batch = batch;
    while (!feof(file)) {
        read_list(golden, file, path);
    }
    fclose(file);
    return golden;
}

void golden_close(struct golden *golden)
{
    for (int i = 0; i < golden->count; ++i) {
        free(golden->lists[i].values);
    }
    free(golden->lists);
    free(golden);
}

const struct golden_list *golden_find(const struct golden *golden, const char *prefix,
                                      const char *name)
{
    char whole[200];
    snprintf(whole, sizeof(whole), "%s%s", prefix, name);
    for (int i = 0; i < golden->count; ++i) {
        if (strcmp(golden->lists[i].name, whole) == 0) {
            return &golden->lists[i];
        }
    }
    return NULL;
}

static uint64_t begin(const char *name)
{
    uint64_t state = UINT64_C(0xcbf29ce484222325);
    for (const char *at = name; *at != '\0'; ++at) {
        state = (state ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    }
    return state;
}

static double next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

void golden_parameter(const char *name, int rank, const int64_t *dims, double *to)
{
    static const char scale[] = "weight";
    size_t length = strlen(name), tail = sizeof(scale) - 1;
    bool is_weight = length >= tail && strcmp(name + length - tail, scale) == 0;
    int64_t fan_in = 1;
    for (int i = 1; i < rank; ++i) {
        fan_in *= dims[i];
    }
    double center = rank == 1 && is_weight ? 1 : 0;
    double size = rank > 1 ? sqrt(3 / (double)fan_in) : 0.1;
    uint64_t state = begin(name);
    for (int64_t i = 0; i < fan_in * dims[0]; ++i) {
        to[i] = center + size * (2 * next(&state) - 1);
    }
}

void golden_input(const char *name, int64_t classes, int64_t count, double *to)
{
    uint64_t state = begin(name);
    for (int64_t i = 0; i < count; ++i) {
        double u = next(&state);
        to[i] = strcmp(name, "input") == 0 ? 4 * u - 2 : floor(u * (double)classes);
        if (strcmp(name, "target") == 0 && i % 5 == 0) {
            to[i] = -100;
        }
    }
}

const char *golden_optimizer(int i, struct ull__step_options *options, double *rate)
{
    static const char *const names[GOLDEN_OPTIMIZERS] = {"sgd", "adam", "adamw"};
    struct ull__optimizer_attrs of_adam = {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-4};
    *options = (struct ull__step_options){.optimizer = (enum ull__optimizer)i, .attrs = of_adam};
    *rate = 0.01;
    if (options->optimizer == ULL_OPTIMIZER_SGD) {
        options->attrs = (struct ull__optimizer_attrs){.momentum = 0.9, .weight_decay = 0.001};
        *rate = 0.05;
    } else if (options->optimizer == ULL_OPTIMIZER_ADAMW) {
        options->attrs.weight_decay = 0.1;
        options->attrs.limit = 0.5;
    }
    return names[i];
}
