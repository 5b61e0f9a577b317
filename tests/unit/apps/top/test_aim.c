/* test_aim.c: a signal reaches the process that was seen, or nobody. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "aim.h"
#include "procfs.h"

static pid_t sleeper(struct proc_stat *stat)
{
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    assert_true(pid > 0);
    assert_true(proc_stat((uint32_t)pid, stat));
    return pid;
}

static int end_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void it_is_sent(void **state)
{
    (void)state;
    struct proc_stat stat;
    struct ull_error err;
    int fd = -1;
    pid_t pid = sleeper(&stat);
    assert_int_equal(stat.parent, getpid());
    assert_int_equal(aim_open((uint32_t)pid, stat.start_ticks, &fd, &err), ULL_OK);
    assert_int_equal(aim_send(fd, SIGTERM, &err), ULL_OK);
    assert_int_equal(end_of(pid), SIGTERM);
    assert_int_equal(aim_send(fd, SIGTERM, &err), ULL_E_NOT_FOUND);
    close(fd);
}

/* Another process that has the number now has another start time. */
static void not_to_another(void **state)
{
    (void)state;
    struct proc_stat stat;
    struct ull_error err;
    int fd = -7;
    pid_t pid = sleeper(&stat);
    assert_int_equal(aim_open((uint32_t)pid, stat.start_ticks - 1, &fd, &err), ULL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "another one"));
    assert_int_equal(fd, -7);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(end_of(pid), SIGKILL);
    assert_int_equal(aim_open((uint32_t)pid, stat.start_ticks, &fd, &err), ULL_E_NOT_FOUND);
    assert_int_equal(fd, -7);
}

/* Held before it ended: a signal later goes nowhere, whoever has the number by then. */
static void held_over_its_end(void **state)
{
    (void)state;
    struct proc_stat stat;
    struct ull_error err;
    int fd;
    pid_t pid = sleeper(&stat);
    assert_int_equal(aim_open((uint32_t)pid, stat.start_ticks, &fd, &err), ULL_OK);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(end_of(pid), SIGKILL);
    assert_int_equal(aim_send(fd, SIGKILL, &err), ULL_E_NOT_FOUND);
    close(fd);
}

static void not_permitted(void **state)
{
    (void)state;
    struct proc_stat stat;
    struct ull_error err;
    int fd, status;
    if (geteuid() != 0) {
        print_message("skipped: needs root\n");
        skip();
    }
    pid_t pid = sleeper(&stat);
    pid_t child = fork();
    if (child == 0) {
        bool refused = setuid(65534) == 0 &&
                       aim_open((uint32_t)pid, stat.start_ticks, &fd, &err) == ULL_OK &&
                       aim_send(fd, SIGKILL, &err) == ULL_E_PERMISSION;
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(end_of(pid), SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_sent), cmocka_unit_test(not_to_another),
                                       cmocka_unit_test(held_over_its_end),
                                       cmocka_unit_test(not_permitted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
