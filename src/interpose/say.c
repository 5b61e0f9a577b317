/*
 * say.c: the few lines that the library writes, on standard error and nowhere else.
 *
 * A line is written by one write(2), so that lines of several processes do not mix, and errno is kept.
 * A pipe that nobody reads must not end a program that would not have written to it.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "interpose.h"
#include "size.h"

enum { LINE = 1024 };

static void write_line(const char *line, size_t length)
{
    sigset_t broken_pipe, old, pending;
    sigemptyset(&pending);
    sigpending(&pending);
    sigemptyset(&broken_pipe);
    sigaddset(&broken_pipe, SIGPIPE);
    sigprocmask(SIG_BLOCK, &broken_pipe, &old); /* this thread's mask */
    if (write(STDERR_FILENO, line, length) < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&broken_pipe, NULL, &(struct timespec){0});
    sigprocmask(SIG_SETMASK, &old, NULL);
}

void ull__say(const char *format, ...)
{
    char line[LINE];
    int saved = errno;
    va_list args;
    int length = snprintf(line, sizeof line, "ullage: ");
    va_start(args, format);
    int more = vsnprintf(line + length, sizeof line - (size_t)length - 1, format, args);
    va_end(args);
    length += more < 0 ? 0 : more;
    if (length > LINE - 2)
        length = LINE - 2;
    line[length++] = '\n';
    write_line(line, (size_t)length);
    errno = saved;
}

/* "context 300.0 MiB, data 1.2 GiB" */
static void class_list(const uint64_t by_class[ULL_CLASSES], char *text, size_t size)
{
    char amount[ULL_SIZE_TEXT];
    size_t length = 0;
    text[0] = '\0';
    for (int c = 0; c < ULL_CLASSES; c++)
        if (by_class[c] && length < size)
            length += (size_t)snprintf(text + length, size - length, "%s%s %s", length ? ", " : "",
                                       ull__class_name((enum ull__class)c),
                                       ull__size_text(by_class[c], amount));
}

void ull__say_refusal(const struct ull__refusal *refusal, uint64_t suppressed)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    const struct ull__job_spec *spec = ull__ledger_spec(ull__member_ledger(member));
    char wanted[ULL_SIZE_TEXT], held[ULL_SIZE_TEXT], budget[ULL_SIZE_TEXT], largest[ULL_SIZE_TEXT];
    char classes[256], more[64] = "", report[ULL_PATH_TEXT + 16] = "";
    if (spec->report[0])
        snprintf(report, sizeof report, "; report: %s", spec->report);
    class_list(refusal->by_class, classes, sizeof classes);
    if (suppressed)
        snprintf(more, sizeof more, " (and %llu more since the last line)",
                 (unsigned long long)suppressed);
    if (refusal->by_max_request) {
        ull__say("%s[%u] asked for %s (%s, %s) on device %d: more than --max-request %s%s%s",
                 refusal->command, refusal->pid, ull__size_text(refusal->wanted_bytes, wanted),
                 ull__class_name(refusal->class), refusal->call,
                 spec->devices[refusal->device].logical, ull__size_text(spec->max_request, largest),
                 more, report);
        return;
    }
    ull__say(
        "%s[%u] asked for %s (%s, %s) on device %d: %s of %s are held%s%s%s, %s of them by this "
        "process%s%s",
        refusal->command, refusal->pid, ull__size_text(refusal->wanted_bytes, wanted),
        ull__class_name(refusal->class), refusal->call, spec->devices[refusal->device].logical,
        ull__size_text(refusal->held_bytes, held), ull__size_text(refusal->budget_bytes, budget),
        classes[0] ? " (" : "", classes, classes[0] ? ")" : "",
        ull__size_text(refusal->own_bytes, largest), more, report);
}
