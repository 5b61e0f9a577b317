/*
 * test_folder.c: where ledgers lie: folders and files that cannot be used give a status and a message
 * that names the path; and which ledgers are listed, supervised, removed.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

enum { NOBODY = 65534 };

/* A fresh place for every case: ULLAGE_SHM_DIR and, in it, where the user's folder would be. */
static char place[128], users[200];

static int fresh_place(void **state)
{
    static int count;
    (void)state;
    snprintf(place, sizeof place, "%s/place-%d", test_folder(), count++);
    snprintf(users, sizeof users, "%s/ullage-%u", place, (unsigned)geteuid());
    return mkdir(place, 0755) != 0 || setenv("ULLAGE_SHM_DIR", place, 1) != 0;
}

static int old_place(void **state)
{
    (void)state;
    return setenv("ULLAGE_SHM_DIR", test_folder(), 1);
}

static void assert_create_fails(ull_status expected, const char *named)
{
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = NULL;
    struct ull_error err = {""};
    assert_int_equal(ull__ledger_create(&spec, &ledger, &err), expected);
    assert_null(ledger);
    if (!strstr(err.message, named))
        fail_msg("'%s' does not name %s", err.message, named);
}

static void assert_open_fails(const char *path, ull_status expected)
{
    struct ull__ledger *ledger = NULL;
    struct ull__member *member = NULL;
    struct ull__identity identity = {.pid = 1};
    struct ull_error err = {""};
    assert_int_equal(ull__ledger_open(path, &ledger, &err), expected);
    assert_null(ledger);
    if (!strstr(err.message, path))
        fail_msg("'%s' does not name %s", err.message, path);
    assert_int_equal(ull__member_join(path, &identity, &member, NULL), expected);
    assert_null(member);
}

/* --- folders ------------------------------------------------------------------------------------ */

static void made_when_missing(void **state)
{
    (void)state;
    char path[ULL_PATH_TEXT];
    struct stat st;
    struct ull_error err = {""};
    assert_int_equal(ull__ledger_folder(false, path, &err), ULL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, users));
    mode_t before = umask(077); /* children that drop their privileges must get through all the same */
    assert_int_equal(ull__ledger_folder(true, path, &err), ULL_OK);
    umask(before);
    assert_string_equal(path, users);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0711);
    assert_int_equal(ull__ledger_folder(false, path, NULL), ULL_OK);
    assert_int_equal(ull__ledger_folder(true, path, NULL), ULL_OK);
}

static void not_a_folder_of_ours(void **state)
{
    (void)state;
    assert_int_equal(symlink(test_folder(), users), 0);
    assert_create_fails(ULL_E_PERMISSION, users);
    unlink(users);
    close(open(users, O_CREAT | O_WRONLY, 0600));
    assert_create_fails(ULL_E_PERMISSION, users);
    unlink(users);
    mkdir(users, 0755);
    chmod(users, 0777); /* others may write */
    assert_create_fails(ULL_E_PERMISSION, users);
    chmod(users, 0711);
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(users, NOBODY, NOBODY), 0);
    assert_create_fails(ULL_E_PERMISSION, users);
}

static void no_such_place(void **state)
{
    (void)state;
    char gone[200], long_name[400];
    snprintf(gone, sizeof gone, "%s/gone", place);
    setenv("ULLAGE_SHM_DIR", gone, 1);
    assert_create_fails(ULL_E_SYSTEM, gone);
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[0] = '/';
    const size_t lengths[] = {399, 255, 239, 221}; /* none exists, and some do not fit */
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        long_name[lengths[i]] = '\0';
        setenv("ULLAGE_SHM_DIR", long_name, 1);
        struct ull__job_spec spec = test_spec(1, 100);
        struct ull__ledger *ledger;
        assert_int_not_equal(ull__ledger_create(&spec, &ledger, NULL), ULL_OK);
    }
}

/* Paths that fit in the folder's text, but not with a ledger's name behind it. */
static void too_long_with_the_name(void **state)
{
    (void)state;
    char deep[ULL_PATH_TEXT];
    int at = snprintf(deep, sizeof deep, "%s/", place);
    memset(deep + at, 'y', sizeof deep - (size_t)at);
    deep[235] = '\0';
    assert_int_equal(mkdir(deep, 0755), 0);
    setenv("ULLAGE_SHM_DIR", deep, 1);
    assert_create_fails(ULL_E_INVALID, deep);
}

static void too_many_devices(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger;
    struct ull_error err = {""};
    spec.device_count = ULL_MAX_DEVICES + 1;
    assert_int_equal(ull__ledger_create(&spec, &ledger, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "17"));
}

static int mount_and_fail(void *data)
{
    const char *options = data;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", place, "tmpfs", options ? 0 : MS_RDONLY, options) != 0)
        return 77;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger;
    struct ull_error err = {""};
    ull_status status = ull__ledger_create(&spec, &ledger, &err);
    if (status != ULL_E_SYSTEM || !strstr(err.message, users))
        return 1;
    /* Nothing is left behind of what did not fit. */
    return options && rmdir(users) != 0 ? 2 : 0;
}

static void read_only_or_full(void **state)
{
    (void)state;
    int read_only = test_wait(test_fork(mount_and_fail, NULL));
    if (read_only == 77) {
        print_message("skipped: not permitted to mount\n");
        skip();
    }
    assert_int_equal(read_only, 0);
    assert_int_equal(test_wait(test_fork(mount_and_fail, "size=64k")), 0);
}

/* --- files -------------------------------------------------------------------------------------- */

static void not_a_ledger(void **state)
{
    (void)state;
    char path[200];
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec), *again;
    snprintf(path, sizeof path, "%s/other", place);
    assert_open_fails(path, ULL_E_NOT_FOUND);
    assert_int_equal(symlink(ull__ledger_path(ledger), path), 0);
    assert_open_fails(path, ULL_E_NOT_FOUND);
    unlink(path);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_open_fails(path, ULL_E_FORMAT);
    assert_int_equal(truncate(path, sizeof(struct ull__ledger_file)), 0); /* right size, no magic */
    assert_open_fails(path, ULL_E_FORMAT);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_open_fails(path, ULL_E_FORMAT);

    assert_int_equal(ull__ledger_open(ull__ledger_path(ledger), &again, NULL), ULL_OK);
    ull__ledger_close(again);
    atomic_fetch_add(&ledger->file->magic, 1);
    assert_open_fails(ull__ledger_path(ledger), ULL_E_FORMAT);
    atomic_fetch_sub(&ledger->file->magic, 1);
    ull__ledger_close(NULL);
    snprintf(path, sizeof path, "%s", ull__ledger_path(ledger));
    ull__ledger_close(ledger);
    assert_int_equal(truncate(path, sizeof(struct ull__ledger_file) - 1), 0);
    assert_open_fails(path, ULL_E_FORMAT);
    struct ull__member *member;
    struct ull_error err;
    assert_int_equal(ull__member_join("", &(struct ull__identity){.pid = 1}, &member, &err),
                     ULL_E_NOT_FOUND);
}

static int open_as_nobody(void *data)
{
    struct ull__ledger *ledger;
    struct ull_error err = {""};
    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        return 77;
    ull_status status = ull__ledger_open(data, &ledger, &err);
    return status == ULL_OK ? 0 : status == ULL_E_PERMISSION && strstr(err.message, data) ? 1 : 2;
}

static void another_user(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: needs root to become another user\n");
        skip();
    }
    struct ull__job_spec spec = test_spec(1, 100);
    mode_t before = umask(077);
    chmod(test_folder(), 0755);
    struct ull__ledger *ledger = test_create(&spec);
    umask(before);
    char *path = (char *)ull__ledger_path(ledger);
    /* Root's children may drop their privileges and are held all the same. */
    assert_int_equal(test_wait(test_fork(open_as_nobody, path)), 0);
    chmod(path, 0600); /* as everybody else's is */
    assert_int_equal(test_wait(test_fork(open_as_nobody, path)), 1);
    test_destroy(ledger);
}

/* --- listing and removing ----------------------------------------------------------------------- */

struct seen {
    int count, copies;
    char path[ULL_PATH_TEXT];
    struct ull__job_view job;
    bool supervised, removed;
};

static void see(struct ull__ledger *ledger, void *data)
{
    struct seen *seen = data;
    seen->count++;
    seen->copies += ledger->copy;
    snprintf(seen->path, sizeof seen->path, "%s", ull__ledger_path(ledger));
    ull__ledger_job(ledger, &seen->job);
    seen->supervised = ull__ledger_supervised(ledger);
    for (int i = -1; i <= ULL_MAX_SLOTS; i++) {
        struct ull__process_view process;
        struct ull__account_view account;
        ull__ledger_process(ledger, i, &process);
        ull__ledger_account(ledger, i, &account);
    }
    ull__ledger_sweep(ledger, NULL, NULL);
    seen->removed = ull__ledger_remove_if_dead(ledger);
}

static struct seen look(void)
{
    struct seen seen = {0};
    ull__ledger_each(see, &seen);
    return seen;
}

static void removed_when_all_are_gone(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    assert_int_equal(look().count, 0);
    struct ull__ledger *ledger = test_create_unsupervised(&spec);
    struct test_holder holder = test_hold(ull__ledger_path(ledger), 10, 42);
    assert_false(ull__ledger_supervised(ledger)); /* others see the supervisor's death */
    assert_false(ull__ledger_supervised(ledger));
    assert_false(ull__ledger_remove_if_dead(ledger)); /* a process of the job lives */
    struct seen seen = look();
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.path, ull__ledger_path(ledger));
    assert_false(seen.supervised);
    assert_false(seen.removed);
    assert_int_equal(seen.job.process_count, 1);
    test_kill(holder.pid);
    ull__ledger_sweep(ledger, test_listed, NULL);
    assert_false(ull__ledger_remove_if_dead(ledger)); /* its bytes are not freed yet */
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    assert_true(look().removed);
    assert_int_equal(access(ull__ledger_path(ledger), F_OK), -1);
    assert_int_equal(look().count, 0);
    ull__ledger_close(ledger);
}

struct taken {
    const char *known; /* a path that is not wanted */
    int asked, count;
    struct ull__ledger *ledger;
};

static bool wanted(const char *path, void *data)
{
    struct taken *taken = data;
    taken->asked++;
    return !taken->known || strcmp(path, taken->known) != 0;
}

static void take(struct ull__ledger *ledger, void *data)
{
    struct taken *taken = data;
    taken->count++;
    ull__ledger_close(taken->ledger);
    taken->ledger = ledger;
}

/* Those who look again and again keep what they have open, and get only what is new. */
static void taken_for_good(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    struct taken taken = {0};
    ull__ledger_take(wanted, take, &taken);
    assert_int_equal(taken.count, 1);
    assert_false(ull__ledger_is_copy(taken.ledger));
    struct taken again = {.known = ull__ledger_path(ledger)};
    ull__ledger_take(wanted, take, &again);
    assert_int_equal(again.asked, 1);
    assert_int_equal(again.count, 0);
    ull__ledger_take(NULL, take, &again);
    assert_int_equal(again.count, 1);
    ull__ledger_close(again.ledger);
    test_destroy(ledger);
    /* It stays open, and can be read, when its file is gone. */
    assert_string_equal(ull__ledger_spec(taken.ledger)->name, spec.name);
    ull__ledger_close(taken.ledger);
}

static int supervise(void *data)
{
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger;
    if (ull__ledger_create(&spec, &ledger, NULL) != ULL_OK || write(*(int *)data, "", 1) != 1)
        return 1;
    for (;;)
        pause();
}

static void a_supervisor_is_seen_until_it_dies(void **state)
{
    (void)state;
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = test_fork(supervise, &ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    struct seen seen = look();
    assert_int_equal(seen.count, 1);
    assert_true(seen.supervised);
    assert_true(seen.job.supervisor_alive);
    assert_int_equal(seen.job.supervisor_pid, pid);
    assert_false(seen.removed);
    test_kill(pid);
    seen = look();
    assert_false(seen.supervised);
    assert_true(seen.removed);
    close(ends[0]);
    close(ends[1]);
}

static void closing_gives_the_supervision_up(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec), *other;
    assert_int_equal(ull__ledger_open(ull__ledger_path(ledger), &other, NULL), ULL_OK);
    assert_true(ull__ledger_supervised(ledger));
    assert_true(ull__ledger_supervised(other));
    ull__ledger_close(ledger);
    assert_false(ull__ledger_supervised(other));
    assert_true(ull__ledger_remove_if_dead(other));
    ull__ledger_close(other);
}

/* Root looks at what another user may have filled with anything. */
static void another_users_ledger_is_only_looked_at(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: needs root to look at another user's ledger\n");
        skip();
    }
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create_unsupervised(&spec);
    struct ull__ledger_file *file = ledger->file;
    assert_int_equal(chown(ull__ledger_path(ledger), NOBODY, NOBODY), 0);
    file->supervisor_pid = (uint32_t)getpid();
    uint64_t seed = 88172645463325252ull;
    for (int round = 0; round < 20; round++) {
        for (uint64_t *at = (uint64_t *)file; round && at < (uint64_t *)(file + 1); at++)
            *at = round == 1 ? ~0ull : test_random(&seed);
        atomic_store(&file->magic, LEDGER_MAGIC);
        file->size = sizeof *file;
        struct seen seen = look();
        assert_int_equal(seen.count, 1);
        assert_int_equal(seen.copies, 1);
        assert_false(seen.removed);
        assert_true(round || seen.supervised);
    }
    unlink(ull__ledger_path(ledger));
    ull__ledger_close(ledger);
}

/* One that was killed while it made its ledger: at each moment, the file is removed by whoever looks, and only then. */
static void half_made(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    char path[ULL_PATH_TEXT];
    const off_t sizes[] = {0, 4, 100, (off_t)sizeof *ledger->file};
    snprintf(path, sizeof path, "%s", ull__ledger_path(ledger));
    path[strlen(path) - 1] = path[strlen(path) - 1] == '0' ? '1' : '0';
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, sizes[i]), 0);
        assert_int_equal(flock(fd, LOCK_EX), 0); /* somebody is making it */
        assert_int_equal(look().count, 1);
        assert_int_equal(access(path, F_OK), 0);
        close(fd);
        struct ull__ledger *none; /* by who looks at all, or at this one, as the daemon does */
        if (i % 2 == 0)
            assert_int_equal(look().count, 1);
        else
            assert_int_equal(ull__ledger_look(path, &none, NULL), ULL_E_NOT_FOUND);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    int whole = open(ull__ledger_path(ledger), O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(whole, LOCK_EX | LOCK_NB), 0); /* the lock is for others */
    close(whole);
    const uint64_t other = LEDGER_MAGIC - 1; /* of another version */
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, &other, sizeof other), sizeof other);
    close(fd);
    assert_int_equal(look().count, 1);
    assert_int_equal(unlink(path), 0);
    test_destroy(ledger);
}

/* Whoever looks all the time never takes one that is being made from its maker. */
static void made_while_others_look(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        for (;;)
            look();
    for (int i = 0; i < 200; i++) {
        struct ull__ledger *ledger = test_create(&spec);
        assert_int_equal(access(ull__ledger_path(ledger), F_OK), 0);
        test_destroy(ledger);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

#define IN_FRESH_PLACE(test) cmocka_unit_test_setup_teardown(test, fresh_place, old_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FRESH_PLACE(made_when_missing),
        IN_FRESH_PLACE(not_a_folder_of_ours),
        IN_FRESH_PLACE(no_such_place),
        IN_FRESH_PLACE(too_long_with_the_name),
        IN_FRESH_PLACE(too_many_devices),
        IN_FRESH_PLACE(read_only_or_full),
        IN_FRESH_PLACE(not_a_ledger),
        IN_FRESH_PLACE(another_user),
        IN_FRESH_PLACE(removed_when_all_are_gone),
        IN_FRESH_PLACE(taken_for_good),
        IN_FRESH_PLACE(half_made),
        IN_FRESH_PLACE(made_while_others_look),
        IN_FRESH_PLACE(a_supervisor_is_seen_until_it_dies),
        IN_FRESH_PLACE(closing_gives_the_supervision_up),
        IN_FRESH_PLACE(another_users_ledger_is_only_looked_at),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
