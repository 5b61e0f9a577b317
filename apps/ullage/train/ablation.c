/*
 * ablation.c: `ullage train --ablation`: the same training plain, with each technique alone, with several, and as the planner would
 * have it in the memory of the row before.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../json_keys.h"
#include "error.h"
#include "size.h"
#include "train_cmd.h"

enum { PARTS = 4, ROWS = 7 };

struct row {
    const char *name;
    bool mixed, accumulates, recomputes, automatic;
    uint64_t predicted, measured, host;
    double rate, accuracy, loss;
    int64_t micro_batch;
    char words[256];
};

static const struct row rows_of_table[ROWS] = {
    {.name = "plain fp32"},
    {.name = "mixed precision", .mixed = true},
    {.name = "accumulation", .accumulates = true},
    {.name = "recomputation", .recomputes = true},
    {.name = "mixed, accumulation", .mixed = true, .accumulates = true},
    {.name = "mixed, accumulation, recomputation", .mixed = true, .accumulates = true, .recomputes = true},
    {.name = "automatic, same memory", .automatic = true},
};

/* The options of a row: what is not its technique is ruled out. */
static void restrict_to(const struct row *row, const struct train_options *from, uint64_t budget,
                        struct train_options *options)
{
    *options = *from;
    options->output = TRAIN_QUIET;
    options->save = NULL;
    options->eval_every = 0;
    if (row->automatic) {
        options->memory = (int64_t)budget;
        return;
    }
    enum ull__precision half =
        from->request.precision == ULL_PRECISION_F16 ? ULL_PRECISION_F16 : ULL_PRECISION_BF16;
    options->memory = INT64_MAX / 4;
    options->request.precision = row->mixed ? half : ULL_PRECISION_F32;
    options->request.max_accumulation = row->accumulates ? PARTS : 1;
    options->request.recompute_min = row->recomputes ? 0 : INT64_MAX / 4;
    options->request.host_bytes = 0;
    options->request.plain = !row->accumulates && !row->recomputes;
}

/* The smallest plan with the row's techniques and no others. */
static ull_status take_smallest(const struct row *row, struct training *training,
                                struct ull_error *err)
{
    struct ull__session_info info;
    int count;
    bool changed;
    int64_t least = INT64_MAX, micro = 0, batch = (int64_t)training->batch;
    ull__session_info(training->session, &info);
    const struct ull__plan *plans = ull__planner_plans(info.planner, &count);
    for (int i = 0; i < count; ++i) {
        bool fits = !plans[i].chunked_loss && !plans[i].offload_optimizer &&
                    (row->accumulates || plans[i].micro_batch == batch);
        int64_t peak =
            fits ? ull__planner_place((struct ull__planner *)(uintptr_t)info.planner, i) : -1;
        if (peak >= 0 && peak < least) {
            least = peak;
            micro = plans[i].micro_batch;
        }
    }
    if (least == INT64_MAX) {
        return ull__fail(err, ULL_E_INVALID, "no plan has '%s' alone for this model and batch",
                         row->name);
    }
    return ull__session_replan(training->session,
                               (uint64_t)least + training->options->profile.outside_bytes, micro,
                               micro, &changed, err);
}

static void take_figures(struct row *row, struct training *training)
{
    struct ull__session_info info;
    ull__session_info(training->session, &info);
    row->predicted = info.predicted_peak_bytes;
    row->measured = info.measured_peak_bytes;
    row->host = info.host_bytes;
    row->micro_batch = info.chosen->micro_batch;
    row->rate = (double)(training->seen * training->batch) / training->seconds;
    row->accuracy = training->accuracy;
    row->loss = training->eval_loss;
    train_plan_words(info.chosen, row->words, sizeof(row->words));
}

static ull_status run_row(struct row *row, const struct train_options *from, uint64_t budget,
                          struct ull_error *err)
{
    struct training training;
    struct train_options options;
    restrict_to(row, from, budget, &options);
    ull_status status = train_open(&options, &training, err);
    if (status == ULL_OK && (row->accumulates || row->recomputes)) {
        status = take_smallest(row, &training, err);
    }
    if (status == ULL_OK) {
        status = train_loop(&training, err);
    }
    if (status == ULL_OK) {
        take_figures(row, &training);
    }
    train_close(&training);
    return status;
}

/* --- Output --- */

static void print_row(const struct row *row, const struct row *plain)
{
    char predicted[ULL_SIZE_TEXT], measured[ULL_SIZE_TEXT];
    printf("%-36s %10s %10s  %7.1f  %5.2f  %7.4f  %+7.4f\n", row->name,
           ull__size_text(row->predicted, predicted), ull__size_text(row->measured, measured),
           row->rate, row->rate / plain->rate, row->accuracy, row->accuracy - plain->accuracy);
    printf("  %s%s\n", row->words, row->measured == row->predicted ? "" : " (peaks differ)");
    fflush(stdout);
}

static bool print_json(const struct row *rows, int count)
{
    struct ull_json json;
    ull__json_init(&json, stdout);
    ull__json_object(&json);
    ull__json_key(&json, "ablation");
    ull__json_array(&json);
    for (int i = 0; i < count; ++i) {
        ull__json_object(&json);
        key_string(&json, "name", rows[i].name);
        key_u64(&json, "predicted_peak_bytes", rows[i].predicted);
        key_u64(&json, "measured_peak_bytes", rows[i].measured);
        key_u64(&json, "host_bytes", rows[i].host);
        key_number(&json, "samples_per_second", rows[i].rate);
        key_number(&json, "of_plain", rows[i].rate / rows[0].rate);
        key_number(&json, "accuracy", rows[i].accuracy);
        key_number(&json, "accuracy_difference", rows[i].accuracy - rows[0].accuracy);
        key_number(&json, "loss", rows[i].loss);
        key_u64(&json, "micro_batch", (uint64_t)rows[i].micro_batch);
        key_string(&json, "plan", rows[i].words);
        ull__json_object_end(&json);
    }
    ull__json_array_end(&json);
    ull__json_object_end(&json);
    bool fine = ull__json_finish(&json);
    ull__json_free(&json);
    return fine;
}

int train_ablation(const struct train_options *options)
{
    struct row rows[ROWS];
    struct ull_error err;
    int done = 0;
    memcpy(rows, rows_of_table, sizeof(rows));
    if (options->output == TRAIN_TEXT) {
        printf("%-36s %10s %10s  %7s  %5s  %7s  %7s\n", "technique", "predicted", "measured",
               "samples", "of", "accu-", "differ-");
        printf("%-36s %10s %10s  %7s  %5s  %7s  %7s\n", "", "peak", "peak", "/s", "plain", "racy",
               "ence");
    }
    for (; done < ROWS && train_stop == 0; ++done) {
        uint64_t budget = done > 0 ? rows[done - 1].predicted + options->profile.outside_bytes : 0;
        if (run_row(&rows[done], options, budget, &err) != ULL_OK) {
            cli_say("%s", err.message);
            return EXIT_FAILED;
        }
        if (options->output == TRAIN_TEXT) {
            print_row(&rows[done], &rows[0]);
        }
    }
    if ((options->output != TRAIN_TEXT && !print_json(rows, done)) || fflush(stdout) != 0) {
        cli_say("the result could not be written");
        return EXIT_FAILED;
    }
    return EXIT_OK;
}
