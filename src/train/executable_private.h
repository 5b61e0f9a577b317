/* executable_private.h: what the files of an executable share. */
#ifndef ULLAGE_TRAIN_EXECUTABLE_PRIVATE_H
#define ULLAGE_TRAIN_EXECUTABLE_PRIVATE_H

#include "executable.h"

struct ull__executable {
    struct ull__executable_request request;
    struct ull__kernel **kernels; /* by item */
    const char **algorithms;
    struct ull__took *took; /* by item: what its runs took since they were last asked for */
    int64_t values[ULL_SYMBOLS];
    uint8_t *layouts;                               /* by tensor */
    struct ull__segment *prologue, *micro, *update; /* NULL: nothing to do */

    int *first_stay, *next_stay; /* by buffer, by stay: all stays of a buffer */
    int *workspace_stay;         /* by place */
    char **staged; /* by buffer, while recording: where the optimizer's state is for the item at hand */
    int *last_forward; /* by buffer: the place of its last reader in the forward pass */
    bool *waited;      /* by buffer, while recording: it has come back */
};

/* Where a tensor lies for the item at a place of the order. NULL: nowhere. */
char *ull__executable_at(const struct ull__executable *e, int tensor, int place);
char *ull__executable_stay(const struct ull__executable *e, int stay);

/* Makes the segments. */
ull_status ull__executable_record(struct ull__executable *e, struct ull_error *err);

#endif
