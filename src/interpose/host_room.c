/* host_room.c: how much memory the host has left for what moves there: that of the machine, with what this process gave back. */
#include "evict.h"
#include "host_memory.h"

/*
 * What this process gave back is asked for only where it matters: the kernel looks at each page of the process for that, at
 * 2.5 ms/GiB of pinned memory, and keeps the program from mapping meanwhile.
 */
bool ull__host_has(uint64_t bytes, uint64_t *left)
{
    if (bytes <= ull__host_memory_left(0))
        return true;
    uint64_t room = ull__host_memory_left(ull__host_memory_lazy("self"));
    if (left)
        *left = room;
    return bytes <= room;
}
