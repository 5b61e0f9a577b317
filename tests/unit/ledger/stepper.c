/* stepper.c: see stepper.h. */
#include "stepper.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

/* A signal rather than a breakpoint instruction: the tracer need not step over it. */
void step_begin(void)
{
    raise(SIGTRAP);
}

/* By a signal that no step causes, so that the end needs no look at registers. */
void step_end(void)
{
    raise(SIGUSR1);
}

struct traced {
    int (*run)(void *data);
    void *data;
};

static int run_traced(void *data)
{
    struct traced *traced = data;
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        return 98;
    return traced->run(traced->data);
}

/* True if it stopped with this signal, false if with another one or not at all. */
static bool stopped_by(pid_t child, int signal)
{
    int status = 0;
    while (waitpid(child, &status, __WALL) != child)
        ;
    return WIFSTOPPED(status) && WSTOPSIG(status) == signal;
}

pid_t step_start(int (*run)(void *data), void *data)
{
    struct traced traced = {run, data};
    pid_t child = test_fork(run_traced, &traced);
    if (!stopped_by(child, SIGTRAP))
        return 0;
    return child;
}

#if defined(__x86_64__)

static unsigned long address_of(pid_t child)
{
    return (unsigned long)ptrace(PTRACE_PEEKUSER, child, offsetof(struct user, regs.rip), NULL);
}

static bool resume(pid_t child, bool one_step)
{
    if (one_step)
        ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
    else
        ptrace(PTRACE_CONT, child, NULL, NULL);
    return stopped_by(child, SIGTRAP);
}

void step_record(pid_t child, struct step_trace *trace)
{
    trace->count = 0;
    do {
        unsigned long address = address_of(child);
        long passes = 1;
        for (long i = trace->count - 1; i >= 0; i--) {
            if (trace->address[i] == address) {
                passes = trace->passes[i] + 1;
                break;
            }
        }
        assert_true(trace->count < STEP_LIMIT);
        trace->address[trace->count] = address;
        trace->passes[trace->count++] = passes;
    } while (resume(child, true));
}

bool step_run_to(pid_t child, const struct step_trace *trace, long n)
{
    unsigned long address = trace->address[n];
    long text = ptrace(PTRACE_PEEKTEXT, child, address, NULL);
    long passes = trace->passes[n];
    if (address_of(child) == address) { /* it stands there already, for the first time */
        if (passes == 1)
            return true;
        passes--;
        if (!resume(child, true))
            return false;
    }
    for (;;) {
        ptrace(PTRACE_POKETEXT, child, address, (text & ~0xffl) | 0xcc);
        if (!resume(child, false))
            return false;
        ptrace(PTRACE_POKEUSER, child, offsetof(struct user, regs.rip), address);
        ptrace(PTRACE_POKETEXT, child, address, text);
        if (--passes == 0)
            return true;
        if (!resume(child, true))
            return false;
    }
}

#endif

void step_kill(pid_t child)
{
    int status;
    kill(child, SIGKILL);
    while (waitpid(child, &status, __WALL) == child && !WIFSIGNALED(status) && !WIFEXITED(status))
        ;
}

#if defined(__x86_64__)

static int nothing(void *data)
{
    (void)data;
    step_begin();
    step_end();
    return 0;
}

bool step_possible(void)
{
    pid_t child = step_start(nothing, NULL);
    if (child == 0)
        return false;
    bool possible = resume(child, true);
    step_kill(child);
    return possible;
}

#else

bool step_possible(void)
{
    return false;
}

void step_record(pid_t child, struct step_trace *trace)
{
    (void)child;
    trace->count = 0;
}

bool step_run_to(pid_t child, const struct step_trace *trace, long n)
{
    (void)child, (void)trace, (void)n;
    return false;
}

#endif
