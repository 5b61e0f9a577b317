/*
 * cli.h: what all commands of the command line share.
 *
 * Each verb is one function in a file of its own, listed in main.c. It gets argv with its own name
 * first and returns the exit code.
 */
#ifndef ULLAGE_CLI_H
#define ULLAGE_CLI_H

#include <stdbool.h>
#include <stdint.h>

enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1, /* a check, a bad file, nothing that fits */
    EXIT_USAGE = 2,
    EXIT_NO_DEVICE = 3,
    EXIT_PERMISSION = 4,
    EXIT_NO_DAEMON = 5,
    EXIT_OWN_FAILURE = 125, /* `run`: of ullage itself, the command was not started */
    EXIT_CANNOT_EXECUTE = 126,
    EXIT_COMMAND_NOT_FOUND = 127,
    EXIT_SIGNAL = 128, /* + number */
};

enum output_format { OUTPUT_TABLE, OUTPUT_JSON, OUTPUT_CSV };

int cmd_run(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_query(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_budget(int argc, char **argv);
int cmd_suspend(int argc, char **argv);
int cmd_resume(int argc, char **argv);

/* "ullage: " and a line on standard error. */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same, then how to get help; returns EXIT_USAGE. */
int cli_usage_error(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Explains what getopt_long refused; returns EXIT_USAGE. */
int cli_bad_option(const char *verb, int option, char **argv);

/* Parses the argument of -o; allow_csv says whether csv is one of the choices. */
bool cli_parse_format(const char *text, bool allow_csv, enum output_format *format);

uint64_t cli_monotonic_ns(void);

#endif
