/* team.c: see team.h. */
#include "team.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "error.h"
#include "pause.h"

enum { MOST = 64, SPINS = 400 };

/* A number that others wait to see changed. */
struct turn {
    _Atomic unsigned number;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

struct ull__team {
    int threads;
    struct turn start, meet;
    _Atomic int arrived; /* at the barrier */
    _Atomic bool ending;
    void (*run)(void *context, int thread);
    void *context;
    struct member {
        struct ull__team *team;
        int number;
        pthread_t thread;
    } members[MOST];
    int started;
};

static void turn_init(struct turn *turn)
{
    atomic_init(&turn->number, 0);
    pthread_mutex_init(&turn->mutex, NULL);
    pthread_cond_init(&turn->changed, NULL);
}

static void turn_finish(struct turn *turn)
{
    pthread_mutex_destroy(&turn->mutex);
    pthread_cond_destroy(&turn->changed);
}

static void turn_wait(struct turn *turn, unsigned seen)
{
    for (int i = 0; i < SPINS; ++i) {
        if (atomic_load_explicit(&turn->number, memory_order_acquire) != seen) {
            return;
        }
        ull__pause();
    }
    pthread_mutex_lock(&turn->mutex);
    while (atomic_load_explicit(&turn->number, memory_order_acquire) == seen) {
        pthread_cond_wait(&turn->changed, &turn->mutex);
    }
    pthread_mutex_unlock(&turn->mutex);
}

static void turn_next(struct turn *turn)
{
    pthread_mutex_lock(&turn->mutex);
    atomic_fetch_add_explicit(&turn->number, 1, memory_order_release);
    pthread_cond_broadcast(&turn->changed);
    pthread_mutex_unlock(&turn->mutex);
}

void ull__team_barrier(struct ull__team *team)
{
    unsigned seen = atomic_load_explicit(&team->meet.number, memory_order_acquire);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == team->threads) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        turn_next(&team->meet);
    } else {
        turn_wait(&team->meet, seen);
    }
}

static void *member_main(void *argument)
{
    struct member *member = argument;
    struct ull__team *team = member->team;
    unsigned seen = 0;
    for (;;) {
        turn_wait(&team->start, seen);
        seen += 1;
        if (atomic_load_explicit(&team->ending, memory_order_acquire)) {
            return NULL;
        }
        team->run(team->context, member->number);
        ull__team_barrier(team);
    }
}

ull_status ull__team_create(int threads, struct ull__team **team, struct ull_error *err)
{
    if (threads < 1 || threads > MOST) {
        return ull__fail(err, ULL_E_INVALID, "%d threads: expected 1 to %d", threads, MOST);
    }
    struct ull__team *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for %d threads", threads);
    }
    made->threads = threads;
    made->started = 1;
    turn_init(&made->start);
    turn_init(&made->meet);
    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = 0;
    for (int i = 1; i < threads && failed == 0; ++i) {
        made->members[i] = (struct member){.team = made, .number = i};
        failed = pthread_create(&made->members[i].thread, NULL, member_main, &made->members[i]);
        made->started += failed == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        ull__team_destroy(made);
        return ull__fail(err, ULL_E_SYSTEM, "cannot start %d threads", threads);
    }
    *team = made;
    return ULL_OK;
}

void ull__team_destroy(struct ull__team *team)
{
    if (team == NULL) {
        return;
    }
    atomic_store_explicit(&team->ending, true, memory_order_release);
    turn_next(&team->start);
    for (int i = 1; i < team->started; ++i) {
        pthread_join(team->members[i].thread, NULL);
    }
    turn_finish(&team->start);
    turn_finish(&team->meet);
    free(team);
}

int ull__team_threads(const struct ull__team *team)
{
    return team->threads;
}

void ull__team_run(struct ull__team *team, void (*run)(void *context, int thread), void *context)
{
    if (team->threads == 1) {
        run(context, 0);
        return;
    }
    team->run = run;
    team->context = context;
    turn_next(&team->start);
    run(context, 0);
    ull__team_barrier(team);
}
