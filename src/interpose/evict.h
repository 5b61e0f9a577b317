/*
 * evict.h: what the files that move bytes between devices and the host share (evict.c, host_store.c, ring.c).
 */
#ifndef ULLAGE_EVICT_H
#define ULLAGE_EVICT_H

#include "suspend.h"

/* --- host_store.c: where the bytes are while they are out ------------------------------------------------- */

/*
 * One range of ordinary memory, in parts. While bytes go out, threads touch the parts ahead of the copies and
 * another pins them, so that the device writes to them itself. All of it is for one thread, the mover's.
 */

/* Is there a place for so many bytes? What is in it already stays. */
bool ull__store_open(uint64_t bytes);
unsigned char *ull__store_base(void);
/* Begins touching and pinning ahead of the copies, in the context that is current. */
void ull__store_prepare(void);
/*
 * How many bytes from `host` on are of one kind, and whether the device may reach them (*direct); waits for
 * those who prepare.
 */
size_t ull__store_ready(const unsigned char *host, bool *direct);
/* Ends what ull__store_prepare began. */
void ull__store_settle(void);
/* Unpins what is not to stay so, in the context that is current; returns early once *stop says so. */
void ull__store_unpin(bool (*stop)(void *data), void *data);
/*
 * Nothing is in it any more: all but what stays pinned is the kernel's, which takes it when it needs it (and at
 * once where the host has no plenty).
 */
void ull__store_give_back(void);
/* Bytes that are pinned and stay so. Any thread may ask. */
uint64_t ull__store_kept(void);
/* Is there something for ull__store_ahead to do? Any thread may ask. */
bool ull__store_ahead_due(void);
/* While the program runs: pins what `run --pinned` asks for, as far as it has grown; until *stop says so. */
void ull__store_ahead(bool (*stop)(void *data), void *data);
void ull__store_forget(void);

/* --- host_room.c ---------------------------------------------------------------------------------------------- */

/* Has the host so many bytes left for what moves there? If not, *left says how many, unless it is NULL. */
bool ull__host_has(uint64_t bytes, uint64_t *left);

/* --- ring.c: the copies --------------------------------------------------------------------------------------- */

enum { RING_BUFFER = 8 << 20, RING_DIRECT = 64 << 20, RING_MOST = 64 };

/* In the context that is current; out: from the device. */
bool ull__ring_open(bool out);
void ull__ring_close(void);
/*
 * Begins a copy of at most RING_BUFFER bytes, or of RING_DIRECT where the device reaches the memory itself
 * (`direct`). False: the device failed.
 */
bool ull__ring_copy(unsigned char *host, CUdeviceptr device, size_t bytes, bool direct);
/* Copies begun so far, and how many of them are known to be where they shall be, the oldest first; all are after a drain. */
uint64_t ull__ring_begun(void);
uint64_t ull__ring_over(void);
/* Everything that was begun is where it shall be. */
bool ull__ring_drain(void);
void ull__ring_forget(void);

/* Threads that may work at one thing: the processors that this process may use, 16 at most. */
int ull__mover_threads(void);
/* Makes a living context of the device current; -1: of any. */
bool ull__use_context(int ordinal);

#endif
