/*
 * plan_infer.c: `ullage plan --mode inference`: what a model needs where it is used, in each kind of weights, and how many
 * requests there is room for.
 */
#include <stdio.h>

#include "../json_keys.h"
#include "infer.h"
#include "plan_answer.h"
#include "plan_words.h"
#include "size.h"

struct answer {
    const struct plan_options *options;
    struct ull__graph *model;
    struct ull__inference *inference;
    int chosen; /* where nothing fits, the smallest */
    bool feasible;
    int64_t smallest_bytes;
    double planning_seconds;
};

static const struct ull__infer_plan *plan_of(const struct answer *answer)
{
    int count;
    return &ull__infer_plans(answer->inference, &count)[answer->chosen];
}

static ull_status find(const struct plan_options *options, const struct ull__graph *model,
                       enum ull__weights weights, struct answer *answer, struct ull_error *err)
{
    struct ull__infer_request request = options->infer;
    int count;
    request.model = model;
    request.profile = &options->profile;
    request.batch = options->request.batch;
    request.weights = weights;
    request.max_workspace = options->request.max_workspace;
    ull_status status = ull__infer_create(&request, &answer->inference, err);
    if (status != ULL_OK) {
        return status;
    }
    const struct ull__infer_plan *plans = ull__infer_plans(answer->inference, &count);
    answer->options = options;
    answer->smallest_bytes = plans[count - 1].peak_bytes + (int64_t)options->profile.outside_bytes;
    answer->chosen = ull__infer_choose(answer->inference, options->budget);
    answer->feasible = answer->chosen != ULL_NONE;
    answer->chosen = answer->feasible ? answer->chosen : count - 1;
    return ULL_OK;
}

/* --- JSON --- */

static void put_components(struct ull_json *json, const struct answer *answer)
{
    const struct ull__infer_plan *plan = plan_of(answer);
    int64_t sum = ull__infer_cache_bytes(answer->inference);
    ull__json_key(json, "components");
    ull__json_object(json);
    for (int i = 0; i < ULL_ROLES; ++i) {
        key_i64(json, ull__role_text((enum ull__role)i), plan->bytes[i]);
        sum += plan->bytes[i];
    }
    key_i64(json, "cache", ull__infer_cache_bytes(answer->inference));
    key_i64(json, "gaps", plan->peak_bytes - sum);
    ull__json_object_end(json);
}

static void put_ladder(struct ull_json *json, const struct answer *answer)
{
    int count;
    const struct ull__infer_plan *plans = ull__infer_plans(answer->inference, &count);
    ull__json_key(json, "ladder");
    ull__json_array(json);
    for (int i = 0; i < count; ++i) {
        ull__json_object(json);
        key_i64(json, "budget_bytes",
                plans[i].peak_bytes + (int64_t)answer->options->profile.outside_bytes);
        key_number(json, "step_seconds", plans[i].seconds);
        key_i64(json, "micro_batch", plans[i].micro_batch);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

/* --- Other devices --- */

static struct plan_figures figures_of(const struct answer *answer)
{
    const struct ull__infer_plan *plan = plan_of(answer);
    return (struct plan_figures){answer->feasible,       plan->peak_bytes,
                                 answer->smallest_bytes, 0,
                                 plan->seconds,          answer->options->request.batch,
                                 plan->micro_batch};
}

/* The same question for a device and all of its memory; false: it cannot compute in these types, or no memory. */
static bool ask_device(const struct answer *answer, const struct ull__profile *profile,
                       struct plan_options *options, struct answer *other)
{
    *options = *answer->options;
    *other = (struct answer){.model = answer->model};
    options->profile = *profile;
    options->budget = (int64_t)profile->memory_bytes;
    return find(options, answer->model, options->infer.weights, other, NULL) == ULL_OK;
}

static void put_fit(struct ull_json *json, const struct answer *answer)
{
    struct ull__profile profiles[PLAN_DEVICES_MOST];
    int count = 0;
    plan_devices(profiles, &count, NULL);
    ull__json_key(json, "fit");
    ull__json_array(json);
    for (int i = 0; i < count; ++i) {
        struct plan_options options;
        struct answer other;
        if (ask_device(answer, &profiles[i], &options, &other) && other.feasible) {
            struct plan_figures figures = figures_of(&other);
            plan_put_device(json, &profiles[i], &figures);
        }
        ull__infer_destroy(other.inference);
    }
    ull__json_array_end(json);
}

static void print_fit(const struct answer *answer)
{
    struct ull__profile profiles[PLAN_DEVICES_MOST];
    int count = 0;
    plan_devices(profiles, &count, NULL);
    printf("\n  %-12s %12s %12s %12s\n", "device", "has", "peak", "a pass");
    for (int i = 0; i < count; ++i) {
        struct plan_options options;
        struct answer other;
        char has[ULL_SIZE_TEXT], needs[ULL_SIZE_TEXT], seconds[32];
        bool can = ask_device(answer, &profiles[i], &options, &other);
        plan_bytes_text(options.budget, has);
        if (!can) {
            printf("  %-12s %12s cannot compute in %s\n", options.profile.name, has,
                   ull__weights_text(options.infer.weights));
        } else if (!other.feasible) {
            printf("  %-12s %12s does not hold it: %s are needed\n", options.profile.name, has,
                   ull__size_text_up((uint64_t)other.smallest_bytes, needs));
        } else {
            printf("  %-12s %12s %12s %12s\n", options.profile.name, has,
                   plan_bytes_text(plan_of(&other)->peak_bytes, needs),
                   plan_seconds_text(plan_of(&other)->seconds, false, seconds, sizeof(seconds)));
        }
        ull__infer_destroy(other.inference);
    }
}

static void put_cache(struct ull_json *json, const struct answer *answer)
{
    const struct ull__infer_plan *plan = plan_of(answer);
    int64_t requests = ull__infer_requests(answer->inference);
    key_i64(json, "context", ull__infer_context(answer->inference));
    key_i64(json, "requests", requests);
    key_i64(json, "requests_most",
            ull__infer_requests_most(answer->inference, answer->chosen, answer->options->budget));
    key_number(json, "token_seconds", plan->token_seconds);
    key_number(json, "tokens_per_second", (double)requests / plan->token_seconds);
}

static bool print_json(const struct answer *answer)
{
    const struct plan_options *options = answer->options;
    struct ull_json json;
    ull__json_init(&json, stdout);
    ull__json_object(&json);
    struct plan_figures figures = figures_of(answer);
    plan_put_names(&json, options, "inference");
    plan_put_figures(&json, options, &figures);
    key_string(&json, "weights", ull__weights_text(options->infer.weights));
    key_i64(&json, "parameters", ull__graph_parameters(answer->model));
    put_components(&json, answer);
    if (ull__infer_cache_bytes(answer->inference) > 0) {
        put_cache(&json, answer);
    }
    if (options->ladder) {
        put_ladder(&json, answer);
    }
    if (options->fit) {
        put_fit(&json, answer);
    }
    key_number(&json, "planning_seconds", answer->planning_seconds);
    ull__json_object_end(&json);
    bool fine = ull__json_finish(&json);
    ull__json_free(&json);
    return fine;
}

/* --- For a person --- */

static void row(const char *name, int64_t bytes, int64_t all)
{
    char text[ULL_SIZE_TEXT];
    printf("  %-20s %12s %5.1f %%\n", name, plan_bytes_text(bytes, text),
           100.0 * (double)bytes / (double)all);
}

static void print_components(const struct answer *answer)
{
    const struct ull__infer_plan *plan = plan_of(answer);
    int64_t cache = ull__infer_cache_bytes(answer->inference), gaps = plan->peak_bytes - cache;
    char name[32], text[ULL_SIZE_TEXT];
    for (int i = 0; i < ULL_ROLES; ++i) {
        gaps -= plan->bytes[i];
        if (plan->bytes[i] >= 4096) {
            row(plan_role_words((enum ull__role)i, name, sizeof(name)), plan->bytes[i],
                plan->peak_bytes);
        }
    }
    if (cache > 0) {
        row("keys and values", cache, plan->peak_bytes);
    }
    if (gaps >= 4096) {
        row("gaps", gaps, plan->peak_bytes);
    }
    row("peak", plan->peak_bytes, plan->peak_bytes);
    printf("  %-20s %12s\n", "outside (*)",
           plan_bytes_text((int64_t)answer->options->profile.outside_bytes, text));
}

static void print_times(const struct answer *answer)
{
    const struct ull__infer_plan *plan = plan_of(answer);
    int64_t batch = answer->options->request.batch;
    int64_t requests = ull__infer_requests(answer->inference);
    char text[32];
    printf("  %-20s %12s", "time a pass",
           plan_seconds_text(plan->seconds, false, text, sizeof(text)));
    if (plan->micro_batch < batch) {
        printf(", %lld samples at once", (long long)plan->micro_batch);
    }
    printf("\n  %-20s %12.1f\n", "samples a second", (double)batch / plan->seconds);
    if (plan->token_seconds > 0) {
        printf("  %-20s %12s, %lld request%s of %lld tokens\n", "time a token",
               plan_seconds_text(plan->token_seconds, false, text, sizeof(text)), (long long)requests,
               requests > 1 ? "s" : "", (long long)ull__infer_context(answer->inference));
        printf("  %-20s %12.1f\n", "tokens a second", (double)requests / plan->token_seconds);
    }
}

/* A line for each kind of weights that the device can do. */
static void print_kinds(const struct answer *answer)
{
    bool cache = ull__infer_cache_bytes(answer->inference) > 0;
    printf("\n  %-8s %12s %14s %10s %12s %10s\n", "weights", "parameters", "needs at least",
           "a pass", cache ? "tokens/s" : "samples/s", cache ? "requests" : "");
    for (int i = 0; i < ULL_WEIGHTS; ++i) {
        struct answer other = {.model = answer->model};
        char parameters[ULL_SIZE_TEXT], needs[ULL_SIZE_TEXT], seconds[32], most[32] = "";
        if (find(answer->options, answer->model, (enum ull__weights)i, &other, NULL) != ULL_OK) {
            continue;
        }
        const struct ull__infer_plan *plan = plan_of(&other);
        int count;
        int64_t requests = ull__infer_requests(other.inference);
        ull__infer_plans(other.inference, &count);
        if (cache) {
            snprintf(most, sizeof(most), " %10lld",
                     (long long)ull__infer_requests_most(other.inference, count - 1,
                                                         answer->options->budget));
        }
        printf("%c %-8s %12s %14s %10s %12.1f%s\n",
               i == (int)answer->options->infer.weights ? '>' : ' ',
               ull__weights_text((enum ull__weights)i),
               plan_bytes_text(plan->bytes[ULL_ROLE_PARAMETER], parameters),
               ull__size_text_up((uint64_t)other.smallest_bytes, needs),
               plan_seconds_text(plan->seconds, false, seconds, sizeof(seconds)),
               cache ? (double)requests / plan->token_seconds
                     : (double)answer->options->request.batch / plan->seconds,
               most);
        ull__infer_destroy(other.inference);
    }
    if (cache) {
        printf("  (requests: as many of this context as there is room for)\n");
    }
}

static void print_ladder(const struct answer *answer)
{
    int count;
    const struct ull__infer_plan *plans = ull__infer_plans(answer->inference, &count);
    printf("\n  %11s %10s %10s\n", "budget from", "a pass", "at once");
    for (int i = 0; i < count; ++i) {
        char size[ULL_SIZE_TEXT], seconds[32];
        printf("%c %11s %10s %10lld\n", i == answer->chosen ? '>' : ' ',
               ull__size_text_up(
                   (uint64_t)plans[i].peak_bytes + answer->options->profile.outside_bytes, size),
               plan_seconds_text(plans[i].seconds, false, seconds, sizeof(seconds)),
               (long long)plans[i].micro_batch);
    }
}

static void print_text(const struct answer *answer)
{
    const struct plan_options *options = answer->options;
    char budget[ULL_SIZE_TEXT], parameters[32];
    printf("%s, %s parameters, in %s, batch %lld on %s, budget %s\n\n", options->model,
           plan_count_text(ull__graph_parameters(answer->model), parameters, sizeof(parameters)),
           ull__weights_text(options->infer.weights), (long long)options->request.batch,
           options->profile.name, plan_bytes_text(options->budget, budget));
    print_components(answer);
    print_times(answer);
    print_kinds(answer);
    if (options->ladder) {
        print_ladder(answer);
    }
    if (options->fit) {
        print_fit(answer);
    }
    printf("\n(*) the context and handles of libraries, taken from the budget first\n");
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

int plan_inference(const struct plan_options *options)
{
    struct answer answer = {.model = NULL};
    struct ull_error err = {{0}};
    uint64_t begin = cli_monotonic_ns();
    ull_status status = plan_model(options, &answer.model, &err);
    if (status == ULL_OK) {
        status = find(options, answer.model, options->infer.weights, &answer, &err);
    }
    answer.planning_seconds = (double)(cli_monotonic_ns() - begin) / 1e9;
    int code = status == ULL_OK ? print_answer(&answer)
                                : plan_say_failed(options, answer.model != NULL, status, &err);
    ull__infer_destroy(answer.inference);
    ull__graph_destroy(answer.model);
    return code;
}
