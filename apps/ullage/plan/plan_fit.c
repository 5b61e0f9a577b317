/*
 * plan_fit.c: `--fit`: the devices that hold a training, smallest first, each with its own fastest plan.
 */
#include <stdio.h>
#include <stdlib.h>

#include "plan_cmd.h"
#include "profiles.h"
#include "size.h"

struct fit {
    struct ull__profile profile;
    bool fits;
    int64_t needs; /* the smallest budget that works there */
    struct ull__plan plan;
};

enum { DEVICES_MOST = 32 };

static int by_memory(const void *left, const void *right)
{
    const struct fit *a = left, *b = right;
    return (a->profile.memory_bytes > b->profile.memory_bytes) -
           (a->profile.memory_bytes < b->profile.memory_bytes);
}

static ull_status fit_one(const struct plan_result *result, struct fit *fit, struct ull_error *err)
{
    struct ull__plan_request request = result->options->request;
    struct ull__planner *planner;
    request.model = result->model;
    request.profile = &fit->profile;
    ull_status status = ull__planner_create(&request, &planner, err);
    if (status != ULL_OK) {
        return status;
    }
    int count, smallest = ull__planner_smallest(planner);
    int chosen = ull__planner_choose(planner, (int64_t)fit->profile.memory_bytes);
    const struct ull__plan *plans = ull__planner_plans(planner, &count);
    fit->fits = chosen != ULL_NONE;
    fit->plan = plans[fit->fits ? chosen : smallest];
    fit->plan.decision = (struct ull__decision){NULL, NULL}; /* the planner's */
    fit->needs = plans[smallest].peak_bytes + (int64_t)fit->profile.outside_bytes;
    ull__planner_destroy(planner);
    return ULL_OK;
}

static ull_status fit_all(const struct plan_result *result, struct fit *fits, int *count,
                          struct ull_error *err)
{
    *count = 0;
    for (int i = 0; plan_profile_text(i) != NULL && i < DEVICES_MOST; ++i) {
        ull_status status =
            plan_profile_read(plan_profile_text(i), "built in", &fits[i].profile, err);
        if (status == ULL_OK) {
            status = fit_one(result, &fits[i], err);
        }
        if (status != ULL_OK) {
            return status;
        }
        *count += 1;
    }
    qsort(fits, (size_t)*count, sizeof(*fits), by_memory);
    return ULL_OK;
}

ull_status plan_put_fit(struct ull_json *json, const struct plan_result *result, struct ull_error *err)
{
    struct fit fits[DEVICES_MOST];
    int count;
    ull_status status = fit_all(result, fits, &count, err);
    ull__json_key(json, "fit");
    ull__json_array(json);
    for (int i = 0; i < count && status == ULL_OK; ++i) {
        if (!fits[i].fits) {
            continue;
        }
        ull__json_object(json);
        ull__json_key(json, "device");
        ull__json_string(json, fits[i].profile.name);
        ull__json_key(json, "memory_bytes");
        ull__json_u64(json, fits[i].profile.memory_bytes);
        ull__json_key(json, "peak_bytes");
        ull__json_i64(json, fits[i].plan.peak_bytes);
        ull__json_key(json, "smallest_feasible_bytes");
        ull__json_i64(json, fits[i].needs);
        ull__json_key(json, "step_seconds");
        ull__json_number(json, fits[i].plan.step_seconds);
        ull__json_key(json, "samples_per_second");
        ull__json_number(json, (double)result->options->request.batch / fits[i].plan.step_seconds);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
    return status;
}

ull_status plan_print_fit(const struct plan_result *result, struct ull_error *err)
{
    struct fit fits[DEVICES_MOST];
    int count;
    ull_status status = fit_all(result, fits, &count, err);
    if (status != ULL_OK) {
        return status;
    }
    printf("\n  %-12s %12s %12s %16s  %s\n", "device", "has", "peak", "samples a second", "");
    for (int i = 0; i < count; ++i) {
        char has[ULL_SIZE_TEXT], peak[ULL_SIZE_TEXT], needs[ULL_SIZE_TEXT];
        ull__size_text(fits[i].profile.memory_bytes, has);
        if (fits[i].fits) {
            printf("  %-12s %12s %12s %16.1f  %s\n", fits[i].profile.name, has,
                   ull__size_text((uint64_t)fits[i].plan.peak_bytes, peak),
                   (double)result->options->request.batch / fits[i].plan.step_seconds,
                   ull__precision_text(fits[i].plan.precision));
        } else {
            printf("  %-12s %12s does not hold it: %s are needed\n", fits[i].profile.name, has,
                   ull__size_text_up((uint64_t)fits[i].needs, needs));
        }
    }
    return ULL_OK;
}
