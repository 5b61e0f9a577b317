/*
 * async_free.c: the end of blocks that streams order, and of those that a stream's order ends though they are
 * none: see async.h.
 *
 * Freed on a stream, a block of a pool of ours is that stream's again at once. Three kinds of frees cannot be told to
 * the pool at once: on the default stream of a thread or a stream of another context, which the pool knows nothing
 * of; of a block of cuMemAlloc, which lies in no pool. For these an event is put behind the stream's work, and
 * the block is freed when somebody finds that it has passed: at an allocation that finds nothing free, at a
 * synchronization, at the next such free, and before memory is moved. Until then it stays charged.
 */
#include <stdlib.h>
#include <string.h>

#include "async.h"
#include "move.h"

struct due {
    struct ull__block block;
    struct ull__moment moment;
    CUevent event;
};

static struct {
    pthread_mutex_t lock;
    struct due *due; /* oldest first */
    size_t count, capacity;
} books = {.lock = PTHREAD_MUTEX_INITIALIZER};

void ull__async_free_forget(void)
{
    memset(&books, 0, sizeof books);
    pthread_mutex_init(&books.lock, NULL);
}

/* --- later ---------------------------------------------------------------------------------------------------- */

static bool keep(const struct due *due)
{
    bool kept = true;
    pthread_mutex_lock(&books.lock);
    if (books.count == books.capacity) {
        size_t capacity = books.capacity ? books.capacity * 2 : 64;
        struct due *grown = realloc(books.due, capacity * sizeof *grown);
        kept = grown != NULL;
        if (grown) {
            books.due = grown;
            books.capacity = capacity;
        }
    }
    if (kept)
        books.due[books.count++] = *due;
    pthread_mutex_unlock(&books.lock);
    return kept;
}

/* Takes the oldest; false if there is none. With a context: the oldest of its blocks. */
static bool take(CUcontext context, struct due *due)
{
    pthread_mutex_lock(&books.lock);
    size_t at = 0;
    while (at < books.count && context && books.due[at].block.context != context)
        at++;
    bool found = at < books.count;
    if (found) {
        *due = books.due[at];
        memmove(&books.due[at], &books.due[at + 1], (books.count - at - 1) * sizeof *due);
        books.count--;
    }
    pthread_mutex_unlock(&books.lock);
    return found;
}

bool ull__async_frees_wait(void)
{
    return __atomic_load_n(&books.count, __ATOMIC_RELAXED) > 0;
}

bool ull__async_free_waits(CUdeviceptr dptr)
{
    bool waits = false;
    if (likely(!ull__async_frees_wait()))
        return false;
    pthread_mutex_lock(&books.lock);
    for (size_t i = 0; i < books.count && !waits; i++)
        waits = books.due[i].block.address == dptr;
    pthread_mutex_unlock(&books.lock);
    return waits;
}

/* Its memory is free: by whom it came from. */
static void end(struct due *due)
{
    struct ull__block *block = &due->block;
    ull__turn(ULL_TURN_BEGIN);
    if (block->kind == BLOCK_ORDERED)
        ull_pool_free(ull__async_pool(block->owner), (void *)(uintptr_t)block->address, NULL);
    else
        ull__backing_drop(block->address);
    ull__block_ended(block, &due->moment);
    ull__turn(ULL_TURN_END);
}

/* An event that cannot be asked is of a context that is broken: nothing runs there any more. */
static bool passed(CUevent event)
{
    const union ull__cuda *real = ull__driver;
    CUresult result = CUDA_ERROR_NOT_READY;
    ULL_RELAXED(real, result = real->cuEventQuery(event));
    return result != CUDA_ERROR_NOT_READY;
}

static void drop_event(CUevent event)
{
    const union ull__cuda *real = ull__driver;
    ULL_RELAXED(real, real->cuEventDestroy_v2(event));
}

void ull__async_free_due(void)
{
    struct due due;
    size_t count = __atomic_load_n(&books.count, __ATOMIC_RELAXED);
    for (; count > 0 && take(NULL, &due); count--) {
        if (passed(due.event)) {
            drop_event(due.event);
            end(&due);
        } else {
            keep(&due); /* there was room for it before */
        }
    }
}

/* Work is over and events are gone with the context. The pool, if it is of one, ends as a whole. */
void ull__async_free_context_ended(CUcontext context)
{
    struct due due;
    while (take(context, &due)) {
        if (due.block.kind != BLOCK_ORDERED)
            ull__backing_drop(due.block.address);
        ull__block_ended(&due.block, &due.moment);
    }
}

/* An event behind the work that a stream has now. */
static CUresult put_event(CUstream stream, CUcontext context, CUevent *event)
{
    const union ull__cuda *real = ull__driver;
    CUcontext current = NULL, popped;
    CUresult result = CUDA_SUCCESS;
    real->cuCtxGetCurrent(&current);
    bool pushed = current != context;
    if (pushed)
        result = real->cuCtxPushCurrent_v2(context);
    if (result != CUDA_SUCCESS)
        return result;
    ULL_RELAXED(real, {
        result = real->cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
        if (result == CUDA_SUCCESS && (result = real->cuEventRecord(*event, stream)) != CUDA_SUCCESS)
            real->cuEventDestroy_v2(*event);
    });
    if (pushed)
        real->cuCtxPopCurrent_v2(&popped);
    return result;
}

static CUresult free_later(CUdeviceptr dptr, CUstream stream, bool per_thread)
{
    struct due due = {.moment = {ull__moment_now(), stream}};
    CUcontext context = ull__context_of_stream(stream);
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (ull__is_per_thread(stream, per_thread))
        stream = CU_STREAM_PER_THREAD;
    ull__async_free_due();
    CUresult result = put_event(stream, context, &due.event);
    if (result != CUDA_SUCCESS)
        return result;
    if (!ull__block_take(dptr, &due.block)) {
        drop_event(due.event);
        return CUDA_ERROR_INVALID_VALUE; /* another thread was first */
    }
    if (keep(&due))
        return CUDA_SUCCESS;
    drop_event(due.event);
    ull__block_put_back(&due.block);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- at once -------------------------------------------------------------------------------------------------- */

static CUresult free_ordered(CUdeviceptr dptr, CUstream stream, const struct ull__moment *moment)
{
    struct ull__block block;
    if (!ull__block_take(dptr, &block))
        return CUDA_ERROR_INVALID_VALUE;
    ull_status status = ull_pool_free(ull__async_pool(block.owner), (void *)(uintptr_t)dptr, stream);
    if (status == ULL_OK)
        ull__block_ended(&block, moment);
    else
        ull__block_put_back(&block);
    return status == ULL_OK          ? CUDA_SUCCESS
           : status == ULL_E_INVALID ? CUDA_ERROR_INVALID_VALUE
                                     : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Did cuMemAlloc give it out, from memory of ours? */
static bool is_backed(const struct ull__block *block)
{
    CUdeviceptr start;
    uint64_t bytes;
    return (block->kind == BLOCK_LINEAR || block->kind == BLOCK_SPILLED) &&
           ull__backing_find(block->address, &start, &bytes, NULL) && start == block->address;
}

bool ull__async_free(CUdeviceptr dptr, CUstream stream, bool per_thread, CUresult *result)
{
    struct ull__block block;
    struct ull__moment moment = {ull__moment_now(), stream};
    if (!ull__block_find(dptr, &block) || ull__capturing(stream, per_thread, false))
        return false;
    if (block.kind == BLOCK_ORDERED) {
        struct ull__async *async = block.owner;
        bool known = !ull__is_per_thread(stream, per_thread) &&
                     ull__context_of_stream(stream) == async->context;
        *result = known ? free_ordered(dptr, stream == CU_STREAM_LEGACY ? NULL : stream, &moment)
                        : free_later(dptr, stream, per_thread);
        return true;
    }
    if (!is_backed(&block))
        return false;
    *result = free_later(dptr, stream, per_thread);
    return true;
}

/* All work of its context is over: for the driver too, any call of cuMemFree waits for that. */
bool ull__async_free_now(CUdeviceptr dptr, CUresult *result)
{
    struct ull__block block;
    struct ull__moment moment = {ull__moment_now(), NULL};
    const union ull__cuda *real = ull__driver;
    CUcontext current = NULL, popped;
    if (!ull__block_find(dptr, &block) || block.kind != BLOCK_ORDERED)
        return false;
    real->cuCtxGetCurrent(&current);
    bool pushed = current != block.context;
    *result = pushed ? real->cuCtxPushCurrent_v2(block.context) : CUDA_SUCCESS;
    if (*result == CUDA_SUCCESS)
        *result = real->cuCtxSynchronize();
    if (*result == CUDA_SUCCESS)
        *result = free_ordered(dptr, NULL, &moment);
    if (pushed)
        real->cuCtxPopCurrent_v2(&popped);
    return true;
}
