/*
 * ullage_torch.h: what libullage-torch.so exports besides the pool itself.
 *
 * The first two are for torch.cuda.memory.CUDAPluggableAllocator, the callbacks for the setters of the
 * object behind it, the rest is for the Python module and for programs in C. A pool is made for each
 * device when it is first used, in the primary context of the process, and lives as long as the process.
 * All functions are thread safe.
 */
#ifndef ULLAGE_TORCH_H
#define ULLAGE_TORCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
#include <functional>
#include <utility>
extern "C" {
#endif

struct ull_stats;

#pragma GCC visibility push(default)

/*
 * Memory of a device for work on a stream (a cudaStream_t). 0 bytes: NULL. A refusal throws
 * c10::OutOfMemoryError where PyTorch is loaded, else a std::bad_alloc that says why; what else goes wrong
 * throws std::runtime_error.
 */
void *ullage_torch_alloc(ssize_t size, int device, void *stream);
/* Throws nothing: it is called by destructors. What the pool does not know is named on standard error. */
void ullage_torch_free(void *ptr, ssize_t size, int device, void *stream);

/*
 * As ullage_torch_alloc for callers that an exception may not pass (C, Python's ctypes): returns an
 * ull_status, and says in message (may be NULL) why. *ptr is untouched on failure.
 */
int ullage_torch_try_alloc(ssize_t size, int device, void *stream, void **ptr, char *message,
                           size_t message_size);

/* Tensor.record_stream: another stream uses the memory too. */
void ullage_torch_record_stream(void *ptr, void *stream);
/* torch.cuda.empty_cache: gives the free pages back. */
void ullage_torch_empty_cache(void);
/* torch.cuda.set_per_process_memory_fraction: the limit as a share of the device. */
void ullage_torch_memory_fraction(double fraction, int device);

/*
 * Sets what pools will be like. memory: "4GiB", "40%" of the device. growth 0: all of it is taken when a
 * device is first used; 1: pages are taken when they are needed. NULL and -1: as the environment says (the
 * configuration files, ULLAGE_MEMORY, ULLAGE_GROWTH, ULLAGE_CONFIG; see ullage/config.h), and where that says
 * nothing, growing up to all that the device has; without growth all that is free but ull_system_reserve.
 * TF_FORCE_GPU_ALLOW_GROWTH wins over growth. Logical devices of a card count together.
 *
 * wait_ns: how long a request that is short waits for a free by another thread, if one could free.
 * device: NULL or "cuda"; "host:SIZE" is memory of this machine, for tests. Returns an ull_status; message
 * (may be NULL) says what is wrong, also with the environment. ULL_E_STARTED once a pool exists.
 */
int ullage_torch_configure(const char *memory, int growth, const char *device, uint64_t wait_ns,
                           char *message, size_t message_size);
/*
 * Writes the settings in force, calls and environment together, as text for ULLAGE_CONFIG, so that children
 * that are spawned have the same. Asks the driver for its cards. Returns an ull_status; message as above.
 */
int ullage_torch_export(char *text, size_t size, char *message, size_t message_size);

/*
 * What can give memory back: called in the order of registration when a request is short on any device,
 * without locks, before the request is refused; returns the bytes given back, 0 for none. As
 * ull_retry_add_callback. remove waits until no other thread is in it. ULL_E_FULL, ULL_E_INVALID for one that
 * is there already, ULL_E_NOT_FOUND.
 */
typedef uint64_t (*ullage_torch_relief)(void *context, uint64_t wanted);
int ullage_torch_add_callback(const char *name, ullage_torch_relief callback, void *context);
int ullage_torch_remove_callback(ullage_torch_relief callback, void *context);

/* Says that the callbacks are registered; without them memory of captured graphs could not be kept
 * apart, and a request in a capture throws. */
void ullage_torch_callbacks_registered(void);

/* Makes the pool of a device if it is not there. Returns an ull_status; message as above. */
int ullage_torch_open(int device, char *message, size_t message_size);
/* Is there a pool on the device? */
int ullage_torch_is_open(int device);

/* As the functions of ullage/pool.h, on the pool of a device; ULL_E_NOT_FOUND if there is none. */
int ullage_torch_stats(int device, struct ull_stats *stats);
int ullage_torch_stats_reset(int device);
int ullage_torch_set_limit(int device, uint64_t bytes);
int ullage_torch_trim(int device, uint64_t bytes, uint64_t *returned);
/*
 * Sets `bytes` aside (at least 1) for the requests of this process until the guard ends, as ull_guard_begin
 * with all_threads: PyTorch runs backward passes in threads of its own. max_request: refuses larger
 * single requests meanwhile; 0: none. On shortage the callbacks run; the caller has fallbacks of its own and
 * tries again. To be ended by
 * the thread that began it, the innermost first.
 */
int ullage_torch_guard_begin(int device, uint64_t bytes, uint64_t max_request, void *stream,
                             void **guard, char *message, size_t message_size);
int ullage_torch_guard_end(void *guard);
/* What the device of an existing pool has free for anybody, and in all. Returns an ull_status. */
int ullage_torch_memory(int device, uint64_t *free_bytes, uint64_t *total_bytes);
/*
 * Why the last request was refused, if one was, and who holds what now. Writes at most size bytes with
 * the final 0 and returns the length of the whole text.
 */
size_t ullage_torch_report(char *text, size_t size);

#ifdef __cplusplus
}

/* torch.cuda.graph, MemPool: requests of the streams that the filter accepts are the graph's. */
using ullage_torch_pool_id = std::pair<unsigned long long, unsigned long long>;
extern "C" {
/* PyTorch calls these through pointers of exactly this type; no C program can. */
void ullage_torch_begin_pool(int device, ullage_torch_pool_id id, std::function<bool(void *)> filter);
void ullage_torch_end_pool(int device, ullage_torch_pool_id id);
void ullage_torch_release_pool(int device, ullage_torch_pool_id id);
}
#endif

#pragma GCC visibility pop

#endif
