/* settings.c: see settings.h. */
#include "settings.h"

#include <getopt.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "conf.h"
#include "ledger.h"
#include "procfs.h"
#include "say.h"
#include "size.h"

enum { USAGE = 2 };

static void print_help(void)
{
    printf("Usage: ullaged [OPTION...]\n"
           "\n"
           "Shares cards among jobs of ullage run: who waits, who may grow, who is moved to the "
           "host.\n"
           "Run by root it serves all users, else its own user.\n"
           "\n"
           "      --socket PATH          where clients connect\n"
           "      --listen ADDRESS:PORT  page and metrics (default 127.0.0.1:9836; none: neither)\n"
           "      --token-file FILE      holds the token that the page asks for before it acts\n"
           "      --history FILE         database of past use (none: keep none)\n"
           "      --processes            metrics of single processes too\n"
           "  -h, --help                 this text\n"
           "  -V, --version              the version\n"
           "\n"
           "The configuration file may also set: watermark, slice, patience, allocation_wait,\n"
           "host_memory, suspend, operators, max_priority; see ullaged(8).\n");
}

static int bad(const struct ull__conf_item *item, const char *key, const char *expected)
{
    say(LOG_ERROR, "%s is '%.60s' (%s): expected %s", key, item->value, item->set_by, expected);
    return USAGE;
}

/* "30s", "500ms", "10min", or seconds. */
static bool parse_time(const char *text, uint64_t *ns)
{
    char *end;
    double value = strtod(text, &end);
    double unit = strcmp(end, "ms") == 0                 ? 1e6
                  : strcmp(end, "min") == 0              ? 60e9
                  : strcmp(end, "s") == 0 || end[0] == 0 ? 1e9
                                                         : 0;
    if (end == text || unit == 0 || !(value > 0) || !(value * unit <= 1e18))
        return false;
    *ns = (uint64_t)(value * unit);
    return true;
}

static int take_times(const struct ull__conf *conf, struct settings *s)
{
    const struct {
        enum ull__conf_key key;
        uint64_t *ns;
    } times[] = {{ULL_CONF_SLICE, &s->arbiter.slice_ns},
                 {ULL_CONF_PATIENCE, &s->arbiter.patience_ns},
                 {ULL_CONF_ALLOCATION_WAIT, &s->arbiter.want_ns}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        const struct ull__conf_item *item = &conf->item[times[i].key];
        if (item->set && !parse_time(item->value, times[i].ns))
            return bad(item, ull__conf_name(times[i].key), "a time as 30s, 500ms or 10min");
    }
    return 0;
}

static int take_watermark(const struct ull__conf_item *item, struct settings *s)
{
    char *end;
    double value = strtod(item->value, &end);
    if (strcmp(end, "%") == 0)
        value /= 100;
    else if (*end)
        value = 0;
    if (!(value >= 0.60 && value <= 0.90))
        return bad(item, "watermark", "60% to 90% of a card");
    s->arbiter.watermark = value;
    return 0;
}

static int take_host(const struct ull__conf_item *item, struct settings *s)
{
    struct ull_size size = {.percent = 80};
    struct ull_error err;
    if (item->set && ull__size_or_share_parse(item->value, &size, &err) != ULL_OK)
        return bad(item, "host_memory", "a size as 64GiB, or 80% of what is free at the start");
    s->host_percent = size.percent;
    s->arbiter.host_bytes = size.percent > 0
                                ? (uint64_t)((double)proc_memory_available() * size.percent / 100)
                                : size.bytes;
    return 0;
}

static int take_policy(const struct ull__conf *conf, struct settings *s)
{
    const struct ull__conf_item *suspend = &conf->item[ULL_CONF_SUSPEND];
    const struct ull__conf_item *group = &conf->item[ULL_CONF_OPERATORS];
    const struct ull__conf_item *most = &conf->item[ULL_CONF_MAX_PRIORITY];
    s->suspend_all = !suspend->set || strcmp(suspend->value, "all") == 0;
    if (suspend->set && !s->suspend_all && strcmp(suspend->value, "asked") != 0)
        return bad(suspend, "suspend", "'all', or 'asked' for jobs with --suspendable only");
    if (group->set) {
        const struct group *found = getgrnam(group->value);
        if (!found)
            return bad(group, "operators", "the name of a group");
        s->has_operators = true;
        s->operators = found->gr_gid;
    }
    s->max_priority = 1000;
    if (most->set) {
        char *end;
        long value = strtol(most->value, &end, 10);
        if (*end || end == most->value || value < -1000 || value > 1000)
            return bad(most, "max_priority", "a number from -1000 to 1000");
        s->max_priority = (int)value;
    }
    return 0;
}

static void default_history(char path[ULL_FILE_PATH])
{
    char folder[ULL_FILE_PATH];
    struct ull_error err;
    const char *asked = getenv("STATE_DIRECTORY"); /* by systemd */
    if (asked && strlen(asked) + 16 < ULL_FILE_PATH)
        snprintf(path, ULL_FILE_PATH, "%s/history.db", asked);
    else if (ull__state_folder(folder) && strlen(folder) + 16 < ULL_FILE_PATH &&
             ull__folder_create(folder, &err) == ULL_OK)
        snprintf(path, ULL_FILE_PATH, "%.4000s/history.db", folder);
}

static int take_places(const struct ull__conf *conf, struct settings *s)
{
    const struct ull__conf_item *item = conf->item;
    char ledgers[ULL_PATH_TEXT];
    struct ull_error err = {""};
    const char *asked = item[ULL_CONF_SOCKET].set ? item[ULL_CONF_SOCKET].value : NULL;
    if (ull__ledger_folder(true, ledgers, &err) != ULL_OK) {
        say(LOG_ERROR, "%s", err.message);
        return 1;
    }
    if (ull__ipc_socket_path(asked, ledgers, s->socket, &err) != ULL_OK) {
        say(LOG_ERROR, "%s", err.message);
        return USAGE;
    }
    snprintf(s->listen, sizeof s->listen, "%.63s",
             item[ULL_CONF_LISTEN].set ? item[ULL_CONF_LISTEN].value : "127.0.0.1:9836");
    if (strcmp(s->listen, "none") == 0)
        s->listen[0] = 0;
    if (item[ULL_CONF_TOKEN_FILE].set)
        snprintf(s->token_file, sizeof s->token_file, "%s", item[ULL_CONF_TOKEN_FILE].value);
    if (!item[ULL_CONF_HISTORY].set)
        default_history(s->history);
    else if (strcmp(item[ULL_CONF_HISTORY].value, "none") != 0)
        snprintf(s->history, sizeof s->history, "%s", item[ULL_CONF_HISTORY].value);
    return 0;
}

static int take(const struct ull__conf *conf, struct settings *s)
{
    int code = take_times(conf, s);
    if (code == 0 && conf->item[ULL_CONF_WATERMARK].set)
        code = take_watermark(&conf->item[ULL_CONF_WATERMARK], s);
    if (code == 0)
        code = take_host(&conf->item[ULL_CONF_HOST_MEMORY], s);
    if (code == 0)
        code = take_policy(conf, s);
    return code == 0 ? take_places(conf, s) : code;
}

int settings_parse(int argc, char **argv, struct settings *settings)
{
    enum { SOCKET = 256, LISTEN, TOKEN, HISTORY, PROCESSES };
    static const struct option longs[] = {{"socket", required_argument, NULL, SOCKET},
                                          {"listen", required_argument, NULL, LISTEN},
                                          {"token-file", required_argument, NULL, TOKEN},
                                          {"history", required_argument, NULL, HISTORY},
                                          {"processes", no_argument, NULL, PROCESSES},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'V'},
                                          {0}};
    static const enum ull__conf_key keys[] = {ULL_CONF_SOCKET, ULL_CONF_LISTEN, ULL_CONF_TOKEN_FILE,
                                              ULL_CONF_HISTORY};
    static struct ull__conf conf;
    struct ull_error err = {""};
    int option;
    memset(&conf, 0, sizeof conf); /* it may be read again */
    optind = 0;
    if (ull__conf_load(&conf, &err) != ULL_OK) {
        say(LOG_ERROR, "%s", err.message);
        return USAGE;
    }
    while ((option = getopt_long(argc, argv, "hV", longs, NULL)) != -1) {
        if (option >= SOCKET && option <= HISTORY) {
            if (ull__conf_set(&conf, keys[option - SOCKET], optarg, "on the command line", &err) !=
                ULL_OK) {
                say(LOG_ERROR, "%s", err.message);
                return USAGE;
            }
        } else if (option == PROCESSES) {
            settings->processes = true;
        } else if (option == 'h') {
            print_help();
            return -1;
        } else if (option == 'V') {
            printf("ullaged %s\n", ULLAGE_VERSION);
            return -1;
        } else {
            fprintf(stderr, "Try 'ullaged --help'.\n");
            return USAGE;
        }
    }
    if (optind < argc) {
        say(LOG_ERROR, "'%.80s' is too much: expected options only", argv[optind]);
        return USAGE;
    }
    return take(&conf, settings);
}
