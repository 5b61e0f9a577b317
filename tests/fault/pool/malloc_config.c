/*
 * malloc_config.c: fails the n-th request for host memory while a configuration is made, read from files and the
 * environment, planned, exported, started, used and stopped. A call that fails says so with a message and
 * changes nothing: the next attempt, with host memory again, starts all that was configured.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allocations.h"
#include "device.h"
#include "ullage/config.h"

enum { PAGE = 1 << 14, PAGES = 64, CARDS = 2 };
#define BYTES ((uint64_t)PAGES * PAGE)

static const struct ull_card cards[CARDS] = {
    {"GPU-aaaaaaaa", "a", BYTES, BYTES, 9, 0},
    {"GPU-bbbbbbbb", "b", BYTES, BYTES, 9, 0},
};
static const struct ull_environment said = {
    .memory = "GPU-aaaa=50%,1=256KiB", .growth = "true", .config = "1;GPU-bbbbbbbb:growth=off"};
static int open_cards;

static ull_status open_card(void *context, int card, const struct ull_card *facts,
                            struct ull__device **device, struct ull_error *err)
{
    (void)context;
    (void)card;
    ull_status status = ull__device_host_create(facts->total_bytes, PAGE, device, err);
    open_cards += status == ULL_OK;
    return status;
}

static void close_card(void *context, struct ull__device *device)
{
    (void)context;
    struct ull__device_held held = ull__device_host_held(device);
    if (held.pages || held.mappings || held.reserved_bytes || held.events || held.misuses)
        fail("something leaked, or the device was misused", "");
    ull__device_destroy(device);
    open_cards--;
}

static const struct ull_opener opener = {.open = open_card, .close = close_card};

/* The host device says ULL_E_SYSTEM where the system has no file of memory for it. */
static bool worked(ull_status status, const struct ull_error *error, const char *call)
{
    if (status == ULL_OK)
        return true;
    if (status != ULL_E_NO_MEMORY && status != ULL_E_SYSTEM)
        fail(call, error->message);
    if (error->message[0] == 0)
        fail(call, "no message");
    return false;
}

static void use(struct ull_devices *devices)
{
    void *p = NULL;
    struct ull_guard *guard;
    if (ull_guard_begin(ull_devices_guarded(devices, 0), 4 * PAGE, &guard, NULL) == ULL_OK)
        ull_guard_end(guard);
    if (ull_alloc_allocate(ull_devices_alloc(devices, 1), 3 * PAGE, NULL, &p) == ULL_OK &&
        ull_alloc_free(ull_devices_alloc(devices, 1), p, NULL) != ULL_OK)
        fail("a free was refused", "");
}

static bool start_and_stop(struct ull_config *config, const struct ull_environment *environment)
{
    struct ull_error error = {.message = ""};
    struct ull_devices *devices = NULL;
    ull_status status = ull_config_start(config, environment, &opener, ULL_HERE, &devices, &error);
    if (!worked(status, &error, "start: ")) {
        if (devices || open_cards)
            fail("a failed start left something", "");
        return false;
    }
    if (ull_devices_count(devices) != CARDS)
        fail("start: ", "other devices than planned");
    use(devices);
    ull_devices_stop(devices);
    if (open_cards)
        fail("stop: ", "a card is still open");
    return true;
}

static void with_config(struct ull_config *config)
{
    struct ull_error error = {.message = ""};
    struct ull_plan plan;
    char text[ULL_CONFIG_TEXT];
    worked(ull_config_plan(config, &said, &plan, &error), &error, "plan: ");
    error.message[0] = 0;
    worked(ull_config_plan(config, NULL, &plan, &error), &error, "plan by files: ");
    error.message[0] = 0;
    worked(ull_config_export(config, &said, text, sizeof text, &error), &error, "export: ");
    start_and_stop(config, &said);
    start_and_stop(config, NULL);
    allocations_work();
    if (!start_and_stop(config, &said))
        fail("no start though there is memory", "");
    if (ull_config_plan(config, NULL, &plan, &error) != ULL_OK || plan.device[0].limit != BYTES / 4)
        fail("the file of the configuration is not read: ", error.message);
}

static void scene(void)
{
    struct ull_error error = {.message = ""};
    struct ull_config *config = NULL;
    if (worked(ull_config_create(cards, CARDS, &config, &error), &error, "create: "))
        with_config(config);
    else if (config)
        fail("create wrote its result", "");
    ull_config_destroy(config);
}

/* A folder of configuration of our own. */
static bool write_file(char *folder)
{
    char path[64];
    if (!mkdtemp(folder))
        return false;
    snprintf(path, sizeof path, "%s/ullage", folder);
    if (mkdir(path, 0700) != 0)
        return false;
    snprintf(path, sizeof path, "%s/ullage/ullage.conf", folder);
    FILE *file = fopen(path, "w");
    bool good = file && fputs("memory = 25% # of each\ngrowth = yes\n", file) >= 0;
    return file && fclose(file) == 0 && good;
}

static void remove_file(const char *folder)
{
    char path[64];
    snprintf(path, sizeof path, "%s/ullage/ullage.conf", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/ullage", folder);
    rmdir(path);
    rmdir(folder);
}

int main(void)
{
    char folder[] = "/tmp/ullage-fault-XXXXXX";
    static const char *const others[] = {"ULLAGE_MEMORY", "ULLAGE_GROWTH", "ULLAGE_CONFIG",
                                         "ULLAGE_JOB", "TF_FORCE_GPU_ALLOW_GROWTH"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unsetenv(others[i]);
    if (!write_file(folder) || setenv("XDG_CONFIG_HOME", folder, 1) != 0) {
        perror(folder);
        return 1;
    }
    uint64_t count = each_fails("malloc_config", scene);
    remove_file(folder);
    if (count < 50)
        fail("the scene asks for hardly any memory", "");
    return 0;
}
