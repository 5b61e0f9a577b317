/* test_file.c: whole or not at all. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "file.h"

static char folder[] = "/tmp/ullage-test-file-XXXXXX";

static char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int files_in(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void check_text(const char *path, const char *expected)
{
    char *text;
    size_t size;
    assert_int_equal(ull__file_read(path, 1 << 20, &text, &size, NULL), ULL_OK);
    assert_string_equal(text, expected);
    assert_int_equal(size, strlen(expected));
    free(text);
}

static void writes_and_replaces(void **state)
{
    (void)state;
    assert_int_equal(ull__file_write(in_folder("a"), "one", 3, NULL), ULL_OK);
    assert_int_equal(ull__file_write(in_folder("a"), "second", 6, NULL), ULL_OK);
    check_text(in_folder("a"), "second");
    assert_int_equal(files_in(folder), 1);
    struct stat info;
    mode_t mask = umask(0);
    umask(mask);
    stat(in_folder("a"), &info);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
    unlink(in_folder("a"));
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    struct rlimit old, small;
    struct ull_error err;
    static char big[1 << 16];
    (void)state;
    assert_int_equal(ull__file_write(in_folder("a"), "old", 3, NULL), ULL_OK);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 1024;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    ull_status status = ull__file_write(in_folder("a"), big, sizeof big, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(status, ULL_E_SYSTEM);
    assert_non_null(strstr(err.message, "/a"));
    check_text(in_folder("a"), "old");
    assert_int_equal(files_in(folder), 1);
    unlink(in_folder("a"));
}

static void writes_through_links_and_to_devices(void **state)
{
    char target[256];
    struct stat info;
    (void)state;
    snprintf(target, sizeof target, "%s", in_folder("target"));
    assert_int_equal(ull__file_write(target, "x", 1, NULL), ULL_OK);
    assert_int_equal(symlink(target, in_folder("link")), 0);
    assert_int_equal(ull__file_write(in_folder("link"), "y", 1, NULL), ULL_OK);
    check_text(target, "y");
    lstat(in_folder("link"), &info);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(ull__file_write("/dev/null", "x", 1, NULL), ULL_OK);
    stat("/dev/null", &info);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(ull__file_write("/dev/full", "x", 1, NULL), ULL_E_SYSTEM);
    unlink(in_folder("link"));
    unlink(target);
}

/* What is behind a descriptor is no file to replace: not even where it has no name any more. */
static void writes_to_its_own_descriptors(void **state)
{
    char name[64], text[16] = "";
    (void)state;
    int fd = open(in_folder("out"), O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0 && write(fd, "before", 6) == 6);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    assert_int_equal(ull__file_check(name, NULL), ULL_OK);
    assert_int_equal(ull__file_write(name, "then", 4, NULL), ULL_OK);
    check_text(in_folder("out"), "beforethen");
    assert_int_equal(files_in(folder), 1);
    unlink(in_folder("out"));
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    assert_int_equal(ull__file_write(name, "!", 1, NULL), ULL_OK);
    assert_int_equal(pread(fd, text, sizeof text - 1, 0), 11);
    assert_string_equal(text, "beforethen!");
    assert_int_equal(files_in(folder), 0);
    close(fd);
    assert_int_equal(ull__file_check(name, NULL), ULL_E_SYSTEM);
    assert_int_equal(ull__file_write(name, "!", 1, NULL), ULL_E_SYSTEM);
    fd = open("/dev/null", O_RDONLY);
    snprintf(name, sizeof name, "/dev/fd/%d", fd);
    assert_int_equal(ull__file_check(name, NULL), ULL_E_SYSTEM);
    close(fd);
}

static void checks_without_a_trace(void **state)
{
    struct ull_error err;
    (void)state;
    assert_int_equal(ull__file_check(in_folder("new"), NULL), ULL_OK);
    assert_int_equal(files_in(folder), 0);
    assert_int_equal(ull__file_check(in_folder("no/such/folder"), &err), ULL_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "no/such/folder"));
    assert_int_equal(ull__file_check(folder, NULL), ULL_E_INVALID);
    assert_int_equal(ull__file_check("", NULL), ULL_E_INVALID);
    assert_int_equal(ull__file_check("/proc/nothing-here", NULL), ULL_E_NOT_FOUND);
}

/* What could not be written is found out before, as is a name that has just room for itself. */
static void checks_as_it_writes(void **state)
{
    char path[300], name[251];
    (void)state;
    memset(name, 'n', 250);
    name[250] = 0;
    snprintf(path, sizeof path, "%s/%s", folder,
             name); /* of 255, with 7 more that a temporary file has */
    assert_int_equal(ull__file_check(path, NULL), ULL_E_SYSTEM);
    assert_int_equal(ull__file_write(path, "x", 1, NULL), ULL_E_SYSTEM);
    path[strlen(path) - 2] = 0; /* there is room for these, but not for ULL_FILE_SECOND */
    assert_int_equal(ull__file_check(path, NULL), ULL_OK);
    assert_int_equal(ull__file_write(path, "x", 1, NULL), ULL_OK);
    check_text(path, "x");
    unlink(path);
    assert_int_equal(mkdir(in_folder("gone"), 0700), 0);
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(chdir(in_folder("gone")), 0);
    assert_int_equal(rmdir(in_folder("gone")), 0);
    ull_status checked = ull__file_check("a", NULL), written = ull__file_write("a", "x", 1, NULL);
    assert_int_equal(fchdir(here), 0);
    close(here);
    assert_int_equal(checked, ULL_E_NOT_FOUND);
    assert_int_equal(written, ULL_E_NOT_FOUND);
    assert_int_equal(files_in(folder), 0);
}

/* Two that write the same file again and again are killed at any moment, many times. */
static void killed_writers_leave_at_most_one_whole_file(void **state)
{
    enum { KILLS = 100, SIZE = 20000 };
    char second[280], text[2][SIZE + 1] = {{0}};
    (void)state;
    memset(text[0], 'a', SIZE);
    memset(text[1], 'b', SIZE);
    snprintf(second, sizeof second, "%s" ULL_FILE_SECOND, in_folder("a"));
    for (int k = 0; k < KILLS; k++) {
        pid_t writers[2];
        for (int i = 0; i < 2; i++)
            if ((writers[i] = fork()) == 0)
                for (;;)
                    if (ull__file_write(in_folder("a"), text[i], SIZE, NULL) != ULL_OK)
                        _exit(1);
        usleep((useconds_t)(1000 + k % 50 * 97));
        for (int i = 0; i < 2; i++) {
            int status;
            kill(writers[i], SIGKILL);
            waitpid(writers[i], &status, 0);
            assert_true(WIFSIGNALED(status)); /* no write failed */
        }
        assert_int_equal(files_in(folder),
                         (access(in_folder("a"), F_OK) == 0) + (access(second, F_OK) == 0));
        const char *const names[] = {in_folder("a"), second};
        for (int i = 0; i < 2; i++) {
            char *got;
            size_t size;
            if (ull__file_read(names[i], 1 << 20, &got, &size, NULL) != ULL_OK)
                continue;
            assert_int_equal(size, SIZE);
            assert_true(strcmp(got, text[0]) == 0 || strcmp(got, text[1]) == 0);
            free(got);
        }
    }
    ull__file_write(second, "left", 4, NULL); /* by one that was killed just before it had its place */
    assert_int_equal(ull__file_write(in_folder("a"), "new", 3, NULL), ULL_OK);
    check_text(in_folder("a"), "new");
    assert_int_equal(files_in(folder), 1);
    unlink(in_folder("a"));
}

static void reads_within_a_limit(void **state)
{
    char *text;
    size_t size;
    (void)state;
    ull__file_write(in_folder("a"), "0123456789", 10, NULL);
    assert_int_equal(ull__file_read(in_folder("a"), 9, &text, &size, NULL), ULL_E_FORMAT);
    assert_int_equal(ull__file_read(in_folder("b"), 9, &text, &size, NULL), ULL_E_NOT_FOUND);
    assert_int_equal(ull__file_read(folder, 9, &text, &size, NULL), ULL_E_FORMAT);
    unlink(in_folder("a"));
}

static void makes_folders_and_finds_homes(void **state)
{
    char path[ULL_FILE_PATH];
    (void)state;
    assert_int_equal(ull__folder_create(in_folder("x/y//z"), NULL), ULL_OK);
    assert_int_equal(ull__folder_create(in_folder("x/y/z"), NULL), ULL_OK);
    ull__file_write(in_folder("x/f"), "", 0, NULL);
    assert_int_equal(ull__folder_create(in_folder("x/f/g"), NULL), ULL_E_NOT_FOUND);
    setenv("HOME", "/home/u", 1);
    setenv("XDG_STATE_HOME", "relative", 1);
    assert_true(ull__state_folder(path));
    assert_string_equal(path, "/home/u/.local/state/ullage");
    setenv("XDG_STATE_HOME", "/s", 1);
    assert_true(ull__state_folder(path));
    assert_string_equal(path, "/s/ullage");
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("HOME");
    assert_false(ull__config_folder(path));
}

/* From Linux 6.3 on there are systems that make no other kind (vm.memfd_noexec), or say so in the kernel's log. */
static void memory_files_are_not_to_be_executed(void **state)
{
    enum { NOEXEC_SEAL = 8, SEAL_EXEC = 32 };
    struct stat st;
    (void)state;
    int fd = ull__memory_file("test"), plain = (int)syscall(SYS_memfd_create, "plain", NOEXEC_SEAL);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(pwrite(fd, "x", 1, 4095), 1);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    if (plain >= 0) { /* the system knows of it */
        assert_int_equal(fcntl(fd, F_GET_SEALS) & SEAL_EXEC, SEAL_EXEC);
        assert_int_equal(st.st_mode & 0111, 0);
        close(plain);
    }
    close(fd);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_and_replaces),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(writes_through_links_and_to_devices),
        cmocka_unit_test(writes_to_its_own_descriptors),
        cmocka_unit_test(checks_without_a_trace),
        cmocka_unit_test(checks_as_it_writes),
        cmocka_unit_test(killed_writers_leave_at_most_one_whole_file),
        cmocka_unit_test(reads_within_a_limit),
        cmocka_unit_test(makes_folders_and_finds_homes),
        cmocka_unit_test(memory_files_are_not_to_be_executed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
