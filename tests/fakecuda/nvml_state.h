/*
 * nvml_state.h: what the files of the fake management library share.
 */
#ifndef ULLAGE_FAKE_NVML_STATE_H
#define ULLAGE_FAKE_NVML_STATE_H

#include <stdbool.h>

#include "config.h"
#include "nvml.h"

struct nvmlDevice_st {
    int card; /* place in fake_config()->card */
};

/* Is this word in ULLAGE_FAKE_NVML? */
bool fake_nvml_mode(const char *name);

/* Open after nvmlInit. */
struct fake_shared *fake_nvml_shared(void);

/* Checks what all questions have in common: started, a device of ours, somewhere to write. */
nvmlReturn_t fake_nvml_card(nvmlDevice_t device, const void *out,
                            const struct fake_card_config **card);
#define CARD_OR_RETURN(card, device, out)                                                          \
    const struct fake_card_config *card;                                                           \
    nvmlReturn_t card##_result = fake_nvml_card(device, out, &card);                               \
    if (card##_result != NVML_SUCCESS)                                                             \
    return card##_result

/* The number of the GPU instance that a MIG instance belongs to. */
unsigned int fake_nvml_gpu_instance(const struct fake_card_config *card);

#endif
