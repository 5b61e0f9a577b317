/*
 * torch.h: PyTorch's memory snapshots as histories: what torch.cuda.memory._dump_snapshot writes.
 *
 * A segment is a block of the driver's (ALLOC, FREE; `charged` is its size), a block in it is a chunk
 * (CHUNK_ALLOC, CHUNK_FREE). The snapshot has two halves: `segments` says what is there at its end,
 * `device_traces` what happened before, of which the oldest part may be lost. So what is freed without having been
 * allocated, and what is there at the end without having been allocated, was there before: it is allocated at
 * time 0. What the trace has live and the segments do not is freed at the end.
 *
 * Of a segment that grows and shrinks (segment_map, segment_unmap), what goes in parts was several blocks from the
 * beginning, so that each FREE has its ALLOC.
 *
 * A chunk is freed when its memory can be used again (free_completed): a chunk that waits for another stream is
 * still there. So live bytes follow PyTorch's active_bytes and, by `size`, requested_bytes. Traces tell only the
 * requested size; what a chunk takes after rounding is known for those that are there at the end, and is else
 * rounded up to 512 bytes, which is too little where PyTorch rounded by powers of two or left a rest unsplit.
 *
 * A device whose snapshot has no segments at all (another program's imitation of the format) has its chunks as
 * blocks of the driver.
 *
 * Understood too: snapshots of the first versions (`history` in place of `frames`, no addresses in blocks, no
 * times: each entry then takes a microsecond), a bare list of segments (torch.cuda.memory_snapshot()),
 * out-of-memory entries (a refused ALLOC), annotations and marks (MARK; the end of one is its name and " end"),
 * pinned host memory (host_traces and host_segments; as HOST events). Tags are `category`, else user_metadata,
 * else compile_context.
 */
#ifndef ULLAGE_TORCH_H
#define ULLAGE_TORCH_H

#include "history.h"

/* Could a file that begins with these bytes be a snapshot? 16 bytes are enough to see. */
bool ull__is_torch(const void *first_bytes, size_t size);

/*
 * The caller destroys it. ULL_E_FORMAT: damaged, truncated, no snapshot, or numbers that no snapshot has;
 * ULL_E_NOT_FOUND, ULL_E_PERMISSION, ULL_E_SYSTEM.
 */
ull_status ull__history_from_torch(const char *path, struct ull__history **history,
                                   struct ull_error *err);
/* `name` is for messages. */
ull_status ull__history_from_torch_bytes(const void *data, size_t size, const char *name,
                                         struct ull__history **history, struct ull_error *err);

#endif
