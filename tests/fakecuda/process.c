/*
 * process.c: this process's place among the users of the cards, and what it takes of them.
 *
 * A thread that does nothing else holds the robust mutex of the process's slot: whatever ends the
 * process or replaces its program (exit, signal, exec) ends that thread, and a raw fork does not
 * copy it. The bytes of all memory lie in one sparse file per process, made on first use.
 */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct fake_shared *shared;
static _Atomic pid_t attached_pid;
static int slot = -1;
static int data_file = -1;
static bool closed; /* exit has begun */
static pthread_mutex_t attach_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t attached = PTHREAD_COND_INITIALIZER;
static int attach_state; /* 0 asked for, 1 done, -1 no slot free */

bool fake_alive(void)
{
    return attached_pid == getpid();
}

struct fake_shared *fake_shared_state(void)
{
    return shared;
}

int fake_slot(void)
{
    return slot;
}

/* With the shared lock held. */
static int find_tag(void)
{
    const char *name = getenv("ULLAGE_FAKE_TAG");
    if (!name || !*name)
        return -1;
    for (int i = 0; i < FAKE_MAX_TAGS; i++) {
        if (shared->tag_name[i][0] == '\0')
            snprintf(shared->tag_name[i], FAKE_TAG_LENGTH, "%s", name);
        if (strncmp(shared->tag_name[i], name, FAKE_TAG_LENGTH - 1) == 0)
            return i;
    }
    return -1;
}

/* With the shared lock held, by the thread that will hold the slot. */
static int take_slot(void)
{
    for (int i = 0; i < FAKE_MAX_PROCESSES; i++) {
        struct fake_process *process = &shared->process[i];
        if (process->state != 0)
            continue;
        int r = pthread_mutex_trylock(&process->life);
        if (r == EOWNERDEAD)
            r = pthread_mutex_consistent(&process->life);
        if (r != 0)
            continue; /* of a process that is still exiting */
        process->generation++;
        process->pid = getpid();
        process->tag = find_tag();
        process->beat_ns = fake_now_ns();
        process->state = 1;
        return i;
    }
    return -1;
}

static void *hold_slot(void *unused)
{
    (void)unused;
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    int mine = take_slot();
    fake_shared_unlock(shared);
    pthread_mutex_lock(&attach_mutex);
    slot = mine;
    attach_state = mine >= 0 ? 1 : -1;
    pthread_cond_signal(&attached);
    pthread_mutex_unlock(&attach_mutex);
    while (mine >= 0) {
        struct timespec t = {0, FAKE_BEAT_MS * 1000000};
        nanosleep(&t, NULL);
        atomic_store(&shared->process[mine].beat_ns, fake_now_ns());
    }
    return NULL;
}

static void detach(void)
{
    if (slot < 0 || !fake_alive())
        return;
    fake_shared_lock(shared);
    closed = true;
    shared->process[slot].state = 2;
    shared->process[slot].freed_at_ns = 0;
    fake_shared_reap(shared);
    fake_shared_unlock(shared);
}

CUresult fake_open(void)
{
    if (attached_pid != 0 && !fake_alive())
        return CUDA_ERROR_NOT_INITIALIZED; /* a child of an initialised parent */
    if (!shared)
        shared = fake_shared_open(true);
    return shared ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult fake_attach(void)
{
    if (fake_alive())
        return CUDA_SUCCESS;
    sigset_t all, old;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = pthread_create(&thread, NULL, hold_slot, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    pthread_detach(thread);
    pthread_mutex_lock(&attach_mutex);
    while (attach_state == 0)
        pthread_cond_wait(&attached, &attach_mutex);
    pthread_mutex_unlock(&attach_mutex);
    if (attach_state < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    attached_pid = getpid();
    atexit(detach);
    return CUDA_SUCCESS;
}

int fake_data_file(void)
{
    if (data_file < 0) {
        char path[320];
        fake_data_path(path, sizeof path, (uint32_t)slot, shared->process[slot].generation);
        unlink(path); /* of a world whose state file was removed */
        data_file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (data_file < 0)
            fprintf(stderr, "fakecuda: %s: %s\n", path, strerror(errno));
        else
            fchmod(data_file, 0666);
    }
    return data_file;
}

CUresult fake_charge(int card, uint64_t bytes, uint64_t hidden)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t all = bytes + hidden;
    fake_shared_lock(shared);
    uint64_t total = shared->config[card].total;
    if (closed)
        result = CUDA_ERROR_DEINITIALIZED;
    else if (all > total || shared->card[card].used > total - all) {
        fake_shared_reap(shared);
        if (all > total || shared->card[card].used > total - all)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        fake_shared_add(shared, slot, card, (int64_t)bytes, (int64_t)hidden);
    fake_shared_unlock(shared);
    return result;
}

void fake_uncharge(int card, uint64_t bytes, uint64_t hidden)
{
    fake_shared_lock(shared);
    if (!closed)
        fake_shared_add(shared, slot, card, -(int64_t)bytes, -(int64_t)hidden);
    fake_shared_unlock(shared);
}

void fake_touched(int card, int64_t bytes)
{
    atomic_fetch_add(&shared->process[slot].touched[card], (uint64_t)bytes);
}

void fake_count(int card, int change)
{
    atomic_fetch_add(&shared->process[slot].live[card], (uint64_t)(int64_t)change);
}

void fake_card_figures(int card, uint64_t *used)
{
    fake_shared_lock(shared);
    fake_shared_reap(shared);
    *used = shared->card[card].used;
    fake_shared_unlock(shared);
}
