/* peaks.h: what jobs of a name held at most the last time, for `ullage run --prewarm last`. */
#ifndef ULLAGE_PEAKS_H
#define ULLAGE_PEAKS_H

#include "ledger.h"

/* Fills in room_bytes of the devices from the last job of this name; false if there was none. */
bool peaks_recall(struct ull__job_spec *job);
/* Keeps those of a job that ended. Nothing is said if that fails. */
void peaks_remember(struct ull__ledger *ledger);

#endif
