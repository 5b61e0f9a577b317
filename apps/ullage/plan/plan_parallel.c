/*
 * plan_parallel.c: `ullage plan --devices N --parallel model|pipeline`: what lies on which card, and the line of budgets for
 * `ullage run`.
 */
#include <stdio.h>
#include <string.h>

#include "../json_keys.h"
#include "error.h"
#include "plan_answer.h"
#include "plan_progress.h"
#include "plan_words.h"
#include "size.h"

struct answer {
    const struct plan_options *options;
    struct ull__graph *model;
    struct ull__parallel *parallel;
    int chosen; /* where nothing fits, the smallest */
    bool feasible;
    int64_t smallest_bytes;
    double planning_seconds;
};

static const struct ull__parallel_plan *plan_of(const struct answer *answer)
{
    int count;
    return &ull__parallel_plans(answer->parallel, &count)[answer->chosen];
}

/* What a card is to be given: its part and what is outside, up to the next MiB. */
static long long budget_mib(int64_t peak, const struct plan_options *options)
{
    return ((long long)peak + (long long)options->profile.outside_bytes + (1 << 20) - 1) >> 20;
}

void plan_budgets_text(const struct plan_options *options, const int64_t *peaks, int count,
                       char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "-m ");
    for (int i = 0; i < count && used < size; ++i) {
        used += (size_t)snprintf(text + used, size - used, "%s%d=%lldMiB", i > 0 ? "," : "", i,
                                 budget_mib(peaks[i], options));
    }
}

static void budgets_of(const struct answer *answer, char *text, size_t size)
{
    int64_t peaks[ULL_STAGES_MOST];
    for (int i = 0; i < answer->options->request.devices; ++i) {
        peaks[i] = plan_of(answer)->stages[i].peak_bytes;
    }
    plan_budgets_text(answer->options, peaks, answer->options->request.devices, text, size);
}

/* --- JSON --- */

static void put_stages(struct ull_json *json, const struct answer *answer)
{
    const struct ull__parallel_plan *plan = plan_of(answer);
    ull__json_key(json, "stages");
    ull__json_array(json);
    for (int i = 0; i < answer->options->request.devices; ++i) {
        const struct ull__stage *stage = &plan->stages[i];
        ull__json_object(json);
        key_i64(json, "device", i);
        key_string(json, "first", ull__parallel_unit(answer->parallel, stage->first));
        key_string(json, "last", ull__parallel_unit(answer->parallel, stage->last));
        key_i64(json, "parameters", stage->parameters);
        key_i64(json, "peak_bytes", stage->peak_bytes);
        key_i64(json, "persistent_bytes", stage->persistent_bytes);
        key_i64(json, "in_flight", stage->in_flight);
        key_i64(json, "kept_bytes", stage->kept_bytes);
        key_i64(json, "passing_bytes", stage->passing_bytes);
        key_i64(json, "sent_bytes", stage->sent_bytes);
        key_number(json, "micro_seconds", stage->seconds);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

static bool print_json(const struct answer *answer)
{
    const struct plan_options *options = answer->options;
    const struct ull__parallel_plan *plan = plan_of(answer);
    const struct ull__plan *source = ull__parallel_source(answer->parallel, answer->chosen);
    char budgets[32 * PLAN_CARDS_MOST];
    struct ull_json json;
    budgets_of(answer, budgets, sizeof(budgets));
    ull__json_init(&json, stdout);
    ull__json_object(&json);
    plan_put_names(&json, options, "training");
    plan_put_figures(&json, options,
                     &(struct plan_figures){answer->feasible, plan->peak_bytes,
                                            answer->smallest_bytes, 0, plan->step_seconds,
                                            options->request.batch, source->micro_batch});
    key_i64(&json, "accumulation", source->accumulation);
    key_string(&json, "precision", ull__precision_text(source->precision));
    key_i64(&json, "recomputed_bytes", source->cost.dropped_bytes);
    key_i64(&json, "offloaded_bytes", 0);
    key_i64(&json, "parameters", ull__graph_parameters(answer->model));
    ull__json_key(&json, "parallel");
    ull__json_object(&json);
    key_string(&json, "kind", ull__parallel_text(options->parallel));
    key_i64(&json, "devices", options->request.devices);
    key_string(&json, "run", budgets);
    put_stages(&json, answer);
    ull__json_object_end(&json);
    key_number(&json, "planning_seconds", answer->planning_seconds);
    ull__json_object_end(&json);
    bool fine = ull__json_finish(&json);
    ull__json_free(&json);
    return fine;
}

/* --- For a person --- */

/* A name that is cut off on the left: what tells blocks apart is at the end. */
static const char *part_name(const struct answer *answer, int unit, int width)
{
    const char *name = ull__parallel_unit(answer->parallel, unit);
    int length = (int)strlen(name);
    return length > width ? name + (length - width) : name;
}

static void print_stages(const struct answer *answer)
{
    const struct ull__parallel_plan *plan = plan_of(answer);
    printf("  card  %-33s %8s %4s %10s %10s\n", "from .. to", "weights", "x", "peak", "a micro");
    for (int i = 0; i < answer->options->request.devices; ++i) {
        const struct ull__stage *stage = &plan->stages[i];
        char parts[64], weights[32], peak[ULL_SIZE_TEXT], seconds[32];
        if (stage->first == stage->last) {
            snprintf(parts, sizeof(parts), "%s", part_name(answer, stage->first, 33));
        } else {
            snprintf(parts, sizeof(parts), "%s .. %s", part_name(answer, stage->first, 14),
                     part_name(answer, stage->last, 14));
        }
        snprintf(weights, sizeof(weights), "%.1f M", (double)stage->parameters / 1e6);
        printf("  %4d  %-33s %8s %4d %10s %10s\n", i, parts, weights, stage->in_flight,
               plan_bytes_text(stage->peak_bytes, peak),
               plan_seconds_text(stage->seconds, false, seconds, sizeof(seconds)));
    }
    printf("  (x: micro-batches whose activations it holds; a micro: forward and back)\n");
}

static void print_text(const struct answer *answer)
{
    const struct plan_options *options = answer->options;
    const struct ull__parallel_plan *plan = plan_of(answer);
    const struct ull__plan *source = ull__parallel_source(answer->parallel, answer->chosen);
    char budget[ULL_SIZE_TEXT], parameters[32], budgets[32 * PLAN_CARDS_MOST], text[32],
        size[ULL_SIZE_TEXT];
    printf("%s, %s parameters, batch %lld, %s, %s over %d x %s of %s\n\n", options->model,
           plan_count_text(ull__graph_parameters(answer->model), parameters, sizeof(parameters)),
           (long long)options->request.batch, ull__precision_text(source->precision),
           ull__parallel_text(options->parallel), options->request.devices, options->profile.name,
           plan_bytes_text(options->budget, budget));
    print_stages(answer);
    printf("\n  %-20s %lld of %lld samples\n", "micro-batches", (long long)source->accumulation,
           (long long)source->micro_batch);
    printf("  %-20s %s of a micro-batch\n", "recomputed",
           plan_bytes_text(source->cost.dropped_bytes, size));
    printf("  %-20s %s, %.1f samples a second\n", "time a step",
           plan_seconds_text(plan->step_seconds, false, text, sizeof(text)),
           (double)options->request.batch / plan->step_seconds);
    budgets_of(answer, budgets, sizeof(budgets));
    printf("  %-20s %s a card (%lld bytes)\n", "needs at least",
           ull__size_text_up((uint64_t)answer->smallest_bytes, size),
           (long long)answer->smallest_bytes);
    printf("\n  ullage run %s -- COMMAND\n", budgets);
}

static ull_status find(struct answer *answer, struct ull__progress *progress, struct ull_error *err)
{
    const struct plan_options *options = answer->options;
    struct ull__plan_request request = options->request;
    int count;
    ull_status status = plan_model(options, &answer->model, err);
    if (status != ULL_OK) {
        return status;
    }
    request.model = answer->model;
    request.progress = progress;
    status = ull__parallel_create(&request, options->parallel, options->request.devices,
                                  &answer->parallel, err);
    if (status != ULL_OK) {
        return status;
    }
    int smallest = ull__parallel_smallest(answer->parallel);
    if (smallest == ULL_NONE) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for the plans of '%s'", options->model);
    }
    answer->smallest_bytes = ull__parallel_plans(answer->parallel, &count)[smallest].peak_bytes +
                             (int64_t)options->profile.outside_bytes;
    answer->chosen = ull__parallel_choose(answer->parallel, options->budget);
    answer->feasible = answer->chosen != ULL_NONE;
    answer->chosen = answer->feasible ? answer->chosen : smallest;
    return ULL_OK;
}

static int print_answer(const struct answer *answer)
{
    bool fine = true;
    if (answer->options->format == OUTPUT_JSON) {
        fine = print_json(answer);
    } else {
        print_text(answer);
    }
    return plan_end(answer->options, fine, answer->feasible, answer->smallest_bytes);
}

int plan_parallel(const struct plan_options *options)
{
    struct answer answer = {.options = options};
    struct ull_error err = {{0}};
    uint64_t begin = cli_monotonic_ns();
    struct plan_progress progress;
    plan_progress_begin(&progress);
    ull_status status = find(&answer, &progress.count, &err);
    plan_progress_end(&progress);
    answer.planning_seconds = (double)(cli_monotonic_ns() - begin) / 1e9;
    int code = status == ULL_OK ? print_answer(&answer)
                                : plan_say_failed(options, answer.model != NULL, status, &err);
    ull__parallel_destroy(answer.parallel);
    ull__graph_destroy(answer.model);
    return code;
}
