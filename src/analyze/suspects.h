/* suspects.h: which blocks a growth is made of, and how blocks are named. */
#ifndef ULLAGE_SUSPECTS_H
#define ULLAGE_SUSPECTS_H

#include "figures.h"

/*
 * Live blocks of a process that came between two moments, as they are at the second one, by who allocated
 * them, largest first. At most `most`; the number of them. -1 without memory.
 */
int ull__suspects_find(const struct ull__facts *facts, uint32_t process, uint64_t from_ns,
                       uint64_t to_ns, struct ull__holder *suspects, int most);

/* "40 blocks of 1.0 KiB, tag 'x', by f (a.c:3) < g (b.c:4)". */
void ull__holder_describe(const struct ull__history *history, const struct ull__holder *holder,
                          char *text, size_t size);

/* The innermost frames, as "forward (model.py:12) < train (train.py:40)"; "" without a stack. */
void ull__stack_describe(const struct ull__history *history, uint32_t stack, uint32_t frames,
                         char *text, size_t size);

#endif
