/*
 * hooks_query.c: what a program is told of its device: the budget is the card.
 *
 * Null outputs are legal. A job that holds more than its budget (the budget was lowered, or code that
 * was loaded at a launch passed it) has 0 free, and the call succeeds.
 */
#include "interpose.h"

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void pretend(const struct ull__gpu *gpu, size_t *free, size_t *total)
{
    uint64_t card = UINT64_MAX, room = UINT64_MAX;
    if (!gpu || gpu->device < 0)
        return;
    ull__reserves_refresh(gpu, false);
    ull__member_card(atomic_load(&ull__state.member), gpu->device, &card, &room);
    if (card >= *total)
        return; /* no budget but the card itself: the driver knows best what is free */
    *total = smaller(*total, card);
    *free = smaller(smaller(*free, room), *total);
}

CUresult ull__do_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    size_t free_bytes = 0, total_bytes = 0;
    CUresult result = ull__driver->cuMemGetInfo_v2(&free_bytes, &total_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    pretend(ull__current_gpu(), &free_bytes, &total_bytes);
    if (free)
        *free = free_bytes;
    if (total)
        *total = total_bytes;
    return result;
}

CUresult ull__do_cuMemGetInfo(unsigned int *free, unsigned int *total)
{
    unsigned int free32 = 0, total32 = 0;
    CUresult result = ull__driver->cuMemGetInfo(&free32, &total32);
    if (result != CUDA_SUCCESS)
        return result;
    size_t free_bytes = free32, total_bytes = total32;
    pretend(ull__current_gpu(), &free_bytes, &total_bytes);
    if (free)
        *free = (unsigned int)free_bytes;
    if (total)
        *total = (unsigned int)total_bytes;
    return result;
}

CUresult ull__do_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    CUresult result = ull__driver->cuDeviceTotalMem_v2(bytes, dev);
    if (result == CUDA_SUCCESS) {
        size_t free_bytes = 0;
        pretend(ull__gpu_of(dev), &free_bytes, bytes);
    }
    return result;
}

CUresult ull__do_cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
    CUresult result = ull__driver->cuDeviceTotalMem(bytes, dev);
    if (result == CUDA_SUCCESS) {
        size_t free_bytes = 0, total_bytes = *bytes;
        pretend(ull__gpu_of(dev), &free_bytes, &total_bytes);
        *bytes = (unsigned int)total_bytes;
    }
    return result;
}
