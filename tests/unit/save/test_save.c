/* test_save.c: what is saved comes back, older ones go, damaged ones are noticed, one process at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>

#include "save.h"

#include "folder.h"
#include "training.h"

static char folder[256];
static int warnings;
static char last_warning[600];

static void warn(void *context, const char *message)
{
    (void)context;
    warnings++;
    snprintf(last_warning, sizeof last_warning, "%s", message);
}

static int begin(void **state)
{
    (void)state;
    folder_make(folder);
    warnings = 0;
    return 0;
}

static int end(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

static struct ull__save *opened(uint64_t *newest)
{
    struct ull_error err = {""};
    struct ull__save *save = NULL;
    if (ull__save_open(folder, warn, NULL, &save, newest, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return save;
}

static void saved(struct ull__save *save, uint64_t step)
{
    struct ull_error err = {""};
    if (training_save(save, step, &err) != ULL_OK)
        fail_msg("%s", err.message);
}

static uint64_t loaded(void)
{
    struct ull_error err = {""};
    struct ull__saved from;
    if (ull__save_load(folder, warn, NULL, &from, &err) != ULL_OK)
        fail_msg("%s", err.message);
    uint64_t step = training_check(&from);
    ull__saved_close(&from);
    return step;
}

static bool has(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static int names_in_folder(void)
{
    int count = 0;
    DIR *directory = opendir(folder);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count - 2;
}

static void the_last_two_are_kept(void **state)
{
    (void)state;
    uint64_t newest = 0;
    struct ull__save *save = opened(&newest);
    assert_true(newest == UINT64_MAX);
    struct ull_error err = {""};
    struct ull__saved from;
    assert_int_equal(ull__save_load(folder, warn, NULL, &from, &err), ULL_E_NOT_FOUND);
    for (uint64_t step = 1; step <= 5; step++) {
        saved(save, step);
        assert_int_equal(loaded(), step);
    }
    assert_true(has("step-00000005") && has("step-00000004") && !has("step-00000003"));
    assert_int_equal(names_in_folder(), 3); /* and lock */
    saved(save, 5);                         /* the same step once more: never less than one of it */
    assert_int_equal(loaded(), 5);
    assert_true(has("step-00000005.1") && !has("step-00000005") && has("step-00000004"));
    saved(save, 123456789012);
    assert_int_equal(loaded(), 123456789012);
    assert_int_equal(training_save(save, 6, &err), ULL_E_INVALID); /* of another training */
    assert_non_null(strstr(err.message, "another training"));
    ull__save_close(save);
    save = opened(&newest);
    assert_true(newest == 123456789012);
    ull__save_close(save);
    assert_int_equal(warnings, 0);
}

static void a_save_itself_can_be_loaded(void **state)
{
    (void)state;
    uint64_t newest;
    struct ull__save *save = opened(&newest);
    saved(save, 1);
    saved(save, 2);
    ull__save_close(save);
    char path[300];
    snprintf(path, sizeof path, "%s/step-00000001", folder);
    struct ull__saved from;
    assert_int_equal(ull__save_load(path, warn, NULL, &from, NULL), ULL_OK);
    assert_int_equal(training_check(&from), 1);
    ull__saved_close(&from);
    snprintf(path, sizeof path, "%s/nowhere", folder);
    assert_int_equal(ull__save_load(path, warn, NULL, &from, NULL), ULL_E_NOT_FOUND);
}

static void one_process_at_a_time(void **state)
{
    (void)state;
    uint64_t newest;
    struct ull__save *save = opened(&newest), *other = NULL;
    saved(save, 1);
    struct ull_error err = {""};
    assert_int_equal(ull__save_open(folder, warn, NULL, &other, &newest, &err), ULL_E_STARTED);
    char pid[32];
    snprintf(pid, sizeof pid, "(pid %d)", (int)getpid());
    assert_non_null(strstr(err.message, pid));
    assert_null(other);
    assert_int_equal(loaded(), 1); /* reading goes on */
    ull__save_close(save);
    save = opened(&newest);
    ull__save_close(save);
}

static void places_that_cannot_be_saved_into(void **state)
{
    (void)state;
    struct ull__save *save = NULL;
    uint64_t newest = 7;
    struct ull_error err = {""};
    char path[300];
    snprintf(path, sizeof path, "%s/file", folder);
    file_write(path, "x", 1);
    assert_int_equal(ull__save_open(path, warn, NULL, &save, &newest, &err), ULL_E_INVALID);
    assert_int_equal(ull__save_open("", warn, NULL, &save, &newest, &err), ULL_E_INVALID);
    assert_int_not_equal(ull__save_open("/proc/no/where", warn, NULL, &save, &newest, &err), ULL_OK);
    assert_true(!save && newest == 7);
    snprintf(path, sizeof path, "%s/a/b", folder);
    assert_int_equal(ull__save_open(path, warn, NULL, &save, &newest, &err), ULL_OK);
    ull__save_close(save);
    if (geteuid() == 0)
        return; /* nothing is read-only for root */
    save = NULL;
    assert_int_equal(chmod(path, 0555), 0);
    unlink("lock");
    char lock[320];
    snprintf(lock, sizeof lock, "%s/lock", path);
    chmod(path, 0755);
    unlink(lock);
    chmod(path, 0555);
    assert_int_equal(ull__save_open(path, warn, NULL, &save, &newest, &err), ULL_E_PERMISSION);
    chmod(path, 0755);
}

/* Every byte of a save, changed, and every length shorter than the file, are noticed. */
static void damage_is_noticed(void **state)
{
    (void)state;
    uint64_t newest;
    struct ull__save *save = opened(&newest);
    saved(save, 1);
    saved(save, 2);
    ull__save_close(save);
    const char *names[] = {"state.json", "model.safetensors", "state.safetensors"};
    for (int f = 0; f < 3; f++) {
        char path[300];
        snprintf(path, sizeof path, "%s/step-00000002/%s", folder, names[f]);
        size_t size;
        char *bytes = file_read(path, &size);
        size_t step = f ? 97 : 7;
        for (size_t i = 0; i < size; i += step) {
            bytes[i] ^= 1;
            file_write(path, bytes, size);
            warnings = 0;
            if (loaded() != 1 || warnings != 1)
                fail_msg("byte %zu of %s was changed unseen", i, names[f]);
            bytes[i] ^= 1;
        }
        for (size_t length = 0; length < size; length += 13 * step) {
            file_write(path, bytes, length);
            warnings = 0;
            if (loaded() != 1 || warnings != 1)
                fail_msg("%s of %zu bytes was taken", names[f], length);
        }
        assert_non_null(strstr(last_warning, names[f]));
        unlink(path);
        assert_int_equal(loaded(), 1);
        file_write(path, bytes, size);
        free(bytes);
        assert_int_equal(loaded(), 2);
    }
}

static void a_training_goes_on_from_before_the_damage(void **state)
{
    (void)state;
    uint64_t newest;
    struct ull__save *save = opened(&newest);
    saved(save, 1);
    saved(save, 2);
    ull__save_close(save);
    char path[300];
    snprintf(path, sizeof path, "%s/step-00000002/state.json", folder);
    file_write(path, "{}", 2);
    save = opened(&newest);
    assert_int_equal(newest, 1);
    assert_int_equal(warnings, 1);
    assert_true(has(".damaged-step-00000002")); /* until there is a newer one */
    saved(save, 2);
    assert_false(has(".damaged-step-00000002"));
    assert_int_equal(loaded(), 2);
    assert_int_equal(names_in_folder(), 3);
    ull__save_close(save);

    file_write(path, "{}", 2);
    snprintf(path, sizeof path, "%s/step-00000001/model.safetensors", folder);
    file_write(path, "", 0);
    struct ull_error err = {""};
    struct ull__save *none = NULL;
    assert_int_equal(ull__save_open(folder, warn, NULL, &none, &newest, &err), ULL_E_FORMAT);
    assert_non_null(strstr(err.message, "every save"));
    assert_true(has("step-00000002") && has("step-00000001")); /* nothing was touched */
    struct ull__saved from;
    assert_int_equal(ull__save_load(folder, warn, NULL, &from, &err), ULL_E_NOT_FOUND);
}

static void states_that_cannot_be_kept(void **state)
{
    (void)state;
    uint64_t newest;
    struct ull__save *save = opened(&newest);
    saved(save, 1);
    struct training t;
    training_at(&t, 2);
    t.state.data = "{";
    struct ull_error err = {""};
    assert_int_equal(ull__save_write(save, &t.state, t.model, 2, t.rest, 1, &err), ULL_E_INVALID);
    assert_non_null(strstr(err.message, "data"));
    training_at(&t, 2);
    t.model[1].name = "w";
    assert_int_equal(ull__save_write(save, &t.state, t.model, 2, t.rest, 1, &err), ULL_E_INVALID);
    assert_int_equal(names_in_folder(), 2);
    assert_int_equal(loaded(), 1);
    ull__save_close(save);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_last_two_are_kept, begin, end),
        cmocka_unit_test_setup_teardown(a_save_itself_can_be_loaded, begin, end),
        cmocka_unit_test_setup_teardown(one_process_at_a_time, begin, end),
        cmocka_unit_test_setup_teardown(places_that_cannot_be_saved_into, begin, end),
        cmocka_unit_test_setup_teardown(damage_is_noticed, begin, end),
        cmocka_unit_test_setup_teardown(a_training_goes_on_from_before_the_damage, begin, end),
        cmocka_unit_test_setup_teardown(states_that_cannot_be_kept, begin, end),
    };
    return cmocka_run_group_tests_name("save", tests, NULL, NULL);
}
