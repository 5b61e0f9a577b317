/* train_options.c: what `ullage train` is asked. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../plan/profiles.h"
#include "error.h"
#include "file.h"
#include "host_memory.h"
#include "size.h"
#include "train_plan.h"

static void print_help(void)
{
    printf(
        "Usage: ullage train MODEL --data PATH [--memory SIZE] [OPTION...]\n"
        "\n"
        "Trains a model within a memory budget, on the processor: picks precision, micro-batch,\n"
        "recomputation and offload as `ullage plan` does, and runs them. The batch, and so the\n"
        "training, is the same whatever the budget.\n"
        "\n"
        "MODEL is a name with arguments or a file of ONNX (see `ullage plan --help`); sizes that\n"
        "are not given are those of the data. PATH is a folder of IDX files or of pictures in one\n"
        "folder a class, text, or tokens; `,format=...` and other options may follow.\n"
        "\n"
        "  -m, --memory SIZE      the budget, as 512MiB (default: half of the machine's memory);\n"
        "                         auto: what is free, as that changes\n"
        "  -b, --batch N          samples a step (default 128 pictures, 32 sequences)\n"
        "  -e, --epochs E         times through the data (default 1)\n"
        "  --max-steps S          stop after so many steps\n"
        "  --lr X                 learning rate (default: 0.1 for 128 samples and sgd,\n"
        "                         0.001 for adam)\n"
        "  --schedule NAME        cosine (default), linear or constant\n"
        "  --warmup SHARE         of the steps, at the beginning (default 0.05)\n"
        "  --optimizer NAME       sgd, adam or adamw (default: sgd for pictures, else adamw)\n"
        "  --momentum X, --weight-decay X, --clip NORM\n"
        "                         (defaults 0.9; 0.0005 or 0.1; none, or 1 for sequences)\n"
        "  --precision NAME       auto (default), fp32, bf16 or fp16\n"
        "  --loss-scale X         the first one of fp16 (default 65536)\n"
        "  --bn-group N           samples that share the statistics of batch norm (default: up\n"
        "                         to 32 of the batch); no plan changes it\n"
        "  --min-batch N, --max-batch N\n"
        "                         bounds of a micro-batch when the budget changes\n"
        "  --buckets N,N,...      documents (documents= in the data's options) are filled up to "
        "the\n"
        "                         next of these lengths, each of which has a plan (default: up to "
        "4\n"
        "                         by how long the documents are); longer ones are cut into pieces\n"
        "  --max-accumulation N   micro-steps of a step at most\n"
        "  --recompute-min SIZE   smaller tensors are kept\n"
        "  --host-memory SIZE     second region for what is sent there (default 0: none)\n"
        "  --devices N            over N processes on this machine, each with --memory and its\n"
        "                         share of the batch; --parallel data (default) is how\n"
        "  --plan FILE            run this plan, a file of `ullage plan -o json` or --save-plan\n"
        "  --save-plan FILE       write the plan that is run\n"
        "  --save DIR             save there each epoch, and at the end\n"
        "  --save-every N         each N steps\n"
        "  --resume               go on from the newest save in DIR, if there is one\n"
        "  --eval-every E         evaluate each E epochs (default 1; 0: at the end)\n"
        "  --eval-samples N       evaluate on so many samples (default: all)\n"
        "  --ablation             train with each technique alone and together, and compare\n"
        "  --no-augment           pictures as they are\n"
        "  --threads N            (default: all processors)\n"
        "  --seed N               of weights, order and dropout (default 1)\n"
        "  --html FILE            a page of loss, memory and plan\n"
        "  --trace FILE           what ran when on which queue, for the Perfetto UI\n"
        "  -o text|json|ndjson    form of the output (default text)\n"
        "  -h, --help             this text\n"
        "\n"
        "SIGTERM and SIGINT end the run after the step at hand, and save. Exit code: 0 trained,\n"
        "1 failed (bad data, nothing fits, a loss that is no number), 2 usage.\n");
}

enum {
    OPTION_DATA = 256,
    OPTION_STEPS,
    OPTION_LR,
    OPTION_SCHEDULE,
    OPTION_WARMUP,
    OPTION_OPTIMIZER,
    OPTION_MOMENTUM,
    OPTION_DECAY,
    OPTION_CLIP,
    OPTION_PRECISION,
    OPTION_SCALE,
    OPTION_BN_GROUP,
    OPTION_LEAST,
    OPTION_MOST,
    OPTION_BUCKETS,
    OPTION_ACCUMULATION,
    OPTION_HOST,
    OPTION_RECOMPUTE_MIN,
    OPTION_PLAN,
    OPTION_SAVE_PLAN,
    OPTION_SAVE,
    OPTION_SAVE_EVERY,
    OPTION_RESUME,
    OPTION_EVAL_EVERY,
    OPTION_EVAL_SAMPLES,
    OPTION_ABLATION,
    OPTION_NO_AUGMENT,
    OPTION_THREADS,
    OPTION_SEED,
    OPTION_HTML,
    OPTION_TRACE,
    OPTION_DEVICES,
    OPTION_PARALLEL,
};

static const struct option long_options[] = {
    {"data", required_argument, NULL, OPTION_DATA},
    {"memory", required_argument, NULL, 'm'},
    {"batch", required_argument, NULL, 'b'},
    {"epochs", required_argument, NULL, 'e'},
    {"max-steps", required_argument, NULL, OPTION_STEPS},
    {"lr", required_argument, NULL, OPTION_LR},
    {"schedule", required_argument, NULL, OPTION_SCHEDULE},
    {"warmup", required_argument, NULL, OPTION_WARMUP},
    {"optimizer", required_argument, NULL, OPTION_OPTIMIZER},
    {"momentum", required_argument, NULL, OPTION_MOMENTUM},
    {"weight-decay", required_argument, NULL, OPTION_DECAY},
    {"clip", required_argument, NULL, OPTION_CLIP},
    {"precision", required_argument, NULL, OPTION_PRECISION},
    {"loss-scale", required_argument, NULL, OPTION_SCALE},
    {"bn-group", required_argument, NULL, OPTION_BN_GROUP},
    {"min-batch", required_argument, NULL, OPTION_LEAST},
    {"max-batch", required_argument, NULL, OPTION_MOST},
    {"buckets", required_argument, NULL, OPTION_BUCKETS},
    {"max-accumulation", required_argument, NULL, OPTION_ACCUMULATION},
    {"host-memory", required_argument, NULL, OPTION_HOST},
    {"recompute-min", required_argument, NULL, OPTION_RECOMPUTE_MIN},
    {"plan", required_argument, NULL, OPTION_PLAN},
    {"save-plan", required_argument, NULL, OPTION_SAVE_PLAN},
    {"save", required_argument, NULL, OPTION_SAVE},
    {"save-every", required_argument, NULL, OPTION_SAVE_EVERY},
    {"resume", no_argument, NULL, OPTION_RESUME},
    {"eval-every", required_argument, NULL, OPTION_EVAL_EVERY},
    {"eval-samples", required_argument, NULL, OPTION_EVAL_SAMPLES},
    {"ablation", no_argument, NULL, OPTION_ABLATION},
    {"no-augment", no_argument, NULL, OPTION_NO_AUGMENT},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"trace", required_argument, NULL, OPTION_TRACE},
    {"html", required_argument, NULL, OPTION_HTML},
    {"devices", required_argument, NULL, OPTION_DEVICES},
    {"parallel", required_argument, NULL, OPTION_PARALLEL},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Options with a whole number, and its bounds. */
static int64_t *whole_number(int option, struct train_options *options, int64_t *least, int64_t *most)
{
    *least = 1;
    *most = INT64_C(1) << 32;
    switch (option) {
    case 'b':
        return &options->request.batch;
    case OPTION_STEPS:
        return &options->max_steps;
    case OPTION_BN_GROUP:
        return &options->request.bn_group;
    case OPTION_LEAST:
        return &options->min_batch;
    case OPTION_MOST:
        return &options->max_batch;
    case OPTION_ACCUMULATION:
        return &options->request.max_accumulation;
    case OPTION_SAVE_EVERY:
        return &options->save_every;
    case OPTION_EVAL_SAMPLES:
        return &options->eval_samples;
    default:
        return NULL;
    }
}

static double *real_number(int option, struct train_options *options, double *most)
{
    *most = 1e30;
    switch (option) {
    case 'e':
        *most = 1e6;
        return &options->epochs;
    case OPTION_LR:
        *most = 1000;
        return &options->learning_rate;
    case OPTION_WARMUP:
        *most = 1;
        return &options->warmup;
    case OPTION_MOMENTUM:
        *most = 0.999999;
        return &options->request.attrs.momentum;
    case OPTION_DECAY:
        *most = 10;
        options->decay_given = true;
        return &options->request.attrs.weight_decay;
    case OPTION_CLIP:
        options->clip_given = true;
        return &options->request.attrs.limit;
    case OPTION_SCALE:
        return &options->loss_scale;
    case OPTION_EVAL_EVERY:
        *most = 1e6;
        return &options->eval_every;
    default:
        return NULL;
    }
}

static const char *name_of(int option)
{
    for (int i = 0; long_options[i].name != NULL; ++i) {
        if (long_options[i].val == option) {
            return long_options[i].name;
        }
    }
    return "";
}

/* Returns an exit code, or -1. */
static int take_number(int option, const char *text, struct train_options *options)
{
    int64_t least, most;
    double largest;
    char *end;
    int64_t *whole = whole_number(option, options, &least, &most);
    double *real = real_number(option, options, &largest);
    if (whole != NULL) {
        long long value = strtoll(text, &end, 10);
        if (end == text || *end != '\0' || value < least || value > most) {
            return cli_usage_error("train",
                                   "--%s is '%.40s': expected a whole number from %lld to %lld",
                                   name_of(option), text, (long long)least, (long long)most);
        }
        *whole = value;
        return -1;
    }
    if (real == NULL) {
        return -1;
    }
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0 && value <= largest)) {
        return cli_usage_error("train", "--%s is '%.40s': expected a number from 0 to %g",
                               name_of(option), text, largest);
    }
    *real = value;
    return -1;
}

static int take_count(const char *name, const char *text, int most, int *value)
{
    char *end;
    long long read = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || read < 1 || read > most) {
        return cli_usage_error("train", "--%s is '%.40s': expected 1 to %d", name, text, most);
    }
    *value = (int)read;
    return -1;
}

static int choice(const char *text, const char *const *names)
{
    for (int i = 0; names[i] != NULL; ++i) {
        if (strcmp(text, names[i]) == 0) {
            return i;
        }
    }
    return -1;
}

static int take_name(int option, const char *text, struct train_options *options)
{
    static const char *const schedules[] = {"cosine", "linear", "constant", NULL};
    static const char *const outputs[] = {"text", "json", "ndjson", NULL};
    int found;
    switch (option) {
    case OPTION_OPTIMIZER:
        if (!plan_optimizer_parse(text, &options->request.optimizer)) {
            return cli_usage_error("train", "--optimizer is '%.40s': expected sgd, adam or adamw",
                                   text);
        }
        options->optimizer_given = true;
        return -1;
    case OPTION_SCHEDULE:
        found = choice(text, schedules);
        if (found < 0) {
            return cli_usage_error(
                "train", "--schedule is '%.40s': expected cosine, linear or constant", text);
        }
        options->schedule = (enum train_schedule)found;
        return -1;
    case OPTION_PRECISION:
        return ull__precision_parse(text, &options->request.precision)
                   ? -1
                   : cli_usage_error(
                         "train", "--precision is '%.40s': expected auto, fp32, bf16 or fp16", text);
    default:
        found = choice(text, outputs);
        if (found < 0) {
            return cli_usage_error("train", "-o is '%.40s': expected text, json or ndjson", text);
        }
        options->output = (enum train_output)found;
        return -1;
    }
}

static int take_size(const char *name, const char *text, int64_t *bytes)
{
    struct ull_size size;
    struct ull_error err;
    if (strcmp(name, "host-memory") == 0 && strcmp(text, "0") == 0) {
        *bytes = 0;
        return -1;
    }
    if (ull__size_or_share_parse(text, &size, &err) != ULL_OK) {
        return cli_usage_error("train", "--%s: %s", name, err.message);
    }
    double machine = (double)ull__host_memory_total();
    *bytes = size.percent > 0 ? (int64_t)(machine * size.percent / 100) : (int64_t)size.bytes;
    return -1;
}

/* "64,128,256" */
static int take_lengths(const char *text, struct train_options *options)
{
    const char *at = text;
    int64_t before = 1;
    options->length_count = 0;
    for (;; ++at) {
        char *end;
        long long length = strtoll(at, &end, 10);
        bool fine =
            end != at && (*end == ',' || *end == '\0') && length > before && length <= 1 << 24;
        if (!fine || options->length_count == ULL_SESSION_BUCKETS) {
            return cli_usage_error("train",
                                   "--buckets is '%.100s': expected up to %d ascending numbers of "
                                   "tokens above 1, as 64,128,256",
                                   text, ULL_SESSION_BUCKETS);
        }
        options->lengths[options->length_count++] = before = length;
        if (*end == '\0') {
            return -1;
        }
        at = end;
    }
}

static int take_other(int option, const char *text, struct train_options *options)
{
    char *end;
    switch (option) {
    case 'm':
        options->memory_given = true;
        options->automatic = strcmp(text, "auto") == 0;
        options->memory = options->automatic ? (int64_t)(0.8 * (double)ull__host_memory_left(0)) : 0;
        return options->automatic ? -1 : take_size("memory", text, &options->memory);
    case OPTION_HOST:
        options->host_given = true;
        return take_size("host-memory", text, &options->request.host_bytes);
    case OPTION_RECOMPUTE_MIN:
        return take_size("recompute-min", text, &options->request.recompute_min);
    case OPTION_BUCKETS:
        return take_lengths(text, options);
    case OPTION_DATA:
        options->data = text;
        return -1;
    case OPTION_PLAN:
        options->plan = text;
        return -1;
    case OPTION_SAVE_PLAN:
        options->save_plan = text;
        return -1;
    case OPTION_SAVE:
        options->save = text;
        return -1;
    case OPTION_TRACE:
        options->trace = text;
        return -1;
    case OPTION_HTML:
        options->html = text;
        return -1;
    case OPTION_RESUME:
        options->resume = true;
        return -1;
    case OPTION_ABLATION:
        options->ablation = true;
        return -1;
    case OPTION_NO_AUGMENT:
        options->augment = false;
        return -1;
    case OPTION_THREADS:
        return take_count("threads", text, 64, &options->threads);
    case OPTION_DEVICES:
        return take_count("devices", text, ULL_WORLD_RANKS, &options->request.devices);
    case OPTION_PARALLEL:
        return strcmp(text, "data") == 0
                   ? -1
                   : cli_usage_error(
                         "train",
                         "--parallel is '%.40s': expected data; layers over devices are "
                         "planned only (ullage plan)",
                         text);
    case OPTION_SEED:
        errno = 0;
        options->seed = strtoull(text, &end, 10);
        return isdigit((unsigned char)text[0]) && *end == '\0' && errno == 0
                   ? -1
                   : cli_usage_error("train", "--seed is '%.40s': expected a whole number", text);
    default:
        return -2;
    }
}

/* What is written at the end can be: else hours would be over before that is told. */
static ull_status check_files(const struct train_options *options, struct ull_error *err)
{
    const char *const files[] = {options->save_plan, options->html, options->trace};
    ull_status status = ULL_OK;
    for (int i = 0; i < 3 && status == ULL_OK; ++i) {
        status = files[i] != NULL ? ull__file_check(files[i], err) : ULL_OK;
    }
    return status;
}

static int check(struct train_options *options)
{
    if (options->data == NULL) {
        return cli_usage_error("train", "--data is missing: name a folder or file of samples");
    }
    if (options->resume && options->save == NULL) {
        return cli_usage_error("train", "--resume needs --save DIR: from where to go on");
    }
    if (options->min_batch > 0 && options->max_batch > 0 && options->min_batch > options->max_batch) {
        return cli_usage_error("train", "--min-batch %lld is above --max-batch %lld",
                               (long long)options->min_batch, (long long)options->max_batch);
    }
    if (!(options->epochs > 0)) {
        return cli_usage_error("train", "--epochs is 0: expected more");
    }
    int devices = options->request.devices > 1 ? options->request.devices : 1;
    if (devices > 1 && (options->ablation || options->automatic || options->length_count > 1)) {
        return cli_usage_error("train", "%s is for one device: leave --devices out",
                               options->ablation    ? "--ablation"
                               : options->automatic ? "--memory auto"
                                                    : "--buckets with several lengths");
    }
    struct ull_error err;
    if (plan_profile_find("cpu", &options->profile, &err) != ULL_OK) {
        cli_say("%s", err.message);
        return EXIT_FAILED;
    }
    ull_status status = check_files(options, &err);
    if (status == ULL_OK && options->plan != NULL) {
        status = train_plan_open(options, &err);
    }
    if (status != ULL_OK) {
        cli_say("%s", err.message);
        return status == ULL_E_PERMISSION ? EXIT_PERMISSION : EXIT_FAILED;
    }
    int64_t machine = (int64_t)ull__host_memory_total();
    options->memory = options->memory > 0 ? options->memory : machine / 2 / devices;
    options->profile.memory_bytes = (uint64_t)machine;
    return -1;
}

int train_read_options(int argc, char **argv, struct train_options *options)
{
    int option;
    while ((option = getopt_long(argc, argv, "m:b:e:o:h", long_options, NULL)) != -1) {
        int code = -1;
        if (option == 'h') {
            print_help();
            return EXIT_OK;
        }
        if (option == '?' || option == ':') {
            return cli_bad_option("train", option, argv);
        }
        if (option == 'o' || option == OPTION_OPTIMIZER || option == OPTION_SCHEDULE ||
            option == OPTION_PRECISION) {
            code = take_name(option, optarg, options);
        } else if ((code = take_other(option, optarg, options)) == -2) {
            code = take_number(option, optarg, options);
        }
        if (code >= 0) {
            return code;
        }
    }
    if (optind == argc) {
        return cli_usage_error("train", "no model: expected a name such as resnet20");
    }
    if (optind + 1 < argc) {
        return cli_usage_error("train", "unexpected argument '%.100s': one model at a time",
                               argv[optind + 1]);
    }
    options->model = argv[optind];
    return check(options);
}
