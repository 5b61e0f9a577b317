/*
 * hooks_ipc.c: memory named by cuIpcGetMemHandle, and opened by that name elsewhere.
 *
 * It is charged once, to the process that allocated it. If that one frees it or dies while another
 * process of the job has it open, the memory lives on and the charge passes (src/ledger/share.c). That the
 * process shares something is noted in the ledger, since the driver's checkpoint cannot move such processes.
 */
#include "hash.h"
#include "interpose.h"
#include "suspend.h"

static void tie(void)
{
    ull__member_tie(atomic_load(&ull__state.member), ULL_TIE_IPC);
}

static CUresult name_block(CUipcMemHandle *handle, CUdeviceptr dptr)
{
    CUresult result;
    return ull__backing_wanted() && handle && ull__pass_name(dptr, handle, &result)
               ? result
               : ull__driver->cuIpcGetMemHandle(handle, dptr);
}

static void range_of(CUdeviceptr address, CUdeviceptr *base, size_t *size)
{
    if (ull__backing_wanted())
        ull__own_cuMemGetAddressRange_v2(base, size, address);
    else if (ull__driver->cuMemGetAddressRange_v2)
        ull__driver->cuMemGetAddressRange_v2(base, size, address);
}

CUresult ull__do_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr)
{
    tie();
    CUresult result = name_block(handle, dptr);
    if (result != CUDA_SUCCESS)
        return result;
    struct ull__block block;
    CUdeviceptr base = dptr;
    size_t size = 0;
    range_of(dptr, &base, &size);
    uint64_t key = ull__hash(handle, sizeof *handle);
    if (ull__block_set_key(base, key, &block)) {
        const struct ull__gpu *gpu = ull__gpu_of(block.ordinal);
        if (gpu && gpu->device >= 0)
            ull__member_export(atomic_load(&ull__state.member), gpu->device,
                               (enum ull__class)block.class, key, block.charged);
    }
    return result;
}

/* It may lie on another device than the current one. */
static const struct ull__gpu *gpu_of_memory(CUdeviceptr address)
{
    const union ull__cuda *real = ull__driver;
    int ordinal = -1;
    if (real->cuPointerGetAttribute &&
        real->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
            CUDA_SUCCESS)
        return ull__gpu_of(ordinal);
    return ull__current_gpu();
}

static CUresult opened(CUresult result, const CUdeviceptr *dptr, const CUipcMemHandle *handle)
{
    CUdeviceptr address = result == CUDA_SUCCESS ? *dptr : 0;
    const struct ull__gpu *gpu = result == CUDA_SUCCESS ? gpu_of_memory(address) : NULL;
    if (!gpu || gpu->device < 0)
        return result;
    CUdeviceptr base = address;
    size_t size = 0;
    range_of(address, &base, &size);
    struct ull__block block = {.address = address,
                               .bytes = size,
                               .charged = 1, /* uses */
                               .key = ull__hash(handle, sizeof *handle),
                               .ordinal = (int)(gpu - ull__state.gpus),
                               .class = ULL_CLASS_DATA,
                               .kind = BLOCK_IMPORT};
    ull__driver->cuCtxGetCurrent(&block.context);
    if (ull__block_opened(&block))
        ull__member_import(atomic_load(&ull__state.member), gpu->device, block.key, size);
    return result;
}

CUresult ull__do_cuIpcOpenMemHandle(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned int flags)
{
    CUresult result;
    tie();
    if (!ull__gates_wanted() || !ull__pass_open(dptr, &handle, &result))
        result = ull__driver->cuIpcOpenMemHandle(dptr, handle, flags);
    return opened(result, dptr, &handle);
}

CUresult ull__do_cuIpcOpenMemHandle_v2(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned int flags)
{
    CUresult result;
    tie();
    if (!ull__gates_wanted() || !ull__pass_open(dptr, &handle, &result))
        result = ull__driver->cuIpcOpenMemHandle_v2(dptr, handle, flags);
    return opened(result, dptr, &handle);
}

CUresult ull__do_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct ull__block block;
    struct ull__moment moment = {.began_ns = ull__moment_now()};
    bool known = ull__block_find(dptr, &block);
    CUresult result;
    if (!ull__gates_wanted() || !ull__pass_close(dptr, &result))
        result = ull__driver->cuIpcCloseMemHandle(dptr);
    /* Afterwards: of two threads that close it, the second must not end it while the driver has it for the first. */
    if (known && result == CUDA_SUCCESS && ull__block_closed(dptr, block.key, &block))
        ull__block_ended(&block, &moment);
    return result;
}

/* --- events: they hold no memory, but tie processes together ------------------------------------------------- */

CUresult ull__do_cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    tie();
    return ull__driver->cuIpcGetEventHandle(handle, event);
}

CUresult ull__do_cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    tie();
    return ull__driver->cuIpcOpenEventHandle(event, handle);
}
