/* service.h: the daemon ullaged as the command line meets it. */
#ifndef ULLAGE_SERVICE_H
#define ULLAGE_SERVICE_H

#include "connection.h"
#include "ledger.h"

/*
 * Connects to the daemon with this pid, or if that is 0 to the one of this user, else of the machine.
 * ULL_E_NOT_FOUND: none answers, or another one does.
 */
ull_status service_open(uint32_t pid, struct ull__ipc_connection *connection, struct ull_error *err);

/* Tells the daemon, if there is one, of a job that begins. False: there is none. */
bool service_announce(struct ull__ledger *ledger);

/*
 * Waits until the daemon lets the job's command start. `wait_s` 0: as long as it takes. Returns 0, or the exit
 * code (a message was printed): 5 no daemon, 1 refused or not within that time, 128 + N a signal.
 */
int service_wait(struct ull__ledger *ledger, bool may_queue, double wait_s, bool quiet);

/*
 * Suspends or resumes the job through the daemon that serves it. `step` as in mover.h. ULL_E_NOT_FOUND: that
 * daemon does not answer. *waits: it comes back once there is room.
 */
struct move_options;
struct move_progress;
ull_status service_move(struct ull__ledger *ledger, uint32_t daemon_pid, bool out,
                        const struct move_options *options, struct move_progress *moved,
                        bool *waits, struct ull_error *err);

#endif
