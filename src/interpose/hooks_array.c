/*
 * hooks_array.c: arrays and mipmaps.
 *
 * Their size cannot be told from the description, since the driver lays them out in blocks. It answers
 * for an array without memory (deferred mapping) of the same description, so such a twin is made and
 * asked. Arrays of up to half a page share pages with each other. Where they lie is not told, and an
 * H200 took up to 8 MiB more for 54 MiB of them than the pages that their sizes fill. So each is
 * charged a page of its own, and what the sizes do not fill of that is slack, which NVML's figure
 * lowers soon after (measure.c). Where there is no figure they are charged by what they fill.
 */
#include "interpose.h"

enum {
    ARRAY_ALIGNMENT = 65536,
    MEASURE_PAGES = 8, /* in doubt before NVML is asked, which costs some 50 microseconds */
};

static struct {
    pthread_mutex_t lock;
    uint64_t bytes[MAX_ORDINALS];  /* of small arrays */
    uint64_t filled[MAX_ORDINALS]; /* the pages that they fill */
    uint64_t slack[MAX_ORDINALS];  /* charged beyond that */
} small = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
    return bytes > INT64_MAX - to ? INT64_MAX : (bytes + to - 1) / to * to;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    return b && a > INT64_MAX / b ? INT64_MAX : a * b;
}

static uint64_t element_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    default:
        return 4; /* block-compressed and multi-plane formats take less or the same per element */
    }
}

/*
 * An upper bound where the driver does not answer: rows of 64 bytes, in blocks of 8 to 128 rows. On an
 * H200 equal to the driver's own answer for the plane arrays of driver_facts, above it for volumes.
 */
static uint64_t estimate(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    uint64_t height = desc->Height ? desc->Height : 1;
    uint64_t depth = desc->Depth ? desc->Depth : 1;
    uint64_t block = 8;
    while (block < height && block < 128)
        block *= 2;
    uint64_t row =
        round_up(multiply(desc->Width, element_bytes(desc->Format) * desc->NumChannels), 64);
    return round_up(multiply(multiply(row, round_up(height, block)), depth), ARRAY_ALIGNMENT);
}

static uint64_t ask_twin(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels, CUdevice ordinal)
{
    const union ull__cuda *real = ull__driver;
    CUDA_ARRAY3D_DESCRIPTOR twin_desc = *desc;
    CUDA_ARRAY_MEMORY_REQUIREMENTS need = {0};
    twin_desc.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    if (levels == 0 && real->cuArrayGetMemoryRequirements && real->cuArray3DCreate_v2) {
        CUarray twin = NULL;
        if (real->cuArray3DCreate_v2(&twin, &twin_desc) == CUDA_SUCCESS) {
            real->cuArrayGetMemoryRequirements(&need, twin, ordinal);
            real->cuArrayDestroy(twin);
        }
    } else if (levels > 0 && real->cuMipmappedArrayGetMemoryRequirements) {
        CUmipmappedArray twin = NULL;
        if (real->cuMipmappedArrayCreate(&twin, &twin_desc, levels) == CUDA_SUCCESS) {
            real->cuMipmappedArrayGetMemoryRequirements(&need, twin, ordinal);
            real->cuMipmappedArrayDestroy(twin);
        }
    }
    return need.size;
}

/* Bytes of an array (levels 0) or a mipmap; 0 for one without memory of its own. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels, CUdevice ordinal)
{
    if (desc->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0;
    uint64_t bytes = ask_twin(desc, levels, ordinal);
    if (bytes == 0) {
        bytes = estimate(desc);
        if (levels > 1) /* each level has an eighth to a half of the one above */
            bytes = multiply(bytes, 2);
    }
    return bytes;
}

/* --- charging ----------------------------------------------------------------------------------------------- */

/*
 * Changes what small arrays fill, and returns by how much their charge changed. One that comes takes a
 * page, and those that go leave theirs until the figure says otherwise. Even of the last: what the figure
 * showed of streams or code may have been taken for slack.
 */
static int64_t refill(int ordinal, const struct ull__gpu *gpu, int64_t delta)
{
    bool measured = ull__measure_works();
    pthread_mutex_lock(&small.lock);
    uint64_t before = small.filled[ordinal] + small.slack[ordinal];
    small.bytes[ordinal] += (uint64_t)delta;
    small.filled[ordinal] = round_up(small.bytes[ordinal], gpu->page);
    uint64_t after = delta > 0 ? before + gpu->page : before;
    if (!measured || after < small.filled[ordinal])
        after = small.filled[ordinal];
    small.slack[ordinal] = after - small.filled[ordinal];
    pthread_mutex_unlock(&small.lock);
    atomic_store_explicit(&ull__state.code_changed, true, memory_order_relaxed);
    return (int64_t)after - (int64_t)before;
}

uint64_t ull__arrays_slack(const struct ull__gpu *gpu)
{
    pthread_mutex_lock(&small.lock);
    uint64_t slack = small.slack[gpu - ull__state.gpus];
    pthread_mutex_unlock(&small.lock);
    return slack;
}

void ull__arrays_lower_slack(const struct ull__gpu *gpu, uint64_t bytes)
{
    pthread_mutex_lock(&small.lock);
    uint64_t *slack = &small.slack[gpu - ull__state.gpus];
    bytes = bytes < *slack ? bytes : *slack;
    *slack -= bytes;
    pthread_mutex_unlock(&small.lock);
    ull__lower(gpu, ULL_CLASS_ARRAY, bytes);
}

/* True if the call may go on; *charge.bytes is 0 for an array without memory. */
static bool begin(struct ull__charge *charge, uint64_t *bytes, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                  unsigned int levels, const char *call)
{
    CUdevice ordinal;
    *charge =
        (struct ull__charge){.class = ULL_CLASS_ARRAY, .call = call, .began_ns = ull__moment_now()};
    *bytes = 0;
    if (!desc || ull__driver->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
        return true;
    charge->gpu = ull__gpu_of(ordinal);
    *bytes = array_bytes(desc, levels, ordinal);
    charge->bytes = round_up(*bytes, charge->gpu ? charge->gpu->page : 1);
    return *bytes == 0 || ull__reserve(charge, *bytes);
}

static CUresult end(struct ull__charge *charge, uint64_t bytes, CUresult result, void *array)
{
    if (bytes == 0)
        return result;
    if (result != CUDA_SUCCESS) {
        ull__cancel(charge, result);
        return result;
    }
    int ordinal = (int)(charge->gpu - ull__state.gpus);
    bool packed = bytes <= charge->gpu->page / 2;
    struct ull__block block = {.address = (uint64_t)(uintptr_t)array,
                               .bytes = bytes,
                               .charged = packed ? bytes : charge->bytes,
                               .ordinal = ordinal,
                               .class = ULL_CLASS_ARRAY,
                               .kind = packed ? BLOCK_SMALL_ARRAY : BLOCK_ARRAY};
    ull__driver->cuCtxGetCurrent(&block.context);
    ull__block_add(&block);
    int64_t taken = packed ? refill(ordinal, charge->gpu, (int64_t)bytes) : 0;
    charge->address = block.address;
    ull__settle(charge, packed ? (uint64_t)taken : charge->bytes);
    /* Many small ones stand in the books for many times what they take until somebody looks. */
    if (packed && ull__arrays_slack(charge->gpu) >= MEASURE_PAGES * charge->gpu->page)
        ull__measure_rest(false);
    return result;
}

uint64_t ull__small_array_ended(const struct ull__block *block)
{
    const struct ull__gpu *gpu = ull__gpu_of(block->ordinal);
    return (uint64_t)-refill(block->ordinal, gpu, -(int64_t)block->bytes);
}

CUresult ull__do_cuArray3DCreate_v2(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    struct ull__charge charge;
    uint64_t bytes;
    if (!begin(&charge, &bytes, desc, 0, "cuArray3DCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuArray3DCreate_v2(handle, desc);
    return end(&charge, bytes, result, result == CUDA_SUCCESS ? *handle : NULL);
}

CUresult ull__do_cuArrayCreate_v2(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    struct ull__charge charge;
    uint64_t bytes;
    CUDA_ARRAY3D_DESCRIPTOR full = {0};
    if (desc)
        full = (CUDA_ARRAY3D_DESCRIPTOR){.Width = desc->Width,
                                         .Height = desc->Height,
                                         .Format = desc->Format,
                                         .NumChannels = desc->NumChannels};
    if (!begin(&charge, &bytes, desc ? &full : NULL, 0, "cuArrayCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuArrayCreate_v2(handle, desc);
    return end(&charge, bytes, result, result == CUDA_SUCCESS ? *handle : NULL);
}

CUresult ull__do_cuArray3DCreate(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc)
{
    struct ull__charge charge;
    uint64_t bytes;
    CUDA_ARRAY3D_DESCRIPTOR full = {0};
    if (desc)
        full = (CUDA_ARRAY3D_DESCRIPTOR){.Width = desc->Width,
                                         .Height = desc->Height,
                                         .Depth = desc->Depth,
                                         .Format = desc->Format,
                                         .NumChannels = desc->NumChannels,
                                         .Flags = desc->Flags};
    if (!begin(&charge, &bytes, desc ? &full : NULL, 0, "cuArray3DCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuArray3DCreate(handle, desc);
    return end(&charge, bytes, result, result == CUDA_SUCCESS ? *handle : NULL);
}

CUresult ull__do_cuArrayCreate(CUarray *handle, const CUDA_ARRAY_DESCRIPTOR_v1 *desc)
{
    struct ull__charge charge;
    uint64_t bytes;
    CUDA_ARRAY3D_DESCRIPTOR full = {0};
    if (desc)
        full = (CUDA_ARRAY3D_DESCRIPTOR){.Width = desc->Width,
                                         .Height = desc->Height,
                                         .Format = desc->Format,
                                         .NumChannels = desc->NumChannels};
    if (!begin(&charge, &bytes, desc ? &full : NULL, 0, "cuArrayCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuArrayCreate(handle, desc);
    return end(&charge, bytes, result, result == CUDA_SUCCESS ? *handle : NULL);
}

CUresult ull__do_cuMipmappedArrayCreate(CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                        unsigned int num_mipmap_levels)
{
    struct ull__charge charge;
    uint64_t bytes;
    unsigned int levels = num_mipmap_levels ? num_mipmap_levels : 1;
    if (!begin(&charge, &bytes, desc, levels, "cuMipmappedArrayCreate"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ull__driver->cuMipmappedArrayCreate(handle, desc, num_mipmap_levels);
    return end(&charge, bytes, result, result == CUDA_SUCCESS ? *handle : NULL);
}

static bool begin_end(void *array, struct ull__block *block, struct ull__moment *moment)
{
    *moment = (struct ull__moment){.began_ns = ull__moment_now()};
    ull__turn(ULL_TURN_BEGIN);
    return ull__block_take((uint64_t)(uintptr_t)array, block);
}

static CUresult destroyed(CUresult result, bool known, struct ull__block *block,
                          const struct ull__moment *moment)
{
    if (known && result == CUDA_SUCCESS)
        ull__block_ended(block, moment);
    else if (known)
        ull__block_put_back(block);
    ull__turn(ULL_TURN_END);
    return result;
}

CUresult ull__do_cuArrayDestroy(CUarray array)
{
    struct ull__block block;
    struct ull__moment moment;
    bool known = begin_end(array, &block, &moment);
    return destroyed(ull__driver->cuArrayDestroy(array), known, &block, &moment);
}

CUresult ull__do_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    struct ull__block block;
    struct ull__moment moment;
    bool known = begin_end(array, &block, &moment);
    return destroyed(ull__driver->cuMipmappedArrayDestroy(array), known, &block, &moment);
}

void ull__arrays_forget(void)
{
    for (int i = 0; i < MAX_ORDINALS; i++)
        small.bytes[i] = small.filled[i] = small.slack[i] = 0;
    pthread_mutex_init(&small.lock, NULL);
}
