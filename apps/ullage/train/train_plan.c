/*
 * train_plan.c: plans that are given: by a file of `ullage plan -o json` or `--save-plan`, or by a save that is gone on from.
 *
 * A file's plan is run as it is written: batch, micro-batch, precision, what is recomputed and sent, where the optimizer's
 * state is. What its pins say of backend, threads, layouts and algorithms is compared with what is here; where that differs,
 * workspaces and addresses are planned anew. A save says only what decides the bits of a training.
 */
#include "train_plan.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../json_keys.h"
#include "error.h"
#include "file.h"
#include "names.h"

bool train_plan_accepts(void *context, int64_t length, const struct ull__plan *plan)
{
    const struct train_wanted *wanted = context;
    bool fine = (wanted->precision == ULL_PRECISION_AUTO || plan->precision == wanted->precision) &&
                (wanted->offload < 0 || plan->offload_optimizer == (wanted->offload != 0));
    for (int i = 0; i < wanted->length_count; ++i) {
        if (wanted->lengths[i].length == length) {
            return fine && plan->micro_batch == wanted->lengths[i].micro_batch &&
                   plan->chunked_loss == (wanted->lengths[i].chunked != 0);
        }
    }
    if (wanted->longest > 0 && length < wanted->longest) {
        return fine;
    }
    return fine && (wanted->micro_batch == 0 || plan->micro_batch == wanted->micro_batch) &&
           (wanted->chunked < 0 || plan->chunked_loss == (wanted->chunked != 0)) &&
           (wanted->drops < 0 || (plan->cost.dropped_bytes > 0) == (wanted->drops != 0));
}

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : 0;
}

static int flag(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : -1;
}

static void take_lengths(const json_t *root, struct train_wanted *wanted)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(root, "buckets"), i, one)
    {
        if (wanted->length_count < ULL_SESSION_BUCKETS) {
            wanted->lengths[wanted->length_count++] =
                (struct train_length){.length = number(one, "length"),
                                      .micro_batch = number(one, "micro_batch"),
                                      .chunked = flag(one, "chunked_loss")};
        }
    }
}

static const char *string(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static ull_status take(const json_t *root, const char *from, struct train_wanted *wanted,
                       struct ull_error *err)
{
    const char *precision = string(root, "precision");
    const json_t *decision = json_object_get(root, "decision");
    decision = decision != NULL ? decision : root;
    wanted->micro_batch = number(root, "micro_batch");
    wanted->batch = number(root, "batch");
    wanted->chunked = flag(decision, "chunked_loss");
    wanted->offload = flag(decision, "offload_optimizer");
    wanted->drops = -1;
    take_lengths(root, wanted);
    if (wanted->micro_batch < 1 || wanted->batch < wanted->micro_batch || precision == NULL ||
        !ull__precision_parse(precision, &wanted->precision) ||
        wanted->precision == ULL_PRECISION_AUTO) {
        return ull__fail(
            err, ULL_E_FORMAT,
            "'%s' is no plan: expected batch, micro_batch and precision, as `ullage plan "
            "-o json` writes them",
            from);
    }
    return ULL_OK;
}

ull_status train_plan_text(const char *text, const char *from, struct train_wanted *wanted,
                           struct ull_error *err)
{
    json_error_t where;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(root)) {
        json_decref(root);
        return ull__fail(err, ULL_E_FORMAT, "'%s' is not JSON of a plan: line %d: %.100s", from,
                         where.line, where.text);
    }
    ull_status status = take(root, from, wanted, err);
    json_decref(root);
    return status;
}

/* --- The file --- */

/* Strings of an array, as pointers into it. Numbers, as older files have, are no names. */
static ull_status take_names(const json_t *list, const char *key, const char *from,
                             const char ***names, int *count, struct ull_error *err)
{
    size_t size = json_array_size(list);
    *names = calloc(size + 1, sizeof(**names));
    *count = 0;
    if (*names == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a plan");
    }
    for (size_t i = 0; i < size; ++i) {
        (*names)[i] = json_string_value(json_array_get(list, i));
        if ((*names)[i] == NULL) {
            return ull__fail(err, ULL_E_FORMAT,
                             "'%s': %s[%zu] is no string: expected names of tensors", from, key, i);
        }
        *count += 1;
    }
    return ULL_OK;
}

static ull_status take_algorithms(json_t *algorithms, struct ull__given *given, struct ull_error *err)
{
    const char *key;
    json_t *value;
    given->items = calloc(json_object_size(algorithms) + 1, sizeof(*given->items));
    if (given->items == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a plan");
    }
    json_object_foreach(algorithms, key, value)
    {
        const json_t *seconds = json_object_get(value, "seconds");
        double took = json_is_number(seconds) ? json_number_value(seconds) : -1;
        given->items[given->item_count++] =
            (struct ull__given_item){.node = key,
                                     .algorithm = string(value, "name"),
                                     .seconds = isfinite(took) && took < 1e9 ? took : -1};
    }
    return ULL_OK;
}

static ull_status take_decision(struct train_plan *plan, struct ull_error *err)
{
    struct ull__given *given = &plan->given;
    const json_t *decision = json_object_get(plan->root, "decision");
    const json_t *pins = json_object_get(plan->root, "pins");
    given->precision = plan->wanted.precision;
    given->micro_batch = plan->wanted.micro_batch;
    given->chunked_loss = plan->wanted.chunked > 0;
    given->offload_optimizer = plan->wanted.offload > 0;
    plan->backend = string(pins, "backend");
    plan->threads = (int)number(pins, "threads");
    ull_status status = take_names(json_object_get(decision, "drop"), "drop", plan->path,
                                   &given->drop, &given->drop_count, err);
    if (status == ULL_OK) {
        status = take_names(json_object_get(decision, "send"), "send", plan->path, &given->send,
                            &given->send_count, err);
    }
    const json_t *last = json_object_get(json_object_get(pins, "layouts"), "channels_last");
    if (status == ULL_OK && json_is_array(last)) {
        status = take_names(last, "channels_last", plan->path, &plan->last, &plan->last_count, err);
    }
    return status == ULL_OK ? take_algorithms(json_object_get(pins, "algorithms"), given, err)
                            : status;
}

/* What the file's graph was made of; an option that says something else is an error. */
static ull_status take_training(const struct train_plan *plan, struct train_options *options,
                                struct ull_error *err)
{
    struct ull__plan_request *request = &options->request;
    const char *text = string(plan->root, "optimizer");
    const json_t *clip = json_object_get(plan->root, "clip");
    const json_t *momentum = json_object_get(plan->root, "momentum");
    enum ull__optimizer optimizer;
    int64_t group = number(plan->root, "bn_group");
    if (request->batch > 0 && request->batch != plan->wanted.batch) {
        return ull__fail(err, ULL_E_INVALID, "'%s' is a plan for batches of %lld, --batch says %lld",
                         plan->path, (long long)plan->wanted.batch, (long long)request->batch);
    }
    if (text != NULL) {
        if (!plan_optimizer_parse(text, &optimizer)) {
            return ull__fail(err, ULL_E_FORMAT,
                             "'%s' is a plan for optimizer '%.40s': expected sgd, adam or adamw",
                             plan->path, text);
        }
        if (options->optimizer_given && request->optimizer != optimizer) {
            return ull__fail(err, ULL_E_INVALID, "'%s' is a plan for %s, --optimizer says %s",
                             plan->path, text, plan_optimizer_text(request->optimizer));
        }
        request->optimizer = optimizer;
        options->optimizer_given = true;
        if (json_is_number(momentum) &&
            (json_number_value(momentum) > 0) != (request->attrs.momentum > 0)) {
            return ull__fail(err, ULL_E_INVALID,
                             "'%s' is a plan with momentum %g, --momentum says %g", plan->path,
                             json_number_value(momentum), request->attrs.momentum);
        }
    }
    if (json_is_number(clip)) {
        double limit = json_number_value(clip);
        if (options->clip_given && (limit > 0) != (request->attrs.limit > 0)) {
            return ull__fail(err, ULL_E_INVALID, "'%s' is a plan %s clipping, --clip says %g",
                             plan->path, limit > 0 ? "with" : "without", request->attrs.limit);
        }
        request->attrs.limit = options->clip_given ? request->attrs.limit : limit;
        options->clip_given = true;
    }
    if (group > 0 && request->bn_group > 0 && request->bn_group != group) {
        return ull__fail(err, ULL_E_INVALID,
                         "'%s' is a plan with statistics of %lld samples, --bn-group says %lld",
                         plan->path, (long long)group, (long long)request->bn_group);
    }
    request->bn_group = group > 0 ? group : request->bn_group;
    return ULL_OK;
}

static int processors(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

/* Memory and threads are the file's where no option says otherwise. */
static void take_machine(const struct train_plan *plan, struct train_options *options)
{
    int64_t budget = number(plan->root, "budget_bytes"), host = number(plan->root, "host_bytes");
    if (!options->memory_given && budget > 0) {
        options->memory = budget;
    }
    if (!options->host_given && host > 0) {
        options->request.host_bytes = host;
    }
    if (options->threads == 0 && plan->threads >= 1 && plan->threads <= processors()) {
        options->threads = plan->threads;
    }
}

ull_status train_plan_open(struct train_options *options, struct ull_error *err)
{
    json_error_t where;
    struct train_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a plan");
    }
    options->file = plan;
    plan->path = options->plan;
    plan->last_count = -1;
    plan->root = json_load_file(options->plan, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(plan->root)) {
        return ull__fail(err, ULL_E_FORMAT, "'%s' is not a plan: %.200s", options->plan, where.text);
    }
    const char *mode = string(plan->root, "mode");
    if (number(plan->root, "version") > PLAN_FILE_VERSION) {
        return ull__fail(err, ULL_E_FORMAT, "'%s' is a plan of version %lld: expected at most %d",
                         options->plan, (long long)number(plan->root, "version"), PLAN_FILE_VERSION);
    }
    if (mode != NULL && strcmp(mode, "training") != 0) {
        return ull__fail(err, ULL_E_INVALID, "'%s' is a plan of mode '%.40s': expected a training",
                         options->plan, mode);
    }
    ull_status status = take(plan->root, options->plan, &plan->wanted, err);
    if (status == ULL_OK && json_is_false(json_object_get(plan->root, "feasible"))) {
        status = ull__fail(err, ULL_E_INVALID, "'%s' is a plan that did not fit its budget",
                           options->plan);
    }
    if (status == ULL_OK) {
        status = take_decision(plan, err);
    }
    if (status == ULL_OK) {
        status = take_training(plan, options, err);
    }
    if (status == ULL_OK) {
        take_machine(plan, options);
    }
    return status;
}

void train_plan_close(struct train_options *options)
{
    struct train_plan *plan = options->file;
    if (plan != NULL) {
        json_decref(plan->root);
        free((void *)plan->given.drop);
        free((void *)plan->given.send);
        free(plan->given.items);
        free((void *)plan->last);
        free(plan);
        options->file = NULL;
    }
}

/* The model's name without its arguments: these are completed from the data. */
static bool same_model(const char *a, const char *b)
{
    size_t length = strcspn(a, ":");
    return length == strcspn(b, ":") && strncmp(a, b, length) == 0;
}

ull_status train_plan_fits(const struct training *training, struct ull_error *err)
{
    struct train_plan *plan = training->options->file;
    const char *model = string(plan->root, "model"), *graph = string(plan->root, "graph");
    char identity[24];
    snprintf(identity, sizeof(identity), "%016llx",
             (unsigned long long)ull__graph_identity(train_longest(training)));
    bool same = graph != NULL && strcmp(graph, identity) == 0;
    if (!same && (model == NULL || !same_model(model, training->options->model))) {
        return ull__fail(err, ULL_E_INVALID, "'%s' is a plan for model '%.60s', not for '%.60s'",
                         plan->path, model != NULL ? model : "", training->options->model);
    }
    plan->other_sizes = !same && graph != NULL;
    if (plan->other_sizes) {
        char text[1200];
        snprintf(text, sizeof(text),
                 "'%.200s' is a plan for '%.400s', this is '%.400s': it is fitted to these sizes",
                 plan->path, model, training->model_text);
        train_print_note(training, text);
    }
    return ULL_OK;
}

/* --- What differs --- */

static int other_algorithms(const struct train_plan *plan, const struct ull__session_info *info,
                            const struct ull__program *program, const struct ull__names *names)
{
    const struct ull__meter *meter = ull__planner_profile(info->planner)->meter;
    int64_t values[ULL_SYMBOLS];
    int others = 0;
    ull__graph_values(program->graph, info->chosen->micro_batch, values);
    for (int i = 0; i < plan->given.item_count; ++i) {
        const struct ull__given_item *item = &plan->given.items[i];
        int node = ull__names_find_node(names, item->node);
        const char *here =
            node != ULL_NONE ? meter->algorithm(meter->context, program->graph, node, values) : NULL;
        others += item->algorithm != NULL && (here == NULL || strcmp(here, item->algorithm) != 0);
    }
    return others;
}

static int other_layouts(const struct train_plan *plan, const struct ull__session_info *info,
                         const struct ull__program *program, const struct ull__names *names)
{
    const struct ull__meter *meter = ull__planner_profile(info->planner)->meter;
    int64_t values[ULL_SYMBOLS];
    int here = 0, both = 0;
    ull__graph_values(program->graph, info->chosen->micro_batch, values);
    const uint8_t *layouts = meter->layouts(meter->context, program->graph, values);
    if (plan->last_count < 0 || layouts == NULL) {
        return 0;
    }
    for (int i = 0; i < program->buffer_count; ++i) {
        here += layouts[program->buffers[i].tensor] == ULL_LAYOUT_CHANNELS_LAST;
    }
    for (int i = 0; i < plan->last_count; ++i) {
        int tensor = ull__names_find_tensor(names, plan->last[i]);
        both += tensor != ULL_NONE && layouts[tensor] == ULL_LAYOUT_CHANNELS_LAST;
    }
    return here + plan->last_count - 2 * both;
}

void train_plan_compare(const struct training *training)
{
    const struct train_plan *plan = training->options->file;
    struct ull__session_info info;
    char text[1024], backend[160];
    ull__session_info(training->session, &info);
    const struct ull__program *program = ull__planner_program(info.planner, info.plan);
    struct ull__names *names = ull__names_create(program->graph);
    if (!info.given || names == NULL) {
        ull__names_destroy(names);
        if (!info.given) {
            train_print_note(training, "the plan as it is written does not fit: what is recomputed "
                                       "and sent is chosen anew");
        }
        return;
    }
    int threads = ull__cpu_threads(training->backend);
    plan_backend_text(ull__cpu_describe(training->backend), backend, sizeof(backend));
    int algorithms = other_algorithms(plan, &info, program, names);
    int layouts = other_layouts(plan, &info, program, names);
    uint64_t peak = (uint64_t)number(plan->root, "peak_bytes");
    bool other = (plan->backend != NULL && strcmp(plan->backend, backend) != 0) ||
                 (plan->threads > 0 && plan->threads != threads) || algorithms > 0 || layouts > 0 ||
                 (!plan->other_sizes && peak > 0 && peak != info.predicted_peak_bytes);
    if (other) {
        snprintf(text, sizeof(text),
                 "the plan is for %s, %d threads, here are %s, %d threads: %d other algorithms, %d "
                 "other layouts; a peak of %llu bytes in the place of %llu",
                 plan->backend != NULL ? plan->backend : "another device", plan->threads, backend,
                 threads, algorithms, layouts, (unsigned long long)info.predicted_peak_bytes,
                 (unsigned long long)peak);
        train_print_note(training, text);
    }
    ull__names_destroy(names);
}

/* --- Writing --- */

static void put_plan(struct ull_json *json, const struct training *training,
                     const struct ull__session_info *info)
{
    char backend[160];
    const struct ull__plan *plan = info->chosen;
    const struct plan_runner runner = {
        .backend = plan_backend_text(ull__cpu_describe(training->backend), backend, sizeof(backend)),
        .threads = ull__cpu_threads(training->backend)};
    uint64_t outside = training->options->profile.outside_bytes;
    uint64_t budget = training->options->memory > 0 ? (uint64_t)training->options->memory : 0;
    ull__json_object(json);
    key_u64(json, "version", PLAN_FILE_VERSION);
    key_string(json, "mode", "training");
    key_string(json, "model", training->model_text);
    key_string(json, "device", training->options->profile.name);
    plan_put_training(json, &training->request, train_longest(training));
    key_bool(json, "feasible", true);
    key_u64(json, "budget_bytes",
            budget >= info->predicted_peak_bytes + outside ? budget
                                                           : info->predicted_peak_bytes + outside);
    key_u64(json, "peak_bytes", info->predicted_peak_bytes);
    key_u64(json, "outside_arena_bytes", outside);
    key_u64(json, "host_bytes", info->host_bytes);
    key_number(json, "step_seconds", plan->step_seconds);
    key_number(json, "samples_per_second", (double)training->batch / plan->step_seconds);
    key_u64(json, "batch", training->batch);
    key_u64(json, "micro_batch", (uint64_t)plan->micro_batch);
    key_u64(json, "accumulation", (uint64_t)plan->accumulation);
    key_string(json, "precision", ull__precision_text(plan->precision));
    key_u64(json, "recomputed_bytes", (uint64_t)plan->cost.dropped_bytes);
    key_u64(json, "offloaded_bytes", (uint64_t)plan->host_bytes);
    plan_put_decision(json, info->planner, info->plan);
    plan_put_pins(json, info->planner, info->plan, &runner);
    ull__json_object_end(json);
}

ull_status train_plan_write(const struct training *training, struct ull_error *err)
{
    struct ull__session_info info;
    struct ull_json json;
    if (training->options->save_plan == NULL) {
        return ULL_OK;
    }
    ull__session_info(training->session, &info);
    ull__json_init(&json, NULL);
    put_plan(&json, training, &info);
    ull_status status =
        ull__json_finish(&json)
            ? ull__file_write(training->options->save_plan, json.text, strlen(json.text), err)
            : ull__fail(err, ULL_E_NO_MEMORY, "no memory to write a plan");
    ull__json_free(&json);
    return status;
}
