/*
 * profiles.c: device profiles, one JSON object each. See profiles.h.
 *
 * A profile has a figure for each name below, all of them, in a range in which plans can be made; "sources" says where
 * each comes from and is not read. It may have "algorithms" (src/plan/algorithms.h): a list of classes.
 */
#include "profiles.h"

#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "file.h"
#include "op.h"

extern const char plan_device_files[];

static const struct {
    const char *name;
    size_t offset;
    bool whole; /* a uint64_t of bytes; else a double */
    double least, most;
} figures[] = {
    {"memory_bytes", offsetof(struct ull__profile, memory_bytes), true, 0, 1125899906842624},
    {"host_bytes", offsetof(struct ull__profile, host_bytes), true, 0, 1125899906842624},
    {"outside_bytes", offsetof(struct ull__profile, outside_bytes), true, 0, 1125899906842624},
    {"alignment", offsetof(struct ull__profile, alignment), true, 1, 2097152},
    {"bytes_per_second", offsetof(struct ull__profile, bytes_per_second), false, 1e3, 1e19},
    {"matrix_per_second", offsetof(struct ull__profile, matrix_per_second), false, 1e3, 1e19},
    {"matrix_half_per_second", offsetof(struct ull__profile, matrix_half_per_second), false, 1e3,
     1e19},
    {"flops_per_second", offsetof(struct ull__profile, flops_per_second), false, 1e3, 1e19},
    {"link_per_second", offsetof(struct ull__profile, link_per_second), false, 1e3, 1e19},
    {"host_bytes_per_second", offsetof(struct ull__profile, host_bytes_per_second), false, 1e3, 1e19},
    {"launch_seconds", offsetof(struct ull__profile, launch_seconds), false, 1e-12, 1},
    {"lean_convolution", offsetof(struct ull__profile, lean_convolution), false, 1, 1000},
};

const char *plan_profile_text(int i)
{
    const char *text = plan_device_files;
    while (i-- > 0 && *text != '\0') {
        text += strlen(text) + 1;
    }
    return *text != '\0' ? text : NULL;
}

static ull_status read_figures(const json_t *object, const char *name, struct ull__profile *profile,
                               struct ull_error *err)
{
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); ++i) {
        const json_t *value = json_object_get(object, figures[i].name);
        char *at = (char *)profile + figures[i].offset;
        double real = json_number_value(value);
        bool fits = figures[i].whole ? json_is_integer(value) : json_is_number(value);
        if (!fits || !(real >= figures[i].least && real <= figures[i].most)) {
            return ull__fail(err, ULL_E_INVALID, "device '%.60s': \"%s\" is not a %s from %g to %g",
                             name, figures[i].name, figures[i].whole ? "whole number" : "number",
                             figures[i].least, figures[i].most);
        }
        if (figures[i].whole) {
            *(uint64_t *)(void *)at = (uint64_t)json_integer_value(value);
        } else {
            *(double *)(void *)at = real;
        }
    }
    if ((profile->alignment & (profile->alignment - 1)) != 0) {
        return ull__fail(err, ULL_E_INVALID, "device '%.60s': \"alignment\" is not a power of two",
                         name);
    }
    return ULL_OK;
}

/* Names are shown on terminals. */
static bool is_plain(const char *text)
{
    for (; *text != '\0'; ++text) {
        if (*text < ' ' || *text > '~') {
            return false;
        }
    }
    return true;
}

/* --- Algorithms --- */

/* A number that may be left out. */
static bool read_bound(const json_t *object, const char *name, double absent, double least,
                       double most, double *value)
{
    const json_t *found = json_object_get(object, name);
    *value = found != NULL ? json_number_value(found) : absent;
    return found == NULL || (json_is_number(found) && *value >= least && *value <= most);
}

static bool read_algorithm(const json_t *object, struct ull__algorithm *algorithm, const char **bad)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    if (name == NULL || name[0] == '\0' || strlen(name) >= sizeof(algorithm->name) ||
        !is_plain(name)) {
        *bad = "name";
        return false;
    }
    strcpy(algorithm->name, name);
    for (int i = 0; i < ULL_WORKSPACE_UNITS; ++i) {
        *bad = ull__workspace_unit_text(i);
        if (!read_bound(object, *bad, 0, 0, 1e6, &algorithm->multiples[i])) {
            return false;
        }
    }
    *bad = "parts";
    if (!read_bound(object, *bad, 0, 0, 1e6, &algorithm->parts)) {
        return false;
    }
    *bad = "parts_most";
    if (!read_bound(object, *bad, 0, 0, 1e15, &algorithm->parts_most)) {
        return false;
    }
    *bad = "slowdown";
    return json_object_get(object, *bad) != NULL &&
           read_bound(object, *bad, 0, 1, 1000, &algorithm->slowdown);
}

static bool read_class(const json_t *object, struct ull__algorithm_class *class, const char **bad)
{
    const char *op = json_string_value(json_object_get(object, "op"));
    const json_t *type = json_object_get(object, "type"),
                 *list = json_object_get(object, "algorithms");
    const char *text = json_string_value(type);
    *bad = "op";
    class->op = op != NULL ? ull__op_find(op) : NULL;
    if (class->op == NULL) {
        return false;
    }
    *bad = "type";
    class->f32 = type == NULL || (text != NULL && strcmp(text, "f32") == 0);
    class->half = type == NULL || (text != NULL && strcmp(text, "half") == 0);
    if (!class->f32 && !class->half) {
        return false;
    }
    const struct {
        const char *name;
        double *value;
    } bounds[] = {{"channels_most", &class->channels_most},
                  {"window_most", &class->window_most},
                  {"weights_most", &class->weights_most},
                  {"inner_least", &class->inner_least}};
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); ++i) {
        *bad = bounds[i].name;
        if (!read_bound(object, *bad, 0, 0, 1e18, bounds[i].value)) {
            return false;
        }
    }
    *bad = "algorithms";
    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > ULL_CHOICES) {
        return false;
    }
    class->count = (int)json_array_size(list);
    for (int i = 0; i < class->count; ++i) {
        if (!read_algorithm(json_array_get(list, (size_t)i), &class->algorithms[i], bad)) {
            return false;
        }
    }
    return true;
}

static ull_status read_algorithms(const json_t *object, const char *name,
                                  struct ull__algorithms *algorithms, struct ull_error *err)
{
    const json_t *list = json_object_get(object, "algorithms");
    if (list == NULL) {
        return ULL_OK;
    }
    if (!json_is_array(list) || json_array_size(list) > ULL_ALGORITHM_CLASSES) {
        return ull__fail(err, ULL_E_INVALID,
                         "device '%.60s': \"algorithms\" is not a list of at most %d classes", name,
                         ULL_ALGORITHM_CLASSES);
    }
    for (size_t i = 0; i < json_array_size(list); ++i) {
        const char *bad = "";
        if (!read_class(json_array_get(list, i), &algorithms->classes[i], &bad)) {
            return ull__fail(
                err, ULL_E_INVALID,
                "device '%.60s': \"algorithms\": class %zu: \"%s\" is missing, unknown or "
                "not in its range",
                name, i + 1, bad);
        }
        algorithms->count += 1;
    }
    return ULL_OK;
}

/* --- A profile --- */

ull_status plan_profile_read(const char *text, const char *name, struct ull__profile *profile,
                             struct ull_error *err)
{
    json_error_t problem;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &problem);
    if (object == NULL) {
        return ull__fail(err, ULL_E_INVALID, "device '%.60s': line %d: %.150s", name, problem.line,
                         problem.text);
    }
    struct ull__profile read;
    memset(&read, 0, sizeof(read));
    const char *own = json_string_value(json_object_get(object, "name"));
    ull_status status = ULL_OK;
    if (own == NULL || strlen(own) >= sizeof(read.name) || own[0] == '\0' || !is_plain(own)) {
        status = ull__fail(err, ULL_E_INVALID,
                           "device '%.60s': \"name\" is not a text of 1 to %zu letters", name,
                           sizeof(read.name) - 1);
    } else {
        strcpy(read.name, own);
        read.bf16 = json_is_true(json_object_get(object, "bf16"));
        read.f16 = json_is_true(json_object_get(object, "f16"));
        status = read_figures(object, name, &read, err);
        if (status == ULL_OK) {
            status = read_algorithms(object, name, &read.algorithms, err);
        }
    }
    json_decref(object);
    if (status == ULL_OK) {
        *profile = read;
    }
    return status;
}

static ull_status read_file(const char *path, struct ull__profile *profile, struct ull_error *err)
{
    char *text;
    size_t size;
    ull_status status = ull__file_read(path, 1 << 20, &text, &size, err);
    if (status != ULL_OK) {
        return status;
    }
    status = plan_profile_read(text, path, profile, err);
    free(text);
    return status;
}

ull_status plan_profile_find(const char *name, struct ull__profile *profile, struct ull_error *err)
{
    size_t length = strlen(name);
    char all[200] = "";
    if (strchr(name, '/') != NULL || (length > 5 && strcmp(name + length - 5, ".json") == 0)) {
        return read_file(name, profile, err);
    }
    for (int i = 0; plan_profile_text(i) != NULL; ++i) {
        struct ull__profile read;
        ull_status status = plan_profile_read(plan_profile_text(i), "built in", &read, err);
        if (status != ULL_OK) {
            return status;
        }
        if (strcmp(read.name, name) == 0) {
            *profile = read;
            return ULL_OK;
        }
        strcat(all, i > 0 ? ", " : "");
        strcat(all, read.name);
    }
    return ull__fail(err, ULL_E_NOT_FOUND, "no device '%.60s': expected a file (NAME.json), or %s",
                     name, all);
}
