/* suites_cuda.c: the CUDA device does what a device has to do, and a pool over it too. With the fake. */
#include "device_suite.h"
#include "pool_suite.h"

static struct ull__device *cuda(void)
{
    struct ull__device *device = NULL;
    ull__device_cuda_create(0, &device, NULL);
    return device;
}

int main(void)
{
    int failed = device_suite("cuda", cuda);
    return failed + pool_suite("pool over cuda", cuda);
}
