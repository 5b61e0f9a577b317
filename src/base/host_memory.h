/*
 * host_memory.h: how much memory the host has left, for those who are about to take a lot of it.
 *
 * MemAvailable counts caches that the kernel would give up. It also counts pages that were given back by MADV_FREE, and goes
 * on to when they are used again, until the kernel looks at them (seen on Linux 6.18): they are on the list of
 * files' pages, which is longer than the page cache by them. So they are taken off again, but for those that are
 * known to be really free. The same within the limits of control groups (control_group.h): of version 2 memory.max and memory.high,
 * above which programs are made to wait, of version 1 memory.limit_in_bytes; swap counts for nothing.
 */
#ifndef ULLAGE_BASE_HOST_MEMORY_H
#define ULLAGE_BASE_HOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* The machine, or one control group around this process. */
struct ull__host_scope {
    uint64_t total, left; /* bytes; left <= total */
};
enum { ULL_HOST_SCOPES = 32 };

/*
 * The machine first, then the groups that have a limit, innermost first; how many. `lazily_free`: bytes that were given back by MADV_FREE
 * and not used again since, as far as they are known. root: what stands before /proc and before the places of mounts, for tests; "".
 */
int ull__host_scopes(const char *root, uint64_t lazily_free,
                     struct ull__host_scope scopes[ULL_HOST_SCOPES]);
/* Of all of these what is least: what can be had now, and at most. 0 if it cannot be told. */
uint64_t ull__host_memory_left(uint64_t lazily_free);
uint64_t ull__host_memory_total(void);
/* Of one process, "self" or its number: what it gave back and has not used again; 0: none, or not to be told. */
uint64_t ull__host_memory_lazy(const char *process);

/* What they go by, for tests: texts of /proc/meminfo, and of memory.max or its like, .current and .stat. UINT64_MAX: no limit. */
uint64_t ull__host_memory_of_machine(const char *meminfo, uint64_t lazily_free);
uint64_t ull__host_memory_of_group(const char *max, const char *current, const char *stat,
                                   uint64_t lazily_free);

#endif
