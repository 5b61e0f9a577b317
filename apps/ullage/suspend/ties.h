/*
 * ties.h: what forbids that the driver moves a process to the host.
 *
 * Before version 610 the driver's checkpoint does not bring back processes that share memory or events with others.
 * 580.159.04 does not refuse them either: it moves them out without a word, and they are lost (docs/gpu-results.md).
 * So they are refused here: by what the preload library noted in the ledger, and by the shared memory of NCCL.
 *
 * Limits: that NCCL's library is mapped says nothing, since every PyTorch maps it; ranks that only talk through
 * sockets are not seen. What was shared and is not any more counts still.
 */
#ifndef ULLAGE_TIES_H
#define ULLAGE_TIES_H

#include <stdbool.h>

#include "ledger.h"

/* Can this version of the driver ("580.159.04") move what is shared? False if it cannot be read. */
bool ties_can_move(const char *driver_version);

/* What a process that the driver would move shares, in words that follow "it shares"; NULL: nothing. */
const char *ties_of(const struct ull__process_view *process);

#endif
