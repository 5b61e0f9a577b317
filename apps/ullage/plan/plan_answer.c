/* plan_answer.c: what all answers of `ullage plan` have in common. See plan_answer.h. */
#include "plan_answer.h"

#include <stdio.h>
#include <stdlib.h>

#include "../json_keys.h"
#include "model.h"
#include "profiles.h"

void plan_put_names(struct ull_json *json, const struct plan_options *options, const char *mode)
{
    key_i64(json, "version", PLAN_FILE_VERSION);
    key_string(json, "mode", mode);
    key_string(json, "model", options->model);
    key_string(json, "device", options->profile.name);
}

static void put_times(struct ull_json *json, const struct plan_figures *figures)
{
    key_number(json, "step_seconds", figures->step_seconds);
    key_number(json, "samples_per_second", (double)figures->batch / figures->step_seconds);
}

void plan_put_figures(struct ull_json *json, const struct plan_options *options,
                      const struct plan_figures *figures)
{
    key_bool(json, "feasible", figures->feasible);
    key_i64(json, "budget_bytes", options->budget);
    key_i64(json, "peak_bytes", figures->peak_bytes);
    key_i64(json, "outside_arena_bytes", (int64_t)options->profile.outside_bytes);
    key_i64(json, "smallest_feasible_bytes", figures->smallest_bytes);
    key_i64(json, "host_bytes", figures->host_bytes);
    put_times(json, figures);
    key_i64(json, "batch", figures->batch);
    key_i64(json, "micro_batch", figures->micro_batch);
}

void plan_put_device(struct ull_json *json, const struct ull__profile *profile,
                     const struct plan_figures *figures)
{
    ull__json_object(json);
    key_string(json, "device", profile->name);
    key_u64(json, "memory_bytes", profile->memory_bytes);
    key_i64(json, "peak_bytes", figures->peak_bytes);
    key_i64(json, "smallest_feasible_bytes", figures->smallest_bytes);
    put_times(json, figures);
    ull__json_object_end(json);
}

int plan_say_failed(const struct plan_options *options, bool model, ull_status status,
                    const struct ull_error *err)
{
    cli_say("%s", err->message);
    /* What is wrong with a model that was read from a file is wrong with the file. */
    bool file = model && model_is_file(options->model);
    return status == ULL_E_INVALID && !file ? EXIT_USAGE : EXIT_FAILED;
}

int plan_end(const struct plan_options *options, bool written, bool feasible, int64_t smallest_bytes)
{
    if (!written || fflush(stdout) != 0) {
        cli_say("the result could not be written");
        return EXIT_FAILED;
    }
    return feasible ? EXIT_OK : plan_say_infeasible(options->budget, smallest_bytes);
}

static int by_memory(const void *left, const void *right)
{
    const struct ull__profile *a = left, *b = right;
    return (a->memory_bytes > b->memory_bytes) - (a->memory_bytes < b->memory_bytes);
}

ull_status plan_devices(struct ull__profile profiles[PLAN_DEVICES_MOST], int *count,
                        struct ull_error *err)
{
    for (*count = 0; *count < PLAN_DEVICES_MOST && plan_profile_text(*count) != NULL; ++*count) {
        ull_status status =
            plan_profile_read(plan_profile_text(*count), "built in", &profiles[*count], err);
        if (status != ULL_OK) {
            return status;
        }
    }
    qsort(profiles, (size_t)*count, sizeof(*profiles), by_memory);
    return ULL_OK;
}
