/*
 * cmd_eval.c: `ullage eval SAVE --data PATH`: how good a saved model is, and what text it writes.
 *
 * Works in f32, from the f32 weights that every save has, whatever precision the training had.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../json_keys.h"
#include "../plan/model.h"
#include "../plan/profiles.h"
#include "error.h"
#include "host_memory.h"
#include "random.h"
#include "size.h"
#include "train_cmd.h"

struct eval_options {
    const char *save, *data, *prompt;
    int64_t samples, generate, memory, batch;
    double temperature;
    uint64_t seed;
    int threads;
    bool json;
};

static void print_help(void)
{
    printf("Usage: ullage eval SAVE --data PATH [OPTION...]\n"
           "\n"
           "Evaluates what `ullage train --save SAVE` saved, on the part of the data that is held\n"
           "out. SAVE is the folder (its newest save is taken) or one save in it.\n"
           "\n"
           "  --data PATH            as for `ullage train`\n"
           "  --samples N            of the held-out part (default: all)\n"
           "  --generate N           write N characters that the model makes up, instead\n"
           "  --prompt TEXT          what these begin with (default: a line's end)\n"
           "  --temperature X        0: the likeliest each time (default 0.8)\n"
           "  --seed N               of what is made up (default 1)\n"
           "  -b, --batch N          samples at once at most (default 64)\n"
           "  -m, --memory SIZE      the budget (default: half of the machine's memory)\n"
           "  --threads N            (default: all processors)\n"
           "  -o text|json           form of the output (default text)\n"
           "  -h, --help             this text\n");
}

enum {
    OPTION_DATA = 256,
    OPTION_SAMPLES,
    OPTION_GENERATE,
    OPTION_PROMPT,
    OPTION_TEMPERATURE,
    OPTION_SEED,
    OPTION_THREADS,
};

static const struct option long_options[] = {
    {"data", required_argument, NULL, OPTION_DATA},
    {"samples", required_argument, NULL, OPTION_SAMPLES},
    {"generate", required_argument, NULL, OPTION_GENERATE},
    {"prompt", required_argument, NULL, OPTION_PROMPT},
    {"temperature", required_argument, NULL, OPTION_TEMPERATURE},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"batch", required_argument, NULL, 'b'},
    {"memory", required_argument, NULL, 'm'},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int take_number(const char *name, const char *text, int64_t most, int64_t *value)
{
    char *end;
    long long read = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || read < 1 || read > most) {
        return cli_usage_error("eval", "--%s is '%.40s': expected a whole number from 1 to %lld",
                               name, text, (long long)most);
    }
    *value = read;
    return -1;
}

static int take(int option, const char *text, struct eval_options *options)
{
    int64_t value = 0;
    uint64_t bytes;
    struct ull_error err;
    char *end;
    int code = -1;
    switch (option) {
    case OPTION_DATA:
        options->data = text;
        return -1;
    case OPTION_PROMPT:
        options->prompt = text;
        return -1;
    case OPTION_SAMPLES:
        return take_number("samples", text, INT64_C(1) << 40, &options->samples);
    case OPTION_GENERATE:
        return take_number("generate", text, 1 << 24, &options->generate);
    case 'b':
        return take_number("batch", text, 1 << 20, &options->batch);
    case OPTION_SEED:
        code = take_number("seed", text, INT64_MAX, &value);
        options->seed = (uint64_t)value;
        return code;
    case OPTION_THREADS:
        code = take_number("threads", text, 64, &value);
        options->threads = (int)value;
        return code;
    case OPTION_TEMPERATURE:
        options->temperature = strtod(text, &end);
        return end != text && *end == '\0' && options->temperature >= 0
                   ? -1
                   : cli_usage_error("eval", "--temperature is '%.40s': expected 0 or more", text);
    case 'm':
        if (ull__size_parse(text, &bytes, &err) != ULL_OK) {
            return cli_usage_error("eval", "--memory: %s", err.message);
        }
        options->memory = (int64_t)bytes;
        return -1;
    default:
        options->json = strcmp(text, "json") == 0;
        return options->json || strcmp(text, "text") == 0
                   ? -1
                   : cli_usage_error("eval", "-o is '%.40s': expected text or json", text);
    }
}

static int read_options(int argc, char **argv, struct eval_options *options)
{
    int option;
    while ((option = getopt_long(argc, argv, "m:b:o:h", long_options, NULL)) != -1) {
        if (option == 'h') {
            print_help();
            return EXIT_OK;
        }
        int code = option == '?' || option == ':' ? cli_bad_option("eval", option, argv)
                                                  : take(option, optarg, options);
        if (code >= 0) {
            return code;
        }
    }
    if (optind + 1 != argc) {
        return cli_usage_error("eval", "%s: expected the folder of a save",
                               optind == argc ? "no save" : "more than one save");
    }
    options->save = argv[optind];
    return options->data != NULL
               ? -1
               : cli_usage_error("eval", "--data is missing: name a folder or file");
}

/* --- Evaluating --- */

struct evaluating {
    struct ull__data *data;
    struct ull__reader *reader;
    struct ull__backend *backend;
    struct train_models models;
    struct ull__session *session;
    struct ull__profile profile;
    struct ull__saved saved;
    bool loaded;
};

static void warn(void *context, const char *message)
{
    (void)context;
    cli_say("%s", message);
}

static ull_status open_session(const struct eval_options *options, struct evaluating *e,
                               struct ull_error *err)
{
    struct ull__session_options session = {.model = e->models.graphs[e->models.count - 1],
                                           .shorter =
                                               (const struct ull__graph *const *)e->models.graphs,
                                           .shorter_count = e->models.count - 1,
                                           .backend = e->backend,
                                           .plan = {.profile = &e->profile,
                                                    .batch = options->batch,
                                                    .bn_group = 1,
                                                    .precision = ULL_PRECISION_F32,
                                                    .optimizer = ULL_OPTIMIZER_SGD},
                                           .budget_bytes = (uint64_t)options->memory};
    return ull__session_create(&session, &e->session, err);
}

/* What is made up may be as long as the model takes. */
static ull_status build_models(const struct eval_options *options, struct evaluating *e,
                               struct ull_error *err)
{
    if (options->generate == 0) {
        return train_models_build(e->saved.state.model, e->data, ULL_DATA_EVAL, NULL, 0, &e->models,
                                  err);
    }
    e->models.count = 1;
    return model_build(e->saved.state.model, true, &e->models.graphs[0], err);
}

static ull_status open_all(const struct eval_options *options, struct evaluating *e,
                           struct ull_error *err)
{
    char model[512];
    ull_status status = ull__save_load(options->save, warn, NULL, &e->saved, err);
    if (status != ULL_OK) {
        return status;
    }
    e->loaded = true;
    status = train_open_data(e->saved.state.model, options->data, e->saved.state.data,
                             e->saved.state.seed, 0, model, &e->data, err);
    if (status == ULL_OK) {
        status = build_models(options, e, err);
    }
    if (status == ULL_OK) {
        status = plan_profile_find("cpu", &e->profile, err);
    }
    if (status == ULL_OK) {
        status = ull__cpu_create(&(struct ull__cpu_options){.threads = options->threads},
                                 &e->backend, err);
    }
    if (status == ULL_OK) {
        status = open_session(options, e, err);
    }
    if (status == ULL_OK && train_model_identity(e->session) != e->saved.state.model_identity) {
        status = ull__fail(err, ULL_E_INVALID, "'%s' has other weights than model '%s'",
                           e->saved.folder, e->saved.state.model);
    }
    return status == ULL_OK ? train_load_model(e->session, &e->saved, err) : status;
}

static void close_all(struct evaluating *e)
{
    ull__session_destroy(e->session);
    ull__reader_destroy(e->reader);
    ull__data_close(e->data);
    train_models_finish(&e->models);
    if (e->backend != NULL) {
        e->backend->ops->destroy(e->backend);
    }
    if (e->loaded) {
        ull__saved_close(&e->saved);
    }
}

static uint64_t valid(void *context, int64_t first, int64_t count)
{
    const struct evaluating *e = context;
    return ull__data_valid(e->reader, (uint64_t)first, (size_t)count);
}

static int64_t length(void *context, int64_t first, int64_t count)
{
    const struct evaluating *e = context;
    return ull__data_longest(e->reader, (uint64_t)first, (size_t)count);
}

static ull_status read_samples(void *context, int64_t first, int64_t count, void *x,
                               int32_t *targets, struct ull_error *err)
{
    const struct evaluating *e = context;
    return ull__data_batch(e->reader, (uint64_t)first, (size_t)count, x, targets, err);
}

static ull_status evaluate(const struct eval_options *options, struct evaluating *e,
                           struct ull_error *err)
{
    const struct ull__data_info *info = ull__data_info(e->data);
    struct ull__source source = {e, valid, length, read_samples};
    struct ull__evaluation result;
    uint64_t count = info->samples[ULL_DATA_EVAL];
    if (count == 0) {
        return ull__fail(err, ULL_E_INVALID, "'%s' has no part that is held out: see docs/data.md",
                         options->data);
    }
    count = options->samples > 0 && (uint64_t)options->samples < count ? (uint64_t)options->samples
                                                                       : count;
    struct ull__reader_options reading = {.part = ULL_DATA_EVAL,
                                          .batch = (uint64_t)options->batch,
                                          .most = count,
                                          .threads = 1,
                                          .buffer_bytes = 8 << 20,
                                          .warn = warn};
    ull_status status = ull__reader_create(e->data, &reading, &e->reader, err);
    if (status == ULL_OK) {
        status = ull__session_evaluate(e->session, &source, (int64_t)count, NULL, &result, err);
    }
    if (status != ULL_OK) {
        return status;
    }
    double accuracy = result.valid > 0 ? (double)result.right / (double)result.valid : NAN;
    if (!options->json) {
        printf("%s: accuracy %.4f, loss %.4f on %llu samples\n", e->saved.state.model, accuracy,
               result.loss, (unsigned long long)count);
        return ULL_OK;
    }
    struct ull_json json;
    ull__json_init(&json, stdout);
    ull__json_object(&json);
    key_string(&json, "model", e->saved.state.model);
    key_u64(&json, "step", e->saved.state.step);
    key_number(&json, "accuracy", accuracy);
    key_number(&json, "loss", result.loss);
    key_u64(&json, "samples", count);
    key_u64(&json, "targets", result.valid);
    ull__json_object_end(&json);
    ull__json_finish(&json);
    ull__json_free(&json);
    return ULL_OK;
}

/* --- Writing text --- */

/* One of the classes by their logits: draw number `at`. */
static int32_t pick(const struct eval_options *options, const float *logits, int64_t classes,
                    uint32_t at)
{
    int32_t best = 0;
    double sum = 0, largest;
    uint32_t draws[4], counter[4] = {at, 0, 2, 0};
    for (int64_t i = 1; i < classes; ++i) {
        best = logits[i] > logits[best] ? (int32_t)i : best;
    }
    largest = (double)logits[best];
    if (options->temperature == 0) {
        return best;
    }
    for (int64_t i = 0; i < classes; ++i) {
        sum += exp(((double)logits[i] - largest) / options->temperature);
    }
    ull__philox(counter, (uint32_t[]){(uint32_t)options->seed, (uint32_t)(options->seed >> 32)},
                draws);
    double left = ((double)draws[0] + 0.5) / 4294967296.0 * sum;
    for (int64_t i = 0; i < classes; ++i) {
        left -= exp(((double)logits[i] - largest) / options->temperature);
        if (left <= 0) {
            return (int32_t)i;
        }
    }
    return best;
}

static ull_status write_text(const struct eval_options *options, struct evaluating *e,
                             struct ull_error *err)
{
    struct ull__session_info info;
    ull__session_info(e->session, &info);
    int64_t window = info.sample_elements;
    if (ull__data_info(e->data)->format != ULL_DATA_TEXT) {
        return ull__fail(err, ULL_E_INVALID, "'%s' is no text: only models of text write",
                         options->data);
    }
    int32_t *tokens = calloc((size_t)window + 1, sizeof(*tokens));
    float *logits = calloc((size_t)info.classes + 1, sizeof(*logits));
    const int64_t mark = ull__data_info(e->data)->mark;
    /* A file's model may have more classes than the text it was trained on has characters: these say nothing. */
    int64_t characters = ull__data_info(e->data)->classes;
    characters = characters < info.classes ? characters : info.classes;
    const char *prompt = options->prompt != NULL ? options->prompt : mark >= 0 ? "" : "\n";
    size_t count = 0, marks = mark >= 0; /* a document begins behind its mark */
    ull_status status = ULL_E_NO_MEMORY;
    if (tokens == NULL || logits == NULL) {
        ull__fail(err, status, "no memory to write text");
    } else {
        tokens[0] = mark >= 0 ? (int32_t)mark : 0;
        status = ull__data_encode(e->data, prompt, strlen(prompt), tokens + marks,
                                  (size_t)window - marks, &count, err);
        count += marks;
    }
    if (status == ULL_OK && count == 0) {
        status = ull__fail(err, ULL_E_INVALID, "--prompt is empty: expected some text");
    }
    if (options->prompt != NULL && status == ULL_OK) {
        printf("%s", prompt);
    }
    for (int64_t i = 0; i < options->generate && status == ULL_OK; ++i) {
        char bytes[4];
        status = ull__session_logits(e->session, tokens, (int64_t)count - 1, logits, err);
        if (status == ULL_OK) {
            int32_t next = pick(options, logits, characters, (uint32_t)i);
            fwrite(bytes, 1, ull__data_decode(e->data, next, bytes), stdout);
            fflush(stdout);
            if (next == mark) {
                count = 0;
            } else if (count == (size_t)window) {
                memmove(tokens, tokens + 1, sizeof(*tokens) * (count - 1));
                count -= 1;
            }
            tokens[count++] = next;
        }
    }
    if (status == ULL_OK) {
        printf("\n");
    }
    free(tokens);
    free(logits);
    return status;
}

int cmd_eval(int argc, char **argv)
{
    struct eval_options options = {
        .batch = 64, .temperature = 0.8, .seed = 1, .memory = (int64_t)(ull__host_memory_total() / 2)};
    int code = read_options(argc, argv, &options);
    if (code >= 0) {
        return code;
    }
    struct evaluating evaluating = {0};
    struct ull_error err = {{0}};
    ull_status status = open_all(&options, &evaluating, &err);
    if (status == ULL_OK) {
        status = options.generate > 0 ? write_text(&options, &evaluating, &err)
                                      : evaluate(&options, &evaluating, &err);
    }
    close_all(&evaluating);
    if (status != ULL_OK) {
        cli_say("%s", err.message);
        return EXIT_FAILED;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_say("the result could not be written");
        return EXIT_FAILED;
    }
    return EXIT_OK;
}
