/*
 * config.h: what the environment asks of the fake: cards, where their state lives, how they behave.
 */
#ifndef ULLAGE_FAKE_CONFIG_H
#define ULLAGE_FAKE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_KIB 1024ull
#define FAKE_MIB (1024 * FAKE_KIB)
#define FAKE_PAGE (2 * FAKE_MIB) /* what the driver takes memory in */

enum { FAKE_MAX_CARDS = 16 }; /* MIG instances included */

/* A card, or a MIG instance of one. */
struct fake_card_config {
    uint64_t total;    /* what cuDeviceTotalMem says */
    uint64_t reserved; /* what NVML counts on top */
    int parent;        /* card that an instance belongs to, or -1 */
    int instance;      /* number of the instance in its card */
    int instances;     /* how many this card is split into; 0: not in MIG mode */
    int multiprocessors;
    int threads; /* per multiprocessor */
    bool h200;   /* dressed up as the card the facts come from */
    unsigned char uuid[16];
};

struct fake_config {
    int count;    /* cards and instances; instances come last */
    int physical; /* cards only */
    struct fake_card_config card[FAKE_MAX_CARDS];
    char directory[256]; /* of the shared state */
    uint64_t context_bytes;
    int driver_version;
    char driver_name[64]; /* as NVML tells it */
    bool integrated;
    bool no_vmm;                 /* no virtual memory management */
    int fastest[FAKE_MAX_CARDS]; /* order of cards under CUDA_DEVICE_ORDER=FASTEST_FIRST */
};

/* Read once per process; never fails: nonsense falls back to the default with a word on stderr. */
const struct fake_config *fake_config(void);

/* Takes over the cards of an existing world in place of those that the environment describes. */
void fake_config_adopt(const struct fake_card_config *card, int count, int physical);

/* Is this point named in ULLAGE_FAKE_LENIENT? */
bool fake_lenient(const char *fact);

/* "GPU-..." or "MIG-..." and the terminating zero: 41 characters. */
void fake_uuid_text(const struct fake_card_config *card, char text[48]);

#endif
