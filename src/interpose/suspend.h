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

#include <string.h>

#include "interpose.h"

/* --- gates.c ------------------------------------------------------------------------------------------ */

enum { GATE_LANES = 64 };

struct ull__gate_lane {
    _Alignas(64) _Atomic uint64_t inside; /* calls of the threads that use it */
};

struct ull__gate {
    _Atomic uint32_t closed;
    _Atomic uint32_t passes;        /* calls that may come in though it is closed */
    _Atomic uint32_t passes_beside; /* the same for threads that never launched anything */
    _Atomic uint32_t beside;        /* such threads that wait at it */
    _Atomic uint32_t bell; /* futex; + 1 where one of these changed so that somebody may come in */
    struct ull__gate_lane lanes[GATE_LANES];
};
extern struct ull__gate ull__gate;

/* Was the process started with --suspendable? Known from its environment before the first call. */
bool ull__gates_wanted(void);
/* Does the library map memory itself: that can be moved, or host memory in a device's place (`run --spill`)? */
bool ull__backing_wanted(void);
/*
 * The function for entry `index` of cuda_api.def that passes the gate (with --suspendable only), answers for
 * memory of ours or notes a capture. NULL: none is needed.
 */
void *ull__gated(int index);

struct ull__gate_lane *ull__gate_lane(void);
void ull__gate_wait(struct ull__gate_lane *lane);

/* Of an entry point, by its name: does it launch work, or what only helps that along, as copies do? */
static inline bool ull__is_launch(const char *symbol)
{
    return strncmp(symbol, "cuLaunch", 8) == 0 || strncmp(symbol, "cuGraphLaunch", 13) == 0;
}
/*
 * Enters; returns at once while the gate is open, else when it is. Entering again from inside is fine: only the
 * outermost counts. `launches`: see above.
 */
struct ull__gate_lane *ull__gate_enter(bool launches);
void ull__gate_leave(struct ull__gate_lane *lane);
/* Out for a while and in again, in the middle of a hook that waits for something; nothing for who is not in. */
void ull__gate_pause(void);
void ull__gate_go_on(void);

/* Opens it for all, and lets one call in while it is closed; `beside`: only of a thread that never launched anything. */
void ull__gate_open(void);
void ull__gate_let_in(bool beside);
/* That one has not come yet. */
bool ull__gate_has_pass(void);
/* Nobody any more, but for those who came. True if the one did. */
bool ull__gate_let_none_in(void);

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
/* Looks only, the gate being closed. False: `why` says what is not at rest. */
bool ull__is_at_rest(char why[ULL_TROUBLE_TEXT]);
void ull__go_on(void);

/* --- slab.c: small blocks in one page of memory --------------------------------------------------------- */

enum { SLAB_UNIT = 512 }; /* what every address is a multiple of; see tests/gpu/driver_facts.c */

struct ull__slab;
/* NULL without memory. `bytes` is a multiple of 64 units. */
struct ull__slab *ull__slab_create(uint64_t bytes);
void ull__slab_destroy(struct ull__slab *slab);
/* The offset of a place for so many bytes, or UINT64_MAX. */
uint64_t ull__slab_take(struct ull__slab *slab, uint64_t bytes);
/* True if it is empty now. The offset is of a block. */
bool ull__slab_drop(struct ull__slab *slab, uint64_t offset);
/* The block that an offset lies in; false if it is in none. */
bool ull__slab_find(const struct ull__slab *slab, uint64_t offset, uint64_t *start, uint64_t *bytes);

/* --- backing.c: what cuMemAlloc gives out --------------------------------------------------------------- */

struct object;

struct ull__piece {
    CUdeviceptr base;
    uint64_t bytes; /* whole pages */
    CUmemGenericAllocationHandle handle;
    int ordinal;
    CUcontext context;      /* that was current when it was made */
    struct ull__slab *slab; /* of small blocks; NULL: one large block */
    uint64_t asked;         /* of a large block */
    bool stays;             /* others have it open, or it is host memory: it is not moved */
    uint64_t serial;        /* no other piece of this process has it */
    bool spilled;           /* host memory in the device's place */
    struct object *object;  /* mapped by the program itself (vmm_move.c); NULL: by us */
    bool pooled;            /* pages of a pool (async_move.c); handle: 1 while there are any */
    unsigned char *host;    /* where its bytes are while it is out */
};

/*
 * As cuMemAlloc and cuMemFree, from memory that can be moved. Freeing waits for the context's work, as
 * cuMemFree does. ull__backing_free forwards what it does not know to the driver.
 */
CUresult ull__backing_alloc(const struct ull__gpu *gpu, CUdeviceptr *dptr, uint64_t bytes,
                            bool spilled);
CUresult ull__backing_free(CUdeviceptr dptr);
/* Without waiting: its context is gone, and so is all work in it. */
void ull__backing_drop(CUdeviceptr dptr);
/* The block that an address lies in. */
bool ull__backing_find(CUdeviceptr at, CUdeviceptr *start, uint64_t *bytes, struct ull__piece *piece);
/* Others have it open from now on. False: not ours. *handle can be exported. */
bool ull__backing_share(CUdeviceptr at, struct ull__piece *piece);
/* Gives one device access to the memory of another, now and later; or takes it. */
CUresult ull__backing_peer(int ordinal, int peer, bool access);
/* All pieces, under no lock: only while the gate is closed. */
struct ull__piece *ull__backing_pieces(size_t *count);
/* Maps a piece's new handle where it was, with the rights that it had. */
CUresult ull__backing_map(const struct ull__piece *piece);
void ull__backing_properties(int ordinal, CUmemAllocationProp *properties);
/* Of host memory near a device, to stand in for its own. */
void ull__spilled_properties(int ordinal, CUmemAllocationProp *properties);
void ull__backing_forget(void);

/*
 * Frees cannot wait while a capture is open. This remembers the free for later and returns true then;
 * ull__frees_due gives those back whose time has come, one at a time.
 */
bool ull__free_later(CUdeviceptr dptr);
bool ull__frees_due(CUdeviceptr *dptr);
bool ull__capture_is_open(void);

/* --- vmm_move.c: memory that the program maps itself; while the gate is closed only ---------------------------- */

/* What of it can be moved, at most `max`; the pieces stay where they are until the gate opens. */
size_t ull__handles_movable(struct ull__piece **pieces, size_t max);
size_t ull__handles_count(void);
void ull__object_properties(const struct ull__piece *piece, CUmemAllocationProp *properties);
void ull__object_unmap(const struct ull__piece *piece);
/* Maps piece->handle wherever it was mapped, so that its device can write it. */
CUresult ull__object_map(const struct ull__piece *piece);
/* Its bytes are back: gives its mappings the rights that they had. */
CUresult ull__object_back(const struct ull__piece *piece);

/* --- passing.c: blocks that other processes have open ------------------------------------------------------ */

/*
 * As cuIpcGetMemHandle, cuIpcOpenMemHandle and cuIpcCloseMemHandle; false: it is none of ours, ask the driver.
 * What was named stays on its device.
 */
bool ull__pass_name(CUdeviceptr at, CUipcMemHandle *handle, CUresult *result);
bool ull__pass_open(CUdeviceptr *dptr, const CUipcMemHandle *handle, CUresult *result);
bool ull__pass_close(CUdeviceptr dptr, CUresult *result);
/* The block of another process that an address lies in, and the context in which it was opened. */
bool ull__pass_find(CUdeviceptr at, CUdeviceptr *start, uint64_t *bytes, CUcontext *context);
void ull__passing_forget(void);

/* --- evict.c: the bytes ------------------------------------------------------------------------------------- */

struct ull__eviction {
    uint64_t moved, total;             /* bytes; out rises moved, back lowers it */
    uint64_t began_ns, took_ns;        /* CLOCK_MONOTONIC; what this way took so far */
    uint64_t by_ordinal[MAX_ORDINALS]; /* moved out */
    void (*progress)(struct ull__eviction *eviction);
    bool (*cancelled)(void *data);
};
uint64_t ull__evictable(void);
/* Moves all out that is not out. False: cancelled or failed, with the reason; what is out stays out. */
bool ull__evict(struct ull__eviction *eviction, char why[ULL_TROUBLE_TEXT]);
/* Brings everything back that is out. False: the card has no room, and all that was out still is. */
bool ull__restore(struct ull__eviction *eviction, char why[ULL_TROUBLE_TEXT]);
void ull__evict_forget(void);

/* --- stand.c: as long as others come to rest ------------------------------------------------------------------- */

/*
 * Closes the gate and stands by until something else is asked for; the gate is left closed, or, where a capture is open,
 * open. `tell` is called with what is in the way, once in a while.
 */
void ull__stand_by(struct ull__member *member, void (*tell)(const char *trouble));

/* --- mover.c: carries out commands ---------------------------------------------------------------------------- */

/* For the parked thread: starts the mover when there is a command for it. */
void ull__mover_look(struct ull__member *member);
void ull__mover_forget(void);

/* --- own.c: answers about our blocks; one per CU_OWN of cuda_api.def -------------------------------------- */

#define CU_HOOK(symbol, base, since, since_pt, params, args)
#define CU_CALL(symbol, base, since, since_pt, exempt, params)
#define CU_PASS(symbol, base, since, since_pt, exempt)
#define CU_OWN(symbol, base, since, since_pt, exempt, params, args)                                \
    ull_fn_##symbol ull__own_##symbol;
#include "cuda_api.def"

#endif
