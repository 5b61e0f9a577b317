/* collect_cards.c: cards and their memory, from NVML and from what jobs were told of theirs. */
#include <stdio.h>
#include <string.h>

#include "collect_private.h"

enum { RETRY_ROUNDS = 10 };

static int count_unknown(const struct gpus *gpus)
{
    int unknown = 0;
    for (int i = 0; i < gpus->count; i++)
        unknown += gpus->gpu[i].device.total_bytes == ULL_NVML_UNKNOWN;
    return unknown;
}

static void open_cards(struct collector *collector)
{
    struct ull_error err = {.message = ""};
    if (collector->has_gpus || collector->round < collector->next_try)
        return;
    collector->next_try = collector->round + RETRY_ROUNDS;
    collector->has_gpus = gpus_open(&collector->gpus, &err) == ULL_OK;
    collect__put(collector->no_cards, sizeof collector->no_cards, "%s",
                 collector->has_gpus ? "" : err.message);
    if (collector->has_gpus)
        collector->unknown = count_unknown(&collector->gpus);
}

void collect__ask_driver(struct collector *collector)
{
    open_cards(collector);
    if (!collector->has_gpus)
        return;
    gpus_update_memory(&collector->gpus);
    gpus_update_busy(&collector->gpus);
    gpus_list_processes(&collector->gpus);
    /* A card that told its memory and no longer does was lost, or is divided anew: handles are stale. */
    if (count_unknown(&collector->gpus) > collector->unknown) {
        gpus_close(&collector->gpus);
        collector->has_gpus = false;
        collector->next_try = collector->round + 1;
        collect__put(collector->no_cards, sizeof collector->no_cards, "a card no longer answers");
    }
}

static uint64_t add_known(uint64_t left, uint64_t right)
{
    return left == SAMPLE_UNKNOWN || right == SAMPLE_UNKNOWN ? left : left + right;
}

void collect__cards(struct round *round)
{
    const struct gpus *gpus = &round->collector->gpus;
    for (int i = 0; round->collector->has_gpus && i < gpus->count; i++) {
        const struct gpu *gpu = &gpus->gpu[i];
        struct sample_device *device = sample_add_device(round->sample);
        if (!device) {
            round->failed = true;
            return;
        }
        collect__put(device->uuid, sizeof device->uuid, "%s", gpu->device.uuid);
        collect__put(device->name, sizeof device->name, "%s", gpu->device.name);
        device->physical = gpu->device.index;
        device->instance = gpu->device.instance;
        device->card = gpu->card;
        device->divided = gpu->device.divided;
        device->total_bytes = add_known(gpu->device.total_bytes, gpu->device.reserved_bytes);
        device->used_bytes = gpu->device.used_bytes;
        device->reserved_bytes = gpu->device.reserved_bytes;
        device->free_bytes = gpu->device.free_bytes;
        device->busy_percent = gpu->busy_percent;
    }
}

/* Whether two texts name the same device: without NVML an instance's may begin "GPU-". */
static bool same_device(const char *left, const char *right)
{
    return strlen(left) > 4 && strlen(right) > 4 && strcmp(left + 4, right + 4) == 0;
}

int collect__device_of(struct round *round, const struct ull__device_spec *spec)
{
    struct sample *sample = round->sample;
    for (int i = 0; i < sample->device_count; i++)
        if (same_device(sample->devices[i].uuid, spec->uuid)) {
            /* NVML does not tell the memory of integrated ones; the driver told the job. */
            if (sample->devices[i].total_bytes == SAMPLE_UNKNOWN && spec->total_bytes)
                sample->devices[i].total_bytes = spec->total_bytes;
            return i;
        }
    struct sample_device *device = sample_add_device(sample);
    if (!device) {
        round->failed = true;
        return -1;
    }
    collect__put(device->uuid, sizeof device->uuid, "%s", spec->uuid);
    collect__put(device->name, sizeof device->name, "%s", spec->name);
    device->physical = spec->physical;
    device->instance = device->card = device->busy_percent = -1;
    device->total_bytes = spec->total_bytes ? spec->total_bytes : SAMPLE_UNKNOWN;
    device->used_bytes = device->reserved_bytes = device->free_bytes = SAMPLE_UNKNOWN;
    return sample->device_count - 1;
}

void collect__sum_up_devices(struct sample *sample)
{
    for (int j = 0; j < sample->job_count; j++) {
        const struct sample_job *job = &sample->jobs[j];
        for (int s = 0; s < job->shares.count && job->parent < 0; s++) {
            const struct sample_share *share = &sample->shares[job->shares.first + s];
            struct sample_device *device = &sample->devices[share->device];
            uint64_t held = share->usage.held_bytes, away = share->evicted_bytes;
            held -= away < held ? away : held;
            device->job_bytes += held;
            if (device->card >= 0)
                sample->devices[device->card].job_bytes += held;
        }
    }
    for (int i = 0; i < sample->device_count; i++) {
        struct sample_device *device = &sample->devices[i];
        bool known = device->used_bytes != SAMPLE_UNKNOWN;
        /* A job is charged before the driver takes what it asked for, so it can be ahead for a moment. */
        device->other_bytes = !known ? SAMPLE_UNKNOWN
                              : device->used_bytes > device->job_bytes
                                  ? device->used_bytes - device->job_bytes
                                  : 0;
    }
}
