/* cli.c: messages and small things that all commands share. */
#include "cli.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void say(const char *format, va_list args)
{
    /* One write per line, so that lines of several processes do not mix. */
    char line[4096];
    int prefix = snprintf(line, sizeof line, "ullage: ");
    int length = vsnprintf(line + prefix, sizeof line - (size_t)prefix - 1, format, args);
    size_t end = (size_t)prefix + (length > 0 ? (size_t)length : 0);
    if (end > sizeof line - 2)
        end = sizeof line - 2;
    line[end++] = '\n';
    fwrite(line, 1, end, stderr);
    fflush(stderr);
}

void cli_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

int cli_usage_error(const char *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    fprintf(stderr, "Try 'ullage %s --help'.\n", verb);
    return EXIT_USAGE;
}

int cli_bad_option(const char *verb, int option, char **argv)
{
    const char *word = argv[optind - 1];
    bool is_long = strncmp(word, "--", 2) == 0;
    if (option == ':')
        return is_long ? cli_usage_error(verb, "option '%s' needs a value", word)
                       : cli_usage_error(verb, "option '-%c' needs a value", optopt);
    if (is_long || optopt == 0)
        return cli_usage_error(verb, "unknown option '%s'", word);
    return cli_usage_error(verb, "unknown option '-%c'", optopt);
}

bool cli_parse_format(const char *text, bool allow_csv, enum output_format *format)
{
    if (strcmp(text, "table") == 0)
        *format = OUTPUT_TABLE;
    else if (strcmp(text, "json") == 0)
        *format = OUTPUT_JSON;
    else if (allow_csv && strcmp(text, "csv") == 0)
        *format = OUTPUT_CSV;
    else
        return false;
    return true;
}

uint64_t cli_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}
