/*
 * plan_json.c: a plan as a file that `ullage train` runs. docs/plan-file.md describes it.
 */
#include "../json_keys.h"
#include "plan_answer.h"

bool plan_components(const struct ull__planner *planner, int plan, int64_t bytes[ULL_ROLES])
{
    struct ull__plan_layout layout;
    if (ull__planner_layout(planner, plan, &layout, NULL) != ULL_OK) {
        return false;
    }
    for (int i = 0; i < ULL_ROLES; ++i) {
        bytes[i] = layout.at_peak[i];
    }
    ull__plan_layout_finish(&layout);
    return true;
}

/* Bytes by role where the most is needed; `gaps` is the rest of the peak, between buffers. */
static void put_components(struct ull_json *json, const char *key,
                           const struct ull__planner *planner, int plan)
{
    int64_t bytes[ULL_ROLES], sum = 0;
    int count;
    ull__json_key(json, key);
    if (!plan_components(planner, plan, bytes)) {
        ull__json_null(json);
        return;
    }
    ull__json_object(json);
    for (int i = 0; i < ULL_ROLES; ++i) {
        key_i64(json, ull__role_text((enum ull__role)i), bytes[i]);
        sum += bytes[i];
    }
    key_i64(json, "gaps", ull__planner_plans(planner, &count)[plan].peak_bytes - sum);
    ull__json_object_end(json);
}

static double samples_per_second(const struct plan_result *result, const struct ull__plan *plan)
{
    return (double)result->options->request.batch / plan->step_seconds;
}

static void put_plain(struct ull_json *json, const struct plan_result *result)
{
    int count;
    const struct ull__plan *plain = ull__planner_plans(result->plain, &count);
    ull__json_key(json, "plain");
    ull__json_object(json);
    key_i64(json, "peak_bytes", plain->peak_bytes);
    key_number(json, "step_seconds", plain->step_seconds);
    key_number(json, "samples_per_second", samples_per_second(result, plain));
    put_components(json, "components", result->plain, 0);
    ull__json_object_end(json);
}

static void put_steps(struct ull_json *json, const struct plan_result *result)
{
    struct ull__plan_step steps[ULL_TECHNIQUES];
    int count = 0;
    ull__json_key(json, "techniques");
    ull__json_array(json);
    if (ull__plan_steps(result->planner, result->chosen, steps, &count, NULL) != ULL_OK) {
        count = 0;
    }
    for (int i = 1; i < count; ++i) {
        ull__json_object(json);
        key_string(json, "name", ull__technique_text(steps[i].technique));
        key_i64(json, "saved_bytes", steps[i - 1].bound_bytes - steps[i].bound_bytes);
        key_number(json, "cost_seconds", steps[i].step_seconds - steps[i - 1].step_seconds);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

static void put_thumb(struct ull_json *json, const struct plan_result *result)
{
    struct ull__thumb_plan thumb;
    ull__json_key(json, "rule_of_thumb");
    if (ull__plan_by_thumb(result->planner, result->options->budget, &thumb, NULL) != ULL_OK) {
        ull__json_null(json);
        return;
    }
    ull__json_object(json);
    key_string(json, "precision", ull__precision_text(thumb.precision));
    key_i64(json, "accumulation", thumb.accumulation);
    key_i64(json, "peak_bytes", thumb.bound_bytes);
    key_number(json, "step_seconds", thumb.step_seconds);
    key_bool(json, "fits", thumb.fits);
    ull__json_object_end(json);
}

static void put_ladder(struct ull_json *json, const struct plan_result *result)
{
    enum { MOST = 24 };
    int rungs[MOST], count, plans;
    const struct ull__plan *plan = ull__planner_plans(result->planner, &plans);
    count = plan_rungs(result, rungs, MOST);
    ull__json_key(json, "ladder");
    ull__json_array(json);
    for (int i = 0; i < count; ++i) {
        ull__json_object(json);
        key_i64(json, "budget_bytes",
                plan[rungs[i]].peak_bytes + (int64_t)result->options->profile.outside_bytes);
        key_number(json, "step_seconds", plan[rungs[i]].step_seconds);
        key_string(json, "precision", ull__precision_text(plan[rungs[i]].precision));
        key_i64(json, "accumulation", plan[rungs[i]].accumulation);
        key_i64(json, "recomputed_bytes", plan[rungs[i]].cost.dropped_bytes);
        key_i64(json, "offloaded_bytes", plan[rungs[i]].host_bytes);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

/* Over several devices every one has the whole model and a share of the batch. */
static void put_data_parallel(struct ull_json *json, const struct plan_options *options, int64_t peak)
{
    int64_t peaks[PLAN_CARDS_MOST];
    char budgets[32 * PLAN_CARDS_MOST];
    int devices = options->request.devices;
    ull__json_key(json, "parallel");
    ull__json_object(json);
    key_string(json, "kind", ull__parallel_text(ULL_PARALLEL_DATA));
    key_i64(json, "devices", devices);
    if (devices <= PLAN_CARDS_MOST) {
        for (int i = 0; i < devices; ++i) {
            peaks[i] = peak;
        }
        plan_budgets_text(options, peaks, devices, budgets, sizeof(budgets));
        key_string(json, "run", budgets);
    }
    ull__json_object_end(json);
}

void plan_print_json(const struct plan_result *result, struct ull_json *json)
{
    const struct plan_options *options = result->options;
    int count;
    const struct ull__plan *plan = &ull__planner_plans(result->planner, &count)[result->chosen];
    ull__json_object(json);
    plan_put_names(json, options, "training");
    plan_put_training(json, &options->request, result->model);
    plan_put_figures(json, options,
                     &(struct plan_figures){result->feasible, plan->peak_bytes, result->smallest_bytes,
                                            plan->host_bytes, plan->step_seconds,
                                            options->request.batch, plan->micro_batch});
    key_i64(json, "accumulation", plan->accumulation);
    key_string(json, "precision", ull__precision_text(plan->precision));
    key_i64(json, "recomputed_bytes", plan->cost.dropped_bytes);
    key_i64(json, "offloaded_bytes", plan->host_bytes);
    key_i64(json, "parameters", ull__graph_parameters(result->model));
    put_components(json, "components", result->planner, result->chosen);
    put_plain(json, result);
    put_steps(json, result);
    put_thumb(json, result);
    plan_put_decision(json, result->planner, result->chosen);
    plan_put_pins(json, result->planner, result->chosen, &result->runner);
    if (options->request.devices > 1) {
        put_data_parallel(json, options, plan->peak_bytes);
    }
    if (options->ladder) {
        put_ladder(json, result);
    }
    if (options->fit) {
        plan_put_fit(json, result, NULL);
    }
    if (options->like != NULL) {
        plan_put_torch(json, result);
    }
    key_number(json, "planning_seconds", result->planning_seconds);
    ull__json_object_end(json);
}
