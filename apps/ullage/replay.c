/* replay.c: see replay.h. */
#include "replay.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "block.h"
#include "cli.h"
#include "cuda_api.h"
#include "error.h"
#include "nvml.h"
#include "size.h"

#define REPLAY_CALLS(X)                                                                            \
    X(cuInit)                                                                                      \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetUuid)                                                                             \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuCtxSetCurrent)                                                                             \
    X(cuMemGetInfo_v2)                                                                             \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemFree_v2)

struct player {
    const struct replay_request *request;
    const struct trace *trace;
    struct replay_result *result;
#define X(name) ull_fn_##name *name;
    REPLAY_CALLS(X)
#undef X
    struct ull__nvml nvml;
    bool has_nvml;
    char uuid[64];
    size_t free_at_start;  /* behind the context: what memory info is compared with without NVML */
    CUdeviceptr *pointers; /* per slot of the trace; 0 where nothing is live */
    uint32_t *pieces;      /* the same with a block */
    struct block block;
    CUdeviceptr whole; /* the block's memory */
};

static ull_status load_driver(struct player *player, struct ull_error *err)
{
    /* By name on purpose: this must be the stand-in when there is one. */
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver)
        return ull__fail(
            err, ULL_E_NOT_FOUND,
            "no CUDA driver: %.200s. To try without a GPU: LD_LIBRARY_PATH=build/release/"
            "tests/fakecuda",
            dlerror());
#define X(name)                                                                                    \
    player->name = (ull_fn_##name *)dlsym(driver, #name);                                          \
    if (!player->name)                                                                             \
        return ull__fail(err, ULL_E_NOT_FOUND, "this CUDA driver has no " #name);
    REPLAY_CALLS(X)
#undef X
    return ULL_OK;
}

static void learn_uuid(struct player *player, CUdevice device)
{
    static const struct ull__linker linker = {.open = dlopen, .symbol = dlsym};
    CUuuid uuid;
    if (player->cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS)
        return;
    player->has_nvml = ull__nvml_init(&player->nvml, &linker, NULL, NULL) == ULL_OK;
    const unsigned char *b = (const unsigned char *)uuid.bytes;
    snprintf(player->uuid, sizeof player->uuid,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

static void end_out_of_memory(struct replay_result *result, uint64_t line, uint64_t wanted,
                              uint64_t available)
{
    char want[ULL_SIZE_TEXT], have[ULL_SIZE_TEXT];
    result->line = line;
    snprintf(result->outcome, sizeof result->outcome,
             "out of memory at line %llu: wanted %s, free %s", (unsigned long long)line,
             ull__size_text(wanted, want), ull__size_text(available, have));
}

/* Fills held_bytes: the driver's own figure for this process, else the change in what is free. */
static void measure_held(struct player *player)
{
    struct replay_result *result = player->result;
    uint64_t used = ULL_NVML_UNKNOWN;
    size_t free_now, total;
    if (player->has_nvml &&
        ull__nvml_listed(&player->nvml, player->uuid, (uint32_t)getpid(), &used) == 1 &&
        used != ULL_NVML_UNKNOWN) {
        result->held_bytes = used;
        result->held_known = true;
        return;
    }
    if (player->cuMemGetInfo_v2(&free_now, &total) != CUDA_SUCCESS)
        return;
    result->held_bytes = player->free_at_start > free_now ? player->free_at_start - free_now : 0;
    result->held_known = true;
}

/* Initializes the driver and makes a context. result->outcome is set if there is no room for one. */
static ull_status start(struct player *player, struct ull_error *err)
{
    int count = 0;
    CUdevice device;
    CUcontext context;
    size_t total;
    CUresult code = player->cuInit(0);
    if (code == CUDA_ERROR_NO_DEVICE)
        return ull__fail(err, ULL_E_NO_DEVICE, "the CUDA driver sees no GPU");
    if (code != CUDA_SUCCESS)
        return ull__fail(err, ULL_E_DRIVER, "cuInit failed with CUDA error %d", code);
    player->cuDeviceGetCount(&count);
    if (player->cuDeviceGet(&device, player->request->device) != CUDA_SUCCESS)
        return ull__fail(err, ULL_E_NO_DEVICE,
                         "no device cuda:%d: the driver sees %d, counted from 0",
                         player->request->device, count);
    learn_uuid(player, device);
    code = player->cuDevicePrimaryCtxRetain(&context, device);
    if (code == CUDA_SUCCESS)
        code = player->cuCtxSetCurrent(context);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) {
        snprintf(player->result->outcome, sizeof player->result->outcome,
                 "out of memory: no room for a context");
        return ULL_OK;
    }
    if (code != CUDA_SUCCESS)
        return ull__fail(err, ULL_E_DRIVER, "no context on cuda:%d: CUDA error %d",
                         player->request->device, code);
    code = player->cuMemGetInfo_v2(&player->free_at_start, &total);
    if (code != CUDA_SUCCESS)
        return ull__fail(err, ULL_E_DRIVER, "cuMemGetInfo failed with CUDA error %d", code);
    player->result->limit_bytes = total;
    return ULL_OK;
}

/*
 * All that is free less TensorFlow's reserve (MinSystemMemory in gpu_device.cc: 225 MiB below 2 GiB,
 * else the larger of 300 MiB and 5 %). Refused, it asks for 10 % less a few times, as its allocator.
 */
static ull_status take_everything(struct player *player, struct ull_error *err)
{
    uint64_t available = player->free_at_start, reserve = 225ull << 20;
    if (available >= 2ull << 30)
        reserve = available / 20 > 300ull << 20 ? available / 20 : 300ull << 20;
    uint64_t size = available > reserve ? available - reserve : 0, first = size;
    CUresult code = CUDA_ERROR_OUT_OF_MEMORY;
    for (int tries = 0; tries < 5 && size > 0; tries++) {
        code = player->cuMemAlloc_v2(&player->whole, size);
        if (code != CUDA_ERROR_OUT_OF_MEMORY)
            break;
        size = size / 10 * 9;
    }
    if (code == CUDA_ERROR_OUT_OF_MEMORY) {
        char want[ULL_SIZE_TEXT], have[ULL_SIZE_TEXT];
        ull__size_text(first ? first : reserve, want);
        ull__size_text(available, have);
        snprintf(player->result->outcome, sizeof player->result->outcome,
                 first ? "out of memory at the start: wanted %s, free %s"
                       : "out of memory at the start: the reserve alone is %s, free %s",
                 want, have);
        return ULL_OK;
    }
    if (code != CUDA_SUCCESS)
        return ull__fail(err, ULL_E_DRIVER, "cuMemAlloc failed with CUDA error %d", code);
    if (!block_init(&player->block, size))
        return ull__fail(err, ULL_E_SYSTEM, "no memory for the pieces of a block");
    return ULL_OK;
}

/* One line; *full is set when there was no room. */
static ull_status play_event(struct player *player, size_t i, bool *full, struct ull_error *err)
{
    const struct trace_event *event = &player->trace->events[i];
    CUresult code = CUDA_SUCCESS;
    if (player->whole) {
        if (!event->allocates) {
            block_give(&player->block, player->pieces[event->slot]);
            player->pieces[event->slot] = BLOCK_NONE;
        } else {
            player->pieces[event->slot] = block_take(&player->block, event->size);
            if (player->pieces[event->slot] == BLOCK_NONE)
                code = CUDA_ERROR_OUT_OF_MEMORY;
        }
    } else if (event->allocates) {
        code = player->cuMemAlloc_v2(&player->pointers[event->slot], event->size);
        if (code != CUDA_SUCCESS)
            player->pointers[event->slot] = 0;
    } else {
        code = player->cuMemFree_v2(player->pointers[event->slot]);
        player->pointers[event->slot] = 0;
    }
    *full = code == CUDA_ERROR_OUT_OF_MEMORY;
    if (code != CUDA_SUCCESS && !*full)
        return ull__fail(err, ULL_E_DRIVER, "%s failed with CUDA error %d at line %zu",
                         event->allocates ? "cuMemAlloc" : "cuMemFree", code, i + 2);
    return ULL_OK;
}

/* Plays the trace once. Asking what is held takes no part in the time. */
static ull_status play_once(struct player *player, bool measure, struct ull_error *err)
{
    struct replay_result *result = player->result;
    uint64_t begin = cli_monotonic_ns(), spent = 0;
    bool full = false;
    for (size_t i = 0; i < player->trace->count; i++) {
        ull_status status = play_event(player, i, &full, err);
        if (status != ULL_OK)
            return status;
        if (full || (measure && i == player->trace->peak_event)) {
            spent += cli_monotonic_ns() - begin;
            measure_held(player);
            begin = cli_monotonic_ns();
        }
        if (full) {
            size_t left = 0, total;
            if (player->whole)
                left = player->block.free_bytes;
            else
                player->cuMemGetInfo_v2(&left, &total);
            end_out_of_memory(result, i + 2, player->trace->events[i].size, left);
            break;
        }
        result->operations++;
    }
    result->seconds += (double)(spent + cli_monotonic_ns() - begin) / 1e9;
    return ULL_OK;
}

/* Some traces end with memory live: it goes back before the next round. */
static void free_leftovers(struct player *player)
{
    for (uint32_t slot = 0; slot < player->trace->slots; slot++) {
        if (player->pointers[slot])
            player->cuMemFree_v2(player->pointers[slot]);
        player->pointers[slot] = 0;
        if (player->whole && player->pieces[slot] != BLOCK_NONE)
            block_give(&player->block, player->pieces[slot]);
        player->pieces[slot] = BLOCK_NONE;
    }
}

static ull_status play_all(struct player *player, struct ull_error *err)
{
    struct replay_result *result = player->result;
    ull_status status = start(player, err);
    if (status == ULL_OK && !result->outcome[0] && player->request->preallocate)
        status = take_everything(player, err);
    for (long round = 0; round < player->request->repeat; round++) {
        if (status != ULL_OK || result->outcome[0])
            return status;
        status = play_once(player, round == 0, err);
        if (round + 1 == player->request->repeat && !result->outcome[0])
            sleep(player->request->hold_seconds);
        free_leftovers(player);
    }
    if (status == ULL_OK && !result->outcome[0]) {
        result->completed = true;
        snprintf(result->outcome, sizeof result->outcome, "completed");
    }
    return status;
}

ull_status replay_play(const struct replay_request *request, const struct trace *trace,
                       struct replay_result *result, struct ull_error *err)
{
    struct player player = {.request = request, .trace = trace, .result = result};
    memset(result, 0, sizeof *result);
    result->live_peak_bytes = trace->peak_bytes;
    player.pointers = calloc(trace->slots, sizeof *player.pointers);
    player.pieces = malloc(trace->slots * sizeof *player.pieces);
    ull_status status = ULL_OK;
    if (!player.pointers || !player.pieces)
        status = ull__fail(err, ULL_E_SYSTEM, "no memory to play the trace");
    for (uint32_t slot = 0; status == ULL_OK && slot < trace->slots; slot++)
        player.pieces[slot] = BLOCK_NONE;
    if (status == ULL_OK)
        status = load_driver(&player, err);
    if (status == ULL_OK)
        status = play_all(&player, err);
    if (player.whole) {
        block_finish(&player.block);
        player.cuMemFree_v2(player.whole);
    }
    if (player.has_nvml)
        ull__nvml_finish(&player.nvml);
    free(player.pointers);
    free(player.pieces);
    return status;
}
