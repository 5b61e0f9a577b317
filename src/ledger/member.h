/*
 * member.h: a process's place in the ledgers of its job and of the jobs around it.
 *
 * Only one member exists in a process. Joining must happen on a thread that lives as long as the
 * process, since the kernel takes that thread's death for the process's. A forked child must not use
 * its parent's member: it forgets it and joins anew.
 */
#ifndef ULLAGE_MEMBER_H
#define ULLAGE_MEMBER_H

#include "control.h"
#include "ledger.h"

struct ull__member;

struct ull__identity {
    uint32_t pid;
    uint64_t start_ticks;
    char command[ULL_COMMAND_TEXT];
    uint32_t account_root; /* with --each: pid of the direct child this process descends from, or 0 */
    uint64_t account_root_ticks; /* its start, so that a reused pid is nobody's relative; 0: unknown */
};

/*
 * Joins the job at `path` and the jobs around it. Call from the parked thread. ULL_E_FULL when all
 * slots are taken by live processes, otherwise as ull__ledger_open.
 */
ull_status ull__member_join(const char *path, const struct ull__identity *identity,
                            struct ull__member **out, struct ull_error *err);

/* The innermost ledger and its device with this UUID; -1 if the job has no such device. */
struct ull__ledger *ull__member_ledger(struct ull__member *member);
int ull__member_device(struct ull__member *member, const char *uuid);

/*
 * Charges bytes if they fit into every budget around the process; all or nothing. On refusal
 * (ULL_E_NO_MEMORY) nothing has changed. Never waits for another process.
 */
ull_status ull__member_reserve(struct ull__member *member, int device, enum ull__class class,
                               uint64_t bytes);

/* Charges bytes that the driver has already taken, budget or not (debt). */
void ull__member_charge(struct ull__member *member, int device, enum ull__class class,
                        uint64_t bytes);

/*
 * A reservation has become what was really taken: from now on it counts for the peaks, which know
 * nothing of worst cases.
 */
void ull__member_settled_to(struct ull__member *member, int device, enum ull__class class);

/* Gives bytes back; at most what this process holds of the class. */
void ull__member_release(struct ull__member *member, int device, enum ull__class class,
                         uint64_t bytes);

/* Bytes of this process, of one class. */
uint64_t ull__member_held(struct ull__member *member, int device, enum ull__class class);

/* The tightest budget around the process on a device: its size and what is held under it. */
void ull__member_room(struct ull__member *member, int device, uint64_t *budget_bytes,
                      uint64_t *held_bytes);

/* What the process may be told of a device: the smallest budget around it, and the smallest room. */
void ull__member_card(struct ull__member *member, int device, uint64_t *budget_bytes,
                      uint64_t *free_bytes);

/* As the driver counts processes; see ull__process_view. */
void ull__member_set_driver_pid(struct ull__member *member, uint32_t pid);
/* A context was measured (or not): kept as the charge for the next one on that device. */
void ull__member_context_measured(struct ull__member *member, int device, uint64_t bytes,
                                  enum ull__context_source source);

/*
 * What a context takes beyond the driver's figure for its process was measured. It becomes known; what is known is only
 * ever lowered in a job, and that only if it is `sure` that nobody else made a context meanwhile: too little is what
 * NVML shows anyway, too much would take memory from a program for nothing. Other things may still have been in it, as
 * managed memory that another process touched or freed, so the next job goes by what this one measured, be it more.
 * 0: nothing, surely; then nothing is known again.
 */
void ull__member_hidden_measured(struct ull__member *member, int device, uint64_t bytes, bool sure);
/* So much of what the process's contexts are charged with is in no figure (or, negative, is no more). For readers. */
void ull__member_hidden_add(struct ull__member *member, int device, int64_t bytes);

/*
 * Records a refusal. Fills number, time, pid, account, command, held, budget and classes; the caller
 * fills the rest. Returns true if a line should be printed now (the first, then at most one a
 * second), with the number of refusals since the last line in *suppressed.
 */
bool ull__member_refused(struct ull__member *member, struct ull__refusal *refusal,
                         uint64_t *suppressed);
/* A request succeeded: earlier refusals of this process were survived. Cheap. */
void ull__member_granted(struct ull__member *member, int device, uint64_t bytes);
/* An entry point that ullage has no hook for was handed out. */
void ull__member_unknown_variant(struct ull__member *member, const char *name);

/*
 * Asks every other process of the job that holds pools to read their reserves again, and waits until
 * all have or the time is over: 25 times as long for those that have answered so far. What others ask
 * them meanwhile does not count. For the moment before a refusal: what others no longer hold must not
 * make this process fail.
 */
void ull__member_ask_settle(struct ull__member *member, uint64_t timeout_ns);
/*
 * For the parked thread: sleeps until somebody asks for a settle, ull__member_wake is called, or the
 * time is over. After settling it calls ull__member_settled.
 */
void ull__member_wait(struct ull__member *member, uint64_t timeout_ns);
void ull__member_settled(struct ull__member *member);
void ull__member_wake(struct ull__member *member);

/* Finds dead processes in all ledgers around this process (ull__ledger_sweep). */
void ull__member_sweep(struct ull__member *member, ull__listed_fn *listed, void *data);

/* --- commands from outside; see control.h ----------------------------------------------------- */

/* This process carries out commands itself. */
void ull__member_gated(struct ull__member *member);
/*
 * This process is about to share something through the driver: told before the driver does it, so that it may be told
 * of too much but not too late. Stays told.
 */
void ull__member_tie(struct ull__member *member, enum ull__tie tie);
/* Is there a command that this process has not answered? One look, for the parked thread. */
bool ull__member_commanded(struct ull__member *member);
/* What is asked for now: moved out if any of the jobs around it shall be. Notes the commands' numbers. */
enum ull__wanted ull__member_wanted(struct ull__member *member);
/* The same without noting anything: has it changed? */
enum ull__wanted ull__member_asked(struct ull__member *member);
/* What this process says; with `done` not 0 it answers the commands that ull__member_wanted saw. */
void ull__member_report(struct ull__member *member, const struct ull__residency_report *report);
enum ull__residency ull__member_residency(struct ull__member *member);
/* Standing by: is one call to be let in? Once for each that is. */
enum ull__let_in ull__member_lets_in(struct ull__member *member);
/* What this process says of it (enum ull__stands), after all that ull__member_lets_in saw was done. */
void ull__member_stands(struct ull__member *member, uint32_t says);

/* --- host memory in a device's place (spill.c) -------------------------------------------------- */

/*
 * Counts bytes as spilled if all jobs around the process may spill so much more; all or nothing. May wait for a
 * second for a process that is stopped inside it.
 */
bool ull__member_spill(struct ull__member *member, int device, uint64_t bytes);
void ull__member_unspill(struct ull__member *member, int device, uint64_t bytes);
/*
 * Is it time to spill what finds no room? At once where a budget does not allow it, where no daemon serves the job, or where
 * that one told the job to; else it is asked first (ull__member_want), for caches of others go before.
 */
bool ull__member_spills_now(struct ull__member *member, int device, uint64_t bytes);

/* --- host memory that is pinned for moves (spill.c) ----------------------------------------------- */

/* May the job pin so much more (`run --pinned`)? No promise: others may do so first. */
bool ull__member_may_pin(struct ull__member *member, uint64_t bytes);
/* Counts it if so. The process's own mover alone calls these two. */
bool ull__member_pin(struct ull__member *member, uint64_t bytes);
void ull__member_unpin(struct ull__member *member, uint64_t bytes);

/* --- waiting for room --------------------------------------------------------------------------- */

/* An allocation that waits; zeroed before the first call. */
struct ull__want {
    bool posted;
    int device;
    uint64_t bytes;
    uint32_t answers, began;
    uint64_t waited_ns;
};
/*
 * The budgets allow `bytes` more, but there is no room: tells the daemon, and waits until it has made some,
 * at most a second at a time. True: try again, and call again if there still is none. False: give up, since
 * nobody serves the job, it was denied, or a budget does not allow it. In the end ull__member_want_over.
 */
bool ull__member_want(struct ull__member *member, int device, uint64_t bytes, struct ull__want *want);
void ull__member_want_over(struct ull__member *member, struct ull__want *want);

/* --- memory that has a name for other processes ---------------------------------------------- */

/*
 * The owner named `bytes` of its memory (key: a hash of the name, or 0 where the name says nothing,
 * as with a descriptor). ULL_E_FULL is harmless: the bytes then stay with the owner.
 */
ull_status ull__member_export(struct ull__member *member, int device, enum ull__class class,
                              uint64_t key, uint64_t bytes);
/*
 * The owner freed exported memory: like ull__member_release, but where another process of the job has
 * it open, the charge passes to that one.
 */
void ull__member_release_exported(struct ull__member *member, int device, enum ull__class class,
                                  uint64_t key, uint64_t bytes);
/* Has another process of the job memory of this name open? False too where the table cannot be had. */
bool ull__member_is_open(struct ull__member *member, int device, uint64_t key);
/* What this process is charged with for memory that others made and left to it, of one class. */
uint64_t ull__member_inherited(struct ull__member *member, int device, enum ull__class class);
/* This process opened or closed foreign memory. Closing gives back what has passed to it. */
ull_status ull__member_import(struct ull__member *member, int device, uint64_t key, uint64_t bytes);
void ull__member_import_closed(struct ull__member *member, int device, uint64_t key, uint64_t bytes);

#endif
