/* budget.c: option -m: what it says, and what that is in bytes on each device. See devices.h. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "devices.h"
#include "error.h"

static ull_status parse_rule(const char *text, struct budget *budget, struct ull_error *err)
{
    struct budget_rule rule = {.device = ""};
    const char *size = text, *equals = strchr(text, '=');
    if (equals) {
        size_t length = (size_t)(equals - text);
        if (length == 0 || length >= sizeof rule.device)
            return ull__fail(err, ULL_E_INVALID,
                             "'%.100s' names no device before '=': expected DEVICE=SIZE as 0=4GiB",
                             text);
        memcpy(rule.device, text, length);
        bool digits = strspn(rule.device, "0123456789") == length;
        if (!(digits && length <= 4) && strncmp(rule.device, "GPU-", 4) != 0 &&
            strncmp(rule.device, "MIG-", 4) != 0)
            return ull__fail(
                err, ULL_E_INVALID,
                "'%.60s' is not a device: expected a logical index or a UUID, as 0=4GiB",
                rule.device);
        size = equals + 1;
    }
    ull_status status = ull__size_or_share_parse(size, &rule.size, err);
    if (status != ULL_OK)
        return status;
    for (int i = 0; i < budget->count; i++) {
        if (strcasecmp(budget->rules[i].device, rule.device) == 0)
            return ull__fail(err, ULL_E_INVALID, "'%.100s' is the second budget for %s", text,
                             rule.device[0] ? rule.device : "all devices");
    }
    if (budget->count == MACHINE_DEVICES)
        return ull__fail(err, ULL_E_INVALID, "more than %d budgets", MACHINE_DEVICES);
    budget->rules[budget->count++] = rule;
    return ULL_OK;
}

ull_status budget_parse(const char *text, struct budget *budget, struct ull_error *err)
{
    struct budget parsed = {.count = 0};
    for (;;) {
        char rule[256];
        size_t length = strcspn(text, ",");
        if (length >= sizeof rule)
            return ull__fail(err, ULL_E_INVALID, "'%.100s...' is too long for a budget", text);
        memcpy(rule, text, length);
        rule[length] = 0;
        ull_status status = parse_rule(rule, &parsed, err);
        if (status != ULL_OK)
            return status;
        if (text[length] == 0)
            break;
        text += length + 1;
    }
    *budget = parsed;
    return ULL_OK;
}

static bool names_device(const char *rule, const struct ull__device_spec *device)
{
    if (rule[0] == 0)
        return true;
    if (isdigit((unsigned char)rule[0]))
        return device->logical >= 0 && atoi(rule) == device->logical;
    return strncmp(device->uuid, rule, 4) == 0 && strncasecmp(device->uuid, rule, strlen(rule)) == 0;
}

/* A rule that names the device wins over one for all. */
static const struct budget_rule *rule_for(const struct budget *budget,
                                          const struct ull__device_spec *device)
{
    const struct budget_rule *found = NULL;
    for (int i = 0; i < budget->count; i++) {
        if (names_device(budget->rules[i].device, device) && (!found || budget->rules[i].device[0]))
            found = &budget->rules[i];
    }
    return found;
}

bool budget_speaks_of(const struct budget *budget, const struct ull__device_spec *device)
{
    return rule_for(budget, device) != NULL;
}

static void add_device(const struct machine_device *from, int logical, struct ull__job_spec *job)
{
    if (job->device_count == ULL_MAX_DEVICES || from->divided)
        return;
    struct ull__device_spec *to = &job->devices[job->device_count++];
    memset(to, 0, sizeof *to);
    snprintf(to->uuid, sizeof to->uuid, "%s", from->uuid);
    snprintf(to->name, sizeof to->name, "%s", from->name);
    to->physical = from->physical;
    to->logical = logical;
    to->integrated = from->integrated;
    to->total_bytes = from->total_bytes;
    to->budget_bytes = from->total_bytes;
}

static bool is_selected(const struct selection *visible, int place)
{
    for (int i = 0; i < visible->count; i++) {
        if (visible->place[i] == place)
            return true;
    }
    return false;
}

static ull_status check_rules(const struct budget *budget, const struct ull__job_spec *job,
                              int visible, struct ull_error *err)
{
    for (int r = 0; r < budget->count; r++) {
        const char *rule = budget->rules[r].device;
        int matches = 0;
        for (int d = 0; d < job->device_count; d++)
            matches += names_device(rule, &job->devices[d]);
        if (rule[0] && matches == 0) {
            char have[80];
            if (visible > 0)
                snprintf(have, sizeof have, "the command sees %d GPU%s, counted from 0", visible,
                         visible == 1 ? "" : "s");
            else
                snprintf(have, sizeof have, "the command sees no GPU");
            return ull__fail(err, ULL_E_NO_DEVICE, "the budget for device %s: no such device: %s",
                             rule, have);
        }
        if (rule[0] && !isdigit((unsigned char)rule[0]) && matches > 1)
            return ull__fail(err, ULL_E_NO_DEVICE,
                             "the budget for device %s fits several GPUs: give more of the UUID",
                             rule);
    }
    return ULL_OK;
}

ull_status budget_apply(const struct budget *budget, const struct machine *machine,
                        const struct selection *visible, struct ull__job_spec *job, int *capped,
                        struct ull_error *err)
{
    job->device_count = 0;
    *capped = -1;
    for (int i = 0; i < visible->count; i++)
        add_device(&machine->devices[visible->place[i]], i, job);
    for (int i = 0; i < machine->count; i++) {
        if (!is_selected(visible, i))
            add_device(&machine->devices[i], -1, job);
    }
    ull_status status = check_rules(budget, job, visible->count, err);
    if (status != ULL_OK)
        return status;
    for (int d = 0; d < job->device_count; d++) {
        struct ull__device_spec *device = &job->devices[d];
        const struct budget_rule *rule = rule_for(budget, device);
        if (!rule)
            continue;
        if (device->total_bytes == 0)
            return ull__fail(
                err, ULL_E_NO_DEVICE,
                "the size of GPU %s is unknown: neither NVML nor the CUDA driver tells it, "
                "so no budget can be kept",
                device->uuid);
        uint64_t bytes = rule->size.bytes;
        if (rule->size.percent > 0)
            bytes = (uint64_t)((long double)device->total_bytes * rule->size.percent / 100);
        if (bytes > device->total_bytes && *capped < 0)
            *capped = d;
        device->budget_bytes = bytes < device->total_bytes ? bytes : device->total_bytes;
        if (device->budget_bytes == 0)
            device->budget_bytes = 1; /* 0.0000001% of a card is still no freedom */
    }
    return ULL_OK;
}
