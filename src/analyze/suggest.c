/* suggest.c: see suggest.h. */
#include "suggest.h"

#include <stdio.h>

typedef unsigned __int128 wide;

static const uint64_t gib = 1ull << 30;

static uint64_t tenths_up(wide bytes)
{
    return (uint64_t)((bytes * 10 + gib - 1) / gib);
}

static uint64_t tenths_to_bytes(uint64_t tenths)
{
    return (uint64_t)((wide)tenths * gib / 10);
}

uint64_t ull__round_up_tenth(uint64_t bytes)
{
    return tenths_to_bytes(tenths_up(bytes));
}

uint64_t ull__suggest(uint64_t needed_bytes, uint64_t total_bytes, enum ull__role role)
{
    if (needed_bytes == 0)
        return 0;
    wide tenths = role == ULL_ROLE_INFERENCE ? 14 : 12;
    wide share = ((wide)needed_bytes * tenths + 9) / 10;
    wide more = (wide)needed_bytes + gib / 2;
    uint64_t bytes = tenths_to_bytes(tenths_up(share > more ? share : more));
    if (total_bytes == 0 || bytes <= total_bytes)
        return bytes;
    bytes = tenths_to_bytes((uint64_t)((wide)total_bytes * 10 / gib));
    return bytes >= needed_bytes ? bytes : total_bytes;
}

const char *ull__suggest_text(uint64_t bytes, char buffer[ULL_SUGGEST_TEXT])
{
    uint64_t tenths = tenths_up(bytes);
    if (tenths_to_bytes(tenths) == bytes)
        snprintf(buffer, ULL_SUGGEST_TEXT, "%llu.%lluGiB", (unsigned long long)(tenths / 10),
                 (unsigned long long)(tenths % 10));
    else
        snprintf(buffer, ULL_SUGGEST_TEXT, "100%%");
    return buffer;
}
