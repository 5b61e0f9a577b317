/* device_host.c: the host device does what a device has to do, and the pool does over it what it has to. */
#include "device_suite.h"
#include "plain_host.h"
#include "pool_suite.h"

static struct ull__device *small_pages(void)
{
    struct ull__device *device = NULL;
    ull__device_host_create(256 * 4096, 4096, &device, NULL);
    return device;
}

static struct ull__device *usual_pages(void)
{
    struct ull__device *device = NULL;
    ull__device_host_create((uint64_t)1 << 30, 0, &device, NULL);
    return device;
}

static struct ull__device *plain(void)
{
    return plain_host(small_pages(), 0);
}

static struct ull__device *shifted(void)
{
    return plain_host(small_pages(), 768);
}

int main(void)
{
    int failed = device_suite("host, pages of 4 KiB", small_pages);
    failed += device_suite("host, pages of 2 MiB", usual_pages);
    failed += pool_suite("pool over host, pages of 4 KiB", small_pages);
    failed += pool_suite("pool over host, pages of 2 MiB", usual_pages);
    failed += device_suite("host without mapping", plain);
    failed += pool_suite("pool over host without mapping", plain);
    return failed + pool_suite("pool over host without mapping, off the pages", shifted);
}
