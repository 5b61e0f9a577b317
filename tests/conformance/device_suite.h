/*
 * device_suite.h: what every implementation of the seam in device.h has to do. Each has a small program
 * that makes devices for it. Nothing here is particular to one of them.
 */
#ifndef ULLAGE_DEVICE_SUITE_H
#define ULLAGE_DEVICE_SUITE_H

#include "device.h"

/* make gives a new device with at least 64 pages free, or NULL. Returns what main returns. */
int device_suite(const char *name, struct ull__device *(*make)(void));

#endif
