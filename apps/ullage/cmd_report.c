/*
 * cmd_report.c: `ullage report FILE` tells what a recorded run did with memory; see report/.
 *
 * The file is read and judged as a whole before anything is written, so that a bad file writes nothing and a
 * format that cannot be written leaves what was at -o alone.
 */
#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"
#include "error.h"
#include "file.h"
#include "report/report.h"

struct options {
    const char *file, *before, *output;
    const struct report_format *format;
    enum ull__role role;
};

/* One file with all that is found in it. */
struct opened {
    struct ull__history *history;
    struct ull__facts *facts;
    struct ull__figures *figures;
    struct ull__verdict verdict, host_verdict;
    struct report_input input;
};

static void format_names(char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (const struct report_format *format = report_formats; format->name && used < size; format++)
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 used == 0            ? ""
                                 : (format + 1)->name ? ", "
                                                      : " or ",
                                 format->name);
}

static void print_help(void)
{
    char names[128];
    format_names(names, sizeof names);
    printf("Usage: ullage report FILE [OPTION...]\n"
           "\n"
           "Tells what a program did with GPU memory: the peak and what was live there, whether\n"
           "it leaks, which limit to set. FILE is a record (ullage run --record FILE) or a\n"
           "snapshot of PyTorch's (torch.cuda.memory._dump_snapshot).\n"
           "\n"
           "  -f, --format FORMAT  %s (default text)\n"
           "      --role ROLE      training (default) or inference, whose limit is set higher\n"
           "      --diff FILE      show what grew since that record\n"
           "  -o, --output FILE    write there instead of to standard output\n"
           "  -h, --help           this text\n"
           "\n"
           "A record that was cut short is told as far as it goes. Exit code: 0; 1 the file is\n"
           "damaged or no record, or the report cannot be written; 2 usage.\n",
           names);
}

/* --- options -------------------------------------------------------------------------------------------- */

static const struct report_format *find_format(const char *name)
{
    for (const struct report_format *format = report_formats; format->name; format++) {
        if (strcmp(format->name, name) == 0)
            return format;
    }
    return NULL;
}

static int take_option(struct options *options, int option, char **argv)
{
    char names[128];
    switch (option) {
    case 'f':
        options->format = find_format(optarg);
        format_names(names, sizeof names);
        if (!options->format)
            return cli_usage_error("report", "-f is '%.40s': expected %s", optarg, names);
        return 0;
    case 'r':
        if (strcmp(optarg, "inference") == 0)
            options->role = ULL_ROLE_INFERENCE;
        else if (strcmp(optarg, "training") != 0)
            return cli_usage_error("report", "--role is '%.40s': expected training or inference",
                                   optarg);
        return 0;
    case 'd':
        options->before = optarg;
        return 0;
    case 'o':
        options->output = optarg;
        return 0;
    case 'h':
        print_help();
        return -1;
    default:
        return cli_bad_option("report", option, argv);
    }
}

/* 0 to go on, -1 after --help, else the exit code. */
static int parse_options(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {
        {"format", required_argument, NULL, 'f'}, {"role", required_argument, NULL, 'r'},
        {"diff", required_argument, NULL, 'd'},   {"output", required_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},         {0}};
    int option, code = 0;
    options->format = report_formats;
    optind = 1;
    while (code == 0 && (option = getopt_long(argc, argv, ":f:o:h", longs, NULL)) != -1)
        code = take_option(options, option, argv);
    if (code != 0)
        return code;
    if (optind == argc)
        return cli_usage_error("report", "no file: expected a record or a snapshot of PyTorch's");
    options->file = argv[optind++];
    if (optind < argc)
        return cli_usage_error("report", "'%.80s' is too much: expected one file", argv[optind]);
    if (options->before && !options->format->takes_diff)
        return cli_usage_error("report", "--diff goes with text, json and html, not with %s",
                               options->format->name);
    if (options->format->binary && !options->output && isatty(STDOUT_FILENO))
        return cli_usage_error("report", "%s is not for a terminal: name a file with -o, or redirect",
                               options->format->name);
    return 0;
}

/* How text is to look where it goes. */
static void find_look(const struct options *options, struct report_look *look)
{
    struct winsize size;
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    bool terminal = !options->output && isatty(STDOUT_FILENO);
    setlocale(LC_CTYPE, "");
    look->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    look->colour = terminal && !(no_colour && no_colour[0]) && term && strcmp(term, "dumb") != 0;
    look->width = 80;
    if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
        look->width = size.ws_col < 160 ? size.ws_col : 160;
}

/* --- work ----------------------------------------------------------------------------------------------- */

static void close_file(struct opened *opened)
{
    ull__figures_destroy(opened->figures);
    ull__facts_destroy(opened->facts);
    ull__history_destroy(opened->history);
}

static ull_status judge(struct opened *opened, struct ull_error *err)
{
    opened->facts = ull__facts_create(opened->history);
    if (!opened->facts)
        return ull__fail(err, ULL_E_SYSTEM, "no memory for %zu events", opened->history->event_count);
    ull_status status = ull__figures_create(opened->facts, opened->input.role, &opened->figures, err);
    if (status == ULL_OK)
        status = ull__verdict_device(opened->facts, &opened->verdict, err);
    if (status == ULL_OK)
        status = ull__verdict_host(opened->facts, &opened->host_verdict, err);
    return status;
}

static int open_file(const char *path, const struct options *options,
                     const struct report_look *look, struct opened *opened)
{
    struct ull_error err;
    opened->input.path = path;
    opened->input.role = options->role;
    opened->input.look = *look;
    ull_status status = report_open(path, &opened->history, &err);
    if (status == ULL_OK)
        status = judge(opened, &err);
    if (status != ULL_OK) {
        cli_say("%s", err.message);
        return EXIT_FAILED;
    }
    opened->input.history = opened->history;
    opened->input.facts = opened->facts;
    opened->input.figures = opened->figures;
    opened->input.verdict = &opened->verdict;
    opened->input.host_verdict = &opened->host_verdict;
    return 0;
}

/* Into memory first for a file, which is then replaced as a whole. */
static int write_file(const struct options *options, const struct report_input *input)
{
    struct ull_error err;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    ull_status status = out ? options->format->write(input, out, &err)
                            : ull__fail(&err, ULL_E_SYSTEM, "no memory for the report");
    if (out && fclose(out) != 0 && status == ULL_OK)
        status = ull__fail(&err, ULL_E_SYSTEM, "no memory for the report");
    if (status == ULL_OK)
        status = ull__file_write(options->output, text, size, &err);
    free(text);
    if (status != ULL_OK)
        cli_say("%s", err.message);
    return status == ULL_OK ? EXIT_OK : EXIT_FAILED;
}

static int write_out(const struct options *options, const struct report_input *input)
{
    struct ull_error err;
    if (options->output)
        return write_file(options, input);
    if (options->format->write(input, stdout, &err) != ULL_OK) {
        cli_say("%s", err.message);
        return EXIT_FAILED;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (errno != EPIPE) /* who reads has had enough */
            cli_say("cannot write the report: %s", strerror(errno));
        return EXIT_FAILED;
    }
    return EXIT_OK;
}

int cmd_report(int argc, char **argv)
{
    struct options options = {0};
    struct report_look look;
    struct opened now = {0}, before = {0};
    int code = parse_options(argc, argv, &options);
    if (code != 0)
        return code < 0 ? EXIT_OK : code;
    find_look(&options, &look);
    code = open_file(options.file, &options, &look, &now);
    if (code == 0 && options.before) {
        code = open_file(options.before, &options, &look, &before);
        now.input.before = &before.input;
    }
    if (code == 0)
        code = write_out(&options, &now.input);
    close_file(&now);
    close_file(&before);
    return code;
}
