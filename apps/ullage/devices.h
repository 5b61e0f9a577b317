/*
 * devices.h: which devices a job sees and how much it may hold on each.
 *
 * Pure functions of what machine.h found and of texts, so that tests can make up machines. A selection
 * lists places in machine->devices in logical order.
 */
#ifndef ULLAGE_DEVICES_H
#define ULLAGE_DEVICES_H

#include "machine.h"
#include "size.h"

struct selection {
    int count;
    int place[MACHINE_DEVICES];
};

/*
 * What the CUDA driver makes of CUDA_VISIBLE_DEVICES; NULL: not set. Never an error: the driver stops
 * at the first entry that it cannot take, and refuses all when a device is named twice. As driver
 * 580.159 was seen to do: the first entry decides between indexes and UUIDs; an index is read like atoi
 * does (so "1x" is 1); of a UUID any beginning after "GPU-" or "MIG-" will do if only one device has it.
 */
void devices_visible(const struct machine *machine, const char *text, struct selection *visible);

/*
 * Option -g: comma-separated indexes as nvidia-smi counts, UUIDs or their beginnings, or "local": the
 * visible device with the local rank from OMPI_COMM_WORLD_LOCAL_RANK, LOCAL_RANK, SLURM_LOCALID or
 * HOROVOD_LOCAL_RANK (the first that is set; `get` looks up), counted around when there are more ranks
 * than devices. ULL_E_NO_DEVICE names what is not there, ULL_E_INVALID what cannot be read.
 */
ull_status devices_select(const struct machine *machine, const char *text,
                          const struct selection *visible, char *(*get)(const char *),
                          struct selection *selected, struct ull_error *err);

/* The value of CUDA_VISIBLE_DEVICES for a selection: its UUIDs. Returns buffer. */
char *devices_uuid_list(const struct machine *machine, const struct selection *selection,
                        char *buffer, size_t size);

/* --- budgets --- */

struct budget_rule {
    char device[ULL_UUID_TEXT]; /* logical index or UUID as written; "" for every device */
    struct ull_size size;
};

struct budget {
    int count; /* 0: no budget was asked for */
    struct budget_rule rules[MACHINE_DEVICES];
};

/* "4GiB", "40%", "0=4GiB,1=40%", or both: "40%,1=8GiB". ULL_E_INVALID. */
ull_status budget_parse(const char *text, struct budget *budget, struct ull_error *err);

/*
 * Fills devices[] of a job: the visible ones in logical order, then the others of the machine, which
 * the job must not use freely either. Rules that name a device speak of visible ones; a rule without one
 * holds for all; a device that no rule speaks of gets all that the card has. Budgets are capped at that;
 * *capped is set to the first device where this happened, else -1. ULL_E_NO_DEVICE.
 */
ull_status budget_apply(const struct budget *budget, const struct machine *machine,
                        const struct selection *visible, struct ull__job_spec *job, int *capped,
                        struct ull_error *err);

/* Is there a rule for this device? */
bool budget_speaks_of(const struct budget *budget, const struct ull__device_spec *device);

/* "logical 0 = physical 2 (GPU-...)". */
enum { DEVICE_MAP_TEXT = 128 };
const char *device_map_text(const struct ull__device_spec *device, char buffer[DEVICE_MAP_TEXT]);

#endif
