/*
 * keeper.c: the parked thread of a held process.
 *
 * It owns the process's place in the ledger (the kernel gives the place up when this thread dies), and
 * otherwise sleeps. Every tenth of a second, or when another process of the job is about to be refused,
 * it makes the books follow what no hook sees: pools that shrank at a synchronization, code that was
 * loaded at a launch. All signals are blocked in it, so that the program's handlers run where the
 * program expects them.
 */
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "interpose.h"
#include "self.h"
#include "suspend.h"

_Static_assert((int)ULL_OWN_COMMAND == (int)ULL_COMMAND_TEXT, "a command is a command");

enum {
    TICK_NS = 100000000,
    TICKS_PER_LOOK = 10, /* between looks at NVML's figure when nothing is known to have changed */
};

struct joining {
    const char *path;
    struct ull__identity identity;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool finished;
    ull_status status;
    struct ull_error err;
};

static int look_at_first(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    *(bool *)data = info->dlpi_name && info->dlpi_name[0] != '\0';
    return 1;
}

/*
 * True in a namespace of dlmopen, where the list of objects does not begin with the program. There the
 * program's C library does not know of threads that another copy of it started, and the linker's locks,
 * which are its own, do not hold between them. So this thread must have loaded what it needs before
 * the program goes on.
 */
static bool in_another_namespace(void)
{
    bool another = false;
    dl_iterate_phdr(look_at_first, &another);
    return another;
}

static void look(uint64_t tick)
{
    bool changed = atomic_exchange(&ull__state.code_changed, false);
    ull__reserves_refresh(NULL, false);
    if (changed || tick % TICKS_PER_LOOK == 0)
        ull__measure_rest(false);
}

static void *keep(void *data)
{
    struct joining *joining = data;
    struct ull__member *member = NULL;
    prctl(PR_SET_NAME, "ullage", 0, 0, 0);
    ull_status status = ull__member_join(joining->path, &joining->identity, &member, &joining->err);
    bool load_first = in_another_namespace();
    atomic_store(&ull__state.member, member);
    if (status == ULL_OK && load_first)
        ull__measure_start();
    pthread_mutex_lock(&joining->lock);
    joining->status = status;
    joining->finished = true;
    pthread_cond_signal(&joining->done);
    pthread_mutex_unlock(&joining->lock);
    if (status != ULL_OK)
        return NULL;
    if (ull__gates_wanted())
        ull__member_gated(member);
    /*
     * NVML is loaded once the driver has started: until then the program may make a child by the bare
     * system call, in which locks stay as this thread has them at that moment.
     */
    bool loaded = load_first;
    for (uint64_t tick = 1;; tick++) {
        if (!loaded && atomic_load(&ull__state.gpu_count) > 0) {
            ull__measure_start();
            loaded = true;
        }
        ull__member_wait(member, TICK_NS);
        /* While its memory is elsewhere, the driver's figures say nothing, or its calls do not return. */
        if (loaded && atomic_load(&ull__state.gpu_count) > 0 &&
            ull__member_residency(member) == ULL_RESIDENT)
            look(tick);
        ull__mover_look(member);
        if (ull__recording())
            ull__tell_inherited();
        ull__member_settled(member);
    }
    return NULL;
}

ull_status ull__keeper_start(const char *path, struct ull_error *err)
{
    struct joining joining = {
        .path = path, .lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};
    joining.identity.pid = (uint32_t)getpid();
    joining.identity.start_ticks = ull__own_start_ticks();
    joining.identity.account_root = ull__family_root(&joining.identity.account_root_ticks);
    ull__own_command(joining.identity.command);

    int failed = ull__own_thread(keep, &joining);
    if (failed) {
        snprintf(err->message, sizeof err->message, "cannot start a thread: %s", strerror(failed));
        return ULL_E_SYSTEM;
    }
    pthread_mutex_lock(&joining.lock);
    while (!joining.finished)
        pthread_cond_wait(&joining.done, &joining.lock);
    pthread_mutex_unlock(&joining.lock);
    *err = joining.err;
    if (joining.status == ULL_OK)
        ull__recorder_start(&joining.identity);
    return joining.status;
}
