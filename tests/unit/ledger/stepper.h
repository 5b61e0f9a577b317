/*
 * stepper.h: stops a child at a chosen instruction of a piece of code, by ptrace.
 *
 * The code is marked by two breakpoints (step_begin, step_end) that the child executes. It is stepped
 * through once, which gives the address of every instruction that is executed. A later child of the
 * same parent lies at the same addresses, so it can run to the n-th instruction by a breakpoint and
 * a count of how often that address is passed before: single steps all the way would take minutes.
 */
#ifndef LEDGER_TEST_STEPPER_H
#define LEDGER_TEST_STEPPER_H

#include <stdbool.h>
#include <sys/types.h>

enum { STEP_LIMIT = 100000 };

struct step_trace {
    long count;
    unsigned long address[STEP_LIMIT]; /* of instruction n, which is the next one when it stops at n */
    long passes[STEP_LIMIT];           /* how often that address came before, plus one */
};

/* In the child: before the code and after it. */
void step_begin(void);
void step_end(void);

/* Forks a child that is traced; returns when it stands at step_begin. 0: it ended before. */
pid_t step_start(int (*run)(void *data), void *data);
/* Steps through all of it. The child is left at step_end. */
void step_record(pid_t child, struct step_trace *trace);
/* Lets it run to instruction n; false if it came to step_end first. */
bool step_run_to(pid_t child, const struct step_trace *trace, long n);
/* SIGKILL where it stands. */
void step_kill(pid_t child);

/* Is this process able to trace a child, and does this file know the processor? */
bool step_possible(void);

#endif
