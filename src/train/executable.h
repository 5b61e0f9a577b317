/*
 * executable.h: a plan as something that runs: kernels with addresses, kept in segments of a backend.
 *
 *     ull__executable_create   compiles kernels, and records what a micro-step and an update put into which queue
 *     ull__executable_prologue, _micro, _update   replay that
 *
 * Deciding is not doing: order, stays and offsets are the layout's; here they become addresses in the regions that the
 * caller has, and events where one queue must wait for another: before what was sent to the host gives up its
 * memory, before something is brought back into memory that was another's, and before who reads it.
 *
 * Sizes may be smaller than those that were planned for: the last micro-batch of a step uses the same layout.
 */
#ifndef ULLAGE_TRAIN_EXECUTABLE_H
#define ULLAGE_TRAIN_EXECUTABLE_H

#include "backend.h"
#include "plan.h"

/* Where the regions lie. */
struct ull__arena {
    char *persistent; /* layout->persistent_bytes */
    char *step;       /* layout->step_bytes, and behind them layout->passing_bytes */
    char *host;       /* layout->host_bytes; NULL if there are none */
};

/* Copied to `to` as soon as it is made, e.g. a loss. */
struct ull__result {
    int tensor;
    void *to;
};

struct ull__executable_request {
    struct ull__backend *backend;
    const struct ull__program *program;
    const struct ull__plan_layout *layout;
    const struct ull__decision *decision;
    const int64_t *values; /* of the symbols: those of the plan, or smaller ones */
    struct ull__arena arena;
    /* By buffer: where what is persistent lies; NULL, or NULL for one of them: by the layout in arena.persistent. */
    char *const *persistent;
    const struct ull__result *results;
    int result_count;
};

struct ull__executable;

/* ULL_E_NOT_FOUND: an operator that the backend does not have. ULL_E_NO_MEMORY. What it was given must outlive it, but for `values`. */
ull_status ull__executable_create(const struct ull__executable_request *request,
                                  struct ull__executable **executable, struct ull_error *err);
void ull__executable_destroy(struct ull__executable *executable);

/* Put into the queues; ull__backend synchronize waits. */
void ull__executable_prologue(struct ull__executable *executable); /* once a step, before the first micro-step */
void ull__executable_micro(struct ull__executable *executable);
void ull__executable_update(struct ull__executable *executable);

/* Where an input of the graph is to be written before a micro-step, or a persistent tensor lies. NULL: it has no place. */
void *ull__executable_address(const struct ull__executable *executable, int tensor);
const uint8_t *ull__executable_layouts(const struct ull__executable *executable);
const int64_t *ull__executable_values(const struct ull__executable *executable);
/* By item: what its kernel took while the backend timed, since the caller set it to zeros. After synchronize. */
struct ull__took *ull__executable_took(struct ull__executable *executable);
/* "conv2d: brgconv:avx512_core", by item. */
const char *ull__executable_algorithm(const struct ull__executable *executable, int item);

#endif
