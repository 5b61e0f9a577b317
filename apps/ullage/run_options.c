/* run_options.c: see run_options.h. */
#include "run_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static void print_help(void)
{
    printf(
        "Usage: ullage run [OPTION...] -- COMMAND [ARG...]\n"
        "\n"
        "Runs COMMAND, and all that it starts, inside a GPU memory budget.\n"
        "\n"
        "  -m, --memory SIZE|PCT      budget on every GPU: 4GiB, 4096M, 4GB, or 40%% of each card\n"
        "  -m DEV=SIZE|PCT,...        budgets by device as the command counts them: 0=4GiB,1=40%%\n"
        "  -g, --gpus LIST            GPUs to use: indexes as nvidia-smi counts, UUIDs, or "
        "'local'\n"
        "                             for the one of this process's local rank\n"
        "      --growth               make frameworks start small and grow\n"
        "      --request SIZE         of the budget, what is promised: made free for it when "
        "needed\n"
        "      --wait[=SECONDS]       start only when there is room (for the request, or the "
        "budget)\n"
        "      --prewarm SIZE|last    have that much free before it starts; last: its last peak\n"
        "      --priority N           higher goes first where jobs share a card (default 0)\n"
        "      --group NAME           jobs of one group are suspended together or not at all\n"
        "      --collective-timeout SECONDS  how long the group's collectives wait: it is not\n"
        "                             suspended for longer (default 600; 0: for as long as it "
        "takes)\n"
        "      --each                 a budget of its own for every direct child\n"
        "      --suspendable          let `ullage suspend` move it out at the speed of the bus\n"
        "      --pinned SIZE|none     host memory kept for that, so that it is faster (default "
        "none)\n"
        "      --driver-pools         with --suspendable: leave cudaMallocAsync's pools to the "
        "driver, "
        "where\n"
        "                             they stay on the card\n"
        "      --spill SIZE           what does not fit goes to host memory, at most SIZE; slow\n"
        "      --max-request SIZE     refuse larger single allocations\n"
        "      --name NAME            name of the job (default: the command's)\n"
        "      --report FILE          write a report in JSON\n"
        "      --record FILE          record every allocation, for `ullage report`\n"
        "      --stacks               with --record: also where in the program each was made\n"
        "  -q, --quiet                no refusal lines and no summary\n"
        "  -h, --help                 this text\n"
        "\n"
        "Configuration, the later wins: /etc/ullage/ullage.conf,\n"
        "$XDG_CONFIG_HOME/ullage/ullage.conf (keys memory, growth, report, log, max_request),\n"
        "ULLAGE_MEMORY, ULLAGE_GROWTH, ULLAGE_REPORT, ULLAGE_LOG, options.\n"
        "\n"
        "--request, --wait and --prewarm need the daemon ullaged.\n"
        "\n"
        "Exit code: the command's; 128+N if signal N ended it; 1 refused or no room in time;\n"
        "2 usage; 3 no such device; 4 not permitted; 5 no daemon where one is needed;\n"
        "125 ullage itself failed and nothing was started; 126 cannot execute; 127 not found.\n");
}

/* What needs no machine to be known wrong. */
static int check_values(struct run_options *options)
{
    struct ull_error err;
    struct ull__conf *conf = &options->conf;
    const struct ull__conf_item *memory = &conf->item[ULL_CONF_MEMORY];
    const struct ull__conf_item *request = &conf->item[ULL_CONF_MAX_REQUEST];
    if (memory->set && budget_parse(memory->value, &options->budget, &err) != ULL_OK)
        return cli_usage_error("run", "%s (%s)", err.message, memory->set_by);
    if (request->set && ull__size_parse(request->value, &options->max_request, &err) != ULL_OK)
        return cli_usage_error("run", "%s (%s)", err.message, request->set_by);
    if (ull__conf_bool(conf, ULL_CONF_GROWTH, &options->growth, &err) != ULL_OK)
        return cli_usage_error("run", "%s", err.message);
    return 0;
}

static int set_from_call(struct run_options *options, enum ull__conf_key key, const char *value,
                         const char *option)
{
    struct ull_error err;
    char set_by[64];
    snprintf(set_by, sizeof set_by, "%s on the command line", option);
    if (ull__conf_set(&options->conf, key, value, set_by, &err) != ULL_OK)
        return cli_usage_error("run", "%s", err.message);
    return 0;
}

static int check_name(const char *name)
{
    if (name[0] == 0 || strlen(name) >= ULL_NAME_TEXT || strpbrk(name, "\n\t"))
        return cli_usage_error("run", "--name '%.80s': expected 1 to %d characters in one line",
                               name, ULL_NAME_TEXT - 1);
    return 0;
}

enum {
    GROWTH = 256,
    EACH,
    MAX_REQUEST,
    NAME,
    REPORT,
    RECORD,
    STACKS,
    SUSPENDABLE,
    DRIVER_POOLS,
    SPILL,
    PINNED,
    PRIORITY,
    REQUEST,
    WAIT,
    PREWARM,
    GROUP,
    COLLECTIVE_TIMEOUT
};

static int set_sizes(struct budget *sizes, const char *option, const char *value)
{
    struct ull_error err;
    if (budget_parse(value, sizes, &err) != ULL_OK)
        return cli_usage_error("run", "%s: %s", option, err.message);
    return 0;
}

static int set_wait(struct run_options *options, const char *value)
{
    char *end = NULL;
    options->wait = true;
    options->wait_s = value ? strtod(value, &end) : 0;
    if (value && (*end || end == value || !(options->wait_s > 0 && options->wait_s <= 1e9)))
        return cli_usage_error("run", "--wait is '%.40s': expected seconds, as --wait=600", value);
    return 0;
}

static int set_priority(struct run_options *options, const char *value)
{
    char *end;
    long priority = strtol(value, &end, 10);
    if (*end || end == value || priority < -1000 || priority > 1000)
        return cli_usage_error("run", "--priority is '%.40s': expected -1000 to 1000", value);
    options->priority = (int)priority;
    return 0;
}

static int set_collective_timeout(struct run_options *options, const char *value)
{
    char *end;
    unsigned long seconds = strtoul(value, &end, 10);
    if (*end || end == value || value[0] == '-' || seconds > 31536000)
        return cli_usage_error(
            "run", "--collective-timeout is '%.40s': expected 0 to 31536000 seconds", value);
    options->has_collective_timeout = true;
    options->collective_timeout_s = (unsigned int)seconds;
    return 0;
}

static int set_sharing(struct run_options *options, int option, const char *value)
{
    switch (option) {
    case PRIORITY:
        return set_priority(options, value);
    case REQUEST:
        return set_sizes(&options->request, "--request", value);
    case WAIT:
        return set_wait(options, value);
    case PREWARM:
        options->prewarm_last = strcmp(value, "last") == 0;
        return options->prewarm_last ? 0 : set_sizes(&options->prewarm, "--prewarm", value);
    case COLLECTIVE_TIMEOUT:
        return set_collective_timeout(options, value);
    default: /* GROUP */
        options->group = value;
        if (!value[0] || strlen(value) >= ULL_NAME_TEXT || strpbrk(value, "\n\t"))
            return cli_usage_error("run", "--group '%.80s': expected 1 to %d characters", value,
                                   ULL_NAME_TEXT - 1);
        return 0;
    }
}

static int set_pinned(struct run_options *options, const char *value)
{
    struct ull_error err;
    options->never_pins = strcmp(value, "none") == 0;
    options->pinned = 0;
    if (!options->never_pins && ull__size_parse(value, &options->pinned, &err) != ULL_OK)
        return cli_usage_error("run", "%s (--pinned on the command line)", err.message);
    return 0;
}

int run_options_parse(int argc, char **argv, struct run_options *options)
{
    static const struct option longs[] = {
        {"memory", required_argument, NULL, 'm'},
        {"gpus", required_argument, NULL, 'g'},
        {"growth", no_argument, NULL, GROWTH},
        {"each", no_argument, NULL, EACH},
        {"max-request", required_argument, NULL, MAX_REQUEST},
        {"name", required_argument, NULL, NAME},
        {"report", required_argument, NULL, REPORT},
        {"record", required_argument, NULL, RECORD},
        {"stacks", no_argument, NULL, STACKS},
        {"priority", required_argument, NULL, PRIORITY},
        {"request", required_argument, NULL, REQUEST},
        {"wait", optional_argument, NULL, WAIT},
        {"prewarm", required_argument, NULL, PREWARM},
        {"group", required_argument, NULL, GROUP},
        {"collective-timeout", required_argument, NULL, COLLECTIVE_TIMEOUT},
        {"suspendable", no_argument, NULL, SUSPENDABLE},
        {"driver-pools", no_argument, NULL, DRIVER_POOLS},
        {"spill", required_argument, NULL, SPILL},
        {"pinned", required_argument, NULL, PINNED},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {0}};
    struct ull_error err;
    int option, code = 0;
    memset(options, 0, sizeof *options);
    ull_status loaded = ull__conf_load(&options->conf, &err);
    optind = 1;
    while (code == 0 && (option = getopt_long(argc, argv, "+:m:g:qh", longs, NULL)) != -1) {
        switch (option) {
        case 'm':
            options->budget_from_call = true;
            code = set_from_call(options, ULL_CONF_MEMORY, optarg, "-m");
            break;
        case 'g':
            options->gpus = optarg;
            break;
        case GROWTH:
            code = set_from_call(options, ULL_CONF_GROWTH, "true", "--growth");
            break;
        case EACH:
            options->each = true;
            break;
        case MAX_REQUEST:
            code = set_from_call(options, ULL_CONF_MAX_REQUEST, optarg, "--max-request");
            break;
        case NAME:
            options->name = optarg;
            code = check_name(optarg);
            break;
        case REPORT:
            code = set_from_call(options, ULL_CONF_REPORT, optarg, "--report");
            break;
        case RECORD:
            options->record = optarg;
            if (!optarg[0])
                code = cli_usage_error("run", "--record: expected the path of a file");
            break;
        case PRIORITY:
        case REQUEST:
        case WAIT:
        case PREWARM:
        case GROUP:
        case COLLECTIVE_TIMEOUT:
            code = set_sharing(options, option, optarg);
            break;
        case SUSPENDABLE:
            options->suspendable = true;
            break;
        case DRIVER_POOLS:
            options->driver_pools = true;
            break;
        case SPILL:
            if (ull__size_parse(optarg, &options->spill, &err) != ULL_OK)
                code = cli_usage_error("run", "%s (--spill on the command line)", err.message);
            break;
        case PINNED:
            code = set_pinned(options, optarg);
            break;
        case STACKS:
            options->stacks = true;
            break;
        case 'q':
            options->quiet = true;
            break;
        case 'h':
            print_help();
            return -1;
        default:
            return cli_bad_option("run", option, argv);
        }
    }
    if (code != 0)
        return code;
    if (loaded != ULL_OK)
        return cli_usage_error("run", "%s", err.message);
    if (optind == argc)
        return cli_usage_error("run",
                               "no command: expected ullage run [OPTION...] -- COMMAND [ARG...]");
    if ((options->pinned || options->never_pins) && !options->suspendable)
        return cli_usage_error("run", "--pinned needs --suspendable: only such a job moves itself");
    if (options->has_collective_timeout && !options->group)
        return cli_usage_error(
            "run", "--collective-timeout is for jobs of a group: give --group NAME, too");
    if (options->stacks && !options->record)
        return cli_usage_error("run", "--stacks needs --record FILE, where the stacks go");
    if (options->driver_pools && !options->suspendable)
        return cli_usage_error("run", "--driver-pools means something with --suspendable only: "
                                      "without it all pools are the driver's");
    options->command = argv + optind;
    return check_values(options);
}

void run_options_describe(const struct run_options *options, char *text, size_t size)
{
    /* What decides about memory comes first, should the text be cut. */
    static const enum ull__conf_key order[] = {ULL_CONF_MEMORY, ULL_CONF_GROWTH,
                                               ULL_CONF_MAX_REQUEST, ULL_CONF_REPORT, ULL_CONF_LOG};
    size_t used = 0;
    text[0] = 0;
    if (!options->conf.item[ULL_CONF_MEMORY].set)
        used = (size_t)snprintf(text, size, "memory=100%% (built in: no budget was given)");
    for (size_t i = 0; i < sizeof order / sizeof *order && used < size; i++) {
        const struct ull__conf_item *item = &options->conf.item[order[i]];
        if (item->set)
            used += (size_t)snprintf(text + used, size - used, "%s%s=%s (%s)", used ? "; " : "",
                                     ull__conf_name(order[i]), item->value, item->set_by);
    }
    if (options->gpus && used < size)
        used += (size_t)snprintf(text + used, size - used, "; gpus=%s (-g on the command line)",
                                 options->gpus);
    if (options->each && used < size)
        used +=
            (size_t)snprintf(text + used, size - used, "; each=true (--each on the command line)");
    if (options->spill && used < size) {
        char spill[ULL_SIZE_TEXT];
        snprintf(text + used, size - used, "; spill=%s (--spill on the command line)",
                 ull__size_text(options->spill, spill));
        used = strlen(text);
    }
    if (options->pinned && used < size) {
        char pinned[ULL_SIZE_TEXT];
        snprintf(text + used, size - used, "; pinned=%s (--pinned on the command line)",
                 ull__size_text(options->pinned, pinned));
    }
}
