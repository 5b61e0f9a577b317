/*
 * allocations.h: makes requests for host memory fail: malloc, calloc, realloc, aligned_alloc, strdup and mmap,
 * as far as the files of the test executable call them themselves (linked with --wrap, see CMakeLists.txt).
 */
#ifndef ULLAGE_FAULT_ALLOCATIONS_H
#define ULLAGE_FAULT_ALLOCATIONS_H

#include <stdbool.h>
#include <stdint.h>

/* From now on everything works. */
void allocations_work(void);
/* Ends the program with what failed: which request, and in which way. */
__attribute__((noreturn)) void fail(const char *what, const char *more);

/*
 * Runs scene for n = 1, 2, ... until it asks for host memory less than n times: first with the n-th request
 * failing alone, then with all from the n-th on. The scene ends that by allocations_work when it wants to see
 * how things go on. Each time all memory must have been freed. Returns how many requests there were.
 */
uint64_t each_fails(const char *name, void (*scene)(void));

#endif
