/*
 * cmd_plan.c: `ullage plan MODEL --memory SIZE`: will it fit, and what is the cheapest way to make it fit?
 *
 * Needs no GPU. The work is done in src/plan; plan_options.c reads options, plan_json.c and plan_text.c write.
 */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cpu.h"
#include "error.h"
#include "meter.h"
#include "model.h"
#include "plan_answer.h"
#include "plan_offsets.h"
#include "plan_progress.h"
#include "size.h"

ull_status plan_model(const struct plan_options *options, struct ull__graph **model,
                      struct ull_error *err)
{
    return model_build(options->model, false, model, err);
}

int plan_say_infeasible(int64_t budget, int64_t smallest_bytes)
{
    char need[ULL_SIZE_TEXT];
    cli_say("nothing fits into %lld bytes: the smallest plan needs %lld bytes (%s)",
            (long long)budget, (long long)smallest_bytes,
            ull__size_text_up((uint64_t)smallest_bytes, need));
    return EXIT_FAILED;
}

/* The backend that would run it, if it can be had: workspaces are its own then, and the file says what it was planned with. */
static struct ull__meter_of *open_meter(const struct plan_options *options,
                                        struct ull__backend **backend, struct plan_result *result)
{
    struct ull__cpu_options cpu = {.threads = options->threads};
    struct ull__meter_of *meter = NULL;
    bool has_table = options->profile.algorithms.count > 0; /* which is somebody's own */
    if (strcmp(options->profile.name, "cpu") != 0 || has_table || options->request.devices > 1 ||
        ull__cpu_create(&cpu, backend, NULL) != ULL_OK) {
        return NULL;
    }
    if (ull__meter_create(*backend, 0, &meter, NULL) == ULL_OK) {
        result->runner.backend = plan_backend_text(ull__cpu_describe(*backend), result->runner_text,
                                                   sizeof(result->runner_text));
        result->runner.threads = ull__cpu_threads(*backend);
    }
    return meter;
}

static ull_status make_planners(const struct plan_options *options, struct ull__profile *profile,
                                struct ull__progress *progress, struct plan_result *result,
                                struct ull_error *err)
{
    struct ull__plan_request request = options->request;
    request.model = result->model;
    request.profile = profile;
    request.progress = progress;
    ull_status status = ull__planner_create(&request, &result->planner, err);
    if (status == ULL_OK) {
        request.plain = true;
        request.host_bytes = 0;
        status = ull__planner_create(&request, &result->plain, err);
    }
    return status;
}

static ull_status make_plans(const struct plan_options *options, struct ull__progress *progress,
                             struct plan_result *result, struct ull_error *err)
{
    uint64_t begin = cli_monotonic_ns();
    struct ull__profile profile = options->profile;
    ull_status status = plan_model(options, &result->model, err);
    if (status != ULL_OK) {
        return status;
    }
    result->meter = open_meter(options, &result->backend, result);
    profile.meter = result->meter != NULL ? ull__meter_for(result->meter) : NULL;
    status = make_planners(options, &profile, progress, result, err);
    if (result->meter != NULL && ull__meter_missing(result->meter)[0] != '\0') {
        /* It cannot run this model, others can. */
        profile.meter = NULL;
        result->runner.backend = NULL;
        ull__planner_destroy(result->planner);
        ull__planner_destroy(result->plain);
        result->planner = result->plain = NULL;
        status = make_planners(options, &profile, progress, result, err);
    }
    if (status != ULL_OK) {
        return status;
    }
    int smallest = ull__planner_smallest(result->planner);
    if (smallest == ULL_NONE || ull__planner_place(result->plain, 0) < 0) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for the plans of '%s'", options->model);
    }
    int count;
    result->smallest_bytes = ull__planner_plans(result->planner, &count)[smallest].peak_bytes +
                             (int64_t)options->profile.outside_bytes;
    result->chosen = ull__planner_choose(result->planner, options->budget);
    result->feasible = result->chosen != ULL_NONE;
    if (!result->feasible) {
        result->chosen = smallest;
    }
    result->planning_seconds = (double)(cli_monotonic_ns() - begin) / 1e9;
    return ULL_OK;
}

static int terminal_width(void)
{
    struct winsize size;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40
               ? size.ws_col
               : 80;
}

static int print_result(const struct plan_result *result)
{
    bool fine = true;
    struct ull_error err = {{0}};
    if (result->options->html != NULL &&
        plan_write_html(result, result->options->html, &err) != ULL_OK) {
        cli_say("%s", err.message);
        return EXIT_FAILED;
    }
    if (result->options->format == OUTPUT_JSON) {
        struct ull_json json;
        ull__json_init(&json, stdout);
        plan_print_json(result, &json);
        fine = ull__json_finish(&json);
        ull__json_free(&json);
    } else {
        fine = plan_print_text(result, terminal_width());
        if (result->options->ladder) {
            plan_print_ladder(result);
        }
        if (result->options->fit && plan_print_fit(result, &err) != ULL_OK) {
            cli_say("%s", err.message);
            return EXIT_FAILED;
        }
        if (result->options->like != NULL) {
            plan_print_torch(result);
        }
    }
    return plan_end(result->options, fine, result->feasible, result->smallest_bytes);
}

int cmd_plan(int argc, char **argv)
{
    struct plan_options options = {.infer = {.weights = ULL_WEIGHTS_FP16},
                                   .request = {.optimizer = ULL_OPTIMIZER_ADAMW,
                                               .attrs = {.momentum = 0.9},
                                               .host_bytes = ULL_NONE}};
    if (plan_offsets_is_meant(argc, argv)) {
        return plan_offsets(argc, argv);
    }
    int code = plan_read_options(argc, argv, &options);
    if (code >= 0) {
        return code;
    }
    if (options.inference) {
        return plan_inference(&options);
    }
    if (options.parallel != ULL_PARALLEL_DATA) {
        return plan_parallel(&options);
    }
    struct plan_result result = {.options = &options};
    struct ull_error err = {{0}};
    struct plan_progress progress;
    plan_progress_begin(&progress);
    ull_status status = make_plans(&options, &progress.count, &result, &err);
    plan_progress_end(&progress);
    code = status == ULL_OK ? print_result(&result)
                            : plan_say_failed(&options, result.model != NULL, status, &err);
    ull__planner_destroy(result.planner);
    ull__planner_destroy(result.plain);
    ull__meter_destroy(result.meter);
    if (result.backend != NULL) {
        result.backend->ops->destroy(result.backend);
    }
    ull__graph_destroy(result.model);
    return code;
}
