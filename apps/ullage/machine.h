/*
 * machine.h: the GPUs of this machine as the command line sees them.
 *
 * NVML is asked first. Where it is missing or does not tell memory (integrated GPUs), and where the
 * order in which CUDA counts cards cannot be known from NVML (cards that differ, MIG), a short-lived
 * child process asks the CUDA driver instead. Neither makes a context.
 */
#ifndef ULLAGE_MACHINE_H
#define ULLAGE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "ledger.h"
#include "nvml.h"
#include "ullage/status.h"

enum { MACHINE_DEVICES = 128 };

struct machine_device {
    char uuid[ULL_UUID_TEXT];
    char name[ULL_NAME_TEXT];
    char bus_id[32];
    int physical; /* as nvidia-smi counts; an instance has its card's; -1 unknown */
    bool divided; /* in MIG mode: programs get its instances instead */
    bool integrated;
    uint64_t total_bytes; /* 0 unknown */
};

struct machine {
    char driver[64]; /* its version; "": not known */
    int count;
    struct machine_device devices[MACHINE_DEVICES];
    int cuda_count; /* devices that CUDA counts when CUDA_VISIBLE_DEVICES is not set */
    int cuda_order[MACHINE_DEVICES]; /* their places in `devices` */
    bool has_nvml;
    struct ull__nvml nvml; /* open while has_nvml */
};

/* Finds the devices. Without any it succeeds with a count of 0; why says what was missing. */
void machine_discover(struct machine *machine, struct ull_error *why);
void machine_close(struct machine *machine);

/* --- the child that asks the driver (probe.c) --- */

struct probe_device {
    char uuid[ULL_UUID_TEXT]; /* "GPU-" and the driver's bytes, also for MIG instances */
    char name[ULL_NAME_TEXT];
    uint64_t total_bytes;
    int integrated;
};

/* Devices in CUDA's order with CUDA_VISIBLE_DEVICES not set, at most `capacity`; -1 if it fails. */
int probe_cuda(struct probe_device *devices, int capacity);

#endif
