/*
 * gpus.h: what the driver says of the cards right now, and of the processes on them.
 *
 * For the commands that look on: `top` and `query`. Cards are found once and asked again each round;
 * nothing here makes a context. What the driver does not tell is ULL_NVML_UNKNOWN (bytes) or -1
 * (percent), never 0. One thread at a time.
 */
#ifndef ULLAGE_GPUS_H
#define ULLAGE_GPUS_H

#include "nvml.h"
#include "procfs.h"
#include "ullage/status.h"

enum { GPU_COMMAND_TEXT = 256 };

struct gpu_process {
    uint32_t pid;
    uint64_t used_bytes;
    int gpu_instance, compute_instance; /* -1 outside MIG mode */
    enum proc_place place;
    char command[GPU_COMMAND_TEXT]; /* any bytes; "" if it is not known */
};

/* A card, or a MIG instance of one. A card comes before its instances. */
struct gpu {
    struct ull__nvml_device device; /* its byte counts are of the last update */
    int card;                       /* place of the card that an instance is part of, or -1 */
    /*
     * Place of the first instance that shows the same memory, which is itself in most cases. A sum over
     * instances may take only those with memory_of equal to their own place.
     */
    int memory_of;
    uint64_t offered_bytes; /* to programs: device.total_bytes, or what the CUDA driver says */
    int busy_percent, memory_busy_percent;
    struct gpu_process *processes; /* of a card in MIG mode those of its instances */
    int process_count;
    bool processes_known;
};

struct gpus {
    struct ull__nvml nvml;
    struct gpu *gpu;
    int count;
    int cards; /* without instances: what nvidia-smi counts */
};

/*
 * Finds the cards. ULL_E_NOT_FOUND (no library), ULL_E_DRIVER (it refused, or the driver is not
 * loaded), ULL_E_NO_MEMORY. No card at all is a count of 0.
 */
ull_status gpus_open(struct gpus *gpus, struct ull_error *err);
/*
 * The same as a program in this place sees them: inside a job of `ullage run` the stand-in answers,
 * with the budget as the card, as it does to nvidia-smi.
 */
ull_status gpus_open_as_program(struct gpus *gpus, struct ull_error *err);
void gpus_close(struct gpus *gpus);

/*
 * Where there is no NVML: the cards that the CUDA driver names, with what it offers to programs, asked
 * for by a short-lived child that makes no context. False if it knows none.
 */
bool gpus_open_driver(struct gpus *gpus);
/* Asks the CUDA driver for what NVML does not tell: the memory of a card that shares the host's. */
void gpus_complete(struct gpus *gpus);

void gpus_update_memory(struct gpus *gpus);
void gpus_update_busy(struct gpus *gpus);
/* With commands, which cost a look into /proc for each process. */
void gpus_update_processes(struct gpus *gpus);
/* Without that: all places are PROC_UNSEEN and commands empty until gpus_describe is called. */
void gpus_list_processes(struct gpus *gpus);
void gpus_describe(struct gpu_process *process);

#endif
