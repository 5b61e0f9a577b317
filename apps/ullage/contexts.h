/*
 * contexts.h: how large a context was on each device when it was last measured, kept for the user in
 * $XDG_STATE_HOME/ullage/contexts (lines "UUID BYTES"). A context must be charged before it is made, so
 * a good guess matters; without one the guess is what an H200 takes.
 */
#ifndef ULLAGE_CONTEXTS_H
#define ULLAGE_CONTEXTS_H

#include "ledger.h"

/* Fills context_bytes of every device of a job. A file that cannot be read counts as empty. */
void contexts_recall(struct ull__job_spec *job);

/* Keeps what the ledger measured, if it differs. Failures are ignored: the next guess is a bit off. */
void contexts_remember(struct ull__ledger *ledger);

#endif
