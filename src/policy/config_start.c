/*
 * config_start.c: from the plan to pools. For each logical device: pool -> guard -> retry, and one retry
 * group for each card, so that its logical devices give each other what they only keep as a cache.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_private.h"
#include "error.h"
#include "ullage/device.h"

struct logical {
    struct ull_plan_device plan;
    struct ull_pool *pool;
    struct ull_alloc *base, *guarded, *retry;
};

struct ull_devices {
    struct ull_config *config;
    struct ull_opener opener;
    struct {
        struct ull__device *device;
        struct ull_retry_group *group;
    } card[ULL_CARDS];
    int count;
    struct logical logical[ULL_LOGICAL];
};

static ull_status open_card(struct ull_devices *devices, int card, struct ull_error *err)
{
    struct ull_card *facts = &devices->config->cards[card];
    struct ull__device **device = &devices->card[card].device;
    ull_status status = devices->opener.open(devices->opener.context, card, facts, device, err);
    uint64_t free_bytes, total;
    if (status != ULL_OK)
        return status;
    if (ull_retry_group_create(&devices->card[card].group) != ULL_OK)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for a device");
    status = ull_device_memory(*device, &free_bytes, &total);
    if (status != ULL_OK)
        return ull__fail(err, status, "card %d does not say how much memory is free", card);
    facts->free_bytes = free_bytes;
    return ULL_OK;
}

void ull_plan_pool_options(const struct ull_plan_device *plan, struct ull_pool_options *options)
{
    ull_pool_options_init(options);
    options->limit = plan->limit;
    options->reserve = plan->start;
    options->growth = plan->growth;
}

static ull_status make_pool(struct ull_devices *devices, const struct ull_plan_device *plan,
                            struct ull_error *err)
{
    struct logical *logical = &devices->logical[devices->count++];
    logical->plan = *plan;
    struct ull__device *device = devices->card[plan->card].device;
    struct ull_pool_options options;
    ull_plan_pool_options(plan, &options);
    ull_status status = ull_pool_create(device, &options, &logical->pool, err);
    if (status == ULL_OK && ull_alloc_over_pool(logical->pool, &logical->base) != ULL_OK)
        status = ull__fail(err, ULL_E_NO_MEMORY, "no host memory for an adaptor");
    if (status == ULL_OK)
        status = ull_guard_create(logical->base, &logical->guarded, err);
    if (status == ULL_OK)
        status = ull_retry_create(logical->guarded, devices->card[plan->card].group, 0,
                                  &logical->retry, err);
    if (status == ULL_OK)
        status = ull_guard_add_fallback(logical->guarded, "caches of other pools and callbacks",
                                        ull_retry_relieve, logical->retry);
    return status;
}

static void end(struct ull_devices *devices)
{
    for (int i = 0; i < devices->count; i++) {
        ull_alloc_destroy(devices->logical[i].retry);
        ull_alloc_destroy(devices->logical[i].guarded);
        ull_alloc_destroy(devices->logical[i].base);
        ull_pool_destroy(devices->logical[i].pool);
    }
    for (int i = 0; i < ULL_CARDS; i++) {
        ull_retry_group_destroy(devices->card[i].group);
        if (devices->card[i].device)
            devices->opener.close(devices->opener.context, devices->card[i].device);
    }
    free(devices);
}

/* Pre: the configuration's lock is held, so that nobody changes or starts it meanwhile. */
static ull_status start(struct ull_config *config, const struct ull_environment *environment,
                        const struct ull_opener *opener, struct ull_devices **out,
                        struct ull_error *err)
{
    struct ull_plan plan = {.count = 0};
    int visible[ULL_CARDS], count = 0;
    ull_status status = ull__visible(config, environment, visible, &count, err);
    if (status != ULL_OK)
        return status;
    struct ull_devices *devices = calloc(1, sizeof *devices);
    if (!devices)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for devices");
    devices->config = config;
    devices->opener = *opener;
    for (int i = 0; status == ULL_OK && i < count; i++)
        status = open_card(devices, visible[i], err);
    if (status == ULL_OK)
        status = ull__plan(config, environment, &plan, err);
    for (int i = 0; status == ULL_OK && i < plan.count; i++)
        status = make_pool(devices, &plan.device[i], err);
    if (status == ULL_OK)
        *out = devices;
    else
        end(devices);
    return status;
}

ull_status ull_config_start(struct ull_config *config, const struct ull_environment *environment,
                            const struct ull_opener *opener, const char *by,
                            struct ull_devices **devices, struct ull_error *err)
{
    ull_status status;
    pthread_mutex_lock(&config->lock);
    if (config->started) {
        status =
            ull__fail(err, ULL_E_STARTED, "devices were started already, by %s", config->started_by);
    } else {
        status = start(config, environment, opener, devices, err);
        config->started = status == ULL_OK;
        snprintf(config->started_by, sizeof config->started_by, "ull_config_start%s%.120s%s",
                 by ? " (" : "", by ? by : "", by ? ")" : "");
    }
    pthread_mutex_unlock(&config->lock);
    return status;
}

void ull_devices_stop(struct ull_devices *devices)
{
    if (!devices)
        return;
    struct ull_config *config = devices->config;
    pthread_mutex_lock(&config->lock);
    end(devices);
    config->started = false;
    pthread_mutex_unlock(&config->lock);
}

/* --- what there is ----------------------------------------------------------------------------------------- */

int ull_devices_count(const struct ull_devices *devices)
{
    return devices->count;
}

static const struct logical *find(const struct ull_devices *devices, int i)
{
    return i >= 0 && i < devices->count ? &devices->logical[i] : NULL;
}

const struct ull_plan_device *ull_devices_plan(const struct ull_devices *devices, int i)
{
    const struct logical *logical = find(devices, i);
    return logical ? &logical->plan : NULL;
}

struct ull_pool *ull_devices_pool(const struct ull_devices *devices, int i)
{
    const struct logical *logical = find(devices, i);
    return logical ? logical->pool : NULL;
}

struct ull_alloc *ull_devices_alloc(const struct ull_devices *devices, int i)
{
    const struct logical *logical = find(devices, i);
    return logical ? logical->retry : NULL;
}

struct ull_alloc *ull_devices_guarded(const struct ull_devices *devices, int i)
{
    const struct logical *logical = find(devices, i);
    return logical ? logical->guarded : NULL;
}

ull_status ull_devices_memory_info(const struct ull_devices *devices, int i,
                                   struct ull_memory_info *info)
{
    const struct logical *logical = find(devices, i);
    if (!logical)
        return ULL_E_NO_DEVICE;
    struct ull_stats stats = {.size = sizeof stats};
    ull_status status = ull_pool_stats(logical->pool, &stats);
    if (status == ULL_OK)
        *info = (struct ull_memory_info){.current = stats.in_use, .peak = stats.peak_in_use};
    return status;
}

ull_status ull_devices_reset_memory_stats(const struct ull_devices *devices, int i)
{
    const struct logical *logical = find(devices, i);
    if (!logical)
        return ULL_E_NO_DEVICE;
    ull_pool_stats_reset(logical->pool);
    return ULL_OK;
}
