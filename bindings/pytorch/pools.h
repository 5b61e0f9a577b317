/* pools.h: the pools of this process, one a device, and what they are set to. */
#ifndef ULLAGE_TORCH_POOLS_H
#define ULLAGE_TORCH_POOLS_H

#include <atomic>
#include <cstdint>
#include <string>

extern "C" {
#include "ullage/pool.h"

#include "device.h"
}

namespace ullage
{

constexpr int MAX_DEVICES = 64;

struct Pool {
    int device = -1;
    ull__device *seam = nullptr;
    ull_pool *pool = nullptr;
    bool host = false;                    /* memory of this machine, without a driver */
    std::atomic<uint64_t> max_request{0}; /* largest single request; 0: any */
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

/* Keep the text of a refusal for the report, and return it whole. */
std::string refused(const Pool &pool, const ull_refusal &refusal);
std::string refused_by_guard(const Pool &pool, uint64_t bytes, uint64_t most);

} // namespace ullage

#endif
