/*
 * threads.c: threads of our own in a guest. All signals are blocked in them, so that the program's handlers run
 * where the program expects them.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "evict.h"

enum { STACK_BYTES = 512 * 1024, MOST_THREADS = 16 };

int ull__mover_threads(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                            : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : count;
}

int ull__own_thread(void *(*run)(void *data), void *data)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, old;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old); /* this thread's mask; the new thread inherits it */
    int failed = pthread_create(&thread, &attributes, run, data);
    sigprocmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}
