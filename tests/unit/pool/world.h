/*
 * world.h: a pool over a small device of the host, and two streams, for tests of one promise each. The
 * options may be changed until start(). The clock stands still unless a test moves it.
 */
#ifndef ULLAGE_POOL_WORLD_H
#define ULLAGE_POOL_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"
#include "pool_private.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE (2 * MIB)

struct world {
    struct ull__device *device; /* of 256 pages */
    struct ull_pool *pool;
    struct ull_pool_options options;
    ull__stream streams[2];
    uint64_t clock;
};

int setup(void **state);
/* Whatever a test did, the pool is whole and the device gets everything back. */
int teardown(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

void start(struct world *w);
/* These must succeed, or must be refused for want of memory. Stream NULL unless given. */
void *get_on(struct world *w, uint64_t bytes, ull__stream stream);
void *get(struct world *w, uint64_t bytes);
void give(struct world *w, void *address);
void refused(struct world *w, uint64_t bytes);
struct ull_stats stats(struct world *w);

#endif
