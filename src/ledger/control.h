/*
 * control.h: what is asked of a running job from outside, and what its processes say of it.
 *
 * A command has a number and one wish: that the job's memory be on the host, or on its devices. Each process
 * of the job says which number it has carried out or refused, where its memory is, and how far a move is.
 * Gated processes (`run --suspendable`) act themselves, on their parked thread; for others the one who
 * commands lets the driver do it and writes their part. Bytes that were moved out stay in the job's books:
 * they are its own still, and held - evicted is what is resident.
 *
 * The last command stands: a process that joins later finds it. All functions are safe to call from several
 * threads and processes; two who command at once get numbers, and the later one holds.
 */
#ifndef ULLAGE_CONTROL_H
#define ULLAGE_CONTROL_H

#include "ledger.h"

/*
 * Before several processes are moved out together they may be asked to stand by: each closes its gate and says whether
 * its devices are at rest, and lets one call in each time that it is told to. So those that are behind the others get as
 * far as these are, and nobody is left with half a collective (apps/ullage/suspend/stand.h).
 */
enum ull__wanted { ULL_WANT_RESIDENT, ULL_WANT_MOVED_OUT, ULL_WANT_STAND_BY };

/*
 * Asks for it and returns the command's number, at least 1. Works also on root's copy of another user's
 * ledger: only this one word is written. 0 if that failed.
 */
uint64_t ull__ledger_command(struct ull__ledger *ledger, enum ull__wanted wanted);
/* The last command; number 0 and ULL_WANT_RESIDENT if there was none, or nobody asks any more to stand by. */
uint64_t ull__ledger_commanded(struct ull__ledger *ledger, enum ull__wanted *wanted);

/* Changes a budget while the job runs. What is held above it is not taken away: nothing more is given. */
bool ull__ledger_set_budget(struct ull__ledger *ledger, int device, uint64_t bytes);
bool ull__ledger_set_priority(struct ull__ledger *ledger, int priority);
/* By the supervisor: its command has not started yet, or has. */
void ull__ledger_set_waiting(struct ull__ledger *ledger, bool waiting);

/* --- standing by; all of it for ledgers of one's own only ---------------------------------------------------- */

enum { ULL_STAND_MS = 3000 };
/* Who commanded it is still there, for ULL_STAND_MS from now. Call it before the command, too. */
void ull__ledger_stand(struct ull__ledger *ledger);
enum ull__let_in {
    ULL_LET_NOBODY,
    ULL_LET_ANY,
    ULL_LET_BESIDE, /* of a thread that has never launched anything, if one waits: as of a library that copies */
};
/* Command `number`: a process lets one call in. */
void ull__ledger_let_in(struct ull__ledger *ledger, int slot, uint64_t number, enum ull__let_in whom);
/* What a process says of it. */
enum ull__stands {
    ULL_STANDS_HERE = 1,  /* it stands by */
    ULL_STANDS_STILL = 2, /* its gate is closed and its devices are at rest */
    ULL_STANDS_AT_IT = 4, /* it was told to let one in, and has not said so yet */
    ULL_STANDS_TOOK = 8,  /* there was one that came in last time */
};
uint32_t ull__ledger_stands(struct ull__ledger *ledger, int slot, uint64_t number);

/* --- the daemon ------------------------------------------------------------------------------------------ */

/* What is noted of a job, so that a daemon that comes back goes on as before. */
enum ull__ledger_flag {
    ULL_FLAG_BY_USER = 1,   /* a person suspended it, who alone may resume it */
    ULL_FLAG_AUTOMATIC = 2, /* its budget follows its use */
    ULL_FLAG_SPILL = 4,     /* new allocations go to host memory */
};
bool ull__ledger_set_flag(struct ull__ledger *ledger, enum ull__ledger_flag flag, bool on);

/* A daemon serves the job, for ULL_SERVED_MS from now: soft budgets hold and allocations may wait. */
enum { ULL_SERVED_MS = 3000 };
bool ull__ledger_serve(struct ull__ledger *ledger, uint32_t daemon_pid);
/* Who does, 0: nobody. */
uint32_t ull__ledger_served(struct ull__ledger *ledger);
/* The budget in force while it is served, at most the budget counts. Nothing held is taken away. */
bool ull__ledger_set_soft(struct ull__ledger *ledger, int device, uint64_t bytes);
/*
 * Asks the process in this place to give back so much of what it said that is idle; with what an earlier one asked that
 * was not answered. When it has answered, ull__process_view says so.
 */
bool ull__ledger_trim(struct ull__ledger *ledger, int slot, int device, uint64_t bytes);
/* Answers what the process in this place waits for: there is room, or there will be none. */
bool ull__ledger_answer(struct ull__ledger *ledger, int slot, bool granted);

/* What a mover says of a process; `bytes` are by the ledger's devices. */
struct ull__residency_report {
    enum ull__residency residency;
    enum ull__moved_by moved_by; /* of a process that is out; a member finds that out by itself */
    uint64_t moved_bytes, to_move_bytes;
    uint64_t moving_ns; /* since the devices were at rest; 0: not known */
    uint64_t evicted_bytes[ULL_MAX_DEVICES];
    uint64_t done;       /* number of a command; 0: the last one that was reported stays */
    const char *trouble; /* why it was refused, or what is in its way so far; or NULL */
};
/* For a process that is not gated, by whoever moves it. False if the place is another's by now. */
bool ull__ledger_report(struct ull__ledger *ledger, int slot, uint32_t pid,
                        const struct ull__residency_report *report);

#endif
