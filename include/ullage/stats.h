/*
 * stats.h: what a pool counts. One list of fields makes the struct, the names and every report.
 *
 * Bytes unless the name says otherwise. TensorFlow's and PyTorch's names for the same thing are in the
 * comments. The struct begins with its size and version: a caller sets `size` to what it was compiled
 * with, and fields that it does not know are not written.
 */
#ifndef ULLAGE_STATS_H
#define ULLAGE_STATS_H

#include <stdint.h>

/* type, name, meaning */
#define ULL_STATS_MAP(X)                                                                              \
    X(uint64_t, in_use, "held by the program, rounded to chunks (bytes_in_use, allocated_bytes)")     \
    X(uint64_t, peak_in_use, "most in use at a time (peak_bytes_in_use)")                             \
    X(uint64_t, average_in_use, "mean of in_use over all operations")                                 \
    X(double, peak_to_average, "peak_in_use / average_in_use; 0 before the first operation")          \
    X(uint64_t, requested, "held by the program as it asked for it (requested_bytes)")                \
    X(uint64_t, peak_requested, "most requested at a time")                                           \
    X(uint64_t, waste, "in_use - requested: lost to rounding (inactive internal)")                    \
    X(uint64_t, count, "chunks in use (active)")                                                      \
    X(uint64_t, allocations, "requests that were served (num_allocs)")                                \
    X(uint64_t, frees, "frees that were accepted")                                                    \
    X(uint64_t, refusals, "requests that were refused (num_ooms)")                                    \
    X(uint64_t, largest, "largest request that was served (largest_alloc_size)")                      \
    X(uint64_t, limit, "most that the pool may hold (bytes_limit)")                                   \
    X(uint64_t, reserve, "what the pool keeps though it is free")                                     \
    X(uint64_t, held, "pages of the device that the pool holds (bytes_reserved, reserved_bytes)")     \
    X(uint64_t, peak_held, "most held at a time (peak_bytes_reserved)")                               \
    X(uint64_t, free, "held and not in use, in part pages, in frees that wait for a stream too")      \
    X(uint64_t, free_pages, "bytes of held pages that no chunk in use touches")                       \
    X(uint64_t, pending, "freed and waiting for a stream before other streams may have it")           \
    X(uint64_t, largest_free, "largest run of free addresses (largest_free_block_bytes)")             \
    X(double, fragmentation, "1 - largest_free / free; 0 when nothing is free")                       \
    X(uint64_t, mapped, "bytes of addresses that have a page; more than held where pages are shared") \
    X(uint64_t, maps, "calls that mapped pages")                                                      \
    X(uint64_t, unmaps, "calls that unmapped pages")                                                  \
    X(uint64_t, pages_created, "pages taken from the device so far")                                  \
    X(uint64_t, pages_returned, "pages given back to the device so far")                              \
    X(uint64_t, waits, "requests that waited for a stream")                                           \
    X(uint64_t, latency_p50_ns, "half of the operations took at most so long, in nanoseconds")        \
    X(uint64_t, latency_p99_ns, "99 of 100 operations took at most so long")                          \
    X(uint64_t, latency_p999_ns, "999 of 1000 operations took at most so long")                       \
    X(uint64_t, latency_max_ns, "the longest operation that was timed")

enum { ULL_STATS_VERSION = 1 };

struct ull_stats {
    uint32_t size;    /* of this struct as the caller knows it */
    uint32_t version; /* ULL_STATS_VERSION of the library */
#define X(type, name, meaning) type name;
    ULL_STATS_MAP(X)
#undef X
};

#endif
