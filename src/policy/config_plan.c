/*
 * config_plan.c: from cards, settings and environment to logical devices. Decides only: it opens nothing,
 * so that it can be tested with made-up cards.
 */
#include <string.h>

#include "config_private.h"
#include "error.h"
#include "size.h"

uint64_t ull_system_reserve(uint64_t free_bytes, int major)
{
    const uint64_t mib = (uint64_t)1 << 20;
    if (free_bytes < 2048 * mib)
        return 225 * mib;
    if (major <= 6)
        return 500 * mib;
    if (major == 7)
        return 1050 * mib;
    return (major == 8 ? 1536 : 1800) * mib;
}

static uint64_t share_of(uint64_t total, uint64_t billionths)
{
    uint64_t bytes = (uint64_t)((unsigned __int128)total * billionths / ULL_BILLION);
    return bytes > 0 ? bytes : 1;
}

void ull__settings_resolve(const struct ull_config *config, const struct ull__settings *below,
                           struct ull__settings *resolved)
{
    const struct ull__settings *calls = &config->calls;
    memcpy(resolved, below, sizeof *resolved);
    if (calls->visible_set) {
        resolved->visible_set = true;
        resolved->visible_count = calls->visible_count;
        memcpy(resolved->visible, calls->visible, sizeof resolved->visible);
    }
    if (calls->reserve_set) {
        resolved->reserve_set = true;
        resolved->system_reserve = calls->system_reserve;
    }
    for (int i = 0; i < config->count; i++) {
        struct ull__setting *to = &resolved->card[i];
        const struct ull__setting *from = &calls->card[i];
        enum ull_growth growth = from->growth != ULL_GROWTH_UNSET ? from->growth : to->growth;
        if (from->kind != ULL_MEMORY_UNSET)
            *to = *from;
        else if (config->share > 0)
            *to = (struct ull__setting){
                .kind = ULL_MEMORY_SHARE, .share = config->share, .source = "share"};
        else if (calls->reserve_set && to->kind == ULL_MEMORY_SHARE)
            *to = (struct ull__setting){.kind = ULL_MEMORY_UNSET};
        to->growth = growth;
        /* Logical devices of the environment: the call wins over what they say too. */
        for (int j = 0;
             from->kind == ULL_MEMORY_UNSET && from->growth != ULL_GROWTH_UNSET && j < to->count; j++)
            to->logical[j].growth = from->growth;
    }
}

/* --- one card --------------------------------------------------------------------------------------------- */

struct planning {
    const struct ull_config *config;
    const struct ull__settings *settings;
    enum ull_growth force;
    struct ull_plan *plan;
    struct ull_error *err;
};

/* As set, before the variable that overrides it. */
static bool wants_growth(const struct planning *p, enum ull_growth growth)
{
    return growth == ULL_GROWTH_UNSET ? p->config->growth_default : growth == ULL_GROWTH_ON;
}

static bool grows(const struct planning *p, enum ull_growth growth)
{
    return p->force != ULL_GROWTH_UNSET ? p->force == ULL_GROWTH_ON : wants_growth(p, growth);
}

static struct ull_plan_device *add(struct planning *p, int card, uint64_t limit, const char *source)
{
    struct ull_plan_device *device = &p->plan->device[p->plan->count++];
    *device = (struct ull_plan_device){.card = card, .limit = limit, .source = source, .set = true};
    return device;
}

/* Without growth everything is taken at the start, with it what was asked for. */
static void set_growth(struct ull_plan_device *device, bool growth, uint64_t start)
{
    device->growth = growth;
    device->start = growth ? start : device->limit;
}

static ull_status plan_default(struct planning *p, int card)
{
    const struct ull_card *facts = &p->config->cards[card];
    uint64_t reserve = p->settings->reserve_set
                           ? p->settings->system_reserve
                           : ull_system_reserve(facts->free_bytes, facts->major);
    char a[ULL_SIZE_TEXT], b[ULL_SIZE_TEXT];
    if (facts->free_bytes <= reserve)
        return ull__fail(p->err, ULL_E_NO_MEMORY,
                         "card %d has %s free, of which %s are left to others: set a limit, or a "
                         "smaller system reserve",
                         card, ull__size_text(facts->free_bytes, a), ull__size_text(reserve, b));
    struct ull_plan_device *device = add(p, card, facts->free_bytes - reserve, "default");
    device->set = p->settings->reserve_set;
    set_growth(device, grows(p, p->settings->card[card].growth), 0);
    return ULL_OK;
}

static ull_status plan_logical(struct planning *p, int card)
{
    const struct ull__setting *setting = &p->settings->card[card];
    uint64_t total = p->config->cards[card].total_bytes;
    char a[ULL_SIZE_TEXT], b[ULL_SIZE_TEXT];
    for (int i = 0; i < setting->count; i++) {
        const struct ull_logical_spec *spec = &setting->logical[i];
        uint64_t limit = spec->memory_limit;
        if (limit > total && !setting->capped)
            return ull__fail(p->err, ULL_E_INVALID,
                             "logical device %d of card %d: a limit of %s, but the card has %s", i,
                             card, ull__size_text(limit, a), ull__size_text(total, b));
        struct ull_plan_device *device = add(p, card, limit < total ? limit : total, setting->source);
        bool mixed = spec->start > 0 && spec->start < limit;
        enum ull_growth growth = spec->growth != ULL_GROWTH_UNSET ? spec->growth : setting->growth;
        set_growth(device, grows(p, mixed ? ULL_GROWTH_ON : growth), spec->start);
        if (device->start > device->limit)
            device->start = device->limit;
    }
    return ULL_OK;
}

/* What its devices take at the start must be there. */
static ull_status check_start(struct planning *p, int card, int first)
{
    const struct ull_card *facts = &p->config->cards[card];
    unsigned __int128 sum = 0;
    for (int i = first; i < p->plan->count; i++)
        sum += p->plan->device[i].start;
    char a[ULL_SIZE_TEXT], b[ULL_SIZE_TEXT];
    uint64_t bytes = sum > UINT64_MAX ? UINT64_MAX : (uint64_t)sum;
    if (bytes > facts->total_bytes)
        return ull__fail(
            p->err, ULL_E_INVALID,
            "card %d: %s would be taken at the start, but it has %s: lower the limits, or "
            "turn growth on",
            card, ull__size_text(bytes, a), ull__size_text(facts->total_bytes, b));
    if (bytes > facts->free_bytes)
        return ull__fail(p->err, ULL_E_NO_MEMORY,
                         "card %d: %s would be taken at the start, but only %s are free: lower the "
                         "limit, or turn growth on",
                         card, ull__size_text(bytes, a), ull__size_text(facts->free_bytes, b));
    return ULL_OK;
}

static ull_status plan_card(struct planning *p, int card)
{
    const struct ull__setting *setting = &p->settings->card[card];
    uint64_t total = p->config->cards[card].total_bytes;
    int first = p->plan->count;
    ull_status status = ULL_OK;
    switch (setting->kind) {
    case ULL_MEMORY_UNSET:
        status = plan_default(p, card);
        break;
    case ULL_MEMORY_LOGICAL:
        status = plan_logical(p, card);
        break;
    case ULL_MEMORY_SHARE:
        set_growth(add(p, card, share_of(total, setting->share), setting->source),
                   grows(p, setting->growth), 0);
        break;
    case ULL_MEMORY_MIXED:
        set_growth(add(p, card, share_of(total, setting->share), setting->source),
                   grows(p, ULL_GROWTH_ON), share_of(total, setting->start));
        break;
    }
    return status == ULL_OK ? check_start(p, card, first) : status;
}

static int list_visible(const struct ull_config *config, const struct ull__settings *settings,
                        int visible[ULL_CARDS])
{
    int count = settings->visible_set ? settings->visible_count : config->count;
    for (int i = 0; i < count; i++)
        visible[i] = settings->visible_set ? settings->visible[i] : i;
    return count;
}

ull_status ull_config_plan_card(struct ull_config *config,
                                const struct ull_environment *environment, int card,
                                uint64_t free_bytes, struct ull_plan *out, struct ull_error *err)
{
    struct ull__surroundings around;
    struct ull__settings settings;
    struct ull_plan plan = {.count = 0};
    int visible[ULL_CARDS], count = 0, i = 0;
    pthread_mutex_lock(&config->lock);
    ull_status status = ull__surroundings_read(config, environment, &around, err);
    if (status == ULL_OK) {
        ull__settings_resolve(config, &around.settings, &settings);
        count = list_visible(config, &settings, visible);
        while (i < count && visible[i] != card)
            i++;
        if (i == count)
            status = ull__fail(err, ULL_E_NO_DEVICE,
                               card >= 0 && card < config->count
                                   ? "card %d is not among the visible cards of %d"
                                   : "card %d is not there: there are %d, counted from 0",
                               card, config->count);
    }
    if (status == ULL_OK) {
        struct planning p = {config, &settings, around.force, &plan, err};
        config->cards[card].free_bytes = free_bytes;
        status = plan_card(&p, card);
    }
    pthread_mutex_unlock(&config->lock);
    if (status == ULL_OK)
        *out = plan;
    return status;
}

/* --- all of them ------------------------------------------------------------------------------------------- */

/* As TensorFlow: growth must not differ, and is looked at only if no card has logical devices. */
static ull_status check_same_growth(const struct planning *p, const int *visible, int count)
{
    int first = -1;
    for (int i = 0; i < count; i++) {
        if (p->settings->card[visible[i]].kind == ULL_MEMORY_LOGICAL)
            return ULL_OK;
    }
    for (int i = 0; i < count; i++) {
        if (p->settings->card[visible[i]].kind == ULL_MEMORY_MIXED)
            continue;
        first = first < 0 ? visible[i] : first;
        bool growth = wants_growth(p, p->settings->card[visible[i]].growth);
        if (growth != wants_growth(p, p->settings->card[first].growth))
            return ull__fail(
                p->err, ULL_E_INVALID,
                "growth is %s for card %d and %s for card %d: it must be the same for all "
                "visible cards of a process",
                growth ? "off" : "on", first, growth ? "on" : "off", visible[i]);
    }
    return ULL_OK;
}

ull_status ull__visible(const struct ull_config *config, const struct ull_environment *environment,
                        int visible[ULL_CARDS], int *count, struct ull_error *err)
{
    struct ull__surroundings around;
    struct ull__settings settings;
    ull_status status = ull__surroundings_read(config, environment, &around, err);
    if (status != ULL_OK)
        return status;
    ull__settings_resolve(config, &around.settings, &settings);
    *count = list_visible(config, &settings, visible);
    return ULL_OK;
}

ull_status ull__plan(const struct ull_config *config, const struct ull_environment *environment,
                     struct ull_plan *out, struct ull_error *err)
{
    struct ull__surroundings around;
    ull_status status = ull__surroundings_read(config, environment, &around, err);
    if (status != ULL_OK)
        return status;
    struct ull__settings settings;
    struct ull_plan plan = {.count = 0};
    ull__settings_resolve(config, &around.settings, &settings);
    int visible[ULL_CARDS], count = list_visible(config, &settings, visible);
    struct planning p = {config, &settings, around.force, &plan, err};
    status = check_same_growth(&p, visible, count);
    for (int i = 0; status == ULL_OK && i < count; i++)
        status = plan_card(&p, visible[i]);
    if (status == ULL_OK)
        *out = plan;
    return status;
}

ull_status ull_config_plan(struct ull_config *config, const struct ull_environment *environment,
                           struct ull_plan *plan, struct ull_error *err)
{
    pthread_mutex_lock(&config->lock);
    ull_status status = ull__plan(config, environment, plan, err);
    pthread_mutex_unlock(&config->lock);
    return status;
}
