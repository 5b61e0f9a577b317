/*
 * train_plan.c: plans that are given: by a file of `ullage plan -o json`, or by a save that is gone on from.
 *
 * What decides the bits of a training is taken as it is written: batch, micro-batch, precision, whether the loss is made in turns,
 * where the optimizer's state is. What is recomputed or sent is chosen anew, for the workspaces of this
 * backend and the budget: it changes memory and time alone.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "train_cmd.h"

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

static ull_status take(const json_t *root, const char *from, struct train_wanted *wanted,
                       struct ull_error *err)
{
    const char *precision = json_string_value(json_object_get(root, "precision"));
    const json_t *decision = json_object_get(root, "decision");
    decision = decision != NULL ? decision : root;
    wanted->micro_batch = number(root, "micro_batch");
    wanted->batch = number(root, "batch");
    wanted->chunked = flag(decision, "chunked_loss");
    wanted->offload = flag(decision, "offload_optimizer");
    wanted->drops = -1;
    take_lengths(root, wanted);
    if (wanted->micro_batch < 1 || wanted->batch < wanted->micro_batch || precision == NULL ||
        !ull__precision_parse(precision, &wanted->precision)) {
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

/* The model's name without its arguments: these are completed from the data. */
static bool same_model(const char *a, const char *b)
{
    size_t length = strcspn(a, ":");
    return length == strcspn(b, ":") && strncmp(a, b, length) == 0;
}

ull_status train_plan_file(const struct train_options *options, struct train_wanted *wanted,
                           struct ull_error *err)
{
    json_error_t where;
    json_t *root = json_load_file(options->plan, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(root)) {
        json_decref(root);
        return ull__fail(err, ULL_E_FORMAT, "'%s' is not a plan: %.200s", options->plan, where.text);
    }
    const char *model = json_string_value(json_object_get(root, "model"));
    ull_status status = take(root, options->plan, wanted, err);
    if (status == ULL_OK && (model == NULL || !same_model(model, options->model))) {
        status = ull__fail(err, ULL_E_INVALID, "'%s' is a plan for model '%.60s', not for '%.60s'",
                           options->plan, model != NULL ? model : "", options->model);
    }
    if (status == ULL_OK && options->request.batch > 0 && options->request.batch != wanted->batch) {
        status =
            ull__fail(err, ULL_E_INVALID, "'%s' is a plan for batches of %lld, --batch says %lld",
                      options->plan, (long long)wanted->batch, (long long)options->request.batch);
    }
    if (status == ULL_OK && json_is_false(json_object_get(root, "feasible"))) {
        status = ull__fail(err, ULL_E_INVALID, "'%s' is a plan that did not fit its budget",
                           options->plan);
    }
    json_decref(root);
    return status;
}
