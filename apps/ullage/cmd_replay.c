/*
 * cmd_replay.c: `ullage replay TRACE` plays a recorded trace through the driver's allocation calls.
 *
 * One line of the trace is one cuMemAlloc_v2 or cuMemFree_v2, through whatever dlopen("libcuda.so.1")
 * gives in this process: under `ullage run` that is the stand-in, so a replay is held to the budget
 * like any program. With --preallocate it behaves like a framework that takes all free memory at its
 * start: one piece, then no further call to the driver. It computes nothing and touches no memory, so
 * its speed is that of allocation only.
 *
 * With --pool the trace is played on our own allocator instead (replay_pool.c). A pool grows by
 * default, up to the limit of --memory; --preallocate takes that limit at the start; --growth says
 * once more what is the default and wins over --preallocate, as it does without --pool.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "error.h"
#include "json.h"
#include "replay.h"
#include "replay_pool.h"
#include "size.h"

static void print_help(void)
{
    printf("Usage: ullage replay TRACE [OPTION...]\n"
           "       ullage replay TRACE --pool [OPTION...]\n"
           "\n"
           "Plays a recorded trace (gzip CSV: time_us,action,id,size,stream) through the CUDA\n"
           "driver, one allocation call a line; or through ullage's pool, which tells what\n"
           "the program would have needed with it.\n"
           "\n"
           "  --preallocate    take all free memory at the start in one piece, less a reserve,\n"
           "                   as TensorFlow does, and serve the trace from it; with --pool:\n"
           "                   take all of the limit at the start\n"
           "  --growth         do not, even so (also with TF_FORCE_GPU_ALLOW_GROWTH=true)\n"
           "  --device cuda:N  device to play on (default cuda:0); with --pool also host,\n"
           "                   which is the default where there is no GPU\n"
           "  --repeat N       play the trace N times (default 1); with --pool over the same\n"
           "                   pool, and the last one is reported\n"
           "  --hold SECONDS   keep the memory for a while before the end\n"
           "  -o table|json    form of the result (default table)\n"
           "\n"
           "  --pool           play it on a pool\n"
           "  -m, --memory SIZE\n"
           "                   most that the pool may hold, as 4GiB or 40%% (default: all that\n"
           "                   the device has)\n"
           "  --compare        show what the recorded program's own allocator held, from\n"
           "                   recorded.jsonl beside the trace\n"
           "  --record FILE    record what the pool hands out, for `ullage report`\n"
           "\n"
           "Exit code: 0 completed; 1 out of memory, or a trace that cannot be played.\n");
}

struct replay_options {
    struct replay_request request;
    enum output_format format;
    const char *trace;
    bool pool, compare;
    int device; /* as in struct replay_pool_request */
    const char *memory, *record;
    struct ull_size limit;
};

static bool read_count(const char *text, long most, long *value)
{
    char *end;
    *value = strtol(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && *value <= most;
}

/* As TensorFlow reads the variable: only these two words count. */
static void obey_growth_variable(struct replay_request *request)
{
    const char *value = getenv("TF_FORCE_GPU_ALLOW_GROWTH");
    if (!value || !request->preallocate)
        return;
    if (strcmp(value, "true") == 0)
        request->preallocate = false;
    else if (strcmp(value, "false") != 0)
        cli_say("TF_FORCE_GPU_ALLOW_GROWTH is '%.40s', which is ignored: expected true or false",
                value);
}

/* "host" or "cuda:N". */
static bool read_device(const char *text, int *device)
{
    long value;
    if (strcmp(text, "host") == 0) {
        *device = REPLAY_DEVICE_HOST;
        return true;
    }
    if (strncmp(text, "cuda:", 5) != 0 || !read_count(text + 5, 1023, &value))
        return false;
    *device = (int)value;
    return true;
}

/* What is wrong with the options together; 0, or the exit code. */
static int check_options(struct replay_options *options)
{
    struct ull_error err;
    if (!options->pool && (options->memory || options->compare || options->record))
        return cli_usage_error("replay", "%s goes with --pool only",
                               options->memory    ? "--memory"
                               : options->compare ? "--compare"
                                                  : "--record");
    if (!options->pool && options->device == REPLAY_DEVICE_HOST)
        return cli_usage_error("replay", "--device is 'host': without --pool expected cuda:N, as "
                                         "cuda:0");
    if (options->memory && ull__size_or_share_parse(options->memory, &options->limit, &err) != ULL_OK)
        return cli_usage_error("replay", "--memory: %s", err.message);
    if (options->device >= 0)
        options->request.device = options->device;
    return 0;
}

/* 0 to go on, -1 after --help, else the exit code. */
static int parse_options(int argc, char **argv, struct replay_options *options)
{
    enum { PREALLOCATE = 256, GROWTH, DEVICE, REPEAT, HOLD, POOL, COMPARE, RECORD };
    static const struct option longs[] = {{"preallocate", no_argument, NULL, PREALLOCATE},
                                          {"growth", no_argument, NULL, GROWTH},
                                          {"device", required_argument, NULL, DEVICE},
                                          {"repeat", required_argument, NULL, REPEAT},
                                          {"hold", required_argument, NULL, HOLD},
                                          {"pool", no_argument, NULL, POOL},
                                          {"memory", required_argument, NULL, 'm'},
                                          {"compare", no_argument, NULL, COMPARE},
                                          {"record", required_argument, NULL, RECORD},
                                          {"output", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    bool growth = false;
    int option;
    long value;
    optind = 1;
    while ((option = getopt_long(argc, argv, ":m:o:h", longs, NULL)) != -1) {
        switch (option) {
        case PREALLOCATE:
            options->request.preallocate = true;
            break;
        case GROWTH:
            growth = true;
            break;
        case DEVICE:
            if (!read_device(optarg, &options->device))
                return cli_usage_error(
                    "replay", "--device is '%.40s': expected cuda:N, as cuda:0, or host", optarg);
            break;
        case REPEAT:
            if (!read_count(optarg, 1000000, &value) || value == 0)
                return cli_usage_error("replay", "--repeat is '%.40s': expected 1 to 1000000",
                                       optarg);
            options->request.repeat = value;
            break;
        case HOLD:
            if (!read_count(optarg, 86400, &value))
                return cli_usage_error("replay", "--hold is '%.40s': expected seconds, up to 86400",
                                       optarg);
            options->request.hold_seconds = (unsigned int)value;
            break;
        case POOL:
            options->pool = true;
            break;
        case COMPARE:
            options->compare = true;
            break;
        case RECORD:
            options->record = optarg;
            break;
        case 'm':
            options->memory = optarg;
            break;
        case 'o':
            if (!cli_parse_format(optarg, false, &options->format))
                return cli_usage_error("replay", "-o is '%.40s': expected table or json", optarg);
            break;
        case 'h':
            print_help();
            return -1;
        default:
            return cli_bad_option("replay", option, argv);
        }
    }
    if (optind == argc)
        return cli_usage_error("replay", "no trace: expected the path of a recorded trace");
    if (optind + 1 < argc)
        return cli_usage_error("replay", "'%.80s' is too much: expected one trace", argv[optind + 1]);
    options->trace = argv[optind];
    int code = check_options(options);
    if (code != 0)
        return code;
    if (growth)
        options->request.preallocate = false;
    obey_growth_variable(&options->request);
    return 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void print_json(const struct replay_options *options, const struct replay_result *result)
{
    struct ull_json json;
    ull__json_init(&json, stdout);
    ull__json_object(&json);
    ull__json_key(&json, "version");
    ull__json_u64(&json, 1);
    ull__json_key(&json, "trace");
    ull__json_string(&json, base_name(options->trace));
    ull__json_key(&json, "preallocate");
    ull__json_bool(&json, options->request.preallocate);
    ull__json_key(&json, "limit_bytes");
    ull__json_u64(&json, result->limit_bytes);
    ull__json_key(&json, "held_bytes");
    if (result->held_known)
        ull__json_u64(&json, result->held_bytes);
    else
        ull__json_null(&json);
    ull__json_key(&json, "live_peak_bytes");
    ull__json_u64(&json, result->live_peak_bytes);
    ull__json_key(&json, "operations");
    ull__json_u64(&json, result->operations);
    ull__json_key(&json, "seconds");
    ull__json_number(&json, result->seconds);
    ull__json_key(&json, "operations_per_second");
    if (result->seconds > 0)
        ull__json_number(&json, (double)result->operations / result->seconds);
    else
        ull__json_null(&json);
    ull__json_key(&json, "completed");
    ull__json_bool(&json, result->completed);
    ull__json_key(&json, "outcome");
    ull__json_string(&json, result->outcome);
    ull__json_key(&json, "line");
    if (result->line)
        ull__json_u64(&json, result->line);
    else
        ull__json_null(&json);
    ull__json_object_end(&json);
    ull__json_finish(&json);
}

/* 12345678 as 12,345,678. */
static const char *grouped(uint64_t value, char buffer[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, value), used = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            buffer[used++] = ',';
        buffer[used++] = digits[i];
    }
    buffer[used] = 0;
    return buffer;
}

static void print_table(const struct replay_options *options, const struct replay_result *result)
{
    char limit[ULL_SIZE_TEXT], held[ULL_SIZE_TEXT], number[32], speed[32];
    double rate = result->seconds > 0 ? (double)result->operations / result->seconds : 0;
    printf("trace                %s, %s operations\n", base_name(options->trace),
           grouped(result->operations, number));
    printf("limit                %s\n", ull__size_text(result->limit_bytes, limit));
    printf("held by the process  %s\n",
           result->held_known ? ull__size_text(result->held_bytes, held) : "unknown");
    printf("operations a second  %s\n", rate > 0 ? grouped((uint64_t)rate, speed) : "-");
    printf("outcome              %s\n", result->outcome);
}

static int failed(ull_status status, const struct ull_error *err)
{
    cli_say("%s", err->message);
    return status == ULL_E_NO_DEVICE ? EXIT_NO_DEVICE : EXIT_FAILED;
}

static int play_driver(const struct replay_options *options, const struct trace *trace)
{
    struct replay_result result;
    struct ull_error err;
    ull_status status = replay_play(&options->request, trace, &result, &err);
    if (status != ULL_OK)
        return failed(status, &err);
    if (options->format == OUTPUT_JSON)
        print_json(options, &result);
    else
        print_table(options, &result);
    if (!result.completed)
        cli_say("%s", result.outcome);
    return result.completed ? EXIT_OK : EXIT_FAILED;
}

static int play_pool(const struct replay_options *options, const struct trace *trace)
{
    struct replay_pool_request request = {.device = options->device,
                                          .memory = options->limit,
                                          .preallocate = options->request.preallocate,
                                          .repeat = options->request.repeat,
                                          .hold_seconds = options->request.hold_seconds,
                                          .record = options->record};
    struct replay_pool_result result;
    struct replay_recorded recorded;
    struct ull_error err;
    ull_status status = ULL_OK;
    if (options->compare)
        status = replay_recorded_load(options->trace, &recorded, &err);
    if (status == ULL_OK)
        status = replay_pool_play(&request, trace, &result, &err);
    if (status != ULL_OK)
        return failed(status, &err);
    replay_pool_print(options->trace, &request, &result, options->compare ? &recorded : NULL,
                      options->format);
    if (result.failures)
        cli_say("line %" PRIu64 ": %s", result.line, result.refusal);
    return result.failures ? EXIT_FAILED : EXIT_OK;
}

int cmd_replay(int argc, char **argv)
{
    struct replay_options options = {.request = {.repeat = 1}, .device = REPLAY_DEVICE_ANY};
    struct trace trace;
    struct ull_error err;
    int code = parse_options(argc, argv, &options);
    if (code != 0)
        return code < 0 ? EXIT_OK : code;
    if (trace_load(options.trace, &trace, &err) != ULL_OK) {
        cli_say("%s", err.message);
        return EXIT_FAILED;
    }
    code = options.pool ? play_pool(&options, &trace) : play_driver(&options, &trace);
    trace_free(&trace);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (errno != EPIPE) /* who reads has had enough */
            cli_say("cannot write the result: %s", strerror(errno));
        return EXIT_FAILED;
    }
    return code;
}
