/*
 * control_group.h: the control groups whose limits of memory hold for this process: of version 2 and of version 1, up to the one that
 * can be seen as the topmost, as in a container.
 *
 * Where they lie is read from the kernel each time, since a process can be moved. Nothing is allocated. Limits of groups outside
 * of what is mounted here are not seen.
 */
#ifndef ULLAGE_BASE_CONTROL_GROUP_H
#define ULLAGE_BASE_CONTROL_GROUP_H

#include <stdbool.h>
#include <stddef.h>

enum { ULL_GROUP_PATH = 1024 };

/* The folder of one group. */
typedef void (*ull__group_fn)(void *context, const char *folder, bool version1);

/*
 * Calls for the group of this process with memory, and for all above it, innermost first. root: what stands before /proc and before the
 * places of mounts, for tests; "".
 */
void ull__control_groups(const char *root, ull__group_fn fn, void *context);

#endif
