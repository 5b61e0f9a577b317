/*
 * fake.h: an upstream of made-up memory: a number of bytes, addresses that nobody can read, and a record
 * of what was called. Thread safe.
 */
#ifndef ULLAGE_TEST_POLICY_FAKE_H
#define ULLAGE_TEST_POLICY_FAKE_H

#include <pthread.h>
#include <stdbool.h>

#include "ullage/policy.h"

enum { FAKE_LIVE = 4096 };

struct fake {
    struct ull_alloc alloc;
    pthread_mutex_t lock;
    uint64_t capacity; /* refuses above */
    uint64_t cached;   /* what trim can give back, to gives_to */
    struct fake *gives_to;
    uint64_t in_use, peak;
    unsigned int allocations, frees, refusals, trims, uses;
    bool device_full; /* what a refusal says */
    struct {
        uint64_t address, bytes;
    } live[FAKE_LIVE];
    uint64_t next;
};

void fake_init(struct fake *fake, uint64_t capacity);

#endif
