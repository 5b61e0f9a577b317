/* train_print.c: what a training shows: a bar and lines for people, one object a step for scripts. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../json_keys.h"
#include "size.h"
#include "train_cmd.h"

static uint64_t last_shown; /* nanoseconds; the screen is written at most ten times a second */

const char *train_plan_words(const struct ull__plan *plan, char *text, size_t size)
{
    char bytes[ULL_SIZE_TEXT];
    snprintf(text, size, "%s, micro-batches of %lld", ull__precision_text(plan->precision),
             (long long)plan->micro_batch);
    if (plan->chunked_loss) {
        snprintf(text + strlen(text), size - strlen(text), ", loss in turns");
    }
    if (plan->cost.dropped_bytes > 0) {
        snprintf(text + strlen(text), size - strlen(text), ", %s recomputed",
                 ull__size_text((uint64_t)plan->cost.dropped_bytes, bytes));
    }
    if (plan->cost.sent_bytes > 0) {
        snprintf(text + strlen(text), size - strlen(text), ", %s of activations offloaded",
                 ull__size_text((uint64_t)plan->cost.sent_bytes, bytes));
    }
    if (plan->offload_optimizer) {
        snprintf(text + strlen(text), size - strlen(text), ", optimizer state offloaded");
    }
    return text;
}

static bool is_screen(const struct training *training)
{
    return training->options->output == TRAIN_TEXT && isatty(STDOUT_FILENO);
}

static void clear_line(const struct training *training)
{
    if (is_screen(training)) {
        printf("\r\033[K");
    }
}

/* "; documents of up to 64, 128, 256 tokens, micro-batches of 32, 32, 16" */
static void print_lengths(const struct training *training, const struct ull__session_info *info)
{
    if (!ull__data_info(training->data)->documents) {
        return;
    }
    printf("; documents of up to ");
    for (int i = 0; i < info->bucket_count; ++i) {
        printf("%s%lld", i > 0 ? ", " : "", (long long)info->buckets[i].length);
    }
    printf(" tokens, micro-batches of ");
    for (int i = 0; i < info->bucket_count; ++i) {
        printf("%s%lld", i > 0 ? ", " : "", (long long)info->buckets[i].chosen->micro_batch);
    }
}

void train_print_begin(const struct training *training)
{
    struct ull__session_info info;
    char words[256], peak[ULL_SIZE_TEXT], budget[ULL_SIZE_TEXT], host[ULL_SIZE_TEXT];
    if (training->options->output != TRAIN_TEXT) {
        return;
    }
    ull__session_info(training->session, &info);
    printf("%s on %s, %s\n", training->model_text, training->options->data,
           ull__cpu_describe(training->backend));
    printf("plan: %s; %s of %s", train_plan_words(info.chosen, words, sizeof(words)),
           ull__size_text_up(info.predicted_peak_bytes, peak),
           ull__size_text((uint64_t)training->options->memory, budget));
    if (training->options->world != NULL) {
        printf(" on each of %d devices", ull__world_ranks(training->options->world));
    }
    if (info.host_bytes > 0) {
        printf(", %s in the host's memory", ull__size_text_up(info.host_bytes, host));
    }
    print_lengths(training, &info);
    printf("; %llu steps of %llu samples, %.3g s each predicted%s\n",
           (unsigned long long)training->total_steps, (unsigned long long)training->batch,
           info.chosen->step_seconds, info.bucket_count > 1 ? " at most" : "");
    fflush(stdout);
}

static void print_object(const struct training *training, const struct ull__step_result *result)
{
    struct ull_json json;
    ull__json_init(&json, stdout);
    json.compact = true;
    ull__json_object(&json);
    key_u64(&json, "step", training->seen);
    key_number(&json, "epoch", (double)training->position / (double)training->samples);
    key_number(&json, "loss", result->loss);
    key_number(&json, "samples_per_second", (double)training->batch / result->seconds);
    key_number(&json, "predicted_step_seconds", result->predicted_seconds);
    key_number(&json, "loss_scale", result->loss_scale);
    key_u64(&json, "micro_batch", (uint64_t)result->micro_batch);
    key_bool(&json, "skipped", result->skipped);
    if (ull__data_info(training->data)->tokens) {
        key_u64(&json, "length", (uint64_t)result->length);
        key_number(&json, "tokens_per_second", (double)result->targets / result->seconds);
    }
    ull__json_object_end(&json);
    ull__json_finish(&json);
    ull__json_free(&json);
    fflush(stdout);
}

static void print_time(double seconds, char text[32])
{
    if (seconds < 100) {
        snprintf(text, 32, "%.0f s", seconds);
    } else if (seconds < 6000) {
        snprintf(text, 32, "%.0f min", seconds / 60);
    } else {
        snprintf(text, 32, "%.1f h", seconds / 3600);
    }
}

static void print_bar(const struct training *training, const struct ull__step_result *result)
{
    struct ull__session_info info;
    char peak[ULL_SIZE_TEXT], left[32], bar[21] = "";
    double share = (double)training->seen / (double)training->total_steps;
    ull__session_info(training->session, &info);
    /* What was learned does not jump with every step; where lengths differ nothing is known of those to come. */
    double each = info.bucket_count > 1 ? result->seconds : info.buckets[0].predicted_seconds;
    for (int i = 0; i < 20; ++i) {
        bar[i] = i < (int)(share * 20) ? '#' : '.';
    }
    print_time(each * (double)(training->total_steps - training->seen), left);
    printf("%s[%s] %llu/%llu  loss %.4f", is_screen(training) ? "\r\033[K" : "", bar,
           (unsigned long long)training->seen, (unsigned long long)training->total_steps,
           result->loss);
    if (!isnan(training->accuracy)) {
        printf("  acc %.4f", training->accuracy);
    }
    printf("  %.0f/s  %s  %s left%s", (double)training->batch / result->seconds,
           ull__size_text(info.measured_peak_bytes, peak), left, is_screen(training) ? "" : "\n");
    fflush(stdout);
}

void train_print_step(const struct training *training, const struct ull__step_result *result)
{
    if (training->options->output == TRAIN_NDJSON) {
        print_object(training, result);
        return;
    }
    uint64_t now = cli_monotonic_ns(), pause = is_screen(training) ? 100000000u : 10000000000u;
    if (training->options->output == TRAIN_TEXT &&
        (now - last_shown >= pause || training->seen == training->total_steps)) {
        last_shown = now;
        print_bar(training, result);
    }
}

void train_print_eval(const struct training *training, const struct ull__evaluation *evaluation)
{
    if (training->options->output == TRAIN_TEXT) {
        clear_line(training);
        printf("epoch %.2f: loss %.4f, accuracy %.4f on %llu held out\n",
               (double)training->position / (double)training->samples, evaluation->loss,
               training->accuracy, (unsigned long long)evaluation->valid);
        fflush(stdout);
    }
}

void train_print_note(const struct training *training, const char *text)
{
    if (!train_speaks(training->options)) {
        return;
    }
    clear_line(training);
    fflush(stdout);
    cli_say("%s", text);
}

/* Of a step of the plan in force: learned, as it was planned, and the median of the last ones, null if there were none. */
static void print_times(struct ull_json *json, const struct ull__session_bucket *bucket)
{
    double measured = bucket->measured_seconds;
    key_number(json, "predicted_step_seconds", bucket->predicted_seconds);
    key_number(json, "predicted_step_seconds_at_start", bucket->planned_seconds);
    key_number(json, "measured_step_seconds", measured > 0 ? measured : NAN);
}

static void print_buckets(struct ull_json *json, const struct ull__session_info *info)
{
    char words[256];
    ull__json_key(json, "buckets");
    ull__json_array(json);
    for (int i = 0; i < info->bucket_count; ++i) {
        const struct ull__session_bucket *bucket = &info->buckets[i];
        ull__json_object(json);
        key_u64(json, "length", (uint64_t)bucket->length);
        key_u64(json, "micro_batch", (uint64_t)bucket->chosen->micro_batch);
        key_u64(json, "step_bytes", bucket->step_bytes);
        print_times(json, bucket);
        key_string(json, "plan", train_plan_words(bucket->chosen, words, sizeof(words)));
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

static void print_ranks(struct ull_json *json, const struct training *training)
{
    ull__json_key(json, "ranks");
    ull__json_array(json);
    for (int i = 0; i < ull__world_ranks(training->options->world); ++i) {
        ull__json_object(json);
        key_u64(json, "predicted_peak_bytes", training->ranks[i].predicted_peak_bytes);
        key_u64(json, "measured_peak_bytes", training->ranks[i].measured_peak_bytes);
        key_u64(json, "outside_arena_bytes", training->ranks[i].outside_bytes);
        ull__json_object_end(json);
    }
    ull__json_array_end(json);
}

static void print_end_object(const struct training *training, const char *stopped, bool compact)
{
    struct ull__session_info info;
    struct ull_json json;
    char words[256];
    ull__session_info(training->session, &info);
    ull__json_init(&json, stdout);
    json.compact = compact;
    ull__json_object(&json);
    key_string(&json, "event", "end");
    key_string(&json, "model", training->model_text);
    key_u64(&json, "steps", training->seen);
    key_u64(&json, "skipped_steps", training->skipped);
    key_u64(&json, "predicted_peak_bytes", info.predicted_peak_bytes);
    key_u64(&json, "measured_peak_bytes", info.measured_peak_bytes);
    key_u64(&json, "expected_peak_bytes", info.expected_peak_bytes);
    key_u64(&json, "host_bytes", info.host_bytes);
    key_u64(&json, "outside_arena_bytes", training->outside_bytes);
    key_number(&json, "accuracy", training->accuracy);
    key_number(&json, "eval_loss", training->eval_loss);
    key_number(&json, "seconds", training->seconds);
    print_times(&json, &info.buckets[info.bucket_count - 1]);
    key_string(&json, "plan", train_plan_words(info.chosen, words, sizeof(words)));
    key_u64(&json, "micro_batch", (uint64_t)info.chosen->micro_batch);
    key_string(&json, "precision", ull__precision_text(info.chosen->precision));
    if (ull__data_info(training->data)->documents) {
        print_buckets(&json, &info);
    }
    key_u64(&json, "plan_switches", training->switch_count);
    key_u64(&json, "broken_samples", training->broken);
    key_string(&json, "stopped", stopped);
    if (training->options->world != NULL) {
        print_ranks(&json, training);
    }
    ull__json_object_end(&json);
    ull__json_finish(&json);
    ull__json_free(&json);
}

bool train_print_end(const struct training *training, const char *stopped)
{
    struct ull__session_info info;
    char measured[ULL_SIZE_TEXT], took[32];
    ull__session_info(training->session, &info);
    if (training->options->output != TRAIN_TEXT) {
        print_end_object(training, stopped, training->options->output == TRAIN_NDJSON);
        return fflush(stdout) == 0 && !ferror(stdout);
    }
    clear_line(training);
    const struct ull__session_bucket *last = &info.buckets[info.bucket_count - 1];
    print_time(training->seconds, took);
    printf("%llu steps in %s, %.0f samples a second", (unsigned long long)training->seen, took,
           (double)training->position / training->seconds);
    if (!isnan(training->accuracy)) {
        printf("; accuracy %.4f, loss %.4f", training->accuracy, training->eval_loss);
    }
    printf("\nmemory: %s at the peak, %s what was predicted",
           ull__size_text(info.measured_peak_bytes, measured),
           info.measured_peak_bytes == info.expected_peak_bytes ? "exactly" : "not");
    if (last->measured_seconds > 0) {
        printf("\ntime: %.3g s a step%s, %.3g predicted by what was learned, %.3g at the start",
               last->measured_seconds, info.bucket_count > 1 ? " of the longest" : "",
               last->predicted_seconds, last->planned_seconds);
    }
    if (training->skipped > 0) {
        printf("; %llu steps skipped", (unsigned long long)training->skipped);
    }
    printf("%s%s\n", stopped != NULL ? "; stopped by " : "", stopped != NULL ? stopped : "");
    return fflush(stdout) == 0 && !ferror(stdout);
}
