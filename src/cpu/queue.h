/*
 * queue.h: what the processor's queues run: commands, kept ones too.
 *
 * Kernels and everything else of the compute queue run in the calling thread and its team, before the call returns. Each
 * other queue has a thread of its own that copies while the team computes.
 */
#ifndef ULLAGE_CPU_QUEUE_H
#define ULLAGE_CPU_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "backend.h"
#include "cpu.h"
#include "team.h"

enum ull__command_kind {
    ULL_COMMAND_KERNEL,
    ULL_COMMAND_COPY,
    ULL_COMMAND_RECORD,
    ULL_COMMAND_WAIT,
    ULL_COMMAND_COLLECTIVE
};

struct ull__command {
    enum ull__command_kind kind;
    enum ull__queue queue;
    const struct ull__kernel *kernel;
    void **operands; /* inputs, then outputs; a segment's, or of the call that enqueues */
    void *workspace;
    const bool *skip;
    struct ull__took *took;
    void *to;
    const void *from;
    size_t bytes;
    int event;
    struct ull__collective_run collective;
    unsigned long turn; /* of the event: which recording this is, or waits for */
};

struct ull__queues;

ull_status ull__queues_create(struct ull__team *team, const struct ull__cpu_options *options,
                              struct ull__queues **queues, struct ull_error *err);
void ull__queues_destroy(struct ull__queues *queues);

ull_status ull__queues_events(struct ull__queues *queues, int events, struct ull_error *err);
/* The command is copied; a kernel's operands only where it does not run at once. */
void ull__queues_put(struct ull__queues *queues, const struct ull__command *command);
/* Waits until all are empty. */
void ull__queues_drain(struct ull__queues *queues);
/* The first failure of a collective, once. */
ull_status ull__queues_failure(struct ull__queues *queues, struct ull_error *err);
/* Kernels and copies are timed from here on; NULL: not any more. All queues are empty. */
void ull__queues_time(struct ull__queues *queues, struct ull__copied *copied);
uintptr_t ull__queues_reached(struct ull__queues *queues, const void *begin, const void *end);

#endif
