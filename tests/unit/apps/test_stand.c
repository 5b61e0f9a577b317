/*
 * test_stand.c: how ranks are brought to rest together (apps/ullage/suspend/stand.c), over a ledger and threads that say what
 * the processes of a group would.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "control.h"
#include "member_private.h"
#include "suspend/stand.h"

enum { RANKS = 3 };

/* One process of the group. */
struct rank {
    const char *path;
    bool follows;      /* its device is at rest once others were told to let one in */
    bool needs_helper; /* its device is at rest once a thread beside was let in */
    int beside, early; /* times that a helper of its was let in; that others were before that */
    _Atomic bool joined;
    pthread_t thread;
};

static char folder[] = "/dev/shm/test-stand-XXXXXX";
static struct ull__ledger *ledger;
static _Atomic bool over;
static _Atomic int told; /* how often somebody was told to let one in */

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/*
 * For one that does not come, since the rank's threads do something else for ever; the last that was told so waits longest: until
 * another one is, or for a while.
 */
static void wait_in_vain(void)
{
    int own = atomic_fetch_add(&told, 1) + 1;
    for (int ms = 0; ms < 100 && atomic_load(&told) == own; ms++)
        pause_ms(1);
}

/* Its place is given up first: what a thread holds may not be unmapped. */
static void leave(struct ull__member *member)
{
    struct ull__ledger *own = member->links[0].ledger;
    pthread_mutex_unlock(&own->file->slots[member->links[0].slot].owner);
    own->pinned = false;
    ull__ledger_close(own);
    free(member);
}

static void *be_a_rank(void *data)
{
    struct rank *rank = data;
    struct ull__identity identity = {.pid = (uint32_t)getpid()};
    struct ull__member *member = NULL;
    if (ull__member_join(rank->path, &identity, &member, NULL) != ULL_OK)
        return NULL;
    ull__member_gated(member);
    atomic_store(&rank->joined, true);
    while (ull__member_asked(member) != ULL_WANT_STAND_BY && !atomic_load(&over))
        pause_ms(1);
    while (!atomic_load(&over)) {
        enum ull__let_in whom = ull__member_lets_in(member);
        rank->beside += whom == ULL_LET_BESIDE;
        rank->early += whom == ULL_LET_ANY && rank->beside == 0;
        if (whom == ULL_LET_ANY)
            wait_in_vain();
        bool still =
            (!rank->needs_helper || rank->beside > 0) && (!rank->follows || atomic_load(&told) > 1);
        bool took = rank->needs_helper && whom == ULL_LET_BESIDE;
        ull__member_stands(member, ULL_STANDS_HERE | (still ? ULL_STANDS_STILL : 0) |
                                       (took ? ULL_STANDS_TOOK : 0));
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    leave(member);
    return NULL;
}

static ull_status bring_to_rest(struct rank ranks[RANKS])
{
    struct ull__job_spec spec = {.name = "ranks", .device_count = 1};
    struct stand_options options = {.timeout_s = 2};
    struct ull_error err = {""};
    assert_int_equal(ull__ledger_create(&spec, &ledger, NULL), ULL_OK);
    atomic_store(&over, false);
    atomic_store(&told, 0);
    for (int r = 0; r < RANKS; r++) {
        ranks[r].path = ull__ledger_path(ledger);
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, be_a_rank, &ranks[r]), 0);
        while (!atomic_load(&ranks[r].joined))
            pause_ms(1);
    }
    assert_int_equal(stand_count(&ledger, 1), RANKS);
    ull_status status = stand_by(&ledger, 1, &options, &err);
    if (status != ULL_OK)
        print_message("%s\n", err.message);
    atomic_store(&over, true);
    for (int r = 0; r < RANKS; r++)
        pthread_join(ranks[r].thread, NULL);
    unlink(ull__ledger_path(ledger));
    ull__ledger_close(ledger);
    return status;
}

/* All are at rest in the end, and seen to be so: not let in by turns, of which there would be no end. */
static void at_rest_one_after_the_other(void **state)
{
    struct rank ranks[RANKS] = {{.follows = true}};
    (void)state;
    assert_int_equal(bring_to_rest(ranks), ULL_OK);
}

/* Where what is waited for is a helper's call, nobody else is let in where the device is not at rest. */
static void a_thread_beside_first(void **state)
{
    struct rank ranks[RANKS] = {
        {.needs_helper = true}, {.needs_helper = true}, {.needs_helper = true}};
    (void)state;
    assert_int_equal(bring_to_rest(ranks), ULL_OK);
    for (int r = 0; r < RANKS; r++) {
        assert_true(ranks[r].beside > 0);
        assert_int_equal(ranks[r].early, 0);
    }
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL || setenv("ULLAGE_SHM_DIR", folder, 1) != 0;
}

static int teardown(void **state)
{
    char path[ULL_PATH_TEXT];
    (void)state;
    if (ull__ledger_folder(false, path, NULL) == ULL_OK)
        rmdir(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_rest_one_after_the_other),
        cmocka_unit_test(a_thread_beside_first),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
