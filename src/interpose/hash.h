/* hash.h: names of shared memory (64 bytes of the driver's) as numbers. FNV-1a; never 0. */
#ifndef ULLAGE_HASH_H
#define ULLAGE_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t ull__hash(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    return hash ? hash : 1;
}

#endif
