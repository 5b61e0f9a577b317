/*
 * config.c: settings by calls. Each is checked as far as it can be by itself; what depends on the cards'
 * memory or on several settings together is the plan's (config_plan.c).
 */
#include "ullage/config.h"

#include <stdlib.h>
#include <string.h>

#include "config_private.h"
#include "error.h"

ull_status ull_config_create(const struct ull_card *cards, int count, struct ull_config **out,
                             struct ull_error *err)
{
    if (count < 0 || count > ULL_CARDS)
        return ull__fail(err, ULL_E_INVALID, "%d cards: expected 0 to %d", count, ULL_CARDS);
    struct ull_config *config = calloc(1, sizeof *config);
    if (!config)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for a configuration");
    pthread_mutex_init(&config->lock, NULL);
    config->count = count;
    for (int i = 0; i < count; i++) {
        config->cards[i] = cards[i];
        config->cards[i].uuid[sizeof cards[i].uuid - 1] = 0;
        config->cards[i].name[sizeof cards[i].name - 1] = 0;
    }
    *out = config;
    return ULL_OK;
}

void ull_config_destroy(struct ull_config *config)
{
    if (!config)
        return;
    pthread_mutex_destroy(&config->lock);
    free(config);
}

int ull_config_cards(const struct ull_config *config, const struct ull_card **cards)
{
    *cards = config->cards;
    return config->count;
}

/* --- checks ----------------------------------------------------------------------------------------------- */

static ull_status check_card(const struct ull_config *config, int card, struct ull_error *err)
{
    if (card < 0 || card >= config->count)
        return ull__fail(err, ULL_E_INVALID, "card %d is not there: there are %d, counted from 0",
                         card, config->count);
    return ULL_OK;
}

/* Whole billionths, or 0 if the share is none. */
static uint64_t billionths(double share)
{
    if (!(share > 0 && share <= 1))
        return 0;
    return (uint64_t)(share * ULL_BILLION + 0.5);
}

static ull_status check_share(double share, struct ull_error *err)
{
    if (billionths(share) > 0)
        return ULL_OK;
    return ull__fail(err, ULL_E_INVALID,
                     "%g is not a share of a card: expected above 0 and at most 1%s", share,
                     share > 1 ? " (more than the card would be memory of the host)" : "");
}

static ull_status started(const struct ull_config *config, const char *what, struct ull_error *err)
{
    return ull__fail(
        err, ULL_E_STARTED,
        "%s cannot be changed any more: devices were started by %s; set it before that", what,
        config->started_by);
}

/* Ends a setter: keeps the changed settings if they are allowed and may change. */
static ull_status keep(struct ull_config *config, const void *changed, void *kept, size_t size,
                       ull_status status, const char *what, struct ull_error *err)
{
    if (status == ULL_OK && memcmp(changed, kept, size) != 0) {
        if (config->started)
            status = started(config, what, err);
        else
            memcpy(kept, changed, size);
    }
    pthread_mutex_unlock(&config->lock);
    return status;
}

/* --- setters ---------------------------------------------------------------------------------------------- */

ull_status ull_config_set_visible(struct ull_config *config, const int *cards, int count,
                                  struct ull_error *err)
{
    pthread_mutex_lock(&config->lock);
    struct ull__settings changed;
    memcpy(&changed, &config->calls, sizeof changed);
    ull_status status = ULL_OK;
    if (count < 0 || count > config->count)
        status =
            ull__fail(err, ULL_E_INVALID, "%d visible cards: there are %d", count, config->count);
    changed.visible_set = true;
    changed.visible_count = count;
    memset(changed.visible, 0, sizeof changed.visible);
    for (int i = 0; status == ULL_OK && i < count; i++) {
        status = check_card(config, cards[i], err);
        for (int j = 0; status == ULL_OK && j < i; j++) {
            if (cards[j] == cards[i])
                status = ull__fail(err, ULL_E_INVALID, "card %d is given twice", cards[i]);
        }
        changed.visible[i] = cards[i];
    }
    return keep(config, &changed, &config->calls, sizeof changed, status, "visible cards", err);
}

ull_status ull_config_set_growth(struct ull_config *config, int card, bool growth,
                                 struct ull_error *err)
{
    ull_status status = check_card(config, card, err);
    if (status != ULL_OK)
        return status;
    pthread_mutex_lock(&config->lock);
    struct ull__setting *kept = &config->calls.card[card], changed;
    memcpy(&changed, kept, sizeof changed);
    changed.growth = growth ? ULL_GROWTH_ON : ULL_GROWTH_OFF;
    if (kept->kind == ULL_MEMORY_LOGICAL)
        status = ull__fail(err, ULL_E_INVALID,
                           "card %d has logical devices: set growth in their specs instead", card);
    else if (kept->kind == ULL_MEMORY_MIXED && !growth)
        status = ull__fail(err, ULL_E_INVALID,
                           "card %d starts with a share and grows: that is not without growth", card);
    return keep(config, &changed, kept, sizeof changed, status, "growth", err);
}

enum ull_growth ull_config_growth(struct ull_config *config, int card)
{
    if (check_card(config, card, NULL) != ULL_OK)
        return ULL_GROWTH_UNSET;
    pthread_mutex_lock(&config->lock);
    enum ull_growth growth = config->calls.card[card].growth;
    pthread_mutex_unlock(&config->lock);
    return growth;
}

static ull_status check_spec(const struct ull_logical_spec *spec, int number, struct ull_error *err)
{
    if (spec->memory_limit == 0)
        return ull__fail(err, ULL_E_INVALID, "logical device %d has no memory_limit: it needs one",
                         number);
    if (spec->start > spec->memory_limit)
        return ull__fail(err, ULL_E_INVALID,
                         "logical device %d starts with %llu bytes, above its limit of %llu", number,
                         (unsigned long long)spec->start, (unsigned long long)spec->memory_limit);
    if (spec->start > 0 && spec->start < spec->memory_limit && spec->growth == ULL_GROWTH_OFF)
        return ull__fail(err, ULL_E_INVALID,
                         "logical device %d starts below its limit: that needs growth", number);
    return ULL_OK;
}

ull_status ull_config_set_logical(struct ull_config *config, int card,
                                  const struct ull_logical_spec *specs, int count,
                                  struct ull_error *err)
{
    ull_status status = check_card(config, card, err);
    if (status == ULL_OK && (count < 0 || count > ULL_LOGICAL_PER_CARD))
        status = ull__fail(err, ULL_E_INVALID, "%d logical devices: expected 0 to %d", count,
                           ULL_LOGICAL_PER_CARD);
    for (int i = 0; status == ULL_OK && i < count; i++)
        status = check_spec(&specs[i], i, err);
    if (status != ULL_OK)
        return status;
    pthread_mutex_lock(&config->lock);
    struct ull__setting *kept = &config->calls.card[card], changed;
    memset(&changed, 0, sizeof changed);
    changed.growth = kept->growth;
    changed.kind = count > 0 ? ULL_MEMORY_LOGICAL : ULL_MEMORY_UNSET;
    changed.source = count > 0 ? "logical devices" : NULL;
    changed.count = count;
    for (int i = 0; i < count; i++) {
        changed.logical[i].memory_limit = specs[i].memory_limit;
        changed.logical[i].start = specs[i].start;
        changed.logical[i].growth = specs[i].growth;
    }
    if (config->share > 0 && count > 0)
        status =
            ull__fail(err, ULL_E_INVALID,
                      "a share of the card was set: it and logical devices exclude each other");
    return keep(config, &changed, kept, sizeof changed, status, "logical devices", err);
}

int ull_config_logical(struct ull_config *config, int card,
                       struct ull_logical_spec specs[ULL_LOGICAL_PER_CARD])
{
    if (check_card(config, card, NULL) != ULL_OK)
        return 0;
    pthread_mutex_lock(&config->lock);
    const struct ull__setting *kept = &config->calls.card[card];
    int count = kept->kind == ULL_MEMORY_LOGICAL ? kept->count : 0;
    for (int i = 0; specs && i < count; i++)
        specs[i] = kept->logical[i];
    pthread_mutex_unlock(&config->lock);
    return count;
}

ull_status ull_config_set_share(struct ull_config *config, double share, struct ull_error *err)
{
    ull_status status = share == 0 ? ULL_OK : check_share(share, err);
    if (status != ULL_OK)
        return status;
    pthread_mutex_lock(&config->lock);
    uint64_t changed = billionths(share);
    for (int i = 0; status == ULL_OK && changed > 0 && i < config->count; i++) {
        if (config->calls.card[i].kind != ULL_MEMORY_UNSET)
            status = ull__fail(err, ULL_E_INVALID,
                               "card %d has %s: they and a share of the card exclude each other", i,
                               config->calls.card[i].source);
    }
    if (status == ULL_OK && changed > 0 && config->calls.reserve_set)
        status =
            ull__fail(err, ULL_E_INVALID,
                      "a system reserve was set: it and a share of the card exclude each other");
    return keep(config, &changed, &config->share, sizeof changed, status, "the share of the card",
                err);
}

ull_status ull_config_set_mixed(struct ull_config *config, int card, double start, double most,
                                struct ull_error *err)
{
    ull_status status = check_card(config, card, err);
    if (status == ULL_OK)
        status = check_share(start, err);
    if (status == ULL_OK)
        status = check_share(most, err);
    if (status == ULL_OK && billionths(start) > billionths(most))
        status = ull__fail(err, ULL_E_INVALID, "a start with %g of the card, above its limit of %g",
                           start, most);
    if (status != ULL_OK)
        return status;
    pthread_mutex_lock(&config->lock);
    struct ull__setting *kept = &config->calls.card[card], changed;
    memset(&changed, 0, sizeof changed);
    changed.kind = ULL_MEMORY_MIXED;
    changed.source = "a share, then growth";
    changed.share = billionths(most);
    changed.start = billionths(start);
    changed.growth = kept->growth;
    if (config->share > 0)
        status = ull__fail(err, ULL_E_INVALID, "a share for all cards was set: take it back first");
    else if (kept->kind == ULL_MEMORY_LOGICAL)
        status = ull__fail(err, ULL_E_INVALID,
                           "card %d has logical devices: give them a start instead", card);
    else if (kept->growth == ULL_GROWTH_OFF)
        status = ull__fail(err, ULL_E_INVALID, "growth was turned off for card %d", card);
    return keep(config, &changed, kept, sizeof changed, status, "the share of the card", err);
}

ull_status ull_config_set_growth_default(struct ull_config *config, bool growth, struct ull_error *err)
{
    pthread_mutex_lock(&config->lock);
    return keep(config, &growth, &config->growth_default, sizeof growth, ULL_OK,
                "the default of growth", err);
}

ull_status ull_config_set_system_reserve(struct ull_config *config, uint64_t bytes,
                                         struct ull_error *err)
{
    pthread_mutex_lock(&config->lock);
    struct ull__settings changed;
    memcpy(&changed, &config->calls, sizeof changed);
    changed.reserve_set = true;
    changed.system_reserve = bytes;
    ull_status status = ULL_OK;
    if (config->share > 0)
        status =
            ull__fail(err, ULL_E_INVALID,
                      "a share of the card was set: it and a system reserve exclude each other");
    return keep(config, &changed, &config->calls, sizeof changed, status, "the system reserve", err);
}
