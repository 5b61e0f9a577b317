/*
 * host_memory.h: how much memory the host has left, for those who are about to take a lot of it.
 *
 * MemAvailable counts caches that the kernel would give up. It also counts pages that were given back by MADV_FREE, and goes
 * on to when they are used again, until the kernel looks at them (seen on Linux 6.18): they are on the list of
 * files' pages, which is longer than the page cache by them. So they are taken off again, but for those that are
 * known to be really free. The same within the limit of a control group.
 */
#ifndef ULLAGE_BASE_HOST_MEMORY_H
#define ULLAGE_BASE_HOST_MEMORY_H

#include <stdint.h>

/*
 * The machine, or the limit of the control group that this process sees as its own, whatever is less. `lazily_free`:
 * bytes that were given back by MADV_FREE and not used again since, as far as they are known. 0 if it cannot be told.
 */
uint64_t ull__host_memory_left(uint64_t lazily_free);
/* Of one process, "self" or its number: what it gave back and has not used again; 0: none, or not to be told. */
uint64_t ull__host_memory_lazy(const char *process);

/* What they go by, for tests: texts of /proc/meminfo, and of memory.max, .current and .stat. UINT64_MAX: no limit. */
uint64_t ull__host_memory_of_machine(const char *meminfo, uint64_t lazily_free);
uint64_t ull__host_memory_of_group(const char *max, const char *current, const char *stat,
                                   uint64_t lazily_free);

#endif
