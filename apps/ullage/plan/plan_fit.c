/*
 * plan_fit.c: `--fit`: the devices that hold a training, smallest first, each with its own fastest plan.
 */
#include <stdio.h>

#include "plan_answer.h"
#include "size.h"

struct fit {
    struct ull__profile profile;
    bool fits;
    int64_t needs; /* the smallest budget that works there */
    struct ull__plan plan;
};

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
    struct ull__profile profiles[PLAN_DEVICES_MOST];
    ull_status status = plan_devices(profiles, count, err);
    for (int i = 0; i < *count && status == ULL_OK; ++i) {
        fits[i].profile = profiles[i];
        status = fit_one(result, &fits[i], err);
    }
    return status;
}

ull_status plan_put_fit(struct ull_json *json, const struct plan_result *result, struct ull_error *err)
{
    struct fit fits[PLAN_DEVICES_MOST];
    int count;
    ull_status status = fit_all(result, fits, &count, err);
    ull__json_key(json, "fit");
    ull__json_array(json);
    for (int i = 0; i < count && status == ULL_OK; ++i) {
        const struct ull__plan *plan = &fits[i].plan;
        if (fits[i].fits) {
            plan_put_device(json, &fits[i].profile,
                            &(struct plan_figures){true, plan->peak_bytes, fits[i].needs,
                                                   plan->host_bytes, plan->step_seconds,
                                                   result->options->request.batch, plan->micro_batch});
        }
    }
    ull__json_array_end(json);
    return status;
}

ull_status plan_print_fit(const struct plan_result *result, struct ull_error *err)
{
    struct fit fits[PLAN_DEVICES_MOST];
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
