/*
 * config.h: which devices a program uses and how much of each: TensorFlow's controls of device memory
 * without TensorFlow. docs/tensorflow.md maps its names to these, with the test for each.
 *
 *     physical cards  --settings, environment-->  plan of logical devices  --start-->  pools
 *
 * The plan is a function of what the cards are, what was set, and the environment: nothing is opened for
 * it. Then ull_config_start opens the devices and makes a pool for each logical device; after that a
 * change is refused with ULL_E_STARTED, which names who started (TensorFlow: RuntimeError; as there, a
 * call that changes nothing is fine).
 *
 * Order, the later wins: the configuration files, ULLAGE_MEMORY and ULLAGE_GROWTH, ULLAGE_CONFIG (what a
 * parent exported), calls, and at last TF_FORCE_GPU_ALLOW_GROWTH, which TensorFlow also lets win over
 * the program.
 *
 * Sizes are bytes. Shares are of a card's total, above 0 up to 1, kept to a billionth. Cards are named
 * by their place in the list given to ull_config_create. Thread safe.
 */
#ifndef ULLAGE_CONFIG_H
#define ULLAGE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/policy.h"
#include "ullage/pool.h"
#include "ullage/status.h"

enum { ULL_CARDS = 16, ULL_LOGICAL_PER_CARD = 8, ULL_LOGICAL = ULL_CARDS * ULL_LOGICAL_PER_CARD };

/* What a card is. Of what the process sees: under a budget, total_bytes is the budget. */
struct ull_card {
    char uuid[48]; /* "" if it has none */
    char name[64];
    uint64_t total_bytes, free_bytes;
    int major, minor; /* compute capability */
};

enum ull_growth { ULL_GROWTH_UNSET, ULL_GROWTH_OFF, ULL_GROWTH_ON };

/* One of several logical devices of a card. */
struct ull_logical_spec {
    uint64_t memory_limit;  /* required, as in TensorFlow */
    uint64_t start;         /* taken at the start; above 0 and below the limit: grows from there */
    enum ull_growth growth; /* unset: as set for the card */
};

struct ull_config;

/* count cards, 0 to ULL_CARDS, are copied. ULL_E_INVALID, ULL_E_NO_MEMORY. */
ull_status ull_config_create(const struct ull_card *cards, int count, struct ull_config **config,
                             struct ull_error *err);
/*
 * The cards that the CUDA driver shows to this process, at most ULL_CARDS; none is fine. No context is made,
 * so free_bytes is the total until the start. ULL_E_NO_DEVICE: no driver. ULL_E_DRIVER.
 */
ull_status ull_config_create_cuda(struct ull_config **config, struct ull_error *err);
/* NULL is fine. What was started from it must be stopped first. */
void ull_config_destroy(struct ull_config *config);
/* All cards (TensorFlow: list_physical_devices). */
int ull_config_cards(const struct ull_config *config, const struct ull_card **cards);

/*
 * All of these: ULL_E_STARTED after the start unless nothing would change; ULL_E_INVALID for a card that
 * is not there or a value out of range, and where TensorFlow raises ValueError.
 */

/* The cards to use, in the order of the logical devices; none hides all. Not one twice. */
ull_status ull_config_set_visible(struct ull_config *config, const int *cards, int count,
                                  struct ull_error *err);
/*
 * Pages are taken when they are needed instead of all at the start. ULL_E_INVALID for a card with logical
 * devices: set it there. At the start it must be the same for all visible cards, unless any of them
 * has logical devices (context.py, _compute_gpu_options).
 */
ull_status ull_config_set_growth(struct ull_config *config, int card, bool growth,
                                 struct ull_error *err);
/* ULL_GROWTH_UNSET if it was not set for the card. */
enum ull_growth ull_config_growth(struct ull_config *config, int card);
/*
 * Cuts a card into logical devices; count 0 takes that back. ULL_E_INVALID: a limit of 0, more than
 * ULL_LOGICAL_PER_CARD, a start above the limit, a share was set.
 */
ull_status ull_config_set_logical(struct ull_config *config, int card,
                                  const struct ull_logical_spec *specs, int count,
                                  struct ull_error *err);
/* The number of logical devices that were set for the card, 0 for none; specs may be NULL. */
int ull_config_logical(struct ull_config *config, int card,
                       struct ull_logical_spec specs[ULL_LOGICAL_PER_CARD]);
/* Every visible card's limit as a share of its total, whatever is free. 0 takes it back. */
ull_status ull_config_set_share(struct ull_config *config, double share, struct ull_error *err);
/* A share taken at the start, then growth up to another one: 0.3, then up to 0.8. */
ull_status ull_config_set_mixed(struct ull_config *config, int card, double start, double most,
                                struct ull_error *err);
/*
 * Growth of cards for which nothing above says on or off: neither calls nor the environment. Off until this
 * turns it on, as in TensorFlow; a framework that has always grown keeps its habit with it.
 */
ull_status ull_config_set_growth_default(struct ull_config *config, bool growth,
                                         struct ull_error *err);
/* What the default leaves to others on every card, instead of ull_system_reserve. Not with a share. */
ull_status ull_config_set_system_reserve(struct ull_config *config, uint64_t bytes,
                                         struct ull_error *err);

/*
 * What TensorFlow leaves free by default for the context and libraries: 225 MiB below 2 GiB available,
 * else by the major compute capability 500 MiB (to 6), 1050 (7), 1536 (8), 1800 (from 9).
 * Source: MinSystemMemory in tensorflow/core/common_runtime/gpu/gpu_device.cc, optimized builds.
 */
uint64_t ull_system_reserve(uint64_t free_bytes, int major);

/* --- the plan --------------------------------------------------------------------------------------------- */

/*
 * Values of variables; NULL is not set. In a job of `ullage run` (ULLAGE_JOB is set) the card has the size
 * of the budget, and the process's own ULLAGE_MEMORY is not applied a second time.
 */
struct ull_environment {
    const char *memory;       /* ULLAGE_MEMORY: SIZE, N% or CARD=SIZE,... as `ullage run -m` */
    const char *growth;       /* ULLAGE_GROWTH: true or false */
    const char *config;       /* ULLAGE_CONFIG: from ull_config_export */
    const char *force_growth; /* TF_FORCE_GPU_ALLOW_GROWTH: exactly "true" or "false" */
};

struct ull_plan_device {
    int card;
    uint64_t limit; /* most that its pool may hold */
    uint64_t start; /* taken at the start, and kept */
    bool growth;
    const char *source; /* of the limit, for reports: "default", "share", "logical devices", ... */
    bool set;           /* the limit, or what is left to others, was set; else it is the default */
};

struct ull_plan {
    int count;
    struct ull_plan_device device[ULL_LOGICAL]; /* logical device i */
};

/*
 * environment NULL: the process's own, and the configuration files. ULL_E_INVALID names the setting that
 * cannot be, also a variable with a bad value (TensorFlow logs that and goes on as if it were not set);
 * ULL_E_NO_DEVICE: a variable names a card that is not there; ULL_E_NO_MEMORY: less is free than would
 * be taken at the start.
 */
ull_status ull_config_plan(struct ull_config *config, const struct ull_environment *environment,
                           struct ull_plan *plan, struct ull_error *err);

/*
 * The plan of one card, of which free_bytes are free now, whatever the others are: for a program that opens
 * its cards itself, one by one when it needs them. As ull_config_plan; ULL_E_NO_DEVICE: the card is not
 * there, or not visible.
 */
ull_status ull_config_plan_card(struct ull_config *config,
                                const struct ull_environment *environment, int card,
                                uint64_t free_bytes, struct ull_plan *plan, struct ull_error *err);
/* The pool of a planned device: the defaults, with what the plan says. */
void ull_plan_pool_options(const struct ull_plan_device *plan, struct ull_pool_options *options);

/*
 * The settings in force as text for ULLAGE_CONFIG, so that children have the same: cards are named by
 * UUID, since a child may see them in another order. ULL_E_FULL if size bytes do not suffice.
 */
enum { ULL_CONFIG_TEXT = 8192 };
ull_status ull_config_export(struct ull_config *config, const struct ull_environment *environment,
                             char *text, size_t size, struct ull_error *err);
/* The same into the environment of this process. Not while other threads read the environment. */
ull_status ull_config_export_to_children(struct ull_config *config, struct ull_error *err);

/* --- the start -------------------------------------------------------------------------------------------- */

/* How a card becomes a device. */
struct ull_opener {
    void *context;
    ull_status (*open)(void *context, int card, const struct ull_card *facts,
                       struct ull__device **device, struct ull_error *err);
    void (*close)(void *context, struct ull__device *device);
};

/* For ull_config_create_cuda. */
struct ull_opener ull_opener_cuda(void);

struct ull_devices;

#define ULL_HERE_TEXT(line) #line
#define ULL_HERE_LINE(line) ULL_HERE_TEXT(line)
/* Where a call is, for messages: "train.c:42". */
#define ULL_HERE __FILE__ ":" ULL_HERE_LINE(__LINE__)

/*
 * Opens the visible cards, reads what is free on them, plans, and makes the pools of the plan. by says who
 * starts (ULL_HERE, or NULL). On failure nothing is open and nothing has started. ULL_E_STARTED: it has been.
 */
ull_status ull_config_start(struct ull_config *config, const struct ull_environment *environment,
                            const struct ull_opener *opener, const char *by,
                            struct ull_devices **devices, struct ull_error *err);
/* Ends all pools and closes the cards; the configuration can be changed again. NULL is fine. */
void ull_devices_stop(struct ull_devices *devices);

int ull_devices_count(const struct ull_devices *devices);
/* What logical device i is, as planned. These are NULL if it is not there, and live until stop. */
const struct ull_plan_device *ull_devices_plan(const struct ull_devices *devices, int i);
struct ull_pool *ull_devices_pool(const struct ull_devices *devices, int i);
/* What a program allocates from: the pool behind a guard adaptor and a retry adaptor. */
struct ull_alloc *ull_devices_alloc(const struct ull_devices *devices, int i);
/* The guard adaptor, for ull_guard_begin. Its first fallback trims the card's other pools. */
struct ull_alloc *ull_devices_guarded(const struct ull_devices *devices, int i);

/*
 * TensorFlow: get_memory_info, {'current', 'peak'}: bytes handed out, not pages held; what open guards set
 * aside is handed out too. ULL_E_NO_DEVICE.
 */
struct ull_memory_info {
    uint64_t current, peak;
};
ull_status ull_devices_memory_info(const struct ull_devices *devices, int i,
                                   struct ull_memory_info *info);
/* TensorFlow: reset_memory_stats. The peak begins anew from what is in use now. */
ull_status ull_devices_reset_memory_stats(const struct ull_devices *devices, int i);

#endif
