/* settings.h: what pools will be like, from the call and from what a parent or a user set for the process. */
#ifndef ULLAGE_TORCH_SETTINGS_H
#define ULLAGE_TORCH_SETTINGS_H

#include <cstdint>
#include <string>

#include "pools.h"

extern "C" {
#include "size.h"
}

namespace ullage
{

struct Settings {
    ull_size memory = {0, 0}; /* both 0: not said */
    ull_growth growth = ULL_GROWTH_UNSET;
    uint64_t wait_ns = 0;    /* for a free by another thread, before a refusal */
    uint64_t host_bytes = 0; /* of each device of this machine's memory; 0: the driver's devices */
};

/*
 * Of what ullage_torch_configure is told. Throws std::runtime_error, also for a variable of the environment
 * or a configuration file that cannot be read: as soon as the program says that it wants a pool.
 */
Settings read_settings(const char *memory, int growth, const char *device, uint64_t wait_ns);

/* What the pool of an opened device will be. Throws std::runtime_error. */
ull_plan_device plan_device(const Settings &settings, int device, ull__device *seam);

/* The settings in force as text for ULLAGE_CONFIG. Throws std::runtime_error. */
std::string export_settings(const Settings &settings);

} // namespace ullage

#endif
