/*
 * test_ring.c: copies through the ring and past it, over a driver of a few lines: every byte arrives, whatever the
 * sizes; on the way out most buffers are the workers', not the device's; and a device that fails is told of.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "evict.h"

enum { EVENTS = RING_MOST + 1 };

const union ull__cuda *_Atomic ull__driver;
static union ull__cuda driver;

/* --- the driver: one stream; a copy is made when its event, or the stream, is waited for ------------------------- */

static struct copy {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
} queue[1 << 10];
static size_t most_bytes; /* with the device at a time */
static int queued, made, most_queued, fail_at, copies, registered, allocated;
static bool refuse_register;
static int event_at[EVENTS], events;

static CUresult enqueue(void *to, const void *from, size_t bytes)
{
    if (fail_at && ++copies == fail_at)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    queue[queued++] = (struct copy){to, from, bytes};
    size_t with_it = 0;
    for (int i = made; i < queued; i++)
        with_it += queue[i].bytes;
    most_bytes = with_it > most_bytes ? with_it : most_bytes;
    if (queued - made > most_queued)
        most_queued = queued - made;
    return CUDA_SUCCESS;
}

static void make_up_to(int end)
{
    for (; made < end; made++)
        memcpy(queue[made].to, queue[made].from, queue[made].bytes);
}

static CUresult to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    return enqueue(to, (const void *)(uintptr_t)from, bytes);
}

static CUresult to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    (void)stream;
    return enqueue((void *)(uintptr_t)to, from, bytes);
}

static CUresult stream_create(CUstream *stream, unsigned int flags)
{
    (void)flags;
    *stream = (CUstream)(uintptr_t)1;
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

static CUresult stream_synchronize(CUstream stream)
{
    (void)stream;
    make_up_to(queued);
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *event, unsigned int flags)
{
    (void)flags;
    assert_true(events + 1 < EVENTS);
    *event = (CUevent)(uintptr_t)++events;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    (void)event;
    events--;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    (void)stream;
    event_at[(uintptr_t)event] = queued;
    return CUDA_SUCCESS;
}

static CUresult event_synchronize(CUevent event)
{
    make_up_to(event_at[(uintptr_t)event]);
    return CUDA_SUCCESS;
}

static CUresult host_register(void *at, size_t bytes, unsigned int flags)
{
    (void)at, (void)bytes, (void)flags;
    registered += !refuse_register;
    return refuse_register ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult host_unregister(void *at)
{
    (void)at;
    registered--;
    return CUDA_SUCCESS;
}

static CUresult host_alloc(void **at, size_t bytes, unsigned int flags)
{
    (void)flags;
    allocated++;
    *at = malloc(bytes);
    return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult host_free(void *at)
{
    allocated--;
    free(at);
    return CUDA_SUCCESS;
}

static int begin(void **state)
{
    (void)state;
    driver.cuMemcpyDtoHAsync_v2 = to_host;
    driver.cuMemcpyHtoDAsync_v2 = to_device;
    driver.cuStreamCreate = stream_create;
    driver.cuStreamDestroy_v2 = stream_destroy;
    driver.cuStreamSynchronize = stream_synchronize;
    driver.cuEventCreate = event_create;
    driver.cuEventDestroy_v2 = event_destroy;
    driver.cuEventRecord = event_record;
    driver.cuEventSynchronize = event_synchronize;
    driver.cuMemHostRegister_v2 = host_register;
    driver.cuMemHostUnregister = host_unregister;
    driver.cuMemHostAlloc = host_alloc;
    driver.cuMemFreeHost = host_free;
    ull__driver = &driver;
    queued = made = most_queued = fail_at = copies = 0;
    most_bytes = 0;
    refuse_register = false;
    return 0;
}

static int nothing_left(void **state)
{
    (void)state;
    assert_int_equal(events, 0);
    assert_int_equal(registered, 0);
    assert_int_equal(allocated, 0);
    return 0;
}

/* --- the tests ------------------------------------------------------------------------------------------------ */

static unsigned char *filled(size_t bytes, uint32_t seed)
{
    uint64_t *memory = malloc((bytes + 7) / 8 * 8), word = seed;
    assert_non_null(memory);
    for (size_t i = 0; i < (bytes + 7) / 8; i++)
        memory[i] = word = word * 6364136223846793005u + 1442695040888963407u;
    return (unsigned char *)memory;
}

/* In chunks of many sizes, each third one straight if `mixed`. False once the ring says so. */
static bool all_chunks(unsigned char *host, unsigned char *device, size_t bytes, bool mixed)
{
    static const size_t sizes[] = {RING_BUFFER, 1, 4096, RING_BUFFER - 1, 77777, 1 << 20};
    size_t size;
    int i = 0;
    for (size_t at = 0; at < bytes; at += size, i++) {
        size = sizes[i % 6] < bytes - at ? sizes[i % 6] : bytes - at;
        if (!ull__ring_copy(host + at, (CUdeviceptr)(uintptr_t)(device + at), size,
                            mixed && i % 3 == 0))
            return false;
    }
    return true;
}

enum { BYTES = (48 << 20) + 12345 };

static void out_and_back(bool mixed)
{
    unsigned char *device = filled(BYTES, 1), *host = calloc(1, BYTES), *wanted = filled(BYTES, 1);
    assert_true(ull__ring_open(true));
    assert_true(all_chunks(host, device, BYTES, mixed));
    assert_true(ull__ring_drain());
    assert_memory_equal(host, wanted, BYTES);
    assert_true(most_bytes < 4 * (size_t)RING_BUFFER); /* the rest is the workers' meanwhile */
    ull__ring_close();
    queued = made = 0;
    memset(device, 0, BYTES);
    assert_true(ull__ring_open(false));
    assert_true(all_chunks(host, device, BYTES, mixed));
    assert_true(ull__ring_drain());
    assert_memory_equal(device, wanted, BYTES);
    ull__ring_close();
    free(device);
    free(host);
    free(wanted);
}

static void every_byte_arrives(void **state)
{
    (void)state;
    out_and_back(false);
}

static void some_go_straight(void **state)
{
    (void)state;
    out_and_back(true);
}

/* Blocks of a huge page are on their way as many at a time as take up as much as a few large ones. */
static void small_ones_keep_the_device_busy(void **state)
{
    enum { SMALL = 2 << 20 };
    unsigned char *device = filled(BYTES, 3), *host = calloc(1, BYTES), *wanted = filled(BYTES, 3);
    (void)state;
    assert_true(ull__ring_open(true));
    for (size_t at = 0, size; at < BYTES; at += size) {
        size = SMALL < BYTES - at ? SMALL : BYTES - at;
        assert_true(ull__ring_copy(host + at, (CUdeviceptr)(uintptr_t)(device + at), size, false));
    }
    assert_true(most_queued >= 3 * RING_BUFFER / SMALL);
    assert_true(ull__ring_drain());
    assert_memory_equal(host, wanted, BYTES);
    ull__ring_close();
    free(device);
    free(host);
    free(wanted);
}

static void buffers_that_cannot_be_registered(void **state)
{
    (void)state;
    refuse_register = true;
    out_and_back(false);
}

static void a_device_that_fails(void **state)
{
    unsigned char *device = filled(BYTES, 2), *host = calloc(1, BYTES);
    (void)state;
    for (int out = 0; out < 2; out++) {
        copies = queued = made = 0;
        fail_at = 5;
        assert_true(ull__ring_open(out));
        assert_false(all_chunks(host, device, BYTES, false) && ull__ring_drain());
        fail_at = 0;
        ull__ring_close();
    }
    free(device);
    free(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_byte_arrives, begin, nothing_left),
        cmocka_unit_test_setup_teardown(some_go_straight, begin, nothing_left),
        cmocka_unit_test_setup_teardown(small_ones_keep_the_device_busy, begin, nothing_left),
        cmocka_unit_test_setup_teardown(buffers_that_cannot_be_registered, begin, nothing_left),
        cmocka_unit_test_setup_teardown(a_device_that_fails, begin, nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
