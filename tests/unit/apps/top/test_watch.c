/* test_watch.c: the thread that collects: samples come, delays change, an end is an end. No card, no job. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "watch.h"

static char folder[] = "/tmp/ullage-watch.XXXXXX";

static struct sample *next(struct watch *watch)
{
    struct pollfd ready = {.fd = watch_fd(watch), .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 20000), 1);
    return watch_take(watch);
}

static void samples_come(void **state)
{
    (void)state;
    struct watch *watch = watch_start(0.1);
    assert_non_null(watch);
    for (uint64_t i = 1; i <= 3; i++) {
        struct sample *sample = next(watch);
        assert_non_null(sample);
        assert_true(sample->number >= i);
        assert_int_equal(sample->job_count, 0);
        sample_destroy(sample);
    }
    watch_stop(watch);
    watch_stop(NULL);
}

/* Nobody takes them: the newest is there, the others are not kept. */
static void the_newest_counts(void **state)
{
    (void)state;
    struct watch *watch = watch_start(0.1);
    assert_non_null(watch);
    struct timespec a_while = {.tv_nsec = 450000000};
    nanosleep(&a_while, NULL);
    struct sample *sample = next(watch);
    assert_non_null(sample);
    assert_true(sample->number >= 2);
    sample_destroy(sample);
    watch_stop(watch);
}

/* A long delay that is shortened does not have to pass first. */
static void another_delay(void **state)
{
    (void)state;
    struct watch *watch = watch_start(3600);
    assert_non_null(watch);
    sample_destroy(next(watch));
    watch_set_seconds(watch, 0.1);
    for (int i = 0; i < 3; i++)
        sample_destroy(next(watch));
    watch_set_seconds(watch, 3600);
    watch_stop(watch); /* nor does an end */
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    setenv("ULLAGE_SHM_DIR", folder, 1);
    setenv("ULLAGE_LIBNVML", "/nonexistent", 1);
    unsetenv("LD_LIBRARY_PATH");
    const struct CMUnitTest tests[] = {cmocka_unit_test(samples_come),
                                       cmocka_unit_test(the_newest_counts),
                                       cmocka_unit_test(another_delay)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
