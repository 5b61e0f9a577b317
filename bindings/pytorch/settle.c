/*
 * settle.c: waits for a device, in C since the table of the driver is.
 *
 * Used only when a captured graph has ended its life: PyTorch does not say on which streams it was
 * launched, and its memory goes to others.
 */
#include <dlfcn.h>

#include "cuda_load.h"
#include "settle.h"

ull_status ullage_torch_settle(int device)
{
    const union ull__cuda *cuda = ull__cuda_load(dlopen, NULL);
    if (!cuda)
        return ULL_E_NO_DEVICE;
    CUdevice handle;
    CUcontext context, before;
    if (cuda->cuDeviceGet(&handle, device) != CUDA_SUCCESS ||
        cuda->cuDevicePrimaryCtxRetain(&context, handle) != CUDA_SUCCESS)
        return ULL_E_DRIVER;
    ull_status status = ULL_E_DRIVER;
    if (cuda->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
        status = cuda->cuCtxSynchronize() == CUDA_SUCCESS ? ULL_OK : ULL_E_DRIVER;
        cuda->cuCtxPopCurrent_v2(&before);
    }
    cuda->cuDevicePrimaryCtxRelease_v2(handle);
    return status;
}
