/* collective.h: collectives among processes, through the slots of a world. */
#ifndef ULLAGE_CPU_COLLECTIVE_H
#define ULLAGE_CPU_COLLECTIVE_H

#include "backend.h"
#include "world.h"

/* Bytes of what it reads, and of what it writes. */
size_t ull__collective_from_bytes(const struct ull__collective_run *run);
size_t ull__collective_to_bytes(const struct ull__collective_run *run);
/* world NULL: this process is the only one. `to` may be `from`. ULL_E_SYSTEM: another rank has failed. */
ull_status ull__collective(struct ull__world *world, const struct ull__collective_run *run,
                           struct ull_error *err);

#endif
