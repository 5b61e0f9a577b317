/*
 * test_backing.c: blocks in memory that is mapped, over a driver of a few lines that counts what it gave out:
 * no two overlap, each is found from any address in it, and nothing is left when all are freed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "async.h"

enum { PAGE = 2 << 20, BLOCKS = 3000, STEPS = 40000 };

/* --- what backing.c needs of the rest of the library ------------------------------------------------------- */

struct ull__state ull__state;
const union ull__cuda *_Atomic ull__driver;
static union ull__cuda driver;
static bool capture;

bool ull__capture_is_open(void)
{
    return capture;
}

bool ull__async_find(CUdeviceptr at, CUdeviceptr *start, uint64_t *bytes, struct ull__async **async)
{
    (void)at, (void)start, (void)bytes, (void)async;
    return false;
}

static uint64_t created[2], mapped, reserved, next_address = 1ull << 40; /* created: device, host */
static uint64_t size_of[1 << 16];
static bool of_host[1 << 16];
static uint32_t handles;
static int fail_at; /* the call from here that fails; 0: none */
static int synchronized, forwarded;

static bool fails(void)
{
    return fail_at > 0 && --fail_at == 0;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size,
                       const CUmemAllocationProp *prop, unsigned long long flags)
{
    assert_int_equal(flags, 0);
    assert_int_equal(size % PAGE, 0);
    if (fails())
        return CUDA_ERROR_OUT_OF_MEMORY;
    handles = (handles + 1) % (1 << 16);
    *handle = handles;
    size_of[handles] = size;
    of_host[handles] = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    created[of_host[handles]] += size;
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    created[of_host[handle]] -= size_of[handle];
    return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *at, size_t size, size_t alignment, CUdeviceptr hint,
                        unsigned long long flags)
{
    (void)alignment, (void)hint, (void)flags;
    if (fails())
        return CUDA_ERROR_OUT_OF_MEMORY;
    *at = next_address;
    next_address += size + PAGE;
    reserved += size;
    return CUDA_SUCCESS;
}

static CUresult give_addresses_back(CUdeviceptr at, size_t size)
{
    (void)at;
    reserved -= size;
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
    (void)at, (void)offset, (void)handle, (void)flags;
    if (fails())
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapped += size;
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t size)
{
    (void)at;
    mapped -= size;
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr at, size_t size, const CUmemAccessDesc *access, size_t count)
{
    (void)at, (void)size;
    assert_true(count >= 1 && access[0].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return fails() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult attribute(int *value, CUdevice_attribute what, CUdevice device)
{
    (void)what, (void)device;
    *value = -1;
    return CUDA_SUCCESS;
}

static CUresult current(CUcontext *context)
{
    *context = (CUcontext)(uintptr_t)8;
    return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
    synchronized++;
    return CUDA_SUCCESS;
}

static CUresult forward(CUdeviceptr at)
{
    (void)at;
    forwarded++;
    return CUDA_ERROR_INVALID_VALUE;
}

static int set_up(void **state)
{
    (void)state;
    driver.cuMemCreate = create;
    driver.cuMemRelease = release;
    driver.cuMemAddressReserve = reserve;
    driver.cuMemAddressFree = give_addresses_back;
    driver.cuMemMap = map;
    driver.cuMemUnmap = unmap;
    driver.cuMemSetAccess = set_access;
    driver.cuDeviceGetAttribute = attribute;
    driver.cuCtxGetCurrent = current;
    driver.cuCtxSynchronize = synchronize;
    driver.cuMemFree_v2 = forward;
    ull__driver = &driver;
    ull__state.gpus[0].page = PAGE;
    ull__state.gpu_count = 1;
    return 0;
}

/* --- at random ------------------------------------------------------------------------------------------------ */

static uint64_t seed = 88172645463325252ull;
static struct {
    CUdeviceptr at;
    uint64_t bytes;
} blocks[BLOCKS];
static int count;

static uint64_t any(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static void take_one(void)
{
    CUdeviceptr at = 0;
    uint64_t bytes = any(8) ? any(16384) + 1 : any(3 * PAGE) + 1, before = created[0] + created[1];
    bool spilled = any(4) == 0;
    fail_at = any(10) ? 0 : (int)any(4) + 1;
    CUresult result = ull__backing_alloc(&ull__state.gpus[0], &at, bytes, spilled);
    bool failed = fail_at == 0 && result != CUDA_SUCCESS;
    fail_at = 0;
    if (result != CUDA_SUCCESS) {
        assert_true(failed);
        assert_int_equal(created[0] + created[1], before); /* and nothing of it is left */
        return;
    }
    assert_int_equal(at % SLAB_UNIT, 0);
    for (int i = 0; i < count; i++)
        assert_true(at + bytes <= blocks[i].at || blocks[i].at + blocks[i].bytes <= at);
    blocks[count].at = at;
    blocks[count++].bytes = bytes;
}

static void look_at(int i)
{
    struct ull__piece piece;
    CUdeviceptr start = 0;
    uint64_t bytes = 0;
    assert_true(ull__backing_find(blocks[i].at + any(blocks[i].bytes), &start, &bytes, &piece));
    assert_int_equal(start, blocks[i].at);
    assert_true(bytes >= blocks[i].bytes && bytes < blocks[i].bytes + SLAB_UNIT);
    assert_true(start >= piece.base && start + bytes <= piece.base + piece.bytes);
    assert_int_equal(piece.stays, piece.spilled);
}

static void free_one(int i)
{
    assert_int_equal(ull__backing_free(blocks[i].at), CUDA_SUCCESS);
    blocks[i] = blocks[--count];
}

static void at_random(void **state)
{
    (void)state;
    for (int i = 0; i < STEPS; i++) {
        /* Rising and falling, so that pages come and go. */
        bool more = any(100) < (i / 2000 % 2 ? 30u : 70u);
        if (count == 0 || (more && count < BLOCKS))
            take_one();
        else
            free_one((int)any((uint64_t)count));
        if (count > 0)
            look_at((int)any((uint64_t)count));
        assert_int_equal(created[0] + created[1], mapped);
        assert_int_equal(mapped, reserved);
    }
    while (count > 0)
        free_one(count - 1);
    assert_int_equal(created[0] + created[1] + mapped + reserved, 0);
    assert_int_equal(forwarded, 0);
    assert_true(synchronized > STEPS / 4);
}

/* 10,000 blocks of 4 KiB take 20 pages, not 20 GiB. */
static void small_blocks_share_pages(void **state)
{
    (void)state;
    static CUdeviceptr at[10000];
    for (int i = 0; i < 10000; i++)
        assert_int_equal(ull__backing_alloc(&ull__state.gpus[0], &at[i], 4096, false), CUDA_SUCCESS);
    assert_int_equal(created[0], 20ull * PAGE);
    for (int i = 0; i < 10000; i++)
        ull__backing_drop(at[i]);
    assert_int_equal(created[0] + mapped + reserved, 0);
}

/* What has a name stays, and what comes after it is put elsewhere, to be movable. */
static void named_pieces_take_no_more(void **state)
{
    (void)state;
    struct ull__piece piece, other;
    CUdeviceptr a, b, c, start;
    uint64_t bytes;
    ull__backing_alloc(&ull__state.gpus[0], &a, 100, false);
    ull__backing_alloc(&ull__state.gpus[0], &b, 100, false);
    assert_true(ull__backing_share(b, &piece));
    assert_true(piece.stays);
    ull__backing_alloc(&ull__state.gpus[0], &c, 100, false);
    assert_true(ull__backing_find(c, &start, &bytes, &other));
    assert_true(other.base != piece.base && other.serial != piece.serial && !other.stays);
    ull__backing_drop(a);
    assert_true(ull__backing_find(b, &start, &bytes, NULL));
    ull__backing_drop(b);
    assert_false(ull__backing_find(b, &start, &bytes, NULL));
    ull__backing_drop(c);
    assert_int_equal(created[0], 0);
}

/* While a capture is open nothing may be waited for. */
static void frees_wait_for_captures(void **state)
{
    (void)state;
    CUdeviceptr at, due = 0;
    ull__backing_alloc(&ull__state.gpus[0], &at, 100, false);
    assert_false(ull__free_later(at));
    capture = true;
    assert_false(ull__free_later(at + 1)); /* not where it begins */
    assert_true(ull__free_later(at));
    assert_false(ull__frees_due(&due));
    capture = false;
    assert_true(ull__frees_due(&due));
    assert_int_equal(due, at);
    assert_false(ull__frees_due(&due));
    assert_int_equal(ull__backing_free(at + 1), CUDA_ERROR_INVALID_VALUE); /* the driver is asked */
    assert_int_equal(forwarded, 1);
    ull__backing_drop(at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_random),
        cmocka_unit_test(small_blocks_share_pages),
        cmocka_unit_test(named_pieces_take_no_more),
        cmocka_unit_test(frees_wait_for_captures),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
