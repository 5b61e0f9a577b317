/* host_room.c: how much memory the host has left for what moves there: that of the machine, with what this process gave back. */
#include "evict.h"
#include "host_memory.h"

uint64_t ull__host_room(void)
{
    return ull__host_memory_left(ull__host_memory_lazy("self"));
}
