/*
 * suspend.h: what the files share that let a job be moved out of its devices and back.
 *
 * With `run --suspendable` every call that makes a device work on memory passes a gate. To move the memory, the
 * mover closes it, waits until no call is inside and no work is left on the devices, and opens it when all is
 * back where it was. Without --suspendable nothing of this is on any path: the gate's entry points are not
 * handed out.
 *
 * Nothing is synchronized while a capture is open, since that would destroy it: the gate closes only between
 * captures. What does not come to rest (a kernel that waits for the host, a collective whose other half is
 * suspended) makes the mover open the gate again, wait longer each time, and give up in the end.
 */
#ifndef ULLAGE_SUSPEND_H
#define ULLAGE_SUSPEND_H

#include "interpose.h"

/* --- gates.c ------------------------------------------------------------------------------------------ */

enum { GATE_LANES = 64 };

struct ull__gate_lane {
    _Alignas(64) _Atomic uint64_t inside; /* calls of the threads that use it */
};

struct ull__gate {
    _Atomic uint32_t closed; /* futex */
    struct ull__gate_lane lanes[GATE_LANES];
};
extern struct ull__gate ull__gate;

/* Was the process started with --suspendable? Known from its environment before the first call. */
bool ull__gates_wanted(void);
/* The function that passes the gate for entry `index` of cuda_api.def, or NULL. */
void *ull__gated(int index);

struct ull__gate_lane *ull__gate_lane(void);
void ull__gate_wait(struct ull__gate_lane *lane);

/*
 * Enters; returns at once while the gate is open, else when it is. Entering again from inside is fine: only the
 * outermost counts.
 */
struct ull__gate_lane *ull__gate_enter(void);
void ull__gate_leave(struct ull__gate_lane *lane);

/* Threads of a parent are not in a forked child. */
void ull__gates_forget(void);

/* --- rest.c ------------------------------------------------------------------------------------------- */

/* Streams and captures, as the hooks see them. */
void ull__stream_made(CUstream stream);
void ull__stream_gone(CUstream stream);
void ull__capture_began(CUstream stream);
void ull__capture_ended(CUstream stream);
void ull__rest_forget(void);

/*
 * Closes the gate and returns when nothing runs on any device of this process. False: it did not come to rest
 * before `deadline_ns` (CLOCK_MONOTONIC), or *cancelled became true; the gate is open and `why` says what is
 * in the way. Call from a thread of our own.
 */
bool ull__come_to_rest(uint64_t deadline_ns, bool (*cancelled)(void *data), void *data,
                       char why[ULL_TROUBLE_TEXT]);
void ull__go_on(void);

#endif
