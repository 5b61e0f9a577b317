/* test_record.c: what goes through an adaptor is in the record, with tags, devices and what the pool holds. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "device.h"
#include "load.h"
#include "ullage/record.h"
#include "writer.h"

enum { MIB = 1 << 20 };

static char path[] = "/tmp/ullage-test-observe-XXXXXX";

struct world {
    struct ull__device *device;
    struct ull_pool *pool;
    struct ull_alloc *alloc;
};

static struct world open_world(void)
{
    struct world world;
    struct ull_pool_options options;
    assert_int_equal(ull__device_host_create(256 * MIB, 0, &world.device, NULL), ULL_OK);
    ull_pool_options_init(&options);
    options.limit = 64 * MIB;
    assert_int_equal(ull_pool_create(world.device, &options, &world.pool, NULL), ULL_OK);
    assert_int_equal(ull_alloc_over_pool(world.pool, &world.alloc), ULL_OK);
    return world;
}

static void close_world(struct world *world)
{
    ull_alloc_destroy(world->alloc);
    ull_pool_destroy(world->pool);
    ull__device_destroy(world->device);
}

static struct ull_record *make_record(void)
{
    struct ull_record *record;
    struct ull_error err;
    const struct ull_record_options options = {.name = "unit"};
    if (ull_record_create(path, &options, &record, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return record;
}

static struct ull__history *load(void)
{
    struct ull__history *history = NULL;
    struct ull_error err = {""};
    if (ull__history_load(path, &history, &err) != ULL_OK)
        fail_msg("%s", err.message);
    return history;
}

static void *request(struct ull_alloc *alloc, uint64_t bytes, const char *tag)
{
    void *address = NULL;
    struct ull_request wanted = {.bytes = bytes, .tag = tag};
    ull_alloc_request(alloc, &wanted, NULL, &address);
    return address;
}

/* Events of a kind, the n-th of them. */
static const struct ull__event *nth(const struct ull__history *history, int kind, int n)
{
    for (size_t i = 0; i < history->event_count; i++)
        if (history->events[i].kind == kind && n-- == 0)
            return &history->events[i];
    return NULL;
}

static void what_goes_through(void **state)
{
    (void)state;
    struct world world = open_world();
    struct ull_record *record = make_record();
    struct ull_alloc *recorded;
    char tag[] = "weights";
    assert_int_equal(ull_recorder_create(world.alloc, record, "GPU 0", &recorded, NULL), ULL_OK);
    void *one = request(recorded, 1000, tag);
    tag[0] = 'W'; /* the text is the caller's: kept as it was */
    void *two = request(recorded, 3 * MIB, "activations");
    assert_null(request(recorded, 900ull * MIB, "too much"));
    assert_int_equal(ull_alloc_free(recorded, one, NULL), ULL_OK);
    assert_int_equal(ull_alloc_free(recorded, one, NULL), ULL_E_INVALID);
    ull_record_mark(record, "epoch 1");
    nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
    assert_int_equal(ull_alloc_free(recorded, two, NULL), ULL_OK);
    assert_int_equal(ull_record_error(record, NULL), ULL_OK);
    ull_alloc_destroy(recorded);
    ull_record_destroy(record);

    struct ull__history *history = load();
    assert_string_equal(ull__history_string(history, history->job), "unit");
    assert_int_equal(history->device_count, 1);
    assert_string_equal(ull__history_string(history, history->devices[0].uuid), "GPU 0");
    assert_int_equal(history->process_count, 1);
    assert_int_equal(history->processes[0].pid, getpid());
    assert_true(history->processes[0].ended && history->over);
    const struct ull__event *first = nth(history, ULL_EVENT_CHUNK_ALLOC, 0);
    assert_int_equal(first->size, 1000);
    assert_int_equal(first->charged, 1024);
    assert_string_equal(ull__history_string(history, first->tag), "weights");
    const struct ull__event *refused = nth(history, ULL_EVENT_CHUNK_ALLOC, 2);
    assert_int_equal(refused->result, 2);
    assert_int_equal(refused->charged, 0);
    const struct ull__event *freed = nth(history, ULL_EVENT_CHUNK_FREE, 0);
    assert_true(freed->address == first->address && freed->size == 1000);
    assert_string_equal(ull__history_string(history, freed->tag), "weights");
    assert_null(nth(history, ULL_EVENT_CHUNK_FREE, 2));
    assert_string_equal(ull__history_string(history, nth(history, ULL_EVENT_MARK, 0)->tag),
                        "epoch 1");
    int64_t held = 0, most = 0;
    for (int i = 0; nth(history, ULL_EVENT_CHARGE, i); i++) {
        held += nth(history, ULL_EVENT_CHARGE, i)->charged;
        most = held > most ? held : most;
    }
    assert_true(most >= 4 * MIB && most <= 64 * MIB); /* pages of the pool */
    ull__history_destroy(history);
    close_world(&world);
}

static struct ull_alloc *shared;

static void *churn(void *data)
{
    for (int i = 0; i < 2000; i++) {
        void *address = request(shared, 256 + (uint64_t)i % 4096, i % 2 ? data : NULL);
        assert_non_null(address);
        ull_alloc_free(shared, address, NULL);
    }
    return NULL;
}

/* Addresses pass from thread to thread: in the order of times each is given out and freed in turns. */
static void threads_take_turns(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    char names[THREADS][16];
    struct world world = open_world();
    struct ull_record *record = make_record();
    assert_int_equal(ull_recorder_create(world.alloc, record, "host", &shared, NULL), ULL_OK);
    for (int i = 0; i < THREADS; i++) {
        snprintf(names[i], sizeof names[i], "thread %d", i);
        pthread_create(&threads[i], NULL, churn, names[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ull_alloc_destroy(shared);
    ull_record_destroy(record);
    struct ull__history *history = load();
    assert_int_equal(history->dropped, 0);
    uint64_t live[THREADS + 1] = {0};
    for (size_t i = 0; i < history->event_count; i++) {
        const struct ull__event *event = &history->events[i];
        int k = 0;
        if (event->kind == ULL_EVENT_CHUNK_ALLOC) {
            for (k = 0; k <= THREADS && live[k] != event->address; k++)
                ;
            assert_int_equal(k, THREADS + 1); /* not live */
            for (k = 0; live[k] != 0; k++)
                ;
            live[k] = event->address;
        } else if (event->kind == ULL_EVENT_CHUNK_FREE) {
            while (live[k] != event->address)
                assert_true(++k <= THREADS);
            live[k] = 0;
        }
    }
    ull__history_destroy(history);
    close_world(&world);
}

static void under_a_run(void **state)
{
    (void)state;
    char id[ULL_RECORD_ID];
    struct ull_record *record;
    struct ull_alloc *recorded;
    struct ull_error err;
    struct ull__writer *run;
    struct world world = open_world();
    unsetenv("ULLAGE_RECORD");
    assert_int_equal(ull_record_create(NULL, NULL, &record, &err), ULL_E_NOT_FOUND);
    assert_int_equal(ull__record_create(path, id, NULL), ULL_OK);
    assert_int_equal(ull__writer_open(path, id, &run, NULL), ULL_OK);
    ull__writer_job(run, "around", "command", "0");
    ull__writer_flush(run, 0);
    setenv("ULLAGE_RECORD", path, 1);
    setenv("ULLAGE_RECORD_ID", id, 1);
    assert_int_equal(ull_record_create(NULL, NULL, &record, &err), ULL_OK);
    assert_int_equal(ull_recorder_create(world.alloc, record, "host", &recorded, NULL), ULL_OK);
    void *address = request(recorded, MIB, NULL);
    ull_alloc_free(recorded, address, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 120000000}, NULL);
    ull_alloc_destroy(recorded);
    ull_record_destroy(record);
    ull__writer_close(run);
    unsetenv("ULLAGE_RECORD");
    struct ull__history *history = load();
    assert_string_equal(ull__history_string(history, history->job), "around");
    assert_non_null(nth(history, ULL_EVENT_CHUNK_ALLOC, 0));
    assert_null(nth(history, ULL_EVENT_CHARGE, 0)); /* the interposer's to tell */
    assert_int_equal(history->process_count, 1);
    assert_false(history->processes[0].ended);
    ull__history_destroy(history);
    close_world(&world);
}

static void what_is_wrong(void **state)
{
    (void)state;
    struct ull_record *record;
    struct ull_alloc *recorded, *more[64];
    struct ull_error err;
    struct world world = open_world();
    assert_int_equal(ull_record_create("/dev/full", NULL, &record, &err), ULL_E_INVALID);
    assert_int_equal(ull_record_create("/nowhere/at/all", NULL, &record, &err), ULL_E_NOT_FOUND);
    record = make_record();
    assert_int_equal(ull_recorder_create(world.alloc, record, "", &recorded, &err), ULL_E_INVALID);
    for (int i = 0; i < 64; i++)
        assert_int_equal(ull_recorder_create(world.alloc, record, "x", &more[i], &err), ULL_OK);
    assert_int_equal(ull_recorder_create(world.alloc, record, "x", &recorded, &err), ULL_E_FULL);
    /* A file that goes away is not noticed while the descriptor is there; a limit is. */
    for (int i = 0; i < 64; i++)
        ull_alloc_destroy(more[i]);
    ull_record_destroy(record);
    ull_record_destroy(NULL);
    close_world(&world);
}

static void a_forked_child(void **state)
{
    (void)state;
    int status;
    struct world world = open_world();
    struct ull_record *record = make_record();
    struct ull_alloc *recorded;
    assert_int_equal(ull_recorder_create(world.alloc, record, "host", &recorded, NULL), ULL_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        void *address = request(recorded, MIB, "child");
        ull_alloc_destroy(recorded);
        ull_record_destroy(record);
        _exit(address ? 1 : 0);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    void *address = request(recorded, MIB, "parent");
    ull_alloc_free(recorded, address, NULL);
    ull_alloc_destroy(recorded);
    ull_record_destroy(record);
    struct ull__history *history = load();
    assert_int_equal(history->process_count, 1);
    assert_null(nth(history, ULL_EVENT_CHUNK_ALLOC, 1));
    ull__history_destroy(history);
    close_world(&world);
}

int main(void)
{
    close(mkstemp(path));
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_goes_through),
                                       cmocka_unit_test(threads_take_turns),
                                       cmocka_unit_test(under_a_run), cmocka_unit_test(what_is_wrong),
                                       cmocka_unit_test(a_forked_child)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
