/* cards.c: see cards.h. */
#include "cards.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "say.h"
#include "ties.h"

enum { ASK_NS = 100000000, CUDA_THAT_CAN = 12080 };
#define STEP (2ull << 20) /* smaller changes are not told */

static void ask(struct cards *cards)
{
    for (int c = 0; c < cards->count; c++) {
        struct ull__nvml_device *device = &cards->card[c].nvml;
        if (device->handle && ull__nvml_memory(&cards->machine.nvml, device) == ULL_OK) {
            atomic_store(&cards->used[c], device->used_bytes);
            atomic_store(&cards->reserved[c],
                         device->reserved_bytes == ULL_NVML_UNKNOWN ? 0 : device->reserved_bytes);
        }
    }
    atomic_fetch_add(&cards->asked, 1);
}

static void *run(void *data)
{
    struct cards *cards = data;
    while (!atomic_load(&cards->stop)) {
        ask(cards);
        nanosleep(&(struct timespec){.tv_nsec = ASK_NS}, NULL);
    }
    return NULL;
}

/* Where NVML does not tell, the first attempt will. */
static bool driver_can_checkpoint(const struct machine *machine)
{
    int version = 0;
    return !machine->has_nvml || !machine->nvml.call.nvmlSystemGetCudaDriverVersion ||
           machine->nvml.call.nvmlSystemGetCudaDriverVersion(&version) != NVML_SUCCESS ||
           version >= CUDA_THAT_CAN;
}

static bool driver_moves_shared(const struct machine *machine)
{
    char version[96] = "";
    return machine->has_nvml && machine->nvml.call.nvmlSystemGetDriverVersion &&
           machine->nvml.call.nvmlSystemGetDriverVersion(version, sizeof version) == NVML_SUCCESS &&
           ties_can_move(version);
}

void cards_open(struct cards *cards)
{
    struct ull_error why = {""};
    machine_discover(&cards->machine, &why);
    for (int i = 0; i < cards->machine.count && cards->count < CARDS; i++) {
        const struct machine_device *device = &cards->machine.devices[i];
        struct card *card = &cards->card[cards->count];
        if (device->divided || device->total_bytes == 0)
            continue;
        memcpy(card->uuid, device->uuid, sizeof card->uuid);
        memcpy(card->name, device->name, sizeof card->name);
        card->physical = device->physical;
        card->integrated = device->integrated;
        card->total_bytes = card->capacity = device->total_bytes;
        if (cards->machine.has_nvml)
            ull__nvml_device(&cards->machine.nvml, card->uuid, &card->nvml);
        cards->count++;
    }
    if (cards->count == 0)
        say(LOG_WARN, "no GPU was found: %s", why.message[0] ? why.message : "the driver lists none");
    cards->can_checkpoint = driver_can_checkpoint(&cards->machine);
    cards->moves_shared = driver_moves_shared(&cards->machine);
    if (cards->machine.has_nvml) {
        ask(cards);
        sigset_t all, before; /* signals are the loop's */
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        cards->threaded = pthread_create(&cards->thread, NULL, run, cards) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
}

/* The thread may be inside a driver that does not answer: it is left alone then. */
void cards_close(struct cards *cards)
{
    struct timespec until;
    atomic_store(&cards->stop, true);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    if (cards->threaded && pthread_timedjoin_np(cards->thread, NULL, &until) == 0)
        machine_close(&cards->machine);
}

int cards_find(const struct cards *cards, const char *uuid)
{
    for (int c = 0; c < cards->count; c++)
        if (strcmp(cards->card[c].uuid, uuid) == 0)
            return c;
    return -1;
}

static int by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/*
 * Books and card do not change at one instant: what is taken is in the books a little earlier, what was given back
 * leaves them a little later, and code is noticed after it was loaded. So what lay in the middle for a second. The least
 * would be too little for ever where a job tries again and again to take what is not there, since it reserves first.
 */
static uint64_t others(struct card *card, uint64_t used)
{
    uint64_t sorted[SAMPLES];
    unsigned int count = ++card->sampled < SAMPLES ? card->sampled : SAMPLES;
    card->others[card->sampled % SAMPLES] = used > card->held_bytes ? used - card->held_bytes : 0;
    for (unsigned int i = 0; i < count; i++)
        sorted[i] = card->others[(card->sampled - i) % SAMPLES];
    qsort(sorted, count, sizeof *sorted, by_size);
    return sorted[(count - 1) / 2];
}

bool cards_update(struct cards *cards, bool moving)
{
    bool changed = false;
    uint64_t asked = atomic_load(&cards->asked);
    if (moving || asked == cards->seen || !cards->machine.has_nvml)
        return false;
    cards->seen = asked;
    for (int c = 0; c < cards->count; c++) {
        struct card *card = &cards->card[c];
        uint64_t taken = others(card, atomic_load(&cards->used[c]));
        uint64_t capacity = taken < card->total_bytes ? card->total_bytes - taken : 0;
        uint64_t change =
            capacity > card->capacity ? capacity - card->capacity : card->capacity - capacity;
        if (change < STEP && (change == 0 || taken != 0))
            continue;
        card->capacity = capacity;
        changed = true;
    }
    return changed;
}
