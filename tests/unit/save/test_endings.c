/*
 * test_endings.c: a save that is ended by SIGKILL, a full disk or an error at any of its system calls.
 *
 * The calls are wrapped by the linker, so that the n-th of them can end the process or fail, for each n.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "save.h"

#include "folder.h"
#include "training.h"

enum fate { NOTHING, KILL, FAIL, HALF };

static struct {
    enum fate fate;
    int error; /* of FAIL */
    int left;  /* calls until then; -1: not armed */
    int calls;
    bool record;
    char log[4096]; /* what was done to files, a letter and a digit of the descriptor each */
} fakes = {.left = -1};

/* Whether this call is the one; with KILL it is the last. */
static bool is_due(void)
{
    fakes.calls++;
    if (fakes.left < 0 || fakes.left-- > 0)
        return false;
    if (fakes.fate == KILL)
        kill(getpid(), SIGKILL);
    errno = fakes.error;
    return true;
}

static void note(char what, int fd)
{
    size_t used = strlen(fakes.log);
    if (fakes.record && used + 8 < sizeof fakes.log)
        snprintf(fakes.log + used, 8, "%c%d ", what, fd);
}

ssize_t __real_write(int fd, const void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, ...);
int __real_renameat(int a, const char *from, int b, const char *to);
int __wrap_renameat(int a, const char *from, int b, const char *to);
int __real_mkdirat(int folder, const char *name, mode_t mode);
int __wrap_mkdirat(int folder, const char *name, mode_t mode);
int __real_unlinkat(int folder, const char *name, int flags);
int __wrap_unlinkat(int folder, const char *name, int flags);

ssize_t __wrap_write(int fd, const void *bytes, size_t size)
{
    if (is_due()) {
        if (fakes.fate == HALF && size > 1) /* as a disk does that gets full: a part, then the error */
            return __real_write(fd, bytes, size / 2);
        return -1;
    }
    note('w', fd);
    if (size > 100 && fakes.fate == HALF)
        size = 100; /* short writes all the time */
    return __real_write(fd, bytes, size);
}

int __wrap_fsync(int fd)
{
    if (is_due())
        return -1;
    note('s', fd);
    return __real_fsync(fd);
}

int __wrap_close(int fd)
{
    bool due = is_due();
    int result = __real_close(fd);
    return due ? -1 : result;
}

int __wrap_openat(int folder, const char *name, int flags, ...)
{
    if (is_due())
        return -1;
    int fd = __real_openat(folder, name, flags, 0666);
    if (flags & O_CREAT)
        note('c', fd);
    return fd;
}

int __wrap_renameat(int a, const char *from, int b, const char *to)
{
    if (is_due())
        return -1;
    note(strncmp(to, "step-", 5) == 0 ? 'R' : 'r', a);
    return __real_renameat(a, from, b, to);
}

int __wrap_mkdirat(int folder, const char *name, mode_t mode)
{
    return is_due() ? -1 : __real_mkdirat(folder, name, mode);
}

int __wrap_unlinkat(int folder, const char *name, int flags)
{
    note('u', folder);
    return is_due() ? -1 : __real_unlinkat(folder, name, flags);
}

/* ---- the tests --------------------------------------------------------------------------------- */

static char folder[256];

static int begin(void **state)
{
    (void)state;
    fakes.left = -1;
    fakes.fate = NOTHING;
    folder_make(folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

static struct ull__save *opened(void)
{
    struct ull_error err = {""};
    struct ull__save *save = NULL;
    uint64_t newest;
    if (ull__save_open(folder, NULL, NULL, &save, &newest, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return save;
}

static uint64_t loaded(void)
{
    struct ull_error err = {""};
    struct ull__saved from;
    if (ull__save_load(folder, NULL, NULL, &from, &err) != ULL_OK)
        fail_msg("%s", err.message);
    uint64_t step = training_check(&from);
    ull__saved_close(&from);
    return step;
}

static void begin_with_two(void)
{
    struct ull__save *save = opened();
    assert_int_equal(training_save(save, 1, NULL), ULL_OK);
    assert_int_equal(training_save(save, 2, NULL), ULL_OK);
    ull__save_close(save);
}

/* Opens, saves steps 3 and 4, and closes, all of it under the fake calls. `done` is the last step saved. */
static void child(volatile uint64_t *done)
{
    struct ull__save *save = NULL;
    uint64_t newest;
    if (ull__save_open(folder, NULL, NULL, &save, &newest, NULL) != ULL_OK)
        _exit(1);
    for (uint64_t step = newest + 1; step <= 4; step++) {
        if (training_save(save, step, NULL) != ULL_OK)
            _exit(1);
        *done = step;
    }
    ull__save_close(save);
    _exit(0);
}

static void killed_at_any_call(void **state)
{
    (void)state;
    volatile uint64_t *done =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool ended = false;
    int kills = 0;
    for (int n = 0; !ended; n++) {
        begin_with_two();
        *done = 2;
        pid_t pid = fork();
        if (pid == 0) {
            fakes.fate = KILL;
            fakes.left = n;
            child(done);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        ended = WIFEXITED(status);
        if (ended)
            assert_int_equal(WEXITSTATUS(status), 0);
        kills += !ended;
        /* Nothing that was saved is lost, and what was being saved is there whole or not at all. */
        uint64_t step = loaded();
        if (step < *done || step > *done + 1)
            fail_msg("killed at call %d: step %d was saved, %d is there", n, (int)*done, (int)step);
        struct ull__save *save = opened();
        assert_int_equal(training_save(save, 9, NULL), ULL_OK);
        ull__save_close(save);
        assert_int_equal(loaded(), 9);
        char path[300];
        snprintf(path, sizeof path, "%s/.saving", folder);
        assert_int_not_equal(access(path, F_OK), 0);
        folder_remove(folder);
        assert_int_equal(mkdir(folder, 0700), 0);
    }
    assert_true(kills > 60); /* or the calls were not wrapped */
    munmap((void *)(uintptr_t)done, 4096);
}

static void an_error_at_any_call(void **state)
{
    (void)state;
    static const int errors[] = {ENOSPC, EIO, EROFS, EDQUOT};
    begin_with_two();
    uint64_t saved = 2;
    int failures = 0;
    for (int fate = FAIL; fate <= HALF; fate++) {
        for (int n = 0, done = 0; !done; n++) {
            struct ull__save *save = opened();
            struct ull_error err = {""};
            fakes.fate = (enum fate)fate;
            fakes.error = errors[n % 4];
            fakes.left = n;
            fakes.calls = 0;
            ull_status status = training_save(save, saved + 1, &err);
            done = fakes.calls <= n;
            fakes.left = -1;
            fakes.fate = NOTHING;
            if (status != ULL_OK) {
                failures++;
                assert_non_null(strstr(err.message, "is not saved"));
                assert_non_null(strstr(err.message, strerror(errors[n % 4])));
            }
            uint64_t step = loaded();
            if (step != saved && step != saved + 1)
                fail_msg("an error at call %d lost step %d", n, (int)saved);
            if (status == ULL_OK)
                assert_int_equal(step, saved + 1);
            assert_int_equal(training_save(save, saved + 2, &err), ULL_OK); /* the disk has room again */
            saved += 2;
            ull__save_close(save);
        }
    }
    assert_true(failures > 20);
}

/* What is flushed before it is renamed survives the end of the power; the order is what can be tested. */
static void flushed_before_it_is_renamed(void **state)
{
    (void)state;
    struct ull__save *save = opened();
    fakes.record = true;
    fakes.log[0] = 0;
    assert_int_equal(training_save(save, 1, NULL), ULL_OK);
    fakes.record = false;
    ull__save_close(save);
    char *renamed = strstr(fakes.log, "R");
    assert_non_null(renamed);
    int files = 0;
    bool dirty[1024] = {false};
    for (char *at = fakes.log; at < renamed; at = strchr(at, ' ') + 1) {
        int fd = atoi(at + 1);
        assert_in_range(fd, 0, 1023);
        if (*at == 'c')
            files++;
        if (*at == 'c' && dirty[fd])
            fail_msg("a file was closed unflushed: %s", fakes.log);
        dirty[fd] = *at == 's' ? false : true;
    }
    for (int fd = 0; fd < 1024; fd++)
        assert_false(dirty[fd]);
    assert_int_equal(files, 3);
    assert_true(renamed > fakes.log + 2 && *strchr(renamed, ' ') && strchr(renamed, ' ')[1] == 's');
    /* Four before: three files and their folder. */
    int flushes = 0;
    for (char *at = fakes.log; at < renamed; at++)
        flushes += *at == 's';
    assert_int_equal(flushes, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_at_any_call, begin, end),
        cmocka_unit_test_setup_teardown(an_error_at_any_call, begin, end),
        cmocka_unit_test_setup_teardown(flushed_before_it_is_renamed, begin, end),
    };
    return cmocka_run_group_tests_name("endings", tests, NULL, NULL);
}
