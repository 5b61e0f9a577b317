/*
 * plan_options.c: what `ullage plan` is asked: options, the device and the budget on it.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../gpus.h"
#include "calibrate.h"
#include "error.h"
#include "plan_cmd.h"
#include "profiles.h"
#include "size.h"
#include "zoo.h"

static void print_help(void)
{
    printf(
        "Usage: ullage plan MODEL [--memory SIZE] [OPTION...]\n"
        "\n"
        "Predicts the memory of a training to the byte, and chooses the fastest way to make\n"
        "it fit into a budget; or that of an inference. Needs no GPU.\n"
        "\n"
        "MODEL is a name with arguments, as resnet50:image=512 or gpt2-124m:context=2048\n"
        "(`ullage plan --models` lists them), or a file of ONNX: model.onnx, with sizes that it\n"
        "leaves open and the loss if it has none, as model.onnx:time=128,loss=mse.\n"
        "\n"
        "  -m, --memory SIZE      the budget, as 8GiB, or 40%% of the device (default: all of it)\n"
        "  -b, --batch N          samples a step: images or sequences (default 32; 1 in\n"
        "                         inference)\n"
        "  --mode NAME            training (default) or inference\n"
        "  --optimizer NAME       adam, adamw (default) or sgd\n"
        "  --precision NAME       auto (default), fp32, bf16 or fp16\n"
        "  --device NAME          h200, a100-80g, rtx4090, v100-16g, t4, jetson-agx, cpu, or a\n"
        "                         profile of your own as FILE.json (default: the card that is\n"
        "                         here, else cpu)\n"
        "  --bn-group N           samples that share the statistics of batch norm (default: up\n"
        "                         to 32 of the batch); no plan changes it\n"
        "  --max-accumulation N   micro-steps of a step at most\n"
        "  --recompute-min SIZE   smaller tensors are kept\n"
        "  --max-workspace SIZE   of one operator\n"
        "  --host-memory SIZE     for what is sent to the host (default: the device's profile);\n"
        "                         0 for none\n"
        "  --threads N            of the processor (device cpu; default: all)\n"
        "  --clip NORM            clip gradients to this global norm\n"
        "  --devices N            over N devices\n"
        "  --parallel KIND        how: data (default: the batch is shared), model or pipeline\n"
        "                         (the layers are)\n"
        "  --weights NAME         in inference: fp32, fp16 (default), bf16, fp8 or int8\n"
        "  --context N            in inference: tokens a request keeps (default: the model's)\n"
        "  --requests N           in inference: how many at once (default: the batch)\n"
        "  --ladder               the budgets at which the plan changes\n"
        "  --calibrate FILE       measures this machine's processor, writes its profile (- is\n"
        "                         standard output), and plans MODEL, if there is one, for it\n"
        "  --models, --list-devices\n"
        "                         list what can be named\n"
        "  -o table|json          form of the result (default table)\n"
        "  --offsets FILE         places buffers with lifetimes instead: see\n"
        "                         ullage plan --offsets FILE --help\n"
        "  -h, --help             this text\n"
        "\n"
        "Exit code: 0 it fits, 1 it does not (or a bad file), 2 usage.\n");
}

static void list_models(void)
{
    for (int i = 0; ull__zoo[i].name != NULL; ++i) {
        printf("%-12s %s\n%-12s   %s\n", ull__zoo[i].name, ull__zoo[i].what, "",
               ull__zoo[i].arguments);
    }
}

static int list_devices(void)
{
    for (int i = 0; plan_profile_text(i) != NULL; ++i) {
        struct ull__profile profile;
        struct ull_error err;
        char size[ULL_SIZE_TEXT];
        if (plan_profile_read(plan_profile_text(i), "built in", &profile, &err) != ULL_OK) {
            cli_say("%s", err.message);
            return EXIT_FAILED;
        }
        printf("%-12s %s\n", profile.name, ull__size_text(profile.memory_bytes, size));
    }
    return EXIT_OK;
}

/* A profile for the first card that is here; false: there is none, or it is not like any that is known. */
static bool profile_of_card(struct ull__profile *profile)
{
    static const char *const names[][2] = {{"H200", "h200"},     {"A100", "a100-80g"},
                                           {"V100", "v100-16g"}, {"4090", "rtx4090"},
                                           {"T4", "t4"},         {"Orin", "jetson-agx"}};
    struct gpus gpus;
    struct ull_error err;
    bool found = false;
    if (gpus_open_as_program(&gpus, &err) != ULL_OK) {
        return false;
    }
    for (size_t i = 0; gpus.count > 0 && !found && i < sizeof(names) / sizeof(names[0]); ++i) {
        if (strstr(gpus.gpu[0].device.name, names[i][0]) != NULL &&
            plan_profile_find(names[i][1], profile, &err) == ULL_OK) {
            profile->memory_bytes = gpus.gpu[0].device.total_bytes;
            found = true;
        }
    }
    gpus_close(&gpus);
    return found;
}

static bool parse_count(const char *text, int64_t least, int64_t most, int64_t *value)
{
    char *end;
    long long read = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || read < least || read > most) {
        return false;
    }
    *value = read;
    return true;
}

/* "0" is allowed where a size says how much of something may be used. */
static bool parse_size(const char *text, int64_t *bytes, struct ull_error *err)
{
    uint64_t read;
    if (strcmp(text, "0") == 0) {
        *bytes = 0;
        return true;
    }
    if (ull__size_parse(text, &read, err) != ULL_OK) {
        return false;
    }
    *bytes = (int64_t)read;
    return true;
}

enum {
    OPTION_OPTIMIZER = 256,
    OPTION_PRECISION,
    OPTION_DEVICE,
    OPTION_BN_GROUP,
    OPTION_ACCUMULATION,
    OPTION_RECOMPUTE_MIN,
    OPTION_WORKSPACE,
    OPTION_HOST,
    OPTION_CLIP,
    OPTION_DEVICES,
    OPTION_LADDER,
    OPTION_LIKE,
    OPTION_MODE,
    OPTION_CALIBRATE,
    OPTION_PARALLEL,
    OPTION_WEIGHTS,
    OPTION_CONTEXT,
    OPTION_REQUESTS,
    OPTION_HTML,
    OPTION_FIT,
    OPTION_MODELS,
    OPTION_LIST,
    OPTION_THREADS,
};

static const struct option long_options[] = {
    {"memory", required_argument, NULL, 'm'},
    {"batch", required_argument, NULL, 'b'},
    {"optimizer", required_argument, NULL, OPTION_OPTIMIZER},
    {"precision", required_argument, NULL, OPTION_PRECISION},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"bn-group", required_argument, NULL, OPTION_BN_GROUP},
    {"max-accumulation", required_argument, NULL, OPTION_ACCUMULATION},
    {"recompute-min", required_argument, NULL, OPTION_RECOMPUTE_MIN},
    {"max-workspace", required_argument, NULL, OPTION_WORKSPACE},
    {"host-memory", required_argument, NULL, OPTION_HOST},
    {"clip", required_argument, NULL, OPTION_CLIP},
    {"devices", required_argument, NULL, OPTION_DEVICES},
    {"ladder", no_argument, NULL, OPTION_LADDER},
    {"fit", no_argument, NULL, OPTION_FIT},
    {"html", required_argument, NULL, OPTION_HTML},
    {"like", required_argument, NULL, OPTION_LIKE},
    {"parallel", required_argument, NULL, OPTION_PARALLEL},
    {"calibrate", required_argument, NULL, OPTION_CALIBRATE},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"weights", required_argument, NULL, OPTION_WEIGHTS},
    {"context", required_argument, NULL, OPTION_CONTEXT},
    {"requests", required_argument, NULL, OPTION_REQUESTS},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"models", no_argument, NULL, OPTION_MODELS},
    {"list-devices", no_argument, NULL, OPTION_LIST},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* What was typed, before the device is known. */
struct typed {
    const char *memory, *device;
    const char *calibrate;                  /* a file; NULL: not asked for */
    const char *of_training, *of_inference; /* the last option that only that mode has; NULL */
    bool parallel;                          /* --parallel was given */
    int exit_code;                          /* -1: go on */
};

/* An option that has a number or a size. Returns a usage error, or -1. */
static int take_number(int option, const char *text, struct plan_options *options)
{
    struct ull__plan_request *request = &options->request;
    struct ull_error err = {{0}};
    int64_t count;
    char *end;
    switch (option) {
    case 'b':
        if (!parse_count(text, 1, INT64_C(1) << 32, &request->batch)) {
            return cli_usage_error(
                "plan", "--batch is '%.40s': expected a number of samples from 1 on", text);
        }
        return -1;
    case OPTION_BN_GROUP:
        if (!parse_count(text, 1, INT64_C(1) << 32, &request->bn_group)) {
            return cli_usage_error(
                "plan", "--bn-group is '%.40s': expected a number of samples from 1 on", text);
        }
        return -1;
    case OPTION_ACCUMULATION:
        if (!parse_count(text, 1, 1 << 20, &request->max_accumulation)) {
            return cli_usage_error(
                "plan", "--max-accumulation is '%.40s': expected a number from 1 on", text);
        }
        return -1;
    case OPTION_CONTEXT:
        if (!parse_count(text, 1, INT64_C(1) << 32, &options->infer.context)) {
            return cli_usage_error("plan", "--context is '%.40s': expected a number of tokens", text);
        }
        return -1;
    case OPTION_REQUESTS:
        if (!parse_count(text, 1, INT64_C(1) << 32, &options->infer.requests)) {
            return cli_usage_error("plan", "--requests is '%.40s': expected a number from 1 on",
                                   text);
        }
        return -1;
    case OPTION_THREADS:
        if (!parse_count(text, 1, 64, &count)) {
            return cli_usage_error("plan", "--threads is '%.40s': expected 1 to 64", text);
        }
        options->threads = (int)count;
        return -1;
    case OPTION_DEVICES:
        if (!parse_count(text, 1, 65536, &count)) {
            return cli_usage_error("plan", "--devices is '%.40s': expected 1 to 65536", text);
        }
        request->devices = (int)count;
        return -1;
    case OPTION_CLIP:
        request->attrs.limit = strtod(text, &end);
        if (end == text || *end != '\0' || !(request->attrs.limit > 0)) {
            return cli_usage_error("plan", "--clip is '%.40s': expected a norm above 0", text);
        }
        return -1;
    default:
        break;
    }
    int64_t *bytes = option == OPTION_RECOMPUTE_MIN ? &request->recompute_min
                     : option == OPTION_WORKSPACE   ? &request->max_workspace
                                                    : &request->host_bytes;
    if (!parse_size(text, bytes, &err)) {
        return cli_usage_error("plan", "%s", err.message);
    }
    if (option == OPTION_WORKSPACE && *bytes == 0) {
        *bytes = 1; /* 0 means no bound there */
    }
    return -1;
}

static void take_like(const char *text, struct plan_options *options, struct typed *typed)
{
    char bad[40];
    options->like = text;
    if (!plan_like_valid(text, bad, sizeof(bad))) {
        typed->exit_code = cli_usage_error("plan",
                                           "--like is '%.60s', '%s' of it is not known: expected "
                                           "torch, or torch:MODE,MODE,... of fp32, "
                                           "amp, amp-fp16, each with +ckpt or +gaN",
                                           text, bad);
    }
}

static int take_mode(const char *text, struct plan_options *options)
{
    options->inference = strcmp(text, "inference") == 0;
    if (!options->inference && strcmp(text, "training") != 0) {
        return cli_usage_error("plan", "--mode is '%.40s': expected training or inference", text);
    }
    return -1;
}

/* Remembers options that only one of the modes has. */
static void note_mode(int option, const char *name, struct typed *typed)
{
    static const int training[] = {OPTION_OPTIMIZER,    OPTION_PRECISION,     OPTION_BN_GROUP,
                                   OPTION_ACCUMULATION, OPTION_RECOMPUTE_MIN, OPTION_HOST,
                                   OPTION_CLIP,         OPTION_DEVICES,       OPTION_LIKE,
                                   OPTION_HTML,         OPTION_PARALLEL,      OPTION_THREADS};
    for (size_t i = 0; i < sizeof(training) / sizeof(training[0]); ++i) {
        typed->of_training = option == training[i] ? name : typed->of_training;
    }
    if (option == OPTION_WEIGHTS || option == OPTION_CONTEXT || option == OPTION_REQUESTS) {
        typed->of_inference = name;
    }
}

static void read_options(int argc, char **argv, struct plan_options *options, struct typed *typed)
{
    int option, at = 0;
    while (typed->exit_code < 0 &&
           (option = getopt_long(argc, argv, "m:b:o:h", long_options, &at)) != -1) {
        note_mode(option, long_options[at].name, typed);
        switch (option) {
        case 'm':
            typed->memory = optarg;
            break;
        case 'o':
            if (!cli_parse_format(optarg, false, &options->format)) {
                typed->exit_code =
                    cli_usage_error("plan", "-o is '%.40s': expected table or json", optarg);
            }
            break;
        case OPTION_OPTIMIZER:
            if (!plan_optimizer_parse(optarg, &options->request.optimizer)) {
                typed->exit_code = cli_usage_error(
                    "plan", "--optimizer is '%.40s': expected adam, adamw or sgd", optarg);
            }
            break;
        case OPTION_PRECISION:
            if (!ull__precision_parse(optarg, &options->request.precision)) {
                typed->exit_code = cli_usage_error(
                    "plan", "--precision is '%.40s': expected auto, fp32, bf16 or fp16", optarg);
            }
            break;
        case OPTION_DEVICE:
            typed->device = optarg;
            break;
        case OPTION_LADDER:
            options->ladder = true;
            break;
        case OPTION_FIT:
            options->fit = true;
            break;
        case OPTION_HTML:
            options->html = optarg;
            break;
        case OPTION_LIKE:
            take_like(optarg, options, typed);
            break;
        case OPTION_PARALLEL:
            if (!ull__parallel_parse(optarg, &options->parallel)) {
                typed->exit_code = cli_usage_error(
                    "plan", "--parallel is '%.40s': expected data, model or pipeline", optarg);
            }
            typed->parallel = true;
            break;
        case OPTION_CALIBRATE:
            typed->calibrate = optarg;
            break;
        case OPTION_MODE:
            typed->exit_code = take_mode(optarg, options);
            break;
        case OPTION_WEIGHTS:
            if (!ull__weights_parse(optarg, &options->infer.weights)) {
                typed->exit_code = cli_usage_error(
                    "plan", "--weights is '%.40s': expected fp32, fp16, bf16, fp8 or int8", optarg);
            }
            break;
        case OPTION_MODELS:
            list_models();
            typed->exit_code = EXIT_OK;
            break;
        case OPTION_LIST:
            typed->exit_code = list_devices();
            break;
        case 'h':
            print_help();
            typed->exit_code = EXIT_OK;
            break;
        case '?':
        case ':':
            typed->exit_code = cli_bad_option("plan", option, argv);
            break;
        default:
            typed->exit_code = take_number(option, optarg, options);
        }
    }
}

/* The device, and the budget on it. Returns an exit code, or -1. */
static int find_device(struct plan_options *options, const struct typed *typed)
{
    struct ull_error err = {{0}};
    if (typed->calibrate != NULL) {
        struct calibration calibration;
        if (plan_calibrate(&calibration, &err) != ULL_OK ||
            plan_calibration_write(&calibration, typed->calibrate, &err) != ULL_OK) {
            cli_say("%s", err.message);
            return EXIT_FAILED;
        }
        options->profile = calibration.profile;
    } else if (typed->device != NULL) {
        ull_status status = plan_profile_find(typed->device, &options->profile, &err);
        if (status != ULL_OK) {
            cli_say("%s", err.message);
            bool name = strchr(typed->device, '/') == NULL && strstr(typed->device, ".json") == NULL;
            return status == ULL_E_NOT_FOUND && name ? EXIT_USAGE : EXIT_FAILED;
        }
    } else if (!profile_of_card(&options->profile) &&
               plan_profile_find("cpu", &options->profile, &err) != ULL_OK) {
        cli_say("%s", err.message);
        return EXIT_FAILED;
    }
    options->budget = (int64_t)options->profile.memory_bytes;
    if (typed->memory != NULL) {
        struct ull_size size;
        if (ull__size_or_share_parse(typed->memory, &size, &err) != ULL_OK) {
            return cli_usage_error("plan", "%s", err.message);
        }
        options->budget = size.percent > 0 ? (int64_t)((double)options->budget * size.percent / 100)
                                           : (int64_t)size.bytes;
    }
    options->request.profile = &options->profile;
    return -1;
}

int plan_read_options(int argc, char **argv, struct plan_options *options)
{
    struct typed typed = {.exit_code = -1};
    read_options(argc, argv, options, &typed);
    if (typed.exit_code >= 0) {
        return typed.exit_code;
    }
    if (typed.calibrate != NULL && typed.device != NULL) {
        return cli_usage_error("plan", "--calibrate measures the device: expected no --device");
    }
    if (optind < argc && typed.calibrate != NULL && strcmp(typed.calibrate, "-") == 0) {
        return cli_usage_error("plan",
                               "--calibrate writes to standard output, and so does the plan: "
                               "expected a file");
    }
    if (optind == argc && typed.calibrate != NULL) {
        int code = find_device(options, &typed);
        return code >= 0 ? code : EXIT_OK;
    }
    if (optind == argc) {
        return cli_usage_error("plan", "no model: expected a name, as resnet50, or a file of ONNX");
    }
    if (optind + 1 < argc) {
        return cli_usage_error("plan", "'%.80s' is too much: expected one model", argv[optind + 1]);
    }
    const char *other = options->inference ? typed.of_training : typed.of_inference;
    if (other != NULL) {
        return cli_usage_error("plan", "--%s is not of --mode %s", other,
                               options->inference ? "inference" : "training");
    }
    bool layers = options->parallel != ULL_PARALLEL_DATA;
    if (typed.parallel && options->request.devices < 2) {
        return cli_usage_error("plan", "--parallel without devices: expected --devices 2 or more");
    }
    if (layers && options->request.devices > ULL_STAGES_MOST) {
        return cli_usage_error("plan", "--devices is %d: layers are cut over at most %d devices",
                               options->request.devices, (int)ULL_STAGES_MOST);
    }
    if (layers &&
        (options->html != NULL || options->like != NULL || options->fit || options->ladder)) {
        return cli_usage_error(
            "plan",
            "--html, --like, --fit and --ladder are of one device: expected none "
            "of them with --parallel %s",
            ull__parallel_text(options->parallel));
    }
    options->model = argv[optind];
    if (options->request.batch == 0) {
        options->request.batch = options->inference ? 1 : 32;
    }
    int code = find_device(options, &typed);
    if (code < 0 && options->threads > 0 && strcmp(options->profile.name, "cpu") != 0) {
        return cli_usage_error("plan", "--threads is of the processor: expected device cpu, not %s",
                               options->profile.name);
    }
    return code;
}
