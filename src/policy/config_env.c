/*
 * config_env.c: settings from the environment, and back into it for children.
 *
 * ULLAGE_CONFIG is text of version 1, fields between semicolons, cards by UUID or as #place where they
 * have none, shares in billionths, sizes in bytes:
 *
 *     1;visible=GPU-a,GPU-b;system=1048576;GPU-a:growth=on;GPU-a:share=400000000
 *     1;GPU-a:logical=1073741824/0/on+2147483648/0/unset;GPU-b:mixed=300000000/800000000
 *
 * Cards that this process does not see are passed over: a child may have been given only some of them.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config_private.h"
#include "error.h"
#include "size.h"

static const char *const growth_names[] = {"unset", "off", "on"};

/* --- ULLAGE_MEMORY and ULLAGE_GROWTH ----------------------------------------------------------------------- */

static void apply_size(struct ull__setting *setting, const struct ull_size *size)
{
    *setting = (struct ull__setting){.source = "ULLAGE_MEMORY", .growth = setting->growth};
    if (size->percent > 0) {
        setting->kind = ULL_MEMORY_SHARE;
        setting->share = (uint64_t)(size->percent * (ULL_BILLION / 100) + 0.5);
        setting->share = setting->share > 0 ? setting->share : 1;
    } else {
        setting->kind = ULL_MEMORY_LOGICAL;
        setting->count = 1;
        setting->capped = true; /* as `ullage run -m` does */
        setting->logical[0].memory_limit = size->bytes;
    }
}

static int find_card(const struct ull_config *config, const char *name)
{
    char *end;
    unsigned long place = strtoul(name, &end, 10);
    if (name[0] >= '0' && name[0] <= '9' && *end == 0)
        return place < (unsigned long)config->count ? (int)place : -1;
    for (int i = 0; strlen(name) > 4 && i < config->count; i++) {
        if (strncasecmp(config->cards[i].uuid, name, strlen(name)) == 0)
            return i;
    }
    return -1;
}

/* One of "SIZE", "N%", "CARD=SIZE". A rule that names a card wins over one for all. */
static ull_status read_rule(const struct ull_config *config, char *rule, bool named,
                            struct ull__settings *settings, struct ull_error *err)
{
    char *equals = strchr(rule, '=');
    if (named != (equals != NULL))
        return ULL_OK;
    struct ull_size size;
    struct ull_error why;
    if (equals)
        *equals = 0;
    ull_status status = ull__size_or_share_parse(equals ? equals + 1 : rule, &size, &why);
    if (status != ULL_OK)
        return ull__fail(err, status, "ULLAGE_MEMORY: %.400s", why.message);
    int card = equals ? find_card(config, rule) : 0;
    if (card < 0)
        return ull__fail(err, ULL_E_NO_DEVICE,
                         "ULLAGE_MEMORY: there is no card '%.60s': there are %d, counted from 0",
                         rule, config->count);
    int end = equals ? card + 1 : config->count;
    for (int i = card; i < end; i++)
        apply_size(&settings->card[i], &size);
    return ULL_OK;
}

static ull_status read_memory(const struct ull_config *config, const char *text,
                              struct ull__settings *settings, struct ull_error *err)
{
    ull_status status = ULL_OK;
    char *copy = NULL;
    for (int named = 0; status == ULL_OK && named < 2; named++) {
        copy = strdup(text);
        if (!copy)
            return ull__fail(err, ULL_E_NO_MEMORY, "no host memory to read ULLAGE_MEMORY");
        for (char *at = copy, *rule; status == ULL_OK && (rule = strsep(&at, ",")) != NULL;)
            status = read_rule(config, rule, named, settings, err);
        free(copy);
    }
    return status;
}

static ull_status read_growth(const char *text, struct ull__settings *settings, struct ull_error *err)
{
    struct ull__conf *conf = calloc(1, sizeof *conf);
    if (!conf)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory to read ULLAGE_GROWTH");
    bool growth = false;
    ull_status status = ull__conf_set(conf, ULL_CONF_GROWTH, text, "ULLAGE_GROWTH", err);
    if (status == ULL_OK)
        status = ull__conf_bool(conf, ULL_CONF_GROWTH, &growth, err);
    free(conf);
    for (int i = 0; status == ULL_OK && i < ULL_CARDS; i++)
        settings->card[i].growth = growth ? ULL_GROWTH_ON : ULL_GROWTH_OFF;
    return status;
}

static ull_status read_force(const char *text, enum ull_growth *force, struct ull_error *err)
{
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return ull__fail(err, ULL_E_INVALID,
                         "TF_FORCE_GPU_ALLOW_GROWTH is '%.80s': expected true or false (TensorFlow "
                         "would ignore it; correct or unset it)",
                         text);
    *force = text[0] == 't' ? ULL_GROWTH_ON : ULL_GROWTH_OFF;
    return ULL_OK;
}

/* --- ULLAGE_CONFIG: reading --------------------------------------------------------------------------------- */

static bool read_number(const char **text, char end, uint64_t *value)
{
    char *after;
    if (**text < '0' || **text > '9')
        return false;
    unsigned long long number = strtoull(*text, &after, 10);
    if (*after != end || number == UINT64_MAX)
        return false;
    *value = number;
    *text = *after ? after + 1 : after;
    return true;
}

static bool read_growth_name(const char *text, enum ull_growth *growth)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, growth_names[i]) == 0) {
            *growth = (enum ull_growth)i;
            return true;
        }
    }
    return false;
}

/* -1: not seen by this process. */
static int card_of_key(const struct ull_config *config, const char *key)
{
    if (key[0] == '#')
        return find_card(config, key + 1);
    for (int i = 0; i < config->count; i++) {
        if (config->cards[i].uuid[0] && strcmp(config->cards[i].uuid, key) == 0)
            return i;
    }
    return -1;
}

static bool read_logical(char *text, struct ull__setting *setting)
{
    for (char *spec; (spec = strsep(&text, "+")) != NULL; setting->count++) {
        if (setting->count == ULL_LOGICAL_PER_CARD)
            return false;
        struct ull_logical_spec *to = &setting->logical[setting->count];
        const char *at = spec;
        if (!read_number(&at, '/', &to->memory_limit) || !read_number(&at, '/', &to->start) ||
            !read_growth_name(at, &to->growth) || to->memory_limit == 0 ||
            to->start > to->memory_limit)
            return false;
    }
    return true;
}

static bool read_card_field(char *what, const char *value, struct ull__setting *setting)
{
    struct ull__setting read = {.source = "ULLAGE_CONFIG", .growth = setting->growth};
    const char *at = value;
    if (strcmp(what, "growth") == 0)
        return read_growth_name(value, &setting->growth);
    if (strcmp(what, "share") == 0) {
        read.kind = ULL_MEMORY_SHARE;
        if (!read_number(&at, 0, &read.share))
            return false;
    } else if (strcmp(what, "mixed") == 0) {
        read.kind = ULL_MEMORY_MIXED;
        if (!read_number(&at, '/', &read.start) || !read_number(&at, 0, &read.share) ||
            read.start == 0 || read.start > read.share)
            return false;
    } else if (strcmp(what, "logical") == 0) {
        read.kind = ULL_MEMORY_LOGICAL;
        read.capped = true; /* the child's card may be smaller: a budget */
        if (!read_logical((char *)value, &read))
            return false;
    } else if (strcmp(what, "default") == 0) {
        *setting = read;
        return true;
    } else {
        return false;
    }
    if (read.kind != ULL_MEMORY_LOGICAL && (read.share == 0 || read.share > ULL_BILLION))
        return false;
    *setting = read;
    return true;
}

static bool read_visible(const struct ull_config *config, char *value, struct ull__settings *settings)
{
    settings->visible_set = true;
    settings->visible_count = 0;
    for (char *key; *value && (key = strsep(&value, ",")) != NULL && value != key;) {
        int card = card_of_key(config, key);
        for (int i = 0; i < settings->visible_count; i++) {
            if (settings->visible[i] == card)
                return false;
        }
        if (card >= 0)
            settings->visible[settings->visible_count++] = card;
        if (!value)
            break;
    }
    return true;
}

static bool read_field(const struct ull_config *config, char *field, struct ull__settings *settings)
{
    char *value = strchr(field, '=');
    if (!value)
        return false;
    *value++ = 0;
    const char *at = value;
    if (strcmp(field, "visible") == 0)
        return read_visible(config, value, settings);
    if (strcmp(field, "system") == 0) {
        settings->reserve_set = true;
        return read_number(&at, 0, &settings->system_reserve);
    }
    char *what = strrchr(field, ':');
    if (!what)
        return false;
    *what++ = 0;
    int card = card_of_key(config, field);
    struct ull__setting unseen = {.kind = ULL_MEMORY_UNSET};
    return read_card_field(what, value, card >= 0 ? &settings->card[card] : &unseen);
}

ull_status ull__config_text_read(const struct ull_config *config, const char *text,
                                 struct ull__settings *settings, struct ull_error *err)
{
    if (strncmp(text, "1", 1) != 0 || (text[1] != 0 && text[1] != ';'))
        return ull__fail(
            err, ULL_E_INVALID,
            "ULLAGE_CONFIG is '%.60s': expected text of version 1 as ull_config_export "
            "writes it",
            text);
    char *copy = strdup(text), *at = copy, *field;
    if (!copy)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory to read ULLAGE_CONFIG");
    ull_status status = ULL_OK;
    strsep(&at, ";");
    while (status == ULL_OK && (field = strsep(&at, ";")) != NULL) {
        size_t offset = (size_t)(field - copy);
        if (!read_field(config, field, settings))
            status =
                ull__fail(err, ULL_E_INVALID,
                          "ULLAGE_CONFIG: '%.100s' is not a setting: let ull_config_export write "
                          "it, or unset it",
                          text + offset);
    }
    free(copy);
    return status;
}

/* --- all of it ------------------------------------------------------------------------------------------------ */

static ull_status read_all(const struct ull_config *config, const struct ull_environment *environment,
                           struct ull__surroundings *read, struct ull_error *err)
{
    ull_status status = ULL_OK;
    memset(read, 0, sizeof *read);
    if (environment->memory)
        status = read_memory(config, environment->memory, &read->settings, err);
    if (status == ULL_OK && environment->growth)
        status = read_growth(environment->growth, &read->settings, err);
    if (status == ULL_OK && environment->config)
        status = ull__config_text_read(config, environment->config, &read->settings, err);
    if (status == ULL_OK && environment->force_growth)
        status = read_force(environment->force_growth, &read->force, err);
    return status;
}

ull_status ull__surroundings_read(const struct ull_config *config,
                                  const struct ull_environment *environment,
                                  struct ull__surroundings *read, struct ull_error *err)
{
    if (environment)
        return read_all(config, environment, read, err);
    struct ull__conf *conf = calloc(1, sizeof *conf);
    if (!conf)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for the configuration files");
    ull_status status = ull__conf_load(conf, err);
    struct ull_environment own = {.config = getenv("ULLAGE_CONFIG"),
                                  .force_growth = getenv("TF_FORCE_GPU_ALLOW_GROWTH")};
    /* `ullage run` has made the card that large already: a share of it would be taken twice. */
    if (conf->item[ULL_CONF_MEMORY].set && !getenv("ULLAGE_JOB"))
        own.memory = conf->item[ULL_CONF_MEMORY].value;
    if (conf->item[ULL_CONF_GROWTH].set)
        own.growth = conf->item[ULL_CONF_GROWTH].value;
    if (status == ULL_OK)
        status = read_all(config, &own, read, err);
    free(conf);
    return status;
}

/* --- ULLAGE_CONFIG: writing ------------------------------------------------------------------------------------ */

struct writer {
    const struct ull_config *config;
    char *text;
    size_t size, length;
};

static void put(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct writer *w, const char *format, ...)
{
    va_list args;
    size_t room = w->length < w->size ? w->size - w->length : 0;
    va_start(args, format);
    int more = vsnprintf(room ? w->text + w->length : NULL, room, format, args);
    va_end(args);
    w->length += more > 0 ? (size_t)more : 0;
}

static void put_key(struct writer *w, const char *before, int card)
{
    if (w->config->cards[card].uuid[0])
        put(w, "%s%s", before, w->config->cards[card].uuid);
    else
        put(w, "%s#%d", before, card);
}

static void put_card(struct writer *w, int card, const struct ull__setting *setting)
{
    if (setting->growth != ULL_GROWTH_UNSET) {
        put_key(w, ";", card);
        put(w, ":growth=%s", growth_names[setting->growth]);
    }
    put_key(w, ";", card);
    switch (setting->kind) {
    case ULL_MEMORY_UNSET:
        put(w, ":default=");
        break;
    case ULL_MEMORY_SHARE:
        put(w, ":share=%llu", (unsigned long long)setting->share);
        break;
    case ULL_MEMORY_MIXED:
        put(w, ":mixed=%llu/%llu", (unsigned long long)setting->start,
            (unsigned long long)setting->share);
        break;
    case ULL_MEMORY_LOGICAL:
        for (int i = 0; i < setting->count; i++)
            put(w, "%s%llu/%llu/%s",
                i ? "+" : ":logical=", (unsigned long long)setting->logical[i].memory_limit,
                (unsigned long long)setting->logical[i].start,
                growth_names[setting->logical[i].growth]);
        break;
    }
}

ull_status ull_config_export(struct ull_config *config, const struct ull_environment *environment,
                             char *text, size_t size, struct ull_error *err)
{
    struct ull__surroundings around;
    struct ull__settings settings;
    pthread_mutex_lock(&config->lock);
    ull_status status = ull__surroundings_read(config, environment, &around, err);
    if (status == ULL_OK)
        ull__settings_resolve(config, &around.settings, &settings);
    pthread_mutex_unlock(&config->lock);
    if (status != ULL_OK)
        return status;
    struct writer w = {.config = config, .text = text, .size = size};
    put(&w, "1");
    if (settings.visible_set)
        put(&w, ";visible=");
    for (int i = 0; settings.visible_set && i < settings.visible_count; i++)
        put_key(&w, i ? "," : "", settings.visible[i]);
    if (settings.reserve_set)
        put(&w, ";system=%llu", (unsigned long long)settings.system_reserve);
    for (int i = 0; i < config->count; i++)
        put_card(&w, i, &settings.card[i]);
    if (w.length < size)
        return ULL_OK;
    return ull__fail(err, ULL_E_FULL, "the configuration takes %zu bytes as text, there are %zu",
                     w.length + 1, size);
}

ull_status ull_config_export_to_children(struct ull_config *config, struct ull_error *err)
{
    char text[ULL_CONFIG_TEXT];
    ull_status status = ull_config_export(config, NULL, text, sizeof text, err);
    if (status == ULL_OK && setenv("ULLAGE_CONFIG", text, 1) != 0)
        status = ull__fail(err, ULL_E_NO_MEMORY, "no host memory to set ULLAGE_CONFIG");
    return status;
}
