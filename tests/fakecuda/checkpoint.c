/*
 * checkpoint.c: another process's memory is moved to the host, and back, by the driver itself.
 *
 * A locked process's calls wait before they begin; the lock is given once those that were going on are over,
 * and the work that they queued.
 * A checkpoint takes all that the process holds off the card, contexts included, so that NVML does not list
 * it; bytes stay where they are, in the process's data file. A restore that does not fit fails, and the process
 * stays as it is.
 *
 * Processes with memory that others have open, or that have others' open, are moved out and do not come back, as
 * driver 580.159.04 has it (restore returns 1, all later calls 304), but for versions from 610 on. Processes with
 * managed memory are refused.
 */
#include "fake.h"

#include <stdlib.h>
#include <time.h>

enum { TICK_NS = 500000, DEFAULT_LOCK_MS = 10000, WITH_SHARING = 610 };

static void moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
}

static _Thread_local int depth; /* calls of this thread inside each other */

void fake_freeze_wait(void)
{
    struct fake_process *own = &fake_shared_state()->process[fake_slot()];
    if (depth++ > 0) {
        atomic_fetch_add(&own->inside, 1);
        return;
    }
    for (;;) {
        while (atomic_load(&own->frozen) != CU_PROCESS_STATE_RUNNING)
            moment();
        atomic_fetch_add(&own->inside, 1);
        if (atomic_load(&own->frozen) == CU_PROCESS_STATE_RUNNING)
            return;
        atomic_fetch_sub(&own->inside, 1);
    }
}

void fake_freeze_leave(void)
{
    depth--;
    atomic_fetch_sub(&fake_shared_state()->process[fake_slot()].inside, 1);
}

/* With the shared lock held. */
static int slot_of(struct fake_shared *shared, int pid)
{
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++)
        if (shared->process[i].state == 1 && shared->process[i].pid == pid)
            return i;
    return -1;
}

static bool shares_memory(const struct fake_shared *shared, int slot)
{
    for (int i = 0; i < FAKE_MAX_EXPORTS; i++) {
        const struct fake_export *export = &shared->export[i];
        bool wanted = false;
        for (int j = 0; j < FAKE_MAX_PROCESSES / 64; j++)
            wanted |= export->importers[j] != 0;
        if (export->state &&
            ((export->owner == slot && wanted) || export->importers[slot / 64] >> slot % 64 & 1))
            return true;
    }
    return false;
}

static bool is_busy(struct fake_process *process)
{
    return atomic_load(&process->inside) > 0 || atomic_load(&process->queued) > 0;
}

static CUresult lock_process(struct fake_shared *shared, int slot, unsigned int timeout_ms)
{
    struct fake_process *process = &shared->process[slot];
    uint32_t running = CU_PROCESS_STATE_RUNNING;
    if (!atomic_compare_exchange_strong(&process->frozen, &running, CU_PROCESS_STATE_LOCKED))
        return CUDA_ERROR_ILLEGAL_STATE;
    uint64_t until = fake_now_ns() + (uint64_t)(timeout_ms ? timeout_ms : DEFAULT_LOCK_MS) * 1000000u;
    while (is_busy(process) && fake_now_ns() < until)
        moment();
    if (!is_busy(process))
        return CUDA_SUCCESS;
    atomic_store(&process->frozen, CU_PROCESS_STATE_RUNNING);
    return CUDA_ERROR_NOT_READY;
}

static CUresult checkpoint(struct fake_shared *shared, int slot)
{
    struct fake_process *process = &shared->process[slot];
    if (atomic_load(&process->frozen) != CU_PROCESS_STATE_LOCKED)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (atomic_load(&process->managed) > 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    process->doomed =
        fake_lenient("checkpoint.lost") ||
        (shares_memory(shared, slot) && atoi(fake_config()->driver_name) < WITH_SHARING);
    for (int c = 0; c < (int)shared->count; c++) {
        process->frozen_used[c] = process->used[c];
        process->frozen_hidden[c] = process->hidden[c];
        fake_shared_add(shared, slot, c, -(int64_t)process->used[c], -(int64_t)process->hidden[c]);
    }
    atomic_store(&process->frozen, CU_PROCESS_STATE_CHECKPOINTED);
    return CUDA_SUCCESS;
}

static CUresult restore(struct fake_shared *shared, int slot)
{
    struct fake_process *process = &shared->process[slot];
    if (atomic_load(&process->frozen) == CU_PROCESS_STATE_FAILED)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (atomic_load(&process->frozen) != CU_PROCESS_STATE_CHECKPOINTED)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (process->doomed) {
        atomic_store(&process->frozen, CU_PROCESS_STATE_FAILED);
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (int c = 0; c < (int)shared->count; c++) {
        uint64_t all = process->frozen_used[c] + process->frozen_hidden[c];
        if (shared->card[c].used + all > shared->config[c].total)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (int c = 0; c < (int)shared->count; c++) {
        fake_shared_add(shared, slot, c, (int64_t)process->frozen_used[c],
                        (int64_t)process->frozen_hidden[c]);
        process->frozen_used[c] = process->frozen_hidden[c] = 0;
    }
    atomic_store(&process->frozen, CU_PROCESS_STATE_LOCKED);
    return CUDA_SUCCESS;
}

/* Runs `act` on the process with this pid, under the shared lock. */
static CUresult on_process(int pid, CUresult (*act)(struct fake_shared *shared, int slot))
{
    struct fake_shared *shared = fake_shared_state();
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    int slot = slot_of(shared, pid);
    CUresult result = slot < 0 ? CUDA_ERROR_INVALID_VALUE : act(shared, slot);
    fake_shared_unlock(shared);
    return result;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    FAKE_ENTER(cuCheckpointProcessLock, FAKE_INIT | FAKE_OTHERS);
    struct fake_shared *shared = fake_shared_state();
    fake_shared_lock(shared);
    int slot = slot_of(shared, pid);
    fake_shared_unlock(shared);
    return slot < 0 ? CUDA_ERROR_INVALID_VALUE
                    : lock_process(shared, slot, args ? args->timeoutMs : 0);
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointArgs *args)
{
    FAKE_ENTER(cuCheckpointProcessCheckpoint, FAKE_INIT | FAKE_OTHERS);
    (void)args;
    return on_process(pid, checkpoint);
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointArgs *args)
{
    FAKE_ENTER(cuCheckpointProcessRestore, FAKE_INIT | FAKE_OTHERS);
    (void)args;
    return on_process(pid, restore);
}

static CUresult unlock_process(struct fake_shared *shared, int slot)
{
    uint32_t locked = CU_PROCESS_STATE_LOCKED;
    if (atomic_load(&shared->process[slot].frozen) == CU_PROCESS_STATE_FAILED)
        return CUDA_ERROR_OPERATING_SYSTEM;
    return atomic_compare_exchange_strong(&shared->process[slot].frozen, &locked,
                                          CU_PROCESS_STATE_RUNNING)
               ? CUDA_SUCCESS
               : CUDA_ERROR_ILLEGAL_STATE;
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointArgs *args)
{
    FAKE_ENTER(cuCheckpointProcessUnlock, FAKE_INIT | FAKE_OTHERS);
    (void)args;
    return on_process(pid, unlock_process);
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
    FAKE_ENTER(cuCheckpointProcessGetState, FAKE_INIT | FAKE_OTHERS);
    struct fake_shared *shared = fake_shared_state();
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    int slot = slot_of(shared, pid);
    if (slot >= 0)
        *state = (CUprocessState)atomic_load(&shared->process[slot].frozen);
    fake_shared_unlock(shared);
    return slot < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
