/*
 * config_private.h: settings as they are kept, from whichever source.
 */
#ifndef ULLAGE_CONFIG_PRIVATE_H
#define ULLAGE_CONFIG_PRIVATE_H

#include <pthread.h>

#include "conf.h"
#include "ullage/config.h"

enum { ULL_BILLION = 1000000000 };

/* Shares are counted in billionths, so that text and back changes nothing. */
struct ull__setting {
    enum ull__memory {
        ULL_MEMORY_UNSET,
        ULL_MEMORY_SHARE,
        ULL_MEMORY_LOGICAL,
        ULL_MEMORY_MIXED
    } kind;
    uint64_t share, start; /* share: the limit of SHARE and MIXED */
    int count;
    struct ull_logical_spec logical[ULL_LOGICAL_PER_CARD];
    const char *source;
    bool capped; /* a limit above the card's total is lowered to it instead of refused */
    enum ull_growth growth;
};

/* What one source says. */
struct ull__settings {
    bool visible_set;
    int visible_count;
    int visible[ULL_CARDS];
    bool reserve_set;
    uint64_t system_reserve;
    struct ull__setting card[ULL_CARDS];
};

struct ull_config {
    pthread_mutex_t lock;
    int count;
    struct ull_card cards[ULL_CARDS];
    uint64_t share;      /* for all cards; 0: not set */
    bool growth_default; /* where nobody says */
    struct ull__settings calls;
    bool started;
    char started_by[160];
};

/* The sources below calls, and the override above them. */
struct ull__surroundings {
    struct ull__settings settings;
    enum ull_growth force;
};

/* Pre: config->lock is held. environment NULL: files and the process's own. */
ull_status ull__surroundings_read(const struct ull_config *config,
                                  const struct ull_environment *environment,
                                  struct ull__surroundings *read, struct ull_error *err);
/* Puts calls over what the surroundings say. */
void ull__settings_resolve(const struct ull_config *config, const struct ull__settings *below,
                           struct ull__settings *resolved);
/* Reads the text of ULLAGE_CONFIG over `settings`. */
ull_status ull__config_text_read(const struct ull_config *config, const char *text,
                                 struct ull__settings *settings, struct ull_error *err);
/* Both: config->lock is held. The cards that will be used, in order: */
ull_status ull__visible(const struct ull_config *config, const struct ull_environment *environment,
                        int visible[ULL_CARDS], int *count, struct ull_error *err);
ull_status ull__plan(const struct ull_config *config, const struct ull_environment *environment,
                     struct ull_plan *plan, struct ull_error *err);

#endif
