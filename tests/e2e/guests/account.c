/* account.c: see account.h. */
#include "account.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nvml_api.h"
#include "shared.h"

static uint64_t state = 1;

void fail_at(const char *file, int line, const char *format, ...)
{
    char text[512];
    va_list args;
    const char *slash = strrchr(file, '/');
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s:%d: [%d] %s\n", slash ? slash + 1 : file, line, (int)getpid(), text);
    _exit(1);
}

void seed_with(uint64_t seed)
{
    state = seed * 2654435769u + 1;
}

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators") */
uint64_t any(uint64_t below)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 2685821657736338717u >> 11) % below;
}

uint64_t held(void)
{
    size_t free_bytes = 0, total = 0;
    OK(cuMemGetInfo(&free_bytes, &total));
    return total - free_bytes;
}

uint64_t held_by_nvml(int card)
{
    static nvmlReturn_t (*get_handle)(unsigned int, nvmlDevice_t *);
    static nvmlReturn_t (*get_memory)(nvmlDevice_t, nvmlMemory_t *);
    nvmlDevice_t device;
    nvmlMemory_t memory;
    if (!get_memory) {
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        nvmlReturn_t (*init)(void) =
            library ? (nvmlReturn_t(*)(void))dlsym(library, "nvmlInit_v2") : NULL;
        if (!init || init() != NVML_SUCCESS)
            fail("no NVML");
        get_handle = (nvmlReturn_t(*)(unsigned int, nvmlDevice_t *))dlsym(
            library, "nvmlDeviceGetHandleByIndex_v2");
        get_memory = (nvmlReturn_t(*)(nvmlDevice_t, nvmlMemory_t *))dlsym(
            library, "nvmlDeviceGetMemoryInfo");
    }
    if (get_handle((unsigned int)card, &device) != NVML_SUCCESS ||
        get_memory(device, &memory) != NVML_SUCCESS)
        fail("NVML has no memory info");
    return memory.total - memory.free;
}

static struct fake_shared *cards(void)
{
    static struct fake_shared *shared;
    if (!shared)
        shared = fake_shared_open(true);
    if (!shared)
        fail("no fake card to compare with");
    return shared;
}

static const struct fake_process *own_process(const struct fake_shared *shared)
{
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++)
        if (shared->process[i].state == 1 && shared->process[i].pid == getpid())
            return &shared->process[i];
    return NULL;
}

uint64_t card_own(int card)
{
    struct fake_shared *shared = cards();
    fake_shared_lock(shared);
    const struct fake_process *own = own_process(shared);
    uint64_t used = own ? own->used[card] + own->hidden[card] - own->touched[card] : 0;
    fake_shared_unlock(shared);
    return used;
}

/* The tag of this process's environment; whether it has called cuInit does not matter. */
static int own_tag(const struct fake_shared *shared)
{
    const char *name = getenv("ULLAGE_FAKE_TAG");
    for (int i = 0; name && i < FAKE_MAX_TAGS; i++)
        if (strncmp(shared->tag_name[i], name, FAKE_TAG_LENGTH - 1) == 0)
            return i;
    return -1;
}

uint64_t card_job(int card)
{
    struct fake_shared *shared = cards();
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    int tag = own_tag(shared);
    uint64_t used = tag >= 0 ? shared->tag[tag][card].used : 0;
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++)
        if (shared->process[i].state != 0 && shared->process[i].tag == tag)
            used -= shared->process[i].touched[card];
    fake_shared_unlock(shared);
    return used;
}

bool card_has_dead(void)
{
    struct fake_shared *shared = cards();
    bool dead = false;
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++)
        dead |= shared->process[i].state == 2;
    fake_shared_unlock(shared);
    return dead;
}

uint64_t card_job_peak(int card)
{
    struct fake_shared *shared = cards();
    fake_shared_lock(shared);
    int tag = own_tag(shared);
    uint64_t peak = tag >= 0 ? shared->tag[tag][card].peak : 0;
    fake_shared_unlock(shared);
    return peak;
}

bool agrees_soon(uint64_t (*ours)(void), uint64_t (*theirs)(int), uint64_t extra)
{
    uint64_t a = 0, b = 0;
    for (int tries = 0; tries < 600; tries++) {
        a = ours();
        b = theirs(0) + extra;
        if (a == b)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    fprintf(stderr, "ullage says %llu, the card %llu: %+lld KiB\n", (unsigned long long)a,
            (unsigned long long)b, (long long)(a - b) / 1024);
    return false;
}

CUcontext start(void)
{
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    return context;
}

void say(int fd, const void *data, size_t size)
{
    if (write(fd, data, size) != (ssize_t)size)
        fail("the other process is gone");
}

void hear(int fd, void *data, size_t size)
{
    size_t got = 0;
    while (got < size) {
        ssize_t more = read(fd, (char *)data + got, size - got);
        if (more <= 0)
            fail("the other process is gone");
        got += (size_t)more;
    }
}
