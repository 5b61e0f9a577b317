/*
 * cmd_query.c: `ullage query` answers nvidia-smi's --query-gpu and --query-compute-apps for what
 * concerns memory, with the same options, output and exit codes, and has fields of its own.
 *
 * Options are read as nvidia-smi reads them, which is not as getopt does: a value may follow "=" or be
 * the next word, and "-lms" is one option. What nvidia-smi says of a wrong field goes to standard output
 * as there; whatever else goes wrong is said on standard error, and a value that it would silently
 * take for another one is refused.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "query.h"

/* Exit codes of nvidia-smi. */
enum { SMI_NO_DEVICE = 6, SMI_NO_DRIVER = 9, SMI_NO_LIBRARY = 12 };
enum { DEFAULT_LOOP_MS = 5000, DEFAULT_LOOP_MS_MS = 100 };

struct request {
    const char *fields[2]; /* of cards, of processes */
    const char *format, *ids, *file;
    long loop_ms; /* 0: once */
    long rounds;  /* 0: for ever */
    bool help_gpu, help_apps, help;
};

static void print_help(void)
{
    printf(
        "Usage: ullage query --query-gpu=FIELD,... [--format=csv[,noheader][,nounits]] [-l SEC]\n"
        "       ullage query --query-compute-apps=FIELD,...  ...\n"
        "\n"
        "Answers nvidia-smi's queries for memory, names and load with the same options and the "
        "same\n"
        "CSV, and has fields of its own (ullage.job, ullage.held, ...).\n"
        "\n"
        "      --query-gpu=FIELDS           a line for each card\n"
        "      --query-compute-apps=FIELDS  a line for each compute process\n"
        "      --help-query-gpu, --help-query-compute-apps\n"
        "                        lists the fields\n"
        "      --format=WORDS    csv (default); noheader; nounits; json; ndjson (one line a "
        "round)\n"
        "  -i, --id=LIST         only these cards: index, UUID, PCI address or serial number;\n"
        "                        or a MIG instance by its UUID\n"
        "  -f, --filename=FILE   writes there\n"
        "  -l, --loop=SEC        again every SEC seconds (5 without a number)\n"
        "  -lms, --loop-ms=MS    again every MS milliseconds (100 without a number)\n"
        "  -n, --rounds=N        stops after N rounds\n"
        "  -h, --help            this text\n"
        "\n"
        "  ullage query --query-gpu=index,memory.used,ullage.held --format=csv -l 5\n"
        "\n"
        "Exit codes are nvidia-smi's: 0; 2 wrong argument; 6 no such card; 9 no driver; 12 no "
        "library;\n"
        "and 1 if the output cannot be written.\n");
}

/* --- options --- */

enum option {
    QUERY_GPU_,
    QUERY_APPS_,
    FORMAT,
    ID,
    FILE_,
    LOOP,
    LOOP_MS,
    ROUNDS,
    HELP,
    HELP_GPU,
    HELP_APPS
};

static const struct {
    const char *name;
    enum option option;
    enum { NO_VALUE, VALUE, MAYBE_VALUE } value;
} options[] = {
    {"--query-gpu", QUERY_GPU_, VALUE},
    {"--query-compute-apps", QUERY_APPS_, VALUE},
    {"--format", FORMAT, MAYBE_VALUE},
    {"-i", ID, VALUE},
    {"--id", ID, VALUE},
    {"-f", FILE_, VALUE},
    {"--filename", FILE_, VALUE},
    {"-l", LOOP, MAYBE_VALUE},
    {"--loop", LOOP, MAYBE_VALUE},
    {"-lms", LOOP_MS, MAYBE_VALUE},
    {"--loop-ms", LOOP_MS, MAYBE_VALUE},
    {"-n", ROUNDS, VALUE},
    {"--rounds", ROUNDS, VALUE},
    {"-h", HELP, NO_VALUE},
    {"--help", HELP, NO_VALUE},
    {"--help-query-gpu", HELP_GPU, NO_VALUE},
    {"--help-query-compute-apps", HELP_APPS, NO_VALUE},
};
enum { OPTIONS = sizeof options / sizeof *options };

static bool read_count(const char *text, long unit, long *result)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || *end || errno || number < 0 || number > 1000000000 / unit)
        return false;
    *result = number * unit;
    return true;
}

static int take_loop(struct request *request, const char *value, long unit, long otherwise)
{
    request->loop_ms = otherwise;
    if (value && !read_count(value, unit, &request->loop_ms))
        return cli_usage_error("query", "-l%s '%.40s': expected a whole number of %s",
                               unit == 1 ? "ms" : "", value, unit == 1 ? "milliseconds" : "seconds");
    if (request->loop_ms == 0)
        return cli_usage_error("query", "-l%s 0: expected more than 0", unit == 1 ? "ms" : "");
    return EXIT_OK;
}

static int take(struct request *request, enum option option, const char *value)
{
    switch (option) {
    case QUERY_GPU_:
    case QUERY_APPS_:
        request->fields[option == QUERY_APPS_] = value;
        return EXIT_OK;
    case FORMAT:
        request->format = value;
        return EXIT_OK;
    case ID:
        request->ids = value;
        return EXIT_OK;
    case FILE_:
        request->file = value;
        return EXIT_OK;
    case LOOP:
        return take_loop(request, value, 1000, DEFAULT_LOOP_MS);
    case LOOP_MS:
        return take_loop(request, value, 1, DEFAULT_LOOP_MS_MS);
    case ROUNDS:
        if (!read_count(value, 1, &request->rounds) || request->rounds == 0)
            return cli_usage_error("query", "-n '%.40s': expected a number above 0", value);
        return EXIT_OK;
    case HELP:
        request->help = true;
        return EXIT_OK;
    case HELP_GPU:
        request->help_gpu = true;
        return EXIT_OK;
    case HELP_APPS:
        request->help_apps = true;
        return EXIT_OK;
    }
    return EXIT_OK;
}

/* One option and its value at argv[*at]; moves on past both. */
static int read_option(struct request *request, int argc, char **argv, int *at)
{
    const char *word = argv[(*at)++];
    size_t length = strcspn(word, "=");
    for (int i = 0; i < OPTIONS; i++) {
        if (strlen(options[i].name) != length || strncmp(options[i].name, word, length) != 0)
            continue;
        const char *value = word[length] ? word + length + 1 : NULL;
        if (value && options[i].value == NO_VALUE)
            return cli_usage_error("query", "option '%s' takes no value", options[i].name);
        bool next = *at < argc && argv[*at][0] != '-' && options[i].value != NO_VALUE;
        if (!value && next)
            value = argv[(*at)++];
        if (!value && options[i].value == VALUE)
            return cli_usage_error("query", "option '%s' needs a value", options[i].name);
        return take(request, options[i].option, value);
    }
    if (word[0] != '-')
        return cli_usage_error("query", "'%.80s' is too much: expected options only", word);
    return cli_usage_error("query", "unknown option '%.80s'", word);
}

static bool read_format(const char *text, struct query_format *format)
{
    while (text && *text) {
        size_t length = strcspn(text, ",");
        if (strncmp(text, "noheader", length) == 0 && length == 8)
            format->no_header = true;
        else if (strncmp(text, "nounits", length) == 0 && length == 7)
            format->no_units = true;
        else if (strncmp(text, "json", length) == 0 && length == 4)
            format->json = true;
        else if (strncmp(text, "ndjson", length) == 0 && length == 6)
            format->json = format->lines = true;
        else if (strncmp(text, "csv", length) != 0 || length != 3)
            return false;
        text += length + (text[length] == ',');
    }
    return true;
}

/* --- which cards --- */

static bool names(const struct gpus *gpus, int i, const char *id)
{
    const struct ull__nvml_device *device = &gpus->gpu[i].device;
    const struct ull__nvml_calls *call = &gpus->nvml.call;
    nvmlDevice_t found;
    nvmlPciInfo_t pci;
    char serial[96], *end;
    if (strcmp(id, device->uuid) == 0)
        return true;
    if (device->instance >= 0)
        return false;
    long index = strtol(id, &end, 10);
    if (*id && !*end && index == device->index)
        return true;
    if (!device->handle)
        return false;
    if (call->nvmlDeviceGetSerial &&
        call->nvmlDeviceGetSerial(device->handle, serial, sizeof serial) == NVML_SUCCESS &&
        strcmp(id, serial) == 0)
        return true;
    return strchr(id, ':') && call->nvmlDeviceGetHandleByPciBusId_v2 &&
           call->nvmlDeviceGetPciInfo_v3 &&
           call->nvmlDeviceGetHandleByPciBusId_v2(id, &found) == NVML_SUCCESS &&
           call->nvmlDeviceGetPciInfo_v3(found, &pci) == NVML_SUCCESS &&
           strncmp(pci.busId, device->bus_id, sizeof device->bus_id) == 0;
}

/* Marks what -i asks for; without it all whole cards. Returns how many. */
static int choose(const struct gpus *gpus, const char *ids, bool *chosen)
{
    int count = 0;
    for (int i = 0; i < gpus->count; i++) {
        chosen[i] = !ids && gpus->gpu[i].device.instance < 0;
        for (const char *at = ids; at && *at && !chosen[i];) {
            char id[128];
            size_t length = strcspn(at, ",");
            snprintf(id, sizeof id, "%.*s", (int)(length < sizeof id ? length : sizeof id - 1), at);
            chosen[i] = names(gpus, i, id);
            at += length + (at[length] == ',');
        }
        count += chosen[i];
    }
    return count;
}

/* --- rounds --- */

static bool one_round(struct gpus *gpus, const struct query_columns *columns,
                      const struct query_format *format, const bool *chosen, FILE *out)
{
    struct query_round round = {.gpus = gpus};
    struct job_list jobs;
    bool own = query_asks_own(columns);
    gpus_update_memory(gpus);
    if (columns->table->processes || own)
        gpus_update_processes(gpus);
    if (own) {
        if (!jobs_gather(&jobs)) {
            cli_say("no memory for the list of jobs");
            return false;
        }
        round.jobs = &jobs;
    }
    bool good = query_print_round(columns, format, &round, chosen, out);
    if (!good)
        cli_say("the output cannot be written: %s", strerror(errno));
    if (own)
        jobs_free(&jobs);
    return good;
}

/* Rounds begin at a fixed pace, whatever each of them takes; those that are missed are left out. */
static void wait_for_next(struct timespec *next, long interval_ms)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    do {
        next->tv_sec += interval_ms / 1000;
        next->tv_nsec += interval_ms % 1000 * 1000000;
        next->tv_sec += next->tv_nsec / 1000000000;
        next->tv_nsec %= 1000000000;
    } while (next->tv_sec < now.tv_sec ||
             (next->tv_sec == now.tv_sec && next->tv_nsec <= now.tv_nsec));
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, next, NULL) == EINTR)
        ;
}

static int run_rounds(struct gpus *gpus, const struct request *request,
                      const struct query_columns *columns, const struct query_format *format)
{
    struct timespec next;
    bool *chosen = calloc((size_t)gpus->count + 1, sizeof *chosen), good = true;
    if (!chosen || choose(gpus, request->ids, chosen) == 0) {
        free(chosen);
        puts("No devices were found");
        return SMI_NO_DEVICE;
    }
    FILE *out = request->file ? fopen(request->file, "we") : stdout;
    if (!out) {
        free(chosen);
        cli_say("cannot write '%.300s': %s", request->file, strerror(errno));
        return EXIT_FAILED;
    }
    clock_gettime(CLOCK_MONOTONIC, &next);
    query_print_header(columns, format, out);
    for (long round = 1; good; round++) {
        good = one_round(gpus, columns, format, chosen, out);
        if (!good || request->loop_ms == 0 || round == request->rounds)
            break;
        wait_for_next(&next, request->loop_ms);
    }
    free(chosen);
    if (request->file && fclose(out) != 0)
        good = false;
    return good ? EXIT_OK : EXIT_FAILED;
}

static int answer(const struct request *request, const struct query_columns *columns,
                  const struct query_format *format)
{
    struct gpus gpus;
    struct ull_error err;
    ull_status status = gpus_open_as_program(&gpus, &err);
    if (status == ULL_E_NOT_FOUND && gpus_open_driver(&gpus))
        status = ULL_OK;
    if (status != ULL_OK) {
        cli_say("%s", err.message);
        return status == ULL_E_NOT_FOUND ? SMI_NO_LIBRARY : SMI_NO_DRIVER;
    }
    if (query_asks_own(columns))
        gpus_complete(&gpus);
    int code = run_rounds(&gpus, request, columns, format);
    gpus_close(&gpus);
    return code;
}

int cmd_query(int argc, char **argv)
{
    struct request request = {0};
    struct query_format format = {0};
    struct query_columns columns;
    char bad[QUERY_TEXT];
    /* As with nvidia-smi, whoever has read enough ends it. */
    signal(SIGPIPE, SIG_DFL);
    for (int at = 1; at < argc;) {
        int code = read_option(&request, argc, argv, &at);
        if (code != EXIT_OK)
            return code;
    }
    if (request.help || request.help_gpu || request.help_apps) {
        if (request.help)
            print_help();
        else
            query_print_help(request.help_gpu ? &query_gpu_table : &query_app_table, stdout);
        return fflush(stdout) == 0 ? EXIT_OK : EXIT_FAILED;
    }
    if (request.fields[0] && request.fields[1]) {
        puts("Only one --query-* switch can be used at a time.");
        return EXIT_USAGE;
    }
    if (!request.fields[0] && !request.fields[1])
        return cli_usage_error("query", "nothing is asked: expected --query-gpu=FIELD,... or "
                                        "--query-compute-apps=FIELD,...");
    const struct query_table *table = request.fields[0] ? &query_gpu_table : &query_app_table;
    if (!query_columns_parse(table, request.fields[table->processes], &columns, bad)) {
        printf("Field \"%s\" is not a valid field to query.\n\n", bad);
        fflush(stdout);
        cli_say("'ullage query --help-query-%s' lists the fields that it answers",
                table->processes ? "compute-apps" : "gpu");
        return EXIT_USAGE;
    }
    if (!read_format(request.format, &format)) {
        puts("Format modifier is not recognized.");
        fflush(stdout);
        cli_say(
            "--format=%.80s: expected csv, noheader, nounits, json or ndjson, with commas between",
            request.format);
        return EXIT_USAGE;
    }
    format.lines |= request.loop_ms > 0;
    return answer(&request, &columns, &format);
}
