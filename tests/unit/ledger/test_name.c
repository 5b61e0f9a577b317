/*
 * test_name.c: a ledger's file that loses its name gets one again from its supervisor; and what lies at a ledger's path
 * without being one is not followed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

enum { NOBODY = 65534, SOMEBODY = 65533 };

static bool is_same(struct ull__ledger *ledger, const char *path)
{
    struct ull__ledger *again;
    if (ull__ledger_open(path, &again, NULL) != ULL_OK)
        return false;
    atomic_store(&ledger->file->stand_until_ms, 4711);
    bool same = atomic_load(&again->file->stand_until_ms) == 4711;
    ull__ledger_close(again);
    return same;
}

static void comes_back(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    const char *path = ull__ledger_path(ledger);
    char folder[ULL_PATH_TEXT];
    struct stat st;
    assert_int_equal(ull__ledger_keep_name(ledger, NULL), ULL_OK);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode)); /* what is there is left alone */

    assert_int_equal(ull__ledger_folder(false, folder, NULL), ULL_OK);
    for (int times = 0; times < 3; times++) {
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(folder), 0);
        assert_false(is_same(ledger, path));
        assert_int_equal(ull__ledger_keep_name(ledger, NULL), ULL_OK);
        assert_true(is_same(ledger, path));
    }
    struct ull__member *member = test_join(path);
    assert_non_null(member);
    assert_int_equal(ull__member_reserve(member, 0, ULL_CLASS_DATA, 70), ULL_OK);
    assert_int_equal(ull__member_reserve(member, 0, ULL_CLASS_DATA, 70), ULL_E_NO_MEMORY);
    test_die(member);
    test_forget(member);
    ull__ledger_sweep(ledger, test_not_listed, NULL);
    test_destroy(ledger);
    assert_int_equal(rmdir(folder), 0); /* nothing is left there */
}

static bool leads_to_a_ledger(const char *path, const char *target)
{
    struct ull__ledger *ledger = NULL;
    unlink(path);
    assert_int_equal(symlink(target, path), 0);
    int fd = ull__ledger_file(path, O_RDONLY);
    if (fd >= 0)
        close(fd);
    bool opened = ull__ledger_open(path, &ledger, NULL) == ULL_OK;
    assert_int_equal(opened, fd >= 0);
    ull__ledger_close(ledger);
    return opened;
}

static void other_links_are_not_followed(void **state)
{
    (void)state;
    struct ull__job_spec spec = test_spec(1, 100);
    struct ull__ledger *ledger = test_create(&spec);
    char path[200], target[200];
    snprintf(path, sizeof path, "%s%s", test_folder(), strrchr(ull__ledger_path(ledger), '/'));
    snprintf(target, sizeof target, "/proc/%d/fd/%d", (int)getpid(), ledger->fd);
    assert_true(leads_to_a_ledger(path, target));
    /* Another job's: the number was another process's before, or is so in another pid namespace. */
    struct ull__ledger *others = test_create(&spec);
    snprintf(target, sizeof target, "/proc/%d/fd/%d", (int)getpid(), others->fd);
    assert_false(leads_to_a_ledger(path, target));
    test_destroy(others);
    snprintf(target, sizeof target, "/proc/self/fd/%d", ledger->fd);
    assert_false(leads_to_a_ledger(path, target));
    snprintf(target, sizeof target, "/proc/%d/fd/%d/", (int)getpid(), ledger->fd);
    assert_false(leads_to_a_ledger(path, target));
    snprintf(target, sizeof target, "/proc/%d/fd/0%d", (int)getpid(), ledger->fd);
    assert_false(leads_to_a_ledger(path, target));
    assert_false(leads_to_a_ledger(path, ull__ledger_path(ledger)));
    assert_false(leads_to_a_ledger(path, "/etc/passwd"));
    int other = open(test_folder(), O_TMPFILE | O_RDWR, 0600), ends[2];
    assert_true(other >= 0 && pipe(ends) == 0);
    snprintf(target, sizeof target, "/proc/%d/fd/%d", (int)getpid(), other);
    assert_false(leads_to_a_ledger(path, target)); /* it has another size */
    assert_int_equal(ftruncate(other, sizeof(struct ull__ledger_file)), 0);
    assert_false(leads_to_a_ledger(path, target)); /* and now no name in it */
    assert_int_equal(pwrite(other, ledger->file->id, sizeof ledger->file->id,
                            offsetof(struct ull__ledger_file, id)),
                     sizeof ledger->file->id);
    struct ull__ledger *none;
    assert_int_equal(ull__ledger_open(path, &none, NULL), ULL_E_FORMAT); /* and now no magic */
    snprintf(target, sizeof target, "/proc/%d/fd/%d", (int)getpid(), ends[0]);
    assert_false(leads_to_a_ledger(path, target));

    ull__ledger_remove_dead_link(path); /* it leads somewhere */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/proc/999999999/fd/3", path), 0);
    ull__ledger_remove_dead_link(path);
    assert_int_equal(unlink(path), -1);
    close(other);
    close(ends[0]);
    close(ends[1]);
    test_destroy(ledger);
}

static int open_as_nobody(void *data)
{
    struct ull__ledger *ledger;
    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        return 77;
    return ull__ledger_open(data, &ledger, NULL) == ULL_OK ? 0 : 1;
}

/* One that anybody may write, and a link of theirs to it: with it, its maker would rule over who joins. */
static void not_from_others(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: needs root to become another user\n");
        skip();
    }
    struct ull__job_spec spec = test_spec(1, 100);
    chmod(test_folder(), 0755);
    struct ull__ledger *ledger = test_create(&spec);
    char *path = (char *)ull__ledger_path(ledger), target[64];
    assert_int_equal(test_wait(test_fork(open_as_nobody, path)),
                     0); /* root's: its children may drop rights */
    assert_int_equal(chown(path, NOBODY, NOBODY), 0);
    assert_int_equal(test_wait(test_fork(open_as_nobody, path)), 0);
    assert_int_equal(chown(path, SOMEBODY, SOMEBODY), 0);
    assert_int_equal(test_wait(test_fork(open_as_nobody, path)), 1);

    /* Root looks at what users have, but not wherever they point. */
    snprintf(target, sizeof target, "/proc/%d/fd/%d", (int)getpid(), ledger->fd);
    assert_int_equal(fchown(ledger->fd, 0, 0), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(target, path), 0);
    assert_true(is_same(ledger, path));
    assert_int_equal(lchown(path, SOMEBODY, SOMEBODY), 0);
    assert_int_equal(ull__ledger_file(path, O_RDONLY), -1);
    test_destroy(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back),
        cmocka_unit_test(other_links_are_not_followed),
        cmocka_unit_test(not_from_others),
    };
    return cmocka_run_group_tests(tests, test_folder_setup, test_folder_teardown);
}
