/*
 * contexts.h: how large a context was on each device when it was last measured, kept for the user in
 * $XDG_STATE_HOME/ullage/contexts: lines "UUID BYTES HIDDEN DRIVER", the last two only where known. A context must be
 * charged before it is made, so a good guess matters; without one the guess is what an H200 takes. HIDDEN is what it
 * takes beyond the driver's figure for its process, with that version of the driver; of another version it is unknown.
 */
#ifndef ULLAGE_CONTEXTS_H
#define ULLAGE_CONTEXTS_H

#include "ledger.h"

/*
 * Fills context_bytes and hidden_bytes of every device of a job. A file that cannot be read counts as empty. `driver`
 * is the version of it that runs, "" if that is not known.
 */
void contexts_recall(struct ull__job_spec *job, const char *driver);

/* Keeps what the ledger measured, if it differs. Failures are ignored: the next guess is a bit off. */
void contexts_remember(struct ull__ledger *ledger, const char *driver);

#endif
