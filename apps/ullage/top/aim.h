/*
 * aim.h: a signal for a process that was seen, and for no other one that got its number.
 *
 * The process is held by a pidfd before the user is asked, and its start time compared after that: from then
 * on the descriptor means this process or none.
 */
#ifndef ULLAGE_TOP_AIM_H
#define ULLAGE_TOP_AIM_H

#include <stdint.h>

#include "ullage/status.h"

/* A descriptor to be closed. ULL_E_NOT_FOUND: it is gone, or another one has its number. ULL_E_SYSTEM. */
ull_status aim_open(uint32_t pid, uint64_t start_ticks, int *fd, struct ull_error *err);
/* ULL_E_NOT_FOUND: it has ended. ULL_E_PERMISSION. ULL_E_SYSTEM. */
ull_status aim_send(int fd, int signal, struct ull_error *err);

#endif
