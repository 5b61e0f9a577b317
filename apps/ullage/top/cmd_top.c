/*
 * cmd_top.c: `ullage top` shows cards, jobs and processes as they change, on a terminal; elsewhere as a table
 * or JSON.
 *
 * One thread collects (watch.h), this one waits for keys, samples and signals, and draws. Signals are blocked
 * and read from a descriptor, so that none can end the program without the terminal being given back.
 */
#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "aim.h"
#include "cli.h"
#include "collect.h"
#include "keys.h"
#include "plain.h"
#include "screen.h"
#include "watch.h"

enum { PLAIN_WIDTH = 80, WIDTH_MOST = 1000, TICK_MS = 1000, ROUNDS_MOST = 1000000000 };
enum plain_format { PLAIN_NONE, PLAIN_TABLE, PLAIN_JSON, PLAIN_NDJSON };

struct options {
    struct view view;
    enum plain_format format;
    long rounds; /* 0: until it is ended; -1: not given */
    bool ascii;
};

static void print_help(void)
{
    printf("Usage: ullage top [-d SECONDS] [--sort COLUMN] [--filter TEXT] [--readonly] ...\n"
           "       ullage top -o table|json|ndjson [-n ROUNDS] [-d SECONDS] ...\n"
           "\n"
           "Shows what GPUs are used for, by whom, and how that changes. '?' lists the keys.\n"
           "Where there is no terminal, or with -o or -n, prints a table or JSON instead.\n"
           "\n"
           "  -d, --delay SECONDS  between two rounds, 0.1 to 3600 (1)\n"
           "  -s, --sort COLUMN    name, pid, user, budget, held (default), peak, use or trend\n"
           "  -r, --reverse        sorts the other way round\n"
           "  -f, --filter TEXT    only what contains it: job, command, user or pid\n"
           "      --flat           no tree of processes\n"
           "      --readonly       no key sends a signal\n"
           "      --ascii          draws with ASCII only\n"
           "  -n, --rounds N       prints N times, 0 without end (1)\n"
           "  -o, --output FORMAT  table, json, or ndjson (a document a line)\n"
           "  -h, --help           this text\n"
           "\n"
           "Asks the driver's management library only, and never makes a context. NO_COLOR is "
           "heeded.\n");
}

/* --- without a screen -------------------------------------------------------------------------------------- */

static int plain_width(void)
{
    const char *text = getenv("COLUMNS");
    long width = text ? strtol(text, NULL, 10) : 0;
    return width >= LAYOUT_LEAST_WIDTH && width <= WIDTH_MOST ? (int)width : PLAIN_WIDTH;
}

static bool print_sample(const struct options *options, const struct sample *sample)
{
    if (options->format == PLAIN_JSON || options->format == PLAIN_NDJSON)
        return plain_json(sample, &options->view, options->format == PLAIN_NDJSON);
    return plain_table(sample, &options->view, plain_width(), options->ascii);
}

static void sleep_until(struct timespec *due, double seconds)
{
    due->tv_sec += (time_t)seconds;
    due->tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (due->tv_nsec >= 1000000000) {
        due->tv_nsec -= 1000000000;
        due->tv_sec++;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, due, NULL) == EINTR)
        ;
}

static int run_plain(const struct options *options)
{
    struct collector *collector = collector_create();
    long rounds = options->rounds < 0 ? 1 : options->rounds;
    struct timespec due;
    int code = EXIT_OK;
    clock_gettime(CLOCK_MONOTONIC, &due);
    for (long round = 0; code == EXIT_OK && (rounds == 0 || round < rounds); round++) {
        if (round > 0)
            sleep_until(&due, options->view.seconds);
        struct sample *sample = collector ? collector_round(collector) : NULL;
        if (!sample) {
            cli_say("no memory for the list of jobs");
            code = EXIT_FAILED;
            break;
        }
        if (round > 0 && options->format == PLAIN_TABLE)
            putchar('\n');
        if (!print_sample(options, sample))
            code = EXIT_FAILED;
        else if (rounds == 1 && sample->device_count == 0 && sample->job_count == 0)
            code = EXIT_NO_DEVICE;
        sample_destroy(sample);
    }
    collector_destroy(collector);
    return code;
}

/* --- on a screen -------------------------------------------------------------------------------------------- */

struct top {
    struct options *options;
    struct view *view;
    struct sample *sample;
    struct watch *watch;
    char host[65];
    int signals; /* descriptor */
    int aimed;   /* pidfd of whom a signal may be sent to, or -1 */
    int ended_by;
    bool quit, dirty;
};

static int room(const struct top *top)
{
    int width, height;
    screen_size(&width, &height);
    return layout_room(top->sample, top->view, width, height);
}

static void draw(struct top *top)
{
    struct layout_about about = {.host = top->host, .now_ns = cli_monotonic_ns()};
    struct grid grid;
    int width, height;
    screen_size(&width, &height);
    if (!grid_init(&grid, width, height, top->options->ascii))
        return;
    layout_draw(&grid, top->sample, top->view, &about);
    screen_draw(&grid);
    grid_finish(&grid);
    top->dirty = false;
}

static void let_go(struct top *top)
{
    if (top->aimed >= 0)
        close(top->aimed);
    top->aimed = -1;
}

static void take_aim(struct top *top)
{
    struct ull_error err;
    struct view *view = top->view;
    let_go(top);
    if (aim_open(view->target.pid, view->target.start_ticks, &top->aimed, &err) == ULL_OK)
        return;
    top->aimed = -1;
    view->prompt = PROMPT_NONE;
    snprintf(view->message, sizeof view->message, "%.150s", err.message);
}

static void send_signal(struct top *top)
{
    struct ull_error err;
    struct view *view = top->view;
    if (top->aimed >= 0 && aim_send(top->aimed, view->signal, &err) == ULL_OK)
        snprintf(view->message, sizeof view->message, "%s sent to %.120s",
                 keys_signal_name(view->signal), view->target_name);
    else if (top->aimed >= 0)
        snprintf(view->message, sizeof view->message, "%.80s: %.100s", view->target_name,
                 err.message);
    let_go(top);
}

static void stay_inside(struct top *top)
{
    int width, height;
    screen_size(&width, &height);
    if (top->view->page == PAGE_MAIN) {
        keys_follow(top->view, top->sample, room(top));
    } else {
        int end = layout_scroll_end(top->sample, top->view, width, height);
        top->view->scroll = top->view->scroll < end ? top->view->scroll : end;
    }
    top->dirty = true;
}

static void handle_key(struct top *top, int key)
{
    switch (keys_press(top->view, top->sample, room(top), key)) {
    case ACTION_QUIT:
        top->quit = true;
        break;
    case ACTION_AIM:
        take_aim(top);
        break;
    case ACTION_SIGNAL:
        send_signal(top);
        break;
    case ACTION_LET_GO:
        let_go(top);
        break;
    case ACTION_SECONDS:
        watch_set_seconds(top->watch, top->view->seconds);
        break;
    case ACTION_REDRAW:
        screen_spoil();
        break;
    case ACTION_NONE:
        break;
    }
    stay_inside(top);
}

static void handle_keys(struct top *top)
{
    int key;
    while (!top->quit && (key = screen_key()) >= 0)
        handle_key(top, key);
    if (!top->quit && key == -2)
        top->quit = true;
}

/* Stops as any program would, with the terminal as it was. */
static void stop(struct top *top)
{
    sigset_t one;
    screen_leave();
    sigemptyset(&one);
    sigaddset(&one, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &one, NULL); /* here it stops, and here it goes on */
    sigprocmask(SIG_BLOCK, &one, NULL);
    screen_return();
    stay_inside(top);
}

static void handle_signal(struct top *top)
{
    struct signalfd_siginfo info;
    if (read(top->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    switch (info.ssi_signo) {
    case SIGWINCH:
        screen_resize();
        stay_inside(top);
        break;
    case SIGTSTP:
        stop(top);
        break;
    case SIGCONT: /* after a stop that nobody could see coming */
        screen_return();
        stay_inside(top);
        break;
    default:
        top->ended_by = (int)info.ssi_signo;
        top->quit = true;
    }
}

static void take_sample(struct top *top)
{
    struct sample *sample = watch_take(top->watch);
    if (!sample)
        return;
    sample_destroy(top->sample);
    top->sample = sample;
    stay_inside(top);
}

static void loop(struct top *top)
{
    top->dirty = true;
    while (!top->quit) {
        struct pollfd waited[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                  {.fd = top->signals, .events = POLLIN},
                                  {.fd = watch_fd(top->watch), .events = POLLIN}};
        if (top->dirty)
            draw(top);
        int ready = poll(waited, 3, TICK_MS);
        if (ready < 0 && errno != EINTR)
            return;
        if (ready == 0) /* the age of the sample, which may be late */
            top->dirty = true;
        if (ready <= 0)
            continue;
        if (waited[1].revents)
            handle_signal(top);
        if (waited[2].revents)
            take_sample(top);
        if (waited[0].revents & POLLIN)
            handle_keys(top);
        if (waited[0].revents & (POLLHUP | POLLERR | POLLNVAL))
            return;
    }
}

/* All that would end or stop us, before ncurses or a thread could take them. */
static int block_signals(sigset_t *before)
{
    static const int blocked[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof blocked / sizeof *blocked; i++)
        sigaddset(&set, blocked[i]);
    sigprocmask(SIG_BLOCK, &set, before);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* As the signal would have done, so that whoever started us sees it. */
static void end_by(int number)
{
    sigset_t one;
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigaction(number, &standard, NULL);
    sigemptyset(&one);
    sigaddset(&one, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
}

static int run_screen(struct options *options)
{
    static const int ours[] = {SIGTSTP, SIGINT, SIGTERM};
    struct sigaction standard = {.sa_handler = SIG_DFL};
    struct top top = {.options = options, .view = &options->view, .aimed = -1};
    const char *no_color = getenv("NO_COLOR");
    sigset_t before;
    if (gethostname(top.host, sizeof top.host - 1) != 0)
        top.host[0] = 0;
    top.signals = block_signals(&before);
    top.watch = top.signals < 0 ? NULL : watch_start(options->view.seconds);
    if (!top.watch) {
        cli_say("cannot begin to watch: %s", strerror(errno));
        return EXIT_FAILED;
    }
    if (!screen_open(!no_color || !no_color[0])) {
        watch_stop(top.watch);
        close(top.signals);
        sigprocmask(SIG_SETMASK, &before, NULL);
        options->format = PLAIN_TABLE;
        return run_plain(options);
    }
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        sigaction(ours[i], &standard, NULL); /* ncurses has put handlers of its own there */
    loop(&top);
    screen_close();
    let_go(&top);
    sample_destroy(top.sample);
    watch_stop(top.watch);
    close(top.signals);
    if (top.ended_by)
        end_by(top.ended_by);
    return EXIT_OK;
}

/* --- options ------------------------------------------------------------------------------------------------- */

static bool parse_format(const char *text, enum plain_format *format)
{
    static const char *const names[] = {"table", "json", "ndjson"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *format = (enum plain_format)(PLAIN_TABLE + i);
            return true;
        }
    }
    return false;
}

static bool parse_rounds(const char *text, long *rounds)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != 0 || value < 0 || value > ROUNDS_MOST)
        return false;
    *rounds = value;
    return true;
}

enum { FLAT = 256, READONLY, ASCII };

/* EXIT_OK to go on. */
static int take_option(struct options *options, int option, char **argv)
{
    struct view *view = &options->view;
    switch (option) {
    case 'd':
        if (!keys_parse_seconds(optarg, &view->seconds))
            return cli_usage_error("top", "-d is '%.40s': expected seconds from %g to %g", optarg,
                                   SECONDS_LEAST, SECONDS_MOST);
        return EXIT_OK;
    case 's':
        if (!view_sort_parse(optarg, &view->sort))
            return cli_usage_error("top",
                                   "--sort is '%.40s': expected name, pid, user, budget, held, "
                                   "peak, use or trend",
                                   optarg);
        return EXIT_OK;
    case 'r':
        view->reversed = true;
        return EXIT_OK;
    case 'f':
        if (strlen(optarg) >= sizeof view->filter)
            return cli_usage_error("top", "--filter is longer than %zu bytes",
                                   sizeof view->filter - 1);
        strcpy(view->filter, optarg);
        return EXIT_OK;
    case FLAT:
        view->flat = true;
        return EXIT_OK;
    case READONLY:
        view->readonly = true;
        return EXIT_OK;
    case ASCII:
        options->ascii = true;
        return EXIT_OK;
    case 'n':
        if (!parse_rounds(optarg, &options->rounds))
            return cli_usage_error(
                "top", "-n is '%.40s': expected a number of rounds, 0 without end", optarg);
        return EXIT_OK;
    case 'o':
        if (!parse_format(optarg, &options->format))
            return cli_usage_error("top", "-o is '%.40s': expected table, json or ndjson", optarg);
        return EXIT_OK;
    default:
        return cli_bad_option("top", option, argv);
    }
}

int cmd_top(int argc, char **argv)
{
    static const struct option longs[] = {{"delay", required_argument, NULL, 'd'},
                                          {"sort", required_argument, NULL, 's'},
                                          {"reverse", no_argument, NULL, 'r'},
                                          {"filter", required_argument, NULL, 'f'},
                                          {"flat", no_argument, NULL, FLAT},
                                          {"readonly", no_argument, NULL, READONLY},
                                          {"ascii", no_argument, NULL, ASCII},
                                          {"rounds", required_argument, NULL, 'n'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    struct options options = {.rounds = -1};
    int option;
    view_init(&options.view);
    setlocale(LC_CTYPE, "");
    optind = 1;
    while ((option = getopt_long(argc, argv, ":d:s:rf:n:o:h", longs, NULL)) != -1) {
        if (option == 'h') {
            print_help();
            return EXIT_OK;
        }
        int code = take_option(&options, option, argv);
        if (code != EXIT_OK)
            return code;
    }
    if (optind < argc)
        return cli_usage_error("top", "'%.80s' is too much: expected options only", argv[optind]);
    if (options.format == PLAIN_JSON && options.rounds >= 0 && options.rounds != 1)
        return cli_usage_error("top", "-o json is one document: with -n use -o ndjson");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        options.ascii = true;
    if (options.format == PLAIN_NONE && options.rounds < 0 && isatty(STDIN_FILENO) &&
        isatty(STDOUT_FILENO))
        return run_screen(&options);
    if (options.format == PLAIN_NONE)
        options.format = PLAIN_TABLE;
    return run_plain(&options);
}
