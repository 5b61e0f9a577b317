/*
 * pool_suite.h: what a pool has to do over every device, with every policy, and behind every adaptor.
 */
#ifndef ULLAGE_POOL_SUITE_H
#define ULLAGE_POOL_SUITE_H

#include "device.h"

/* As device_suite. */
int pool_suite(const char *name, struct ull__device *(*make)(void));

#endif
