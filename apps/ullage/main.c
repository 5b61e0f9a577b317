/*
 * main.c: the command line `ullage`. Finds the verb in a table and hands over; see cmd_*.c.
 */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "self.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"run", cmd_run, "run a program and all it starts inside a GPU memory budget"},
    {"ps", cmd_ps, "show jobs, their processes and what they hold"},
    {"top", cmd_top, "watch cards, jobs and processes as they change"},
    {"budget", cmd_budget, "change what a running job may hold"},
    {"suspend", cmd_suspend, "move a job's GPU memory to the host; it waits there"},
    {"resume", cmd_resume, "bring a suspended job back to its card"},
    {"query", cmd_query, "answer nvidia-smi's queries for memory, and more"},
    {"report", cmd_report, "tell what a recorded run did with GPU memory"},
#ifdef ULLAGE_EXTRAS
    {"sweep", cmd_sweep, "run a program with several limits, to compare them"},
    {"plan", cmd_plan, "predict what a training needs, and make it fit a budget"},
    {"train", cmd_train, "train a model within a memory budget"},
    {"eval", cmd_eval, "evaluate what a training saved, or write text with it"},
#endif
    {"replay", cmd_replay, "play a recorded trace of allocations through the driver"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out)
{
    fprintf(out, "Usage: ullage COMMAND [OPTION...]\n"
                 "\n"
                 "Holds unmodified CUDA programs to a GPU memory budget.\n"
                 "\n"
                 "Commands:\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n"
                 "  ullage run -m 4GiB -- python3 train.py\n"
                 "\n"
                 "'ullage COMMAND --help' explains a command; 'man ullage' explains all.\n");
}

/* Number of inserted, removed and changed letters between two short words (Levenshtein). */
static unsigned int edit_distance(const char *left, const char *right)
{
    unsigned int row[32];
    size_t width = strlen(right);
    if (width >= 32)
        return 32;
    for (size_t i = 0; i <= width; i++)
        row[i] = (unsigned int)i;
    for (size_t y = 1; *left; left++, y++) {
        unsigned int diagonal = row[0];
        row[0] = (unsigned int)y;
        for (size_t x = 1; x <= width; x++) {
            unsigned int best = diagonal + (*left != right[x - 1]);
            diagonal = row[x];
            if (row[x] + 1 < best)
                best = row[x] + 1;
            if (row[x - 1] + 1 < best)
                best = row[x - 1] + 1;
            row[x] = best;
        }
    }
    return row[width];
}

static int unknown_command(const char *word)
{
    char near[128] = "", known[256] = "";
    for (int i = 0; i < COMMANDS; i++) {
        const char *name = commands[i].name;
        size_t length = strlen(known);
        snprintf(known + length, sizeof known - length, "%s%s",
                 i == 0              ? ""
                 : i + 1 == COMMANDS ? " or "
                                     : ", ",
                 name);
        unsigned int far = edit_distance(word, name);
        bool prefix = word[0] && strncmp(word, name, strlen(word)) == 0;
        if (!prefix && (far > 2 || far >= strlen(name)))
            continue;
        size_t used = strlen(near);
        snprintf(near + used, sizeof near - used, "%s'%s'", used ? " or " : "", name);
    }
    if (near[0])
        cli_say("unknown command '%.100s': did you mean %s?", word, near);
    else
        cli_say("unknown command '%.100s': expected %s", word, known);
    fprintf(stderr, "Try 'ullage --help'.\n");
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    ull__hold_standard_streams();
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_help(stdout);
        return EXIT_OK;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("ullage %s\n", ULLAGE_VERSION);
        return EXIT_OK;
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(word, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    return unknown_command(word);
}
