/*
 * test_join.c: who has a place: 200 at once, a full table, and what becomes of a place at fork, exec,
 * close_range, unlink and across pid namespaces.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

#define PLACES (ULL_MAX_SLOTS + 8)

struct crowd {
    const char *path;
    struct shared {
        _Atomic int go, joined, refused, leave, left;
        _Atomic int slot_taken[ULL_MAX_SLOTS];
    } * shared;
};

static int join_and_stay(void *data)
{
    struct crowd *crowd = data;
    struct shared *shared = crowd->shared;
    while (!atomic_load(&shared->go))
        test_sleep_us(200);
    struct ull__identity identity = {.pid = (uint32_t)getpid(), .command = "crowd"};
    struct ull__member *m;
    struct ull_error err = {""};
    ull_status status = ull__member_join(crowd->path, &identity, &m, &err);
    if (status != ULL_OK) {
        atomic_fetch_add(&shared->refused, 1);
        return status == ULL_E_FULL && strstr(err.message, crowd->path) ? 0 : 1;
    }
    int taken = atomic_fetch_add(&shared->slot_taken[test_slot(m, 0)], 1);
    atomic_fetch_add(&shared->joined, 1);
    while (atomic_load(&shared->leave) == 0)
        test_sleep_us(20000);
    return taken == 0 ? 0 : 2;
}

static void start_crowd(struct crowd *crowd, pid_t *pids, int count)
{
    for (int i = 0; i < count; i++)
        pids[i] = test_fork(join_and_stay, crowd);
}

static void two_hundred_join_at_once(void **state)
{
    (void)state;
    enum { COUNT = 200 / TEST_SLOWNESS };
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    struct crowd crowd = {ull__ledger_path(ledger), test_shared(sizeof *crowd.shared)};
    pid_t pids[COUNT];
    start_crowd(&crowd, pids, COUNT);
    uint64_t start = ull__monotonic_ns();
    atomic_store(&crowd.shared->go, 1);
    while (atomic_load(&crowd.shared->joined) < COUNT && ull__monotonic_ns() - start < 20000000000ull)
        test_sleep_us(500);
    print_message("%d processes joined in %.1f ms\n", COUNT,
                  (double)(ull__monotonic_ns() - start) / 1e6);
    assert_int_equal(atomic_load(&crowd.shared->joined), COUNT);
    assert_int_equal(test_slots_in_use(ledger), COUNT);
    ull__ledger_sweep(ledger, test_not_listed, NULL); /* takes no place from the living */
    assert_int_equal(test_slots_in_use(ledger), COUNT);
    atomic_store(&crowd.shared->leave, 1);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(test_wait(pids[i]), 0);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_slots_in_use(ledger), 0);
    munmap(crowd.shared, sizeof *crowd.shared);
    test_destroy(ledger);
}

static void a_full_table_refuses_until_some_die(void **state)
{
    (void)state;
    if (TEST_TSAN || TEST_ASAN) {
        print_message("skipped: 520 processes under a sanitizer need too much memory\n");
        skip();
    }
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    struct crowd crowd = {ull__ledger_path(ledger), test_shared(sizeof *crowd.shared)};
    static pid_t pids[PLACES];
    atomic_store(&crowd.shared->go, 1);
    start_crowd(&crowd, pids, PLACES);
    while (atomic_load(&crowd.shared->joined) + atomic_load(&crowd.shared->refused) < PLACES)
        test_sleep_us(1000);
    assert_int_equal(atomic_load(&crowd.shared->joined), ULL_MAX_SLOTS);
    assert_int_equal(atomic_load(&crowd.shared->refused), PLACES - ULL_MAX_SLOTS);
    assert_null(test_join(ull__ledger_path(ledger)));

    for (int i = 0; i < PLACES; i += 2)
        kill(pids[i], SIGKILL);
    for (int i = 0; i < PLACES; i += 2)
        waitpid(pids[i], NULL, 0);
    struct ull__member *m = test_join(ull__ledger_path(ledger)); /* sweeps by itself */
    assert_non_null(m);
    atomic_store(&crowd.shared->leave, 1);
    for (int i = 1; i < PLACES; i += 2)
        assert_int_equal(test_wait(pids[i]), 0);
    test_die(m);
    test_forget(m);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_slots_in_use(ledger), 0);
    munmap(crowd.shared, sizeof *crowd.shared);
    test_destroy(ledger);
}

/* --- fork, exec and the rest -------------------------------------------------------------------- */

enum how { FORK, RAW_FORK, EXEC, CLOSE_RANGE, UNLINK, NAMESPACE };

struct life {
    const char *path;
    enum how how;
    int to_parent[2];
};

static void tell(struct life *life, pid_t pid)
{
    if (write(life->to_parent[1], &pid, sizeof pid) != sizeof pid)
        _exit(3);
}

static pid_t hear(struct life *life)
{
    pid_t pid = -1;
    assert_int_equal(read(life->to_parent[0], &pid, sizeof pid), sizeof pid);
    return pid;
}

/* Not quite: a test that fails leaves no processes behind. */
static void sleep_for_ever(void)
{
    alarm(60);
    for (;;)
        pause();
}

/* Reserves, does what `how` says, and tells the pid of the process that is left. */
static int live(void *data)
{
    struct life *life = data;
    if (life->how == NAMESPACE) {
        if (unshare(CLONE_NEWPID) != 0)
            return 77;
        pid_t init = fork(); /* is pid 1 there */
        if (init != 0)
            return test_wait(init) == -SIGKILL ? 0 : 4;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    struct ull__member *m = test_join(life->path);
    if (!m || ull__member_reserve(m, 0, ULL_CLASS_DATA, 40) != ULL_OK)
        return 1;
    ull__member_set_driver_pid(m, 42);
    pid_t child = 0;
    switch (life->how) {
    case FORK:
        child = fork();
        break;
    case RAW_FORK:
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        break;
    case EXEC:
        tell(life, getpid());
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
        return 2;
    case CLOSE_RANGE: {
        int keep = life->to_parent[1];
#ifdef SYS_close_range
        if (keep > 3)
            syscall(SYS_close_range, 3, keep - 1, 0);
        syscall(SYS_close_range, keep + 1, ~0u, 0);
#else
        for (int fd = 3; fd < 1024; fd++)
            if (fd != keep)
                close(fd);
#endif
        break;
    }
    case UNLINK:
        unlink(life->path);
        break;
    case NAMESPACE:
        break;
    }
    if (life->how <= RAW_FORK && child == 0)
        sleep_for_ever();
    tell(life, child);
    sleep_for_ever();
    return 0;
}

static struct ull__ledger *begin_life(struct life *life, enum how how, pid_t *pid, pid_t *told)
{
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    *life = (struct life){.path = ull__ledger_path(ledger), .how = how};
    assert_int_equal(pipe(life->to_parent), 0);
    *pid = test_fork(live, life);
    *told = hear(life);
    return ledger;
}

static void end_life(struct life *life, struct ull__ledger *ledger)
{
    test_assert_consistent(ledger);
    close(life->to_parent[0]);
    close(life->to_parent[1]);
    test_destroy(ledger);
}

static void sweep_until(struct ull__ledger *ledger, uint64_t total)
{
    for (int i = 0; i < 2000 && test_total(ledger, 0, 0) != total; i++) {
        ull__ledger_sweep(ledger, test_not_listed, NULL);
        test_sleep_us(1000);
    }
    assert_int_equal(test_total(ledger, 0, 0), total);
}

static void a_forked_child_does_not_keep_the_place(enum how how)
{
    struct life life;
    pid_t owner, child;
    struct ull__ledger *ledger = begin_life(&life, how, &owner, &child);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 40); /* the owner lives */
    test_kill(owner);
    assert_int_equal(kill(child, 0), 0); /* the child does, too */
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 0);
    assert_int_equal(test_slots_in_use(ledger), 0);
    kill(child, SIGKILL);
    end_life(&life, ledger);
}

static void fork_without_exec(void **state)
{
    (void)state;
    a_forked_child_does_not_keep_the_place(FORK);
}

static void raw_fork(void **state)
{
    (void)state;
    a_forked_child_does_not_keep_the_place(RAW_FORK);
}

static void exec_gives_the_place_up(void **state)
{
    (void)state;
    struct life life;
    pid_t owner, told;
    struct ull__ledger *ledger = begin_life(&life, EXEC, &owner, &told);
    sweep_until(ledger, 0); /* it executes the other program any moment now */
    assert_int_equal(kill(owner, 0), 0);
    assert_int_equal(waitpid(owner, NULL, WNOHANG), 0);
    test_kill(owner);
    end_life(&life, ledger);
}

static void a_place_is_kept(enum how how)
{
    struct life life;
    pid_t owner, told;
    struct ull__ledger *ledger = begin_life(&life, how, &owner, &told);
    for (int i = 0; i < 20; i++)
        ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 40);
    test_kill(owner);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 0);
    end_life(&life, ledger);
}

static void closing_all_files_changes_nothing(void **state)
{
    (void)state;
    a_place_is_kept(CLOSE_RANGE);
}

static void unlinking_the_file_changes_nothing(void **state)
{
    (void)state;
    a_place_is_kept(UNLINK);
}

static int can_unshare(void *data)
{
    (void)data;
    return unshare(CLONE_NEWPID) != 0;
}

static void pid_namespaces_do_not_matter(void **state)
{
    (void)state;
    if (test_wait(test_fork(can_unshare, NULL)) != 0) {
        print_message("skipped: not permitted to make a pid namespace\n");
        skip();
    }
    struct life life;
    pid_t outside, told;
    struct ull__ledger *ledger = begin_life(&life, NAMESPACE, &outside, &told);
    struct ull__process_view view;
    assert_true(ull__ledger_process(ledger, 0, &view));
    assert_int_equal(view.pid, 1);
    for (int i = 0; i < 20; i++)
        ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 40);
    /* A second one, which is pid 1 too, in another namespace. */
    int slots = test_slots_in_use(ledger);
    pid_t second = test_fork(live, &life);
    hear(&life);
    assert_int_equal(test_total(ledger, 0, 0), 80);
    assert_int_equal(test_slots_in_use(ledger), slots + 1);
    char children[64] = "";
    snprintf(children, sizeof children, "/proc/%d/task/%d/children", (int)outside, (int)outside);
    FILE *file = fopen(children, "r");
    int init = 0;
    if (!file || fscanf(file, "%d", &init) != 1)
        fail_msg("cannot read %s", children);
    fclose(file);
    kill(init, SIGKILL);
    assert_int_equal(test_wait(outside), 0);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_int_equal(test_total(ledger, 0, 0), 40);
    assert_int_equal(test_slots_in_use(ledger), slots);
    kill(second, SIGKILL);
    test_wait(second);
    end_life(&life, ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_hundred_join_at_once),
        cmocka_unit_test(a_full_table_refuses_until_some_die),
        cmocka_unit_test(fork_without_exec),
        cmocka_unit_test(raw_fork),
        cmocka_unit_test(exec_gives_the_place_up),
        cmocka_unit_test(closing_all_files_changes_nothing),
        cmocka_unit_test(unlinking_the_file_changes_nothing),
        cmocka_unit_test(pid_namespaces_do_not_matter),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
