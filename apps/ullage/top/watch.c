/* watch.c: see watch.h. One lock over everything but the round itself. */
#include "watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "collect.h"

struct watch {
    pthread_t thread;
    pthread_mutex_t lock; /* over all that follows */
    pthread_cond_t changed;
    struct sample *ready;
    double seconds;
    bool hurry, stopping, ended;
    int fd;
};

static struct timespec after(struct timespec from, double seconds)
{
    long whole = (long)seconds;
    from.tv_sec += whole;
    from.tv_nsec += (long)((seconds - (double)whole) * 1e9);
    if (from.tv_nsec >= 1000000000) {
        from.tv_nsec -= 1000000000;
        from.tv_sec++;
    }
    return from;
}

static void publish(struct watch *watch, struct sample *sample)
{
    uint64_t one = 1;
    sample_destroy(watch->ready);
    watch->ready = sample;
    /* A full counter is as readable as any. */
    if (write(watch->fd, &one, sizeof one) < 0 && errno != EAGAIN)
        watch->stopping = true;
}

static void *collect(void *data)
{
    struct watch *watch = data;
    struct collector *collector = collector_create();
    pthread_mutex_lock(&watch->lock);
    while (collector && !watch->stopping) {
        struct timespec began;
        clock_gettime(CLOCK_MONOTONIC, &began);
        watch->hurry = false;
        pthread_mutex_unlock(&watch->lock);
        struct sample *sample = collector_round(collector);
        pthread_mutex_lock(&watch->lock);
        if (sample)
            publish(watch, sample);
        /* At least a twentieth of a second of rest, however slow the driver is. */
        struct timespec now, due, rest;
        clock_gettime(CLOCK_MONOTONIC, &now);
        rest = after(now, 0.05);
        int result = 0;
        while (!watch->stopping && !watch->hurry && result != ETIMEDOUT) {
            due = after(began, watch->seconds);
            bool early = due.tv_sec < rest.tv_sec ||
                         (due.tv_sec == rest.tv_sec && due.tv_nsec < rest.tv_nsec);
            result = pthread_cond_timedwait(&watch->changed, &watch->lock, early ? &rest : &due);
        }
    }
    pthread_mutex_unlock(&watch->lock);
    collector_destroy(collector);
    pthread_mutex_lock(&watch->lock);
    watch->ended = true;
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

struct watch *watch_start(double seconds)
{
    struct watch *watch = calloc(1, sizeof *watch);
    pthread_condattr_t clock;
    if (!watch)
        return NULL;
    watch->seconds = seconds;
    watch->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&watch->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->changed, &clock);
    pthread_condattr_destroy(&clock);
    if (watch->fd < 0 || pthread_create(&watch->thread, NULL, collect, watch) != 0) {
        if (watch->fd >= 0)
            close(watch->fd);
        free(watch);
        return NULL;
    }
    return watch;
}

int watch_fd(const struct watch *watch)
{
    return watch->fd;
}

struct sample *watch_take(struct watch *watch)
{
    uint64_t count;
    pthread_mutex_lock(&watch->lock);
    struct sample *sample = watch->ready;
    watch->ready = NULL;
    if (read(watch->fd, &count, sizeof count) < 0)
        count = 0;
    pthread_mutex_unlock(&watch->lock);
    return sample;
}

void watch_set_seconds(struct watch *watch, double seconds)
{
    pthread_mutex_lock(&watch->lock);
    watch->seconds = seconds;
    watch->hurry = true;
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
}

void watch_stop(struct watch *watch)
{
    struct timespec now;
    int result = 0;
    if (!watch)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct timespec until = after(now, 0.25);
    pthread_mutex_lock(&watch->lock);
    watch->stopping = true;
    pthread_cond_broadcast(&watch->changed);
    while (!watch->ended && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
    bool ended = watch->ended;
    pthread_mutex_unlock(&watch->lock);
    if (!ended)
        return;
    pthread_join(watch->thread, NULL);
    sample_destroy(watch->ready);
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->lock);
    close(watch->fd);
    free(watch);
}
