/*
 * config.c: reads the fake's environment.
 *
 *   ULLAGE_FAKE_GPUS="6GiB,16GiB"       the cards (default: one of 6GiB; "h200" is one of 139.8 GiB)
 *   ULLAGE_FAKE_MIG="0:2GiB+2GiB"       splits a card into instances; several by ','
 *   ULLAGE_FAKE_STATE=DIR               where the cards live (default: /dev/shm/ullage-fake-UID-HASH)
 *   ULLAGE_FAKE_CONTEXT=300MiB          what a bare context takes
 *   ULLAGE_FAKE_DRIVER_VERSION=13000    what cuDriverGetVersion says
 *   ULLAGE_FAKE_DRIVER=580.159.fake     the driver's own version
 *   ULLAGE_FAKE_FASTEST="1,0"           order under CUDA_DEVICE_ORDER=FASTEST_FIRST
 *   ULLAGE_FAKE_INTEGRATED=1            a card that shares its memory with the host
 *   ULLAGE_FAKE_VMM=0                   no virtual memory management
 *   ULLAGE_FAKE_LENIENT=NAME[,NAME]     facts to get wrong on purpose (see README.md)
 *
 * Of processes that name the same directory the first one decides which cards there are.
 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fake_config config;
static char *lenient;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* "6GiB", "512M", "1073741824". False when the text is not a size. */
static bool parse_size(const char *text, const char **end, uint64_t *bytes)
{
    char *after = NULL;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long long value = strtoull(text, &after, 10);
    static const char units[] = "KMGT";
    const char *unit = *after != '\0' ? strchr(units, *after) : NULL;
    if (unit) {
        value <<= 10 * (unit - units + 1);
        after++;
        if (after[0] == 'i')
            after++;
    }
    if (*after == 'B')
        after++;
    *bytes = value;
    *end = after;
    return true;
}

static void complain(const char *name, const char *text)
{
    fprintf(stderr, "fakecuda: cannot read %s=%s\n", name, text);
}

static void dress(struct fake_card_config *card, uint64_t total, int index)
{
    /* Valid UUID text that is easy to recognise: GPU-0000000a-fa4e-4000-8000-00000000000a. */
    static const unsigned char pattern[16] = {0, 0, 0, 0, 0xfa, 0x4e, 0x40, 0, 0x80};
    memcpy(card->uuid, pattern, sizeof pattern);
    card->uuid[15] = (unsigned char)index;
    card->total = total;
    card->parent = -1;
    card->instance = -1;
    card->reserved = total / 128 / FAKE_MIB * FAKE_MIB; /* 48 MiB of 6 GiB */
    if (card->reserved < 16 * FAKE_MIB)
        card->reserved = 16 * FAKE_MIB;
    card->multiprocessors = total > 64 * 1024 * FAKE_MIB   ? 132
                            : total > 12 * 1024 * FAKE_MIB ? 40
                                                           : 8;
    card->threads = card->multiprocessors == 132 ? 2048 : 1024;
}

static void read_cards(const char *text)
{
    const char *at = text;
    while (*at && config.physical < FAKE_MAX_CARDS) {
        uint64_t total = 0;
        struct fake_card_config *card = &config.card[config.physical];
        if (strncmp(at, "h200", 4) == 0) {
            at += 4;
            dress(card, 150109880320, config.physical);
            card->reserved = 644939776;
            card->h200 = true;
        } else if (parse_size(at, &at, &total) && total >= FAKE_PAGE) {
            dress(card, total, config.physical);
        } else {
            break;
        }
        config.physical++;
        if (*at == ',')
            at++;
    }
    if (*at)
        complain("ULLAGE_FAKE_GPUS", text);
    config.count = config.physical;
}

static void read_mig(const char *text)
{
    const char *at = text;
    while (*at) {
        char *after = NULL;
        long parent = strtol(at, &after, 10);
        if (after == at || *after != ':' || parent < 0 || parent >= config.physical)
            break;
        at = after + 1;
        uint64_t size = 0;
        while (config.count < FAKE_MAX_CARDS && parse_size(at, &at, &size)) {
            struct fake_card_config *card = &config.card[config.count];
            struct fake_card_config *whole = &config.card[parent];
            dress(card, size, config.count);
            card->parent = (int)parent;
            card->instance = whole->instances++;
            card->uuid[8] = 0x90; /* so that no instance is mistaken for a card */
            card->multiprocessors = 2;
            config.count++;
            if (*at == '+')
                at++;
        }
        if (*at == ',')
            at++;
    }
    if (*at)
        complain("ULLAGE_FAKE_MIG", text);
}

static void read_order(const char *text)
{
    for (int i = 0; i < FAKE_MAX_CARDS; i++)
        config.fastest[i] = i;
    int n = 0;
    for (const char *at = text; at && *at && n < config.physical; n++) {
        char *after = NULL;
        long card = strtol(at, &after, 10);
        if (after == at || card < 0 || card >= config.physical) {
            complain("ULLAGE_FAKE_FASTEST", text);
            return;
        }
        for (int i = n; i < config.physical; i++)
            if (config.fastest[i] == card) {
                config.fastest[i] = config.fastest[n];
                config.fastest[n] = (int)card;
            }
        at = *after == ',' ? after + 1 : after;
    }
}

static void read_environment(void)
{
    const char *gpus = getenv("ULLAGE_FAKE_GPUS");
    const char *mig = getenv("ULLAGE_FAKE_MIG");
    const char *state = getenv("ULLAGE_FAKE_STATE");
    const char *context = getenv("ULLAGE_FAKE_CONTEXT");
    const char *version = getenv("ULLAGE_FAKE_DRIVER_VERSION");
    const char *name = getenv("ULLAGE_FAKE_DRIVER");
    const char *integrated = getenv("ULLAGE_FAKE_INTEGRATED");
    const char *vmm = getenv("ULLAGE_FAKE_VMM");
    const char *points = getenv("ULLAGE_FAKE_LENIENT");
    const char *end = NULL;
    lenient = points ? strdup(points) : NULL; /* asked on every call: not from the environment */
    if (!gpus)
        gpus = "6GiB";
    if (!mig)
        mig = "";
    read_cards(gpus);
    read_mig(mig);
    read_order(getenv("ULLAGE_FAKE_FASTEST"));
    config.context_bytes = 300 * FAKE_MIB;
    if (context && (!parse_size(context, &end, &config.context_bytes) || *end))
        complain("ULLAGE_FAKE_CONTEXT", context);
    config.driver_version = version ? atoi(version) : 13000;
    snprintf(config.driver_name, sizeof config.driver_name, "%s", name ? name : "580.159.fake");
    config.integrated = integrated && strcmp(integrated, "1") == 0;
    config.no_vmm = vmm && strcmp(vmm, "0") == 0;
    if (state && *state) {
        snprintf(config.directory, sizeof config.directory, "%s", state);
        return;
    }
    uint64_t hash = 14695981039346656037u;
    for (const char *c = gpus; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (const char *c = mig; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    snprintf(config.directory, sizeof config.directory, "/dev/shm/ullage-fake-%u-%08x",
             (unsigned)geteuid(), (unsigned)(hash ^ hash >> 32));
}

const struct fake_config *fake_config(void)
{
    pthread_once(&once, read_environment);
    return &config;
}

void fake_config_adopt(const struct fake_card_config *card, int count, int physical)
{
    fake_config();
    memcpy(config.card, card, sizeof config.card);
    config.count = count;
    config.physical = physical;
}

bool fake_lenient(const char *fact)
{
    fake_config();
    const char *list = lenient;
    while (list && *list) {
        size_t length = strcspn(list, ",");
        if (length == strlen(fact) && strncmp(list, fact, length) == 0)
            return true;
        list += length + (list[length] == ',');
    }
    return false;
}

void fake_uuid_text(const struct fake_card_config *card, char text[48])
{
    const unsigned char *u = card->uuid;
    snprintf(text, 48, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             card->parent < 0 ? "GPU" : "MIG", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8],
             u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}
