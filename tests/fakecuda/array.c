/*
 * array.c: arrays and mipmapped arrays: what they take, not what they hold.
 *
 * Rows lie in tiles of 64 bytes x 8 rows, tiles in blocks of up to 16 tiles in height (and 16 in
 * depth, then one tile high), which explains every size that the real card gave. Small arrays are
 * packed into 2 MiB slabs, larger ones rounded up to 2 MiB.
 *
 * There are no bytes behind an array: copies and textures are not supported.
 */
#include "fake.h"

#include <stdlib.h>

enum { TILE_BYTES = 64, TILE_ROWS = 8, ALIGNMENT = 65536 };

struct CUarray_st {
    struct CUarray_st *next; /* in the list of all; never freed */
    bool live;
    CUcontext ctx;
    CUdeviceptr memory; /* 0 when mapping is deferred */
    uint64_t bytes;
    CUDA_ARRAY3D_DESCRIPTOR desc;
};

struct CUmipmappedArray_st {
    struct CUarray_st array; /* the whole of it */
    unsigned int levels;
};

static CUarray all;

static size_t format_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

/* The power of two that is large enough, but at most 16. */
static uint64_t block_size(uint64_t count)
{
    uint64_t size = 1;
    while (size < count && size < 16)
        size *= 2;
    return size;
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int level)
{
    uint64_t width = d->Width >> level, height = d->Height >> level, depth = d->Depth >> level;
    width = width ? width : 1;
    height = height ? height : 1;
    depth = depth ? depth : 1;
    uint64_t row = round_up(width * d->NumChannels * format_bytes(d->Format), TILE_BYTES);
    uint64_t tiles = (height + TILE_ROWS - 1) / TILE_ROWS;
    tiles = depth > 1 ? tiles : round_up(tiles, block_size(tiles));
    depth = round_up(depth, block_size(depth));
    return row * tiles * TILE_ROWS * depth;
}

static CUresult create(CUarray array, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
    CUresult r = CUDA_SUCCESS;
    size_t element = format_bytes(d->Format);
    if (d->Width == 0 || element == 0 ||
        (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4) ||
        d->Width > 1u << 20 || d->Height > 1u << 20 || d->Depth > 1u << 14)
        return CUDA_ERROR_INVALID_VALUE;
    array->ctx = fake_current();
    array->desc = *d;
    for (unsigned int i = 0; i < levels; i++)
        array->bytes += level_bytes(d, i);
    if (!(d->Flags & (CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_SPARSE)) &&
        !fake_linear_take(array->ctx, &array->ctx->arrays, array->bytes, &array->memory, &r))
        return r;
    array->live = true;
    array->next = all;
    all = array;
    return CUDA_SUCCESS;
}

static CUresult create_array(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    if (!out || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    CUarray array = calloc(1, sizeof *array);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = create(array, desc, 1);
    if (r == CUDA_SUCCESS)
        *out = array;
    else
        free(array);
    return r;
}

CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    FAKE_ENTER(cuArray3DCreate_v2, FAKE_TAKES);
    return create_array(out, desc);
}

CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    FAKE_ENTER(cuArrayCreate_v2, FAKE_TAKES);
    if (!desc)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR full = {.Width = desc->Width,
                                    .Height = desc->Height,
                                    .Format = desc->Format,
                                    .NumChannels = desc->NumChannels};
    return create_array(out, &full);
}

static CUresult destroy(CUarray array)
{
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!array->live || !array->ctx->live)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED; /* what the real driver says of a stale array */
    array->live = false;
    fake_wait_context(array->ctx);
    return array->memory ? fake_linear_drop(array->memory) : CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray array)
{
    FAKE_ENTER(cuArrayDestroy, FAKE_CONTEXT | FAKE_UNSAFE);
    return destroy(array);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                unsigned int levels)
{
    FAKE_ENTER(cuMipmappedArrayCreate, FAKE_TAKES);
    if (!out || !desc || levels == 0 || levels > 16)
        return CUDA_ERROR_INVALID_VALUE;
    CUmipmappedArray mip = calloc(1, sizeof *mip);
    if (!mip)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mip->levels = levels;
    CUresult r = create(&mip->array, desc, levels);
    if (r == CUDA_SUCCESS)
        *out = mip;
    else
        free(mip);
    return r;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mip)
{
    FAKE_ENTER(cuMipmappedArrayDestroy, FAKE_CONTEXT | FAKE_UNSAFE);
    return destroy(mip ? &mip->array : NULL);
}

static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *need, const struct CUarray_st *array)
{
    if (!need || !array || !array->live || !(array->desc.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING))
        return CUDA_ERROR_INVALID_VALUE;
    *need = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = round_up(array->bytes, ALIGNMENT),
                                             .alignment = ALIGNMENT};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *need, CUarray array,
                                      CUdevice dev)
{
    FAKE_ENTER(cuArrayGetMemoryRequirements, FAKE_CONTEXT);
    (void)dev;
    return requirements(need, array);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *need,
                                               CUmipmappedArray mip, CUdevice dev)
{
    FAKE_ENTER(cuMipmappedArrayGetMemoryRequirements, FAKE_CONTEXT);
    (void)dev;
    return requirements(need, mip ? &mip->array : NULL);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray array)
{
    FAKE_ENTER(cuArray3DGetDescriptor_v2, FAKE_CONTEXT);
    if (!desc || !array || !array->live)
        return CUDA_ERROR_INVALID_HANDLE;
    *desc = array->desc;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray array)
{
    FAKE_ENTER(cuArrayGetDescriptor_v2, FAKE_CONTEXT);
    if (!desc || !array || !array->live)
        return CUDA_ERROR_INVALID_HANDLE;
    *desc = (CUDA_ARRAY_DESCRIPTOR){.Width = array->desc.Width,
                                    .Height = array->desc.Height,
                                    .Format = array->desc.Format,
                                    .NumChannels = array->desc.NumChannels};
    return CUDA_SUCCESS;
}
