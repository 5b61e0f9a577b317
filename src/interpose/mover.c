/*
 * mover.c: carries out what a job is commanded from outside (src/ledger/control.h), on a thread of its own that
 * begins with the first command and ends with nothing left to do. The parked thread must not wait for a device,
 * since it answers others before they are refused. The same thread pins host memory ahead (`run --pinned`), so that
 * the bytes' place on the host is one thread's alone.
 *
 * What is told of it in the ledger: how far it is, what is out by device, and at the end that the command was
 * carried out, or why not. A command that overtakes another cancels it.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "evict.h"

enum { REST_S = 60 }; /* how long the devices may take to come to rest */

static struct {
    _Atomic bool running;
    struct ull__member *member;
    struct ull__eviction eviction;
    enum ull__residency residency;
    enum ull__wanted wanted;
} mover;

void ull__mover_forget(void)
{
    memset(&mover, 0, sizeof mover);
    ull__evict_forget();
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* --- telling --------------------------------------------------------------------------------------------- */

static void tell(bool done, const char *trouble)
{
    struct ull__residency_report report = {.residency = mover.residency,
                                           .moved_bytes = mover.eviction.moved,
                                           .to_move_bytes = mover.eviction.total,
                                           .moving_ns = mover.eviction.took_ns,
                                           .done = done,
                                           .trouble = trouble};
    for (int o = 0; o < MAX_ORDINALS; o++) {
        int device = o < atomic_load(&ull__state.gpu_count) ? ull__state.gpus[o].device : -1;
        if (device >= 0)
            report.evicted_bytes[device] += mover.eviction.by_ordinal[o];
    }
    /* On the way back, what is back counts. */
    if (mover.wanted == ULL_WANT_RESIDENT)
        report.moved_bytes = mover.eviction.total - mover.eviction.moved;
    ull__member_report(mover.member, &report);
}

static void progress(struct ull__eviction *eviction)
{
    eviction->took_ns = now_ns() - eviction->began_ns;
    tell(false, NULL);
}

/* Something else is wanted by now. */
static bool overtaken(void *unused)
{
    (void)unused;
    return ull__member_asked(mover.member) != mover.wanted;
}

/* While the devices do not come to rest: what is in the way is told, so that who asked can say it. */
static bool given_up(void *why)
{
    tell(false, why);
    return overtaken(NULL);
}

/* --- what forbids it --------------------------------------------------------------------------------------- */

static bool device_file_open(const char *name, char why[ULL_TROUBLE_TEXT])
{
    char path[300], target[256];
    snprintf(path, sizeof path, "/proc/self/fd/%s", name);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    if (strncmp(target, "/dev/infiniband/", 16) != 0 && strcmp(target, "/dev/gdrdrv") != 0)
        return false;
    snprintf(why, ULL_TROUBLE_TEXT, "it has %.100s open, through which others may reach its memory",
             target);
    return true;
}

/* Memory that a network card or another process reaches past the driver cannot be taken away. */
static bool reached_from_outside(char why[ULL_TROUBLE_TEXT])
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir)))
        found = entry->d_name[0] != '.' && device_file_open(entry->d_name, why);
    if (dir)
        closedir(dir);
    return found;
}

static bool shares_the_hosts_memory(char why[ULL_TROUBLE_TEXT])
{
    for (int o = 0; o < atomic_load(&ull__state.gpu_count); o++)
        if (ull__state.gpus[o].integrated) {
            snprintf(why, ULL_TROUBLE_TEXT,
                     "its device has the host's memory: moving would free nothing");
            return true;
        }
    return false;
}

/* Is there room on the host for so much more than what is pinned there already? */
static bool host_has(uint64_t bytes, char why[ULL_TROUBLE_TEXT])
{
    uint64_t kept = ull__store_kept(), room;
    bytes -= kept < bytes ? kept : bytes;
    if (ull__host_has(bytes, &room))
        return true;
    snprintf(why, ULL_TROUBLE_TEXT,
             "the host has %llu MiB of memory left, and %llu MiB would have to move there",
             (unsigned long long)(room >> 20), (unsigned long long)(bytes >> 20));
    return false;
}

/* --- moving ------------------------------------------------------------------------------------------------- */

static void begin(void)
{
    mover.eviction.began_ns = now_ns();
    mover.eviction.took_ns = 0;
    tell(false, NULL);
}

static void bring_back(void)
{
    char why[ULL_TROUBLE_TEXT] = "";
    mover.residency = ULL_MOVING_IN;
    begin();
    if (!ull__restore(&mover.eviction, why)) {
        mover.residency = ULL_MOVED_OUT;
        tell(true, why);
        return;
    }
    mover.residency = ULL_RESIDENT;
    ull__go_on();
    tell(true, NULL);
    ull__store_give_back();
}

static void move_out(void)
{
    char why[ULL_TROUBLE_TEXT] = "";
    mover.eviction = (struct ull__eviction){.progress = progress, .cancelled = overtaken};
    if (reached_from_outside(why) || shares_the_hosts_memory(why)) {
        ull__go_on(); /* it may have stood by */
        tell(true, why);
        return;
    }
    mover.residency = ULL_MOVING_OUT;
    tell(false, NULL);
    if (!ull__come_to_rest(now_ns() + REST_S * 1000000000ull, given_up, why, why)) {
        mover.residency = ULL_RESIDENT;
        tell(true, why);
        return;
    }
    mover.eviction.total = ull__evictable();
    begin();
    bool good = host_has(mover.eviction.total, why) && ull__evict(&mover.eviction, why);
    if (!good) {
        char also[ULL_TROUBLE_TEXT];
        if (!ull__restore(&mover.eviction, also)) {
            /* Somebody has the room by now. The program must not run without its memory: it stays out. */
            mover.residency = ULL_MOVED_OUT;
            tell(true, also);
            return;
        }
        mover.residency = ULL_RESIDENT;
        ull__go_on();
        tell(true, why);
        ull__store_give_back();
        return;
    }
    mover.residency = ULL_MOVED_OUT;
    tell(true, NULL);
    ull__store_unpin(overtaken, NULL);
}

/* After a move that was taken back where there was no room for it: what is on the card still goes out too. */
static void move_rest(void)
{
    char why[ULL_TROUBLE_TEXT] = "";
    uint64_t left = ull__evictable() - mover.eviction.moved;
    mover.residency = ULL_MOVING_OUT;
    tell(false, NULL);
    if (host_has(left, why))
        ull__evict(&mover.eviction, why);
    mover.residency = ULL_MOVED_OUT;
    tell(true, why);
    ull__store_unpin(overtaken, NULL);
}

static void tell_trouble(const char *trouble)
{
    tell(false, trouble);
}

/* With others that are to be moved out together. What cannot be moved at all is said before they wait for it. */
static void stand_by(void)
{
    char why[ULL_TROUBLE_TEXT] = "";
    if (reached_from_outside(why) || shares_the_hosts_memory(why)) {
        tell(true, why);
        return;
    }
    ull__stand_by(mover.member, tell_trouble);
    if (ull__member_asked(mover.member) != ULL_WANT_MOVED_OUT)
        ull__go_on();
}

static bool commanded(void *unused)
{
    (void)unused;
    return ull__member_commanded(mover.member);
}

static void *move(void *unused)
{
    (void)unused;
    while (ull__member_commanded(mover.member)) {
        mover.wanted = ull__member_wanted(mover.member);
        bool out = mover.wanted == ULL_WANT_MOVED_OUT;
        if (mover.wanted == ULL_WANT_STAND_BY) {
            if (mover.residency == ULL_RESIDENT)
                stand_by();
            else
                tell(true, NULL); /* nobody waits for what is out */
        } else if (out && mover.residency == ULL_RESIDENT)
            move_out();
        else if (!out && mover.residency == ULL_MOVED_OUT)
            bring_back();
        else if (out && mover.eviction.moved < mover.eviction.total)
            move_rest();
        else
            tell(true, NULL);
    }
    if (mover.residency == ULL_RESIDENT && ull__store_ahead_due())
        ull__store_ahead(commanded, NULL);
    atomic_store(&mover.running, false);
    return NULL;
}

void ull__mover_look(struct ull__member *member)
{
    if (!ull__gates_wanted() || !(ull__member_commanded(member) || ull__store_ahead_due()) ||
        atomic_exchange(&mover.running, true))
        return;
    mover.member = member;
    if (ull__own_thread(move, NULL) != 0)
        atomic_store(&mover.running, false); /* the next look tries again */
}
