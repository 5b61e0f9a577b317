/*
 * recording.h: what `ullage run --record` writes down itself, beside what the processes of the job write.
 *
 * That is the job, its devices and budgets, when each process of the tree begins and ends, and once a second what
 * each of them has of the host's memory, and the cards' use. A write that fails is said once and ends this.
 */
#ifndef ULLAGE_RECORDING_H
#define ULLAGE_RECORDING_H

#include <sys/types.h>

#include "ledger.h"
#include "machine.h"
#include "seen.h"

struct recording;

/*
 * Makes the file at `path`, which is absolute, and sets the variables by which the job's processes find it. ULL_E_INVALID
 * and others as ull__record_create; nothing may be started then.
 */
ull_status recording_create(const char *path, bool stacks, struct ull__ledger *ledger,
                            struct machine *machine, struct recording **out, struct ull_error *err);

/* All of these do nothing when recording is NULL. */
void recording_started(struct recording *recording, pid_t command);
/* Every few milliseconds, with what is seen in the ledger. */
void recording_tick(struct recording *recording, const struct seen *seen);
void recording_reaped(struct recording *recording, pid_t pid, int exit_code);
void recording_finish(struct recording *recording, int exit_code);

#endif
