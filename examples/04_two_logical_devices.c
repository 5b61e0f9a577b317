/*
 * 04_two_logical_devices.c: one card as two devices, each with a limit of its own.
 *
 * What tf.config.set_logical_device_configuration does, with growth for one of them. Neither can take
 * what belongs to the other, and when it is full it says so while the card still has room.
 *
 * Runs on memory of this machine as the card: no GPU is needed. Try it with ULLAGE_CONFIG or
 * TF_FORCE_GPU_ALLOW_GROWTH=true in the environment.
 */
#include <stdio.h>

#include "ullage/config.h"
#include "ullage/device.h"

#define MIB ((uint64_t)1 << 20)

static ull_status open_card(void *context, int card, const struct ull_card *facts,
                            ull_device **device, struct ull_error *err)
{
    (void)context;
    (void)card;
    return ull_device_open_host(facts->total_bytes, device, err);
}

static void close_card(void *context, ull_device *device)
{
    (void)context;
    ull_device_close(device);
}

static void show(const struct ull_devices *devices, const char *when)
{
    printf("%s\n", when);
    for (int i = 0; i < ull_devices_count(devices); i++) {
        const struct ull_plan_device *plan = ull_devices_plan(devices, i);
        struct ull_alloc_info info;
        ull_alloc_info(ull_devices_alloc(devices, i), &info);
        printf("  logical %d on card %d: limit %llu MiB, %s; held %llu MiB, in use %llu MiB\n", i,
               plan->card, (unsigned long long)(plan->limit / MIB),
               plan->growth ? "growing" : "all at the start", (unsigned long long)(info.held / MIB),
               (unsigned long long)(info.in_use / MIB));
    }
}

static ull_status use(struct ull_config *config, struct ull_devices *devices)
{
    struct ull_request request = {.bytes = 40 * MIB, .tag = "[10,1024,1024] float32"};
    struct ull_report report;
    struct ull_error err;
    void *a, *b;
    show(devices, "started");
    ull_status status = ull_alloc_request(ull_devices_alloc(devices, 1), &request, NULL, &a);
    if (status != ULL_OK)
        return status;
    show(devices, "40 MiB from the second");
    if (ull_alloc_request(ull_devices_alloc(devices, 0), &request, &report, &b) == ULL_OK)
        return ULL_E_INVALID; /* above its limit */
    printf("the first one refuses as much:\n  %s\n", report.text);
    if (ull_config_set_logical(config, 0, NULL, 0, &err) != ULL_E_STARTED)
        return ULL_E_INVALID;
    printf("too late to change it:\n  %s\n", err.message);
    return ull_alloc_free(ull_devices_alloc(devices, 1), a, NULL);
}

int main(void)
{
    const struct ull_card card = {"GPU-host", "memory of this machine", 96 * MIB, 96 * MIB, 0, 0};
    const struct ull_logical_spec specs[] = {
        {.memory_limit = 32 * MIB},
        {.memory_limit = 64 * MIB, .growth = ULL_GROWTH_ON},
    };
    const struct ull_opener opener = {NULL, open_card, close_card};
    struct ull_config *config = NULL;
    struct ull_devices *devices = NULL;
    struct ull_error err = {"failed"};
    ull_status status = ull_config_create(&card, 1, &config, &err);
    if (status == ULL_OK)
        status = ull_config_set_logical(config, 0, specs, 2, &err);
    if (status == ULL_OK)
        status = ull_config_start(config, NULL, &opener, ULL_HERE, &devices, &err);
    if (status == ULL_OK)
        status = use(config, devices);
    else
        fprintf(stderr, "%s\n", err.message);
    ull_devices_stop(devices);
    ull_config_destroy(config);
    return status == ULL_OK ? 0 : 1;
}
