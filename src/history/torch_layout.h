/*
 * torch_layout.h: puts a history's blocks into segments, as PyTorch's snapshots want them: every block lies in a
 * segment, and neither blocks nor segments overlap. What PyTorch calls an action is told one by one.
 *
 * A driver's block is a segment. If chunks lie in it they are its blocks, else it is its own only block (unless
 * the history is of PyTorch's, whose segments are the allocator's even if nothing lies in them); a block
 * of the driver's that begins in the rest of another's pages is a further block of that segment, which then stays
 * until both are gone, as the pages do. A reserve (CHARGE: a context, a pool) is a segment that is replaced when
 * its size changes, unless the blocks in it are told too: then those stand for it.
 *
 * If chunks lie across blocks of the driver that adjoin, the process has segments that grow: then its segments are
 * mapped and unmapped in pieces, and adjoining ones are one in the end.
 *
 * Addresses are kept where they can be. Processes have address spaces of their own: 2^48 times a process's number
 * is added. Where that does not do (handles, which may lie close together), the address is made up, above 2^60.
 *
 * Chunks that lie in no block of the driver's (a pool over handles, whose pages have other addresses than the
 * handles) are segments of their own, and the blocks of that process in which no chunk lies are left out, since
 * they would count twice.
 */
#ifndef ULLAGE_TORCH_LAYOUT_H
#define ULLAGE_TORCH_LAYOUT_H

#include "extents.h"
#include "history.h"
#include "map.h"

enum ull__layout_action {
    ULL_LAYOUT_SEGMENT_ALLOC,
    ULL_LAYOUT_SEGMENT_FREE,
    ULL_LAYOUT_SEGMENT_MAP,
    ULL_LAYOUT_SEGMENT_UNMAP,
    ULL_LAYOUT_ALLOC,
    ULL_LAYOUT_FREE,
    ULL_LAYOUT_OOM,
    ULL_LAYOUT_MARK,
};

struct ull__layout_entry {
    enum ull__layout_action action;
    uint64_t address; /* OOM: what may still be had */
    uint64_t size;
    const struct ull__event *event; /* that did it */
    const struct ull__event *began; /* that made what ends here; else as `event` */
};

typedef void ull__layout_fn(void *context, const struct ull__layout_entry *entry);

struct ull__layout_segment {
    uint64_t begin, end;
    uint32_t event;
    uint32_t blocks;  /* that lie in it */
    bool owner_ended; /* it goes with its last block */
    bool in_use;
};

struct ull__layout_block {
    uint64_t begin, size; /* as placed */
    uint64_t wanted;      /* bytes asked for, at most size */
    uint32_t event;
    uint32_t segment; /* number */
    bool owns;   /* the driver's block that made the segment, or one in the rest of its pages */
    bool hidden; /* the segment's owner, which is no block itself since chunks lie in it */
    bool in_use;
};

/* A process on the device: its blocks by their own addresses; numbers of blocks. */
struct ull__layout_process {
    struct ull__map driver, chunks;
    uint32_t reserves[ULL_CLASSES]; /* number of the block + 1 */
    int64_t reserved[ULL_CLASSES];
    bool has_chunks;
    bool homeless;            /* has chunks outside the driver's blocks */
    bool grows;               /* has chunks across several of them */
    bool pooled[ULL_CLASSES]; /* has blocks out of a reserve */
};

struct ull__layout {
    const struct ull__history *history;
    uint8_t device;
    ull__layout_fn *tell;
    void *context;
    uint64_t held; /* bytes, as charged */
    uint64_t made_up;
    unsigned char *hosts; /* by event: chunks lie in its block */
    struct ull__layout_process *processes;
    struct ull__extents segment_places, block_places;
    struct ull__layout_segment *segments;
    struct ull__layout_block *blocks;
    uint32_t segment_count, segment_capacity, block_count, block_capacity;
    uint32_t free_segment, free_block; /* + 1 */
};

/* Plays one device of a finished history. False without memory. Finish it in both cases. */
bool ull__layout_play(struct ull__layout *layout, const struct ull__history *history,
                      uint8_t device, ull__layout_fn *tell, void *context);
void ull__layout_finish(struct ull__layout *layout);

#endif
