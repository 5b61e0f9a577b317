/* support.c: see support.h. */
#include "support.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "member_private.h"

#if TEST_TSAN
/*
 * The sanitizer knows at most 64 mutexes a thread, where a test is a hundred members at once, and does
 * not see that pthread_mutex_timedlock took a mutex when it says that the last owner died.
 */
const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void)
{
    return "detect_deadlocks=0:report_mutex_bugs=0";
}
#endif

static char folder[64];

int test_folder_setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/dev/shm/ullage-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    return setenv("ULLAGE_SHM_DIR", folder, 1);
}

static void remove_all(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char name[512];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (unlink(name) != 0)
            remove_all(name);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

int test_folder_teardown(void **state)
{
    (void)state;
    remove_all(folder);
    return 0;
}

const char *test_folder(void)
{
    return folder;
}

/* --- ledgers and members ------------------------------------------------------------------------ */

struct ull__job_spec test_spec(int devices, uint64_t budget)
{
    struct ull__job_spec spec = {.device_count = devices};
    snprintf(spec.name, sizeof spec.name, "test");
    for (int d = 0; d < devices; d++) {
        struct ull__device_spec *device = &spec.devices[d];
        snprintf(device->uuid, sizeof device->uuid, "GPU-%d", d);
        device->total_bytes = 2 * budget;
        device->budget_bytes = budget;
        device->context_bytes = MIB;
    }
    return spec;
}

struct ull__ledger *test_create(const struct ull__job_spec *spec)
{
    struct ull__ledger *ledger = NULL;
    struct ull_error err = {""};
    if (ull__ledger_create(spec, &ledger, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return ledger;
}

struct create {
    const struct ull__job_spec *spec;
    char path[ULL_PATH_TEXT];
};

static int create_and_die(void *data)
{
    struct create *create = *(struct create **)data;
    struct ull__ledger *ledger;
    if (ull__ledger_create(create->spec, &ledger, NULL) != ULL_OK)
        return 1;
    snprintf(create->path, sizeof create->path, "%s", ull__ledger_path(ledger));
    return 0;
}

struct ull__ledger *test_create_unsupervised(const struct ull__job_spec *spec)
{
    struct create *create = test_shared(sizeof *create);
    struct ull__ledger *ledger = NULL;
    create->spec = spec;
    assert_int_equal(test_wait(test_fork(create_and_die, &create)), 0);
    assert_int_equal(ull__ledger_open(create->path, &ledger, NULL), ULL_OK);
    munmap(create, sizeof *create);
    return ledger;
}

void test_destroy(struct ull__ledger *ledger)
{
    unlink(ull__ledger_path(ledger));
    ull__ledger_close(ledger);
}

struct ull__member *test_join_root(const char *path, uint32_t root, uint64_t root_ticks)
{
    struct ull__identity identity = {.pid = (uint32_t)getpid(),
                                     .start_ticks = 1,
                                     .command = "test",
                                     .account_root = root,
                                     .account_root_ticks = root_ticks};
    struct ull__member *member = NULL;
    return ull__member_join(path, &identity, &member, NULL) == ULL_OK ? member : NULL;
}

struct ull__member *test_join(const char *path)
{
    return test_join_root(path, 0, 0);
}

int test_slot(struct ull__member *member, int link)
{
    return member->links[link].slot;
}

void test_die(struct ull__member *member)
{
    for (int k = 0; k < member->link_count; k++) {
        struct ull__link *link = &member->links[k];
        assert_int_equal(pthread_mutex_unlock(&link->ledger->file->slots[link->slot].owner), 0);
    }
}

void test_forget(struct ull__member *member)
{
    for (int k = 0; k < member->link_count; k++) {
        member->links[k].ledger->pinned = false;
        ull__ledger_close(member->links[k].ledger);
    }
    free(member);
}

/* --- processes ---------------------------------------------------------------------------------- */

pid_t test_fork(int (*run)(void *data), void *data)
{
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no processes behind */
    if (getppid() != parent)
        _exit(99);
    _exit(run(data));
}

int test_wait(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) != pid)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void test_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    test_wait(pid);
}

struct hold {
    const char *path;
    uint64_t bytes;
    uint32_t driver_pid;
    int pipe[2];
};

static int hold(void *data)
{
    struct hold *what = data;
    struct ull__member *member = test_join(what->path);
    int slot = -1;
    if (member) {
        ull__member_set_driver_pid(member, what->driver_pid);
        if (ull__member_reserve(member, 0, ULL_CLASS_DATA, what->bytes) == ULL_OK)
            slot = test_slot(member, 0);
    }
    if (write(what->pipe[1], &slot, sizeof slot) != sizeof slot)
        return 1;
    for (;;)
        pause();
}

struct test_holder test_hold(const char *path, uint64_t bytes, uint32_t driver_pid)
{
    struct hold what = {.path = path, .bytes = bytes, .driver_pid = driver_pid};
    struct test_holder holder = {.slot = -1};
    assert_int_equal(pipe(what.pipe), 0);
    holder.pid = test_fork(hold, &what);
    assert_int_equal(read(what.pipe[0], &holder.slot, sizeof holder.slot), sizeof holder.slot);
    close(what.pipe[0]);
    close(what.pipe[1]);
    return holder;
}

int test_not_listed(void *data, const char *uuid, uint32_t driver_pid, uint64_t *used)
{
    (void)data, (void)uuid, (void)driver_pid, (void)used;
    return 0;
}

int test_listed(void *data, const char *uuid, uint32_t driver_pid, uint64_t *used)
{
    (void)data, (void)uuid, (void)driver_pid, (void)used;
    return 1;
}

int test_cannot_say(void *data, const char *uuid, uint32_t driver_pid, uint64_t *used)
{
    (void)data, (void)uuid, (void)driver_pid, (void)used;
    return -1;
}

/* --- what the books say ------------------------------------------------------------------------- */

uint64_t test_total(struct ull__ledger *ledger, int account, int device)
{
    return atomic_load(&ledger->file->accounts[account].devices[device].cell.total);
}

uint64_t test_sum(struct ull__ledger *ledger, int device)
{
    uint64_t sum = 0;
    struct ull__process_view view;
    for (int i = 0; i < ULL_MAX_SLOTS; i++)
        if (ull__ledger_process(ledger, i, &view))
            sum += view.usage[device].held_bytes;
    return sum;
}

int test_slots_in_use(struct ull__ledger *ledger)
{
    int count = 0;
    for (int i = 0; i < ULL_MAX_SLOTS; i++)
        count += atomic_load(&ledger->file->slots[i].state) != SLOT_FREE;
    return count;
}

int test_shares_in_use(struct ull__ledger *ledger)
{
    int count = 0;
    for (int i = 0; i < ULL_MAX_SHARES; i++)
        count += atomic_load(&ledger->file->shares[i].word) >> 56 != SHARE_FREE;
    return count;
}

static void assert_not_locked(pthread_mutex_t *mutex)
{
    bool died;
    assert_true(ull__robust_trylock(mutex, &died));
    pthread_mutex_unlock(mutex);
}

void test_assert_consistent(struct ull__ledger *ledger)
{
    struct ull__ledger_file *file = ledger->file;
    for (int d = 0; d < file->spec.device_count; d++) {
        uint64_t totals = 0;
        for (int a = 0; a < ULL_MAX_ACCOUNTS; a++)
            totals += test_total(ledger, a, d);
        assert_int_equal(totals, test_sum(ledger, d));
    }
    assert_not_locked(&file->shares_lock);
    assert_not_locked(&file->accounts_lock);
    for (uint32_t i = 0; i < atomic_load(&file->slots_used); i++)
        assert_not_locked(&file->slots[i].changing);
}

void *test_shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

void test_sleep_us(long us)
{
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

uint64_t test_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}
