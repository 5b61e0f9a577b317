/*
 * event.h: one thing that happened to memory, as it is recorded and as it is reported.
 *
 * The same 64 bytes go through a process's ring (writer) and lie in a history (reader), so that nothing is
 * translated in between. What a field means depends on the kind; a field that is not named for a kind is 0.
 *
 * Two layers may tell of the same bytes. What the driver handed out is `held`; what a caching allocator cut
 * from that for the program (our pool, PyTorch's) is `live`. ALLOC and FREE are of the driver, CHUNK_ALLOC and
 * CHUNK_FREE of the allocator above it; a program without such an allocator has only the first pair, and
 * then they are both.
 */
#ifndef ULLAGE_EVENT_H
#define ULLAGE_EVENT_H

#include <stdint.h>

#include "class.h"

/*
 * ALLOC        the program got `size` bytes at `address`, for which the books of `class` rose by `charged` (0: it
 *              came out of a reserve that is charged by CHARGE), or was refused (`result` is not 0).
 * FREE         the block at `address` went back; the books fell by `charged`, given as a positive number.
 * CHUNK_ALLOC  as ALLOC and FREE, by an allocator above the driver. `charged` is what the chunk takes of it
 * CHUNK_FREE   (its size after rounding), `size` what was asked for; `tag` is the owner's name.
 * CHARGE       the books of `class` changed by `charged`, which may be negative, without a block of their own:
 *              the reserve of a stream-ordered pool, graph memory, a context, code.
 * HOST         the process's resident host memory is `size` bytes.
 * CARD         of a device: `size` bytes are in use by everybody, as the driver says, `charged` by the job;
 *              `address` is the number of other processes that the driver lists there.
 * BUDGET       the budget on `device` is `size` bytes from now on.
 * START, END   of a process. At END all that it still held is gone; `result` is its exit code or 128 + signal,
 *              -1 if not known.
 * MARK         the program, or who recorded it, noted `tag`.
 */
#define ULL_EVENT_MAP(X)                                                                           \
    X(ALLOC, "alloc")                                                                              \
    X(FREE, "free")                                                                                \
    X(CHUNK_ALLOC, "chunk_alloc")                                                                  \
    X(CHUNK_FREE, "chunk_free")                                                                    \
    X(CHARGE, "charge")                                                                            \
    X(HOST, "host")                                                                                \
    X(CARD, "card")                                                                                \
    X(BUDGET, "budget")                                                                            \
    X(START, "start")                                                                              \
    X(END, "end")                                                                                  \
    X(MARK, "mark")

enum ull__event_kind {
    ULL_EVENT_NONE,
#define X(name, text) ULL_EVENT_##name,
    ULL_EVENT_MAP(X)
#undef X
        ULL_EVENT_KINDS
};

/* What a request had to go through before it was granted or refused; bits. */
enum ull__event_wait {
    ULL_WAIT_BOOKS = 1,  /* books were settled: dead processes, reserves, the driver's figure */
    ULL_WAIT_STREAM = 2, /* its stream had to run dry */
    ULL_WAIT_TRIM = 4,   /* caches were trimmed */
    ULL_WAIT_OTHERS = 8, /* other threads or processes of the job were waited for */
    ULL_WAIT_MERGE = 16, /* pages had to be mapped side by side, or chunks merged */
    ULL_WAIT_RETRY = 32, /* callbacks, fallbacks or a bounded wait of an adaptor */
};

enum { ULL_EVENT_NO_DEVICE = 0xff };

struct ull__event {
    /*
     * CLOCK_MONOTONIC when the call returned; of a free when it was called, since the address may be another's
     * when it returns. In a history, since its beginning.
     */
    uint64_t time_ns;
    uint64_t address; /* device address or handle */
    uint64_t size;
    int64_t charged;
    uint64_t stream;     /* the handle, 0: the default stream or none */
    uint32_t latency_ns; /* of the whole call, waits included; UINT32_MAX: that or more */
    uint32_t thread;     /* the kernel's id */
    uint32_t stack;      /* of the call: number in the writer's or history's table, 0: none */
    uint32_t tag;        /* text: number in the table, 0: none */
    int16_t result;      /* what the driver answered (CUresult), 0: success */
    uint16_t process;    /* in a history: its number there; in a ring: 0 */
    uint8_t kind;        /* enum ull__event_kind */
    uint8_t class;       /* enum ull__class */
    uint8_t device;      /* number in the job, ULL_EVENT_NO_DEVICE: none */
    uint8_t wait;        /* enum ull__event_wait */
};
_Static_assert(sizeof(struct ull__event) == 64, "an event is a cache line");

/* "alloc" and so on; "?" for what is no kind. */
const char *ull__event_name(enum ull__event_kind kind);

#endif
