/*
 * plain_host.h: the host device as one that cannot map pages (device.h: regions), for tests. Its test
 * hooks (ull__device_host_...) go on working.
 */
#ifndef ULLAGE_PLAIN_HOST_H
#define ULLAGE_PLAIN_HOST_H

#include "device.h"

/*
 * Makes a host device, in use by nobody yet, into such a one; NULL if there is no memory, and then
 * it is gone. Each region begins `shift` bytes (a multiple of 256) behind the start of a page, as
 * with a driver that promises no more; if not 0, each takes a page more than it has.
 */
struct ull__device *plain_host(struct ull__device *host, uint64_t shift);

#endif
