/*
 * shuffle.h: a backend that runs what it is given in any legal order, by chance, and looks at what kernels write.
 *
 * Kernels are those of the backend it is made over. A command's turn comes when all before it in its queue are done and
 * the events it waits for have been recorded; among those whose turn it is, one is drawn. With `watch`, every byte of
 * a range that is not an output or the workspace of a kernel must be the same after the kernel.
 */
#ifndef TEST_SHUFFLE_H
#define TEST_SHUFFLE_H

#include "backend.h"

struct ull__backend *shuffle_create(struct ull__backend *inner, unsigned int seed);
/* At most 1 MiB. NULL: nothing is watched. Bytes that were written without right so far are returned by shuffle_strays. */
void shuffle_watch(struct ull__backend *backend, void *begin, size_t bytes);
size_t shuffle_strays(const struct ull__backend *backend);
/* How many times another queue than the first that could run was taken. */
size_t shuffle_choices(const struct ull__backend *backend);

#endif
