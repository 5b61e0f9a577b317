/*
 * plan_offsets.c: `ullage plan --offsets FILE`: reads buffers with lifetimes, places them, checks the plan with the
 * checker that knows nothing of the solver, and shows the height or the offsets.
 */
#include "plan_offsets.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../cli.h"
#include "../json_keys.h"
#include "error.h"
#include "file.h"
#include "json.h"
#include "offsets.h"
#include "offsets_csv.h"
#include "size.h"

static const size_t file_most = (size_t)1 << 30;
static const uint64_t unset = UINT64_MAX;
enum { THREADS = 8, MANY = 512 };

/* A minute or two. A node costs more where there are many buffers. */
static uint64_t default_nodes(size_t buffers)
{
    uint64_t nodes = 2000000;
    for (int i = 0; i < 3 && buffers > MANY; i++)
        nodes = nodes * MANY / buffers;
    return nodes;
}

struct options {
    const char *file;
    uint64_t capacity; /* or ULL__OFFSETS_LOWEST */
    uint64_t nodes;
    enum output_format format;
};

static void print_help(void)
{
    printf("Usage: ullage plan --offsets FILE [OPTION...]\n"
           "\n"
           "Places buffers with known lifetimes in one block of memory, so that no two that are\n"
           "live at one time overlap.\n"
           "\n"
           "      --offsets FILE       CSV with the columns id, lower, upper, size, and if wanted\n"
           "                           alignment and offset (to stay at); a buffer is live from\n"
           "                           lower up to and not including upper\n"
           "      --capacity SIZE      how high the block may be (default: as low as possible)\n"
           "      --nodes N            nodes of the exact search at most, 0 for heuristics only\n"
           "                           (default 2000000, less for more than 512 buffers)\n"
           "  -o, --output FORMAT      table, json, or csv: the buffers with their offsets\n"
           "                           (default table)\n"
           "  -h, --help               this text\n"
           "\n"
           "The same input gives the same plan, whatever the machine and its load. Exit code: 0\n"
           "placed; 1 a bad file, or no plan of that capacity was found; 2 usage.\n");
}

bool plan_offsets_is_meant(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--offsets") == 0 || strncmp(argv[i], "--offsets=", 10) == 0)
            return true;
    return false;
}

/* --- options ---------------------------------------------------------------------------------------------- */

static bool parse_count(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return false;
    *value = number;
    return true;
}

static int parse_options(int argc, char **argv, struct options *options)
{
    enum { OFFSETS = 256, CAPACITY, NODES };
    static const struct option longs[] = {{"offsets", required_argument, NULL, OFFSETS},
                                          {"capacity", required_argument, NULL, CAPACITY},
                                          {"nodes", required_argument, NULL, NODES},
                                          {"output", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    struct ull_error err;
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, "+:o:h", longs, NULL)) != -1) {
        switch (option) {
        case OFFSETS:
            options->file = optarg;
            break;
        case CAPACITY:
            if (ull__size_parse(optarg, &options->capacity, &err) != ULL_OK)
                return cli_usage_error("plan", "--capacity: %s", err.message);
            break;
        case NODES:
            if (!parse_count(optarg, &options->nodes))
                return cli_usage_error("plan", "--nodes is '%.40s': expected a whole number", optarg);
            break;
        case 'o':
            if (!cli_parse_format(optarg, true, &options->format))
                return cli_usage_error("plan", "-o is '%.40s': expected table, json or csv", optarg);
            break;
        case 'h':
            print_help();
            return -1;
        default:
            return cli_bad_option("plan", option, argv);
        }
    }
    if (optind < argc)
        return cli_usage_error("plan", "'%.100s' is one word too many", argv[optind]);
    return 0;
}

/* --- output ----------------------------------------------------------------------------------------------- */

static void print_json(const struct options *options, const struct ull__offsets *plan, double seconds)
{
    struct ull_json json;
    ull__json_init(&json, stdout);
    ull__json_object(&json);
    key_bool(&json, "solved", plan->solved);
    key_bool(&json, "infeasible", plan->infeasible);
    key_u64(&json, "height", plan->height);
    key_u64(&json, "lower_bound", plan->lower_bound);
    key_maybe(&json, "capacity", options->capacity != ULL__OFFSETS_LOWEST, options->capacity);
    key_number(&json, "seconds", seconds);
    key_u64(&json, "buffers", plan->count);
    key_u64(&json, "nodes", plan->nodes);
    ull__json_object_end(&json);
    ull__json_finish(&json); /* what went wrong with the stream is seen when it is flushed */
    ull__json_free(&json);
}

static const char *outcome(const struct options *options, const struct ull__offsets *plan)
{
    if (options->capacity == ULL__OFFSETS_LOWEST)
        return plan->solved ? "no plan is lower" : "there may be a lower plan";
    return plan->solved       ? "fits"
           : plan->infeasible ? "no plan fits"
                              : "no plan that fits was found";
}

static void print_bytes(const char *name, uint64_t bytes)
{
    char text[ULL_SIZE_TEXT];
    printf("%-12s %" PRIu64 " (%s)\n", name, bytes, ull__size_text(bytes, text));
}

static void print_table(const struct options *options, const struct ull__offsets *plan, double seconds)
{
    printf("%-12s %zu\n", "buffers", plan->count);
    if (options->capacity != ULL__OFFSETS_LOWEST)
        print_bytes("capacity", options->capacity);
    print_bytes("height", plan->height);
    print_bytes("lower bound", plan->lower_bound);
    printf("%-12s %s\n", "outcome", outcome(options, plan));
    printf("%-12s %" PRIu64 "\n", "nodes", plan->nodes);
    printf("%-12s %.3f\n", "seconds", seconds);
}

static void print_csv(const struct ull__offsets_csv *csv, const struct ull__offsets *plan)
{
    printf("id,lower,upper,size,%soffset\n", csv->has_alignment ? "alignment," : "");
    for (size_t i = 0; i < csv->count; i++) {
        const struct ull__buffer *buffer = &csv->buffers[i];
        printf("%s,%" PRId64 ",%" PRId64 ",%" PRIu64 ",", csv->ids[i], buffer->lower, buffer->upper,
               buffer->size);
        if (csv->has_alignment)
            printf("%" PRIu64 ",", buffer->alignment);
        printf("%" PRIu64 "\n", plan->offsets[i]);
    }
}

/* --- the command ------------------------------------------------------------------------------------------ */

static ull_status read_buffers(const char *path, struct ull_error *err, struct ull__offsets_csv *csv)
{
    char *text = NULL;
    size_t size = 0;
    struct ull_error inner = {.message = ""};
    ull_status status = ull__file_read(path, file_most, &text, &size, err);
    if (status != ULL_OK)
        return status;
    status = ull__offsets_csv_parse(text, size, &inner, csv);
    free(text);
    return status == ULL_OK ? ULL_OK : ull__fail(err, status, "%.200s: %.280s", path, inner.message);
}

static unsigned int count_threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > THREADS ? THREADS : (unsigned int)cores;
}

static ull_status solve(const struct options *options, const struct ull__offsets_csv *csv,
                        struct ull_error *err, struct ull__offsets *plan)
{
    struct ull__offsets_problem problem = {
        .buffers = csv->buffers, .count = csv->count, .capacity = options->capacity};
    const struct ull__offsets_effort effort = {
        options->nodes == unset ? default_nodes(csv->count) : options->nodes, count_threads()};
    struct ull_error inner = {.message = ""};
    uint64_t height = 0;
    ull_status status = ull__offsets_solve(&problem, &effort, err, plan);
    if (status != ULL_OK)
        return status;
    if (!plan->solved)
        problem.capacity = ULL__OFFSETS_LOWEST;
    status = ull__offsets_check(&problem, plan->offsets, &inner, &height);
    if (status == ULL_OK && height == plan->height)
        return ULL_OK;
    ull__offsets_finish(plan);
    return ull__fail(err, ULL_E_INVALID, "the plan is wrong, which is a fault of ullage: %.300s",
                     inner.message[0] ? inner.message : "it has another height");
}

/* Returns the exit code. */
static int show(const struct options *options, const struct ull__offsets_csv *csv,
                const struct ull__offsets *plan, double seconds)
{
    bool placed = plan->solved || options->capacity == ULL__OFFSETS_LOWEST;
    if (options->format == OUTPUT_JSON)
        print_json(options, plan, seconds);
    else if (options->format == OUTPUT_TABLE)
        print_table(options, plan, seconds);
    else if (placed)
        print_csv(csv, plan);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_say("cannot write the result: %s", strerror(errno));
        return EXIT_FAILED;
    }
    if (!placed)
        cli_say("%s: %s: the lowest plan found has %" PRIu64
                " bytes, and none has less than %" PRIu64,
                options->file, outcome(options, plan), plan->height, plan->lower_bound);
    return placed ? EXIT_OK : EXIT_FAILED;
}

int plan_offsets(int argc, char **argv)
{
    struct options options = {.capacity = ULL__OFFSETS_LOWEST, .nodes = unset};
    struct ull__offsets_csv csv = {0};
    struct ull__offsets plan = {0};
    struct ull_error err;
    int code = parse_options(argc, argv, &options);
    if (code != 0)
        return code < 0 ? EXIT_OK : code;
    if (read_buffers(options.file, &err, &csv) != ULL_OK) {
        cli_say("%s", err.message);
        return EXIT_FAILED;
    }
    uint64_t begin = cli_monotonic_ns();
    if (solve(&options, &csv, &err, &plan) != ULL_OK) {
        cli_say("%.200s: %s", options.file, err.message);
        code = EXIT_FAILED;
    } else {
        code = show(&options, &csv, &plan, (double)(cli_monotonic_ns() - begin) / 1e9);
    }
    ull__offsets_finish(&plan);
    ull__offsets_csv_finish(&csv);
    return code;
}
