/* pools.h: the pools of this process, one a device, and what they are set to. */
#ifndef ULLAGE_TORCH_POOLS_H
#define ULLAGE_TORCH_POOLS_H

#include <atomic>
#include <cstdint>
#include <string>

/* In C a function and a struct may share a name without one hiding the other. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "ullage/config.h"
#include "ullage/policy.h"
#include "ullage/pool.h"

#include "device.h"
}
#pragma GCC diagnostic pop

namespace ullage
{

constexpr int MAX_DEVICES = ULL_CARDS;

struct Pool {
    int device = -1;
    ull__device *seam = nullptr;
    ull_pool *pool = nullptr;
    /* The pool, guards in front of it, and in front of those what is tried on shortage. */
    ull_alloc *base = nullptr, *guarded = nullptr, *alloc = nullptr;
    bool host = false; /* memory of this machine, without a driver */
};

/* The pool of a device, made at the first call. Throws std::runtime_error. */
Pool &open_pool(int device);
/* NULL if it was not made yet. */
Pool *find_pool(int device);
template <typename Visit> void each_pool(Visit visit)
{
    for (int i = 0; i < MAX_DEVICES; i++) {
        if (Pool *pool = find_pool(i))
            visit(*pool);
    }
}

/* Keeps the text of a refusal for the report, and returns it whole, as PyTorch words it. */
std::string refused(const Pool &pool, uint64_t bytes, const ull_report &report);

} // namespace ullage

#endif
