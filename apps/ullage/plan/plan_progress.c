/* plan_progress.c: see plan_progress.h. */
#include "plan_progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { SILENT_MS = 1000, EVERY_MS = 200 };

static void add_ms(struct timespec *time, long ms)
{
    time->tv_nsec += ms * 1000000;
    time->tv_sec += time->tv_nsec / 1000000000;
    time->tv_nsec %= 1000000000;
}

static void *show(void *argument)
{
    struct plan_progress *progress = argument;
    struct timespec next;
    bool shown = false;
    clock_gettime(CLOCK_MONOTONIC, &next);
    add_ms(&next, SILENT_MS);
    pthread_mutex_lock(&progress->lock);
    while (!progress->ended) {
        if (pthread_cond_timedwait(&progress->changed, &progress->lock, &next) == 0) {
            continue;
        }
        long all = atomic_load(&progress->count.all), done = atomic_load(&progress->count.done);
        long percent = all > 0 ? 100 * done / all : 0;
        fprintf(stderr, "\rplanning: %ld %%", percent < 99 ? percent : 99);
        fflush(stderr);
        shown = true;
        add_ms(&next, EVERY_MS);
    }
    pthread_mutex_unlock(&progress->lock);
    if (shown) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
    return NULL;
}

void plan_progress_begin(struct plan_progress *progress)
{
    pthread_condattr_t attributes;
    *progress = (struct plan_progress){.running = false};
    if (isatty(STDERR_FILENO) == 0) {
        return;
    }
    pthread_mutex_init(&progress->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&progress->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    progress->running = pthread_create(&progress->thread, NULL, show, progress) == 0;
}

void plan_progress_end(struct plan_progress *progress)
{
    if (!progress->running) {
        return;
    }
    pthread_mutex_lock(&progress->lock);
    progress->ended = true;
    pthread_cond_signal(&progress->changed);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->thread, NULL);
    progress->running = false;
}
