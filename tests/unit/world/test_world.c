/*
 * test_world.c: processes of a world: every kind of collective on every type against the definition, the same bits on all ranks
 * whoever comes first, and what becomes of the others when one is killed or fails.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu.h"
#include "half.h"
#include "ops.h"

enum { RANKS = 3, MOST = 800000 };

/* What ranks leave for the test. */
struct results {
    float data[RANKS][MOST];
    char message[RANKS][200];
    int64_t elements;
    _Atomic int asked[RANKS]; /* whether another one is gone, so often */
};

static struct results *results;

static int setup(void **state)
{
    (void)state;
    results = mmap(NULL, sizeof(*results), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return results == MAP_FAILED;
}

static void nap(long milliseconds)
{
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
}

/*
 * Runs it in each rank, in processes of their own. Their statuses as waitpid has them. One that stops itself goes on when those of
 * lower rank have ended.
 */
static void in_world(void (*run)(struct ull__world *world, const void *context),
                     const void *context, int statuses[RANKS])
{
    struct ull__world *world;
    pid_t pids[RANKS];
    assert_int_equal(ull__world_create(RANKS, &world, NULL), ULL_OK);
    fflush(NULL);
    for (int i = 0; i < RANKS; ++i) {
        pids[i] = fork();
        if (pids[i] == 0) {
            if (ull__world_join(world, i, NULL) == ULL_OK) {
                run(world, context);
                ull__world_destroy(world);
                _exit(0);
            }
            _exit(9);
        }
        assert_true(pids[i] > 0);
    }
    for (int i = 0; i < RANKS; ++i) {
        assert_int_equal(waitpid(pids[i], &statuses[i], WUNTRACED), pids[i]);
        if (WIFSTOPPED(statuses[i])) {
            kill(pids[i], SIGCONT);
            assert_int_equal(waitpid(pids[i], &statuses[i], 0), pids[i]);
        }
    }
    ull__world_destroy(world);
}

static void all_are_well(const int statuses[RANKS])
{
    for (int i = 0; i < RANKS; ++i) {
        assert_int_equal(statuses[i], 0);
    }
}

/* --- Collectives --- */

struct kind {
    int kind, reduce;
    enum ull__type type;
    int64_t outer, whole, inner;
    bool in_place;
};

/* Element i of what a rank has; whole numbers for bools. Sums of these depend on their order. */
static float value(const struct kind *kind, int rank, int64_t i)
{
    if (kind->type == ULL_TYPE_BOOL) {
        return (float)((i + rank) % 4 == 0);
    }
    float made = (float)((i * 7919 + rank * 104729) % 100003) / 1009.0f - 40;
    return kind->type == ULL_TYPE_I32 ? (float)(int)made : made;
}

static void store(enum ull__type type, void *to, int64_t i, float made)
{
    if (type == ULL_TYPE_BOOL) {
        ((unsigned char *)to)[i] = made != 0;
    } else if (type == ULL_TYPE_I32) {
        ((int32_t *)to)[i] = (int32_t)made;
    } else {
        ull__put_float(type, to, i, made);
    }
}

static float load(enum ull__type type, const void *from, int64_t i)
{
    float made;
    if (type == ULL_TYPE_BOOL) {
        return ((const unsigned char *)from)[i];
    }
    if (type == ULL_TYPE_I32) {
        return (float)((const int32_t *)from)[i];
    }
    ull__load_f32(type, (const char *)from + (size_t)i * (size_t)ull__type_bits(type) / 8, &made, 1);
    return made;
}

static int64_t part_of(const struct kind *kind)
{
    return (kind->whole + RANKS - 1) / RANKS;
}

static void run_collective(struct ull__world *world, const void *context)
{
    const struct kind *kind = context;
    struct ull__backend *backend;
    struct ull__cpu_options options = {.threads = 1, .no_libraries = true, .world = world};
    int rank = ull__world_rank(world);
    bool gathers = kind->kind == ULL_ALL_GATHER;
    bool cuts = kind->kind == ULL_REDUCE_SCATTER || kind->kind == ULL_OWN_PART;
    int64_t whole = kind->outer * kind->whole * kind->inner;
    int64_t part = kind->outer * part_of(kind) * kind->inner;
    char *from = calloc((size_t)whole + (size_t)part, 4),
         *to = calloc((size_t)whole + (size_t)part, 4);
    if (ull__cpu_create(&options, &backend, NULL) != ULL_OK || from == NULL || to == NULL) {
        _exit(8);
    }
    char *into = kind->in_place ? from : to;
    for (int64_t i = 0; i < (gathers ? part : whole); ++i) {
        store(kind->type, from, i, value(kind, rank, i));
    }
    struct ull__collective_run what = {.kind = kind->kind,
                                       .reduce = kind->reduce,
                                       .ranks = RANKS,
                                       .type = kind->type,
                                       .outer = kind->outer,
                                       .whole = kind->whole,
                                       .inner = kind->inner,
                                       .from = from,
                                       .to = into};
    /* Ranks come one after the other, and another one is the last each time. */
    nap((rank + kind->whole) % RANKS * 3);
    backend->ops->collective(backend, ULL_QUEUE_COMM, &what);
    if (backend->ops->synchronize(backend, NULL) != ULL_OK) {
        _exit(7);
    }
    results->elements = cuts ? part : whole;
    for (int64_t i = 0; i < results->elements; ++i) {
        results->data[rank][i] = load(kind->type, into, i);
    }
    backend->ops->destroy(backend);
    free(from);
    free(to);
}

static float reduced(const struct kind *kind, int64_t i)
{
    float sum = 0;
    for (int rank = 0; rank < RANKS; ++rank) {
        float one, other = value(kind, rank, i);
        char bits[4];
        store(kind->type, bits, 0, other);
        one = load(kind->type, bits, 0);
        bool largest = kind->reduce == ULL_REDUCTION_MAX;
        sum = rank == 0 ? one : largest ? (one > sum ? one : sum) : sum + one;
    }
    sum = kind->reduce == ULL_REDUCTION_MEAN ? sum / RANKS : sum;
    char bits[4];
    store(kind->type, bits, 0, sum);
    return load(kind->type, bits, 0);
}

static float rounded(const struct kind *kind, int rank, int64_t i)
{
    char bits[4];
    store(kind->type, bits, 0, value(kind, rank, i));
    return load(kind->type, bits, 0);
}

static float expected(const struct kind *kind, int rank, int64_t i)
{
    int64_t length = part_of(kind), inside = i % kind->inner, row = i / kind->inner;
    if (kind->kind == ULL_ALL_REDUCE) {
        return reduced(kind, i);
    }
    if (kind->kind == ULL_BROADCAST) {
        return rounded(kind, 0, i);
    }
    if (kind->kind == ULL_ALL_GATHER) {
        int64_t outer = row / kind->whole, at = row % kind->whole;
        return rounded(kind, (int)(at / length),
                       (outer * length + at % length) * kind->inner + inside);
    }
    int64_t outer = row / length, at = rank * length + row % length;
    int64_t from = (outer * kind->whole + at) * kind->inner + inside;
    return at >= kind->whole            ? 0
           : kind->kind == ULL_OWN_PART ? rounded(kind, rank, from)
                                        : reduced(kind, from);
}

static void collectives_do_what_they_say(void **state)
{
    static const struct kind kinds[] = {
        {ULL_ALL_REDUCE, ULL_REDUCTION_SUM, ULL_TYPE_F32, 1, 300001, 1, false},
        {ULL_ALL_REDUCE, ULL_REDUCTION_SUM, ULL_TYPE_F32, 1, 1, 1, false},
        {ULL_ALL_REDUCE, ULL_REDUCTION_MEAN, ULL_TYPE_BF16, 1, 1003, 1, false},
        {ULL_ALL_REDUCE, ULL_REDUCTION_SUM, ULL_TYPE_F16, 1, 1003, 1, false},
        {ULL_ALL_REDUCE, ULL_REDUCTION_MAX, ULL_TYPE_BOOL, 1, 77, 1, false},
        {ULL_ALL_REDUCE, ULL_REDUCTION_SUM, ULL_TYPE_I32, 1, 1003, 1, false},
        {ULL_REDUCE_SCATTER, ULL_REDUCTION_SUM, ULL_TYPE_F32, 1, 300001, 1, false},
        {ULL_REDUCE_SCATTER, ULL_REDUCTION_SUM, ULL_TYPE_F32, 4, 7, 5, false},
        {ULL_REDUCE_SCATTER, ULL_REDUCTION_MAX, ULL_TYPE_F16, 2, 2, 3, false},
        {ULL_ALL_GATHER, 0, ULL_TYPE_F32, 1, 300001, 1, false},
        {ULL_ALL_GATHER, 0, ULL_TYPE_BF16, 3, 8, 2, false},
        {ULL_BROADCAST, 0, ULL_TYPE_F32, 1, 300001, 1, false},
        {ULL_OWN_PART, 0, ULL_TYPE_F32, 3, 8, 2, false},
        /* In place, with parts that go through a slot in several pieces. */
        {ULL_ALL_REDUCE, ULL_REDUCTION_SUM, ULL_TYPE_F32, 1, 300001, 1, true},
        {ULL_REDUCE_SCATTER, ULL_REDUCTION_SUM, ULL_TYPE_F32, 2, 400000, 1, true},
        {ULL_ALL_GATHER, 0, ULL_TYPE_F32, 1, 799999, 1, true},
        {ULL_ALL_GATHER, 0, ULL_TYPE_BF16, 3, 8, 2, true},
        {ULL_BROADCAST, 0, ULL_TYPE_F32, 1, 300001, 1, true},
        {ULL_OWN_PART, 0, ULL_TYPE_F32, 3, 8, 2, true},
    };
    (void)state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); ++k) {
        int statuses[RANKS];
        in_world(run_collective, &kinds[k], statuses);
        all_are_well(statuses);
        for (int rank = 0; rank < RANKS; ++rank) {
            for (int64_t i = 0; i < results->elements; ++i) {
                float wanted = expected(&kinds[k], rank, i);
                if (memcmp(&results->data[rank][i], &wanted, sizeof(wanted)) != 0) {
                    fail_msg("case %zu, rank %d, element %lld: %.9g, expected %.9g", k, rank,
                             (long long)i, results->data[rank][i], wanted);
                }
            }
        }
    }
}

/* --- Ends --- */

/* Whether a rank is not there at any moment, while the other one that is left asks as well. */
static bool stays_gone(struct ull__world *world, int rank)
{
    int own = ull__world_rank(world), other = RANKS - own - rank;
    bool gone = true;
    while (gone && (atomic_load(&results->asked[own]) < 10000 ||
                    atomic_load(&results->asked[other]) < 10000)) {
        gone = ull__world_gone(world, rank);
        atomic_fetch_add(&results->asked[own], 1);
    }
    atomic_store(&results->asked[own], 10000); /* the other one does not wait for more */
    return gone;
}

/* Meets for ever; rank 1 ends as `context` says. Leaves what it was told. */
static void meet_until(struct ull__world *world, const void *context)
{
    struct ull_error err = {{0}};
    int rank = ull__world_rank(world);
    for (int i = 0;; ++i) {
        if (rank == 1 && i == 5) {
            if (*(const char *)context == 'k') {
                raise(SIGKILL);
            } else if (*(const char *)context == 'f') {
                ull__world_fail(world, "no such data");
            } else {
                return; /* it leaves, and the others do not know */
            }
        }
        if (ull__world_meet(world, &err) != ULL_OK) {
            snprintf(results->message[rank], sizeof(results->message[rank]), "%.190s", err.message);
            _exit(*(const char *)context == 'f' || stays_gone(world, 1) ? 3 : 4);
        }
    }
}

static void one_that_ends_is_noticed(void **state)
{
    static const struct {
        const char *how, *message;
        int code;
    } ends[] = {{"k", "rank 1 of 3 has ended", 3},
                {"l", "rank 1 of 3 has ended", 3},
                {"f", "no such data", 3}};
    (void)state;
    for (int i = 0; i < 3; ++i) {
        int statuses[RANKS];
        memset((void *)results->asked, 0, sizeof(results->asked));
        in_world(meet_until, ends[i].how, statuses);
        for (int rank = 0; rank < RANKS; rank += 2) {
            assert_true(WIFEXITED(statuses[rank]));
            assert_int_equal(WEXITSTATUS(statuses[rank]), ends[i].code);
            assert_string_equal(results->message[rank], ends[i].message);
        }
    }
}

/* Rank 1 is stopped and rank 2 ends: rank 0, which waits for 1, sees it. */
static void stop_and_end(struct ull__world *world, const void *context)
{
    struct ull_error err = {{0}};
    int rank = ull__world_rank(world);
    (void)context;
    if (ull__world_meet(world, &err) != ULL_OK) {
        _exit(7);
    }
    if (rank != 0) {
        raise(rank == 1 ? SIGSTOP : SIGKILL);
    }
    bool told = ull__world_meet(world, &err) != ULL_OK;
    _exit(told && strcmp(err.message, "rank 2 of 3 has ended") == 0 ? 5 : 6);
}

static void one_that_ends_is_noticed_behind_one_that_is_stopped(void **state)
{
    int statuses[RANKS];
    (void)state;
    in_world(stop_and_end, NULL, statuses);
    assert_int_equal(WEXITSTATUS(statuses[0]), 5);
    assert_int_equal(WEXITSTATUS(statuses[1]), 5);
}

/* A segment goes on past a collective that failed, and the failure is told once. */
static void fail_in_backend(struct ull__world *world, const void *context)
{
    struct ull__backend *backend;
    struct ull__cpu_options options = {.threads = 1, .no_libraries = true, .world = world};
    struct ull_error err = {{0}};
    float value = 1;
    (void)context;
    if (ull__world_rank(world) == 1) {
        return;
    }
    if (ull__cpu_create(&options, &backend, NULL) != ULL_OK) {
        _exit(8);
    }
    struct ull__collective_run what = {.kind = ULL_ALL_REDUCE,
                                       .ranks = RANKS,
                                       .type = ULL_TYPE_F32,
                                       .outer = 1,
                                       .whole = 1,
                                       .inner = 1,
                                       .from = &value,
                                       .to = &value};
    for (int i = 0; i < 3; ++i) {
        backend->ops->collective(backend, ULL_QUEUE_COMM, &what);
    }
    bool first = backend->ops->synchronize(backend, &err) == ULL_E_SYSTEM;
    bool second = backend->ops->synchronize(backend, &err) == ULL_OK;
    backend->ops->destroy(backend);
    _exit(first && second && strstr(err.message, "rank 1") != NULL ? 5 : 6);
}

static void a_backend_tells_of_it(void **state)
{
    int statuses[RANKS];
    (void)state;
    in_world(fail_in_backend, NULL, statuses);
    assert_int_equal(WEXITSTATUS(statuses[0]), 5);
    assert_int_equal(WEXITSTATUS(statuses[2]), 5);
}

static void bad_worlds(void **state)
{
    struct ull__world *world;
    struct ull_error err = {{0}};
    (void)state;
    assert_int_equal(ull__world_create(1, &world, &err), ULL_E_INVALID);
    assert_int_equal(ull__world_create(65, &world, &err), ULL_E_INVALID);
    assert_int_equal(ull__world_create(2, &world, &err), ULL_OK);
    assert_int_equal(ull__world_join(world, 2, &err), ULL_E_INVALID);
    assert_int_equal(ull__world_join(world, 0, &err), ULL_OK);
    assert_int_equal(ull__world_join(world, 0, &err), ULL_E_INVALID);
    assert_string_equal(err.message, "rank 0 of 2 is taken");
    assert_int_equal(ull__world_join(world, 1, &err), ULL_E_INVALID); /* it is one already */
    ull__world_destroy(world);
}

/* By another process, while it is there and when it has ended. */
static void a_rank_is_taken_once(void **state)
{
    struct ull__world *world;
    int joined[2];
    char byte;
    (void)state;
    assert_int_equal(ull__world_create(2, &world, NULL), ULL_OK);
    assert_int_equal(pipe(joined), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (ull__world_join(world, 1, NULL) != ULL_OK || write(joined[1], "j", 1) != 1) {
            _exit(9);
        }
        for (;;) {
            pause();
        }
    }
    assert_true(pid > 0);
    close(joined[1]);
    assert_int_equal(read(joined[0], &byte, 1), 1);
    close(joined[0]);
    assert_int_equal(ull__world_join(world, 1, NULL), ULL_E_INVALID);
    assert_false(ull__world_gone(world, 1));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(ull__world_gone(world, 1));
    assert_int_equal(ull__world_join(world, 1, NULL), ULL_E_INVALID);
    assert_int_equal(ull__world_join(world, 0, NULL), ULL_OK);
    ull__world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_do_what_they_say),
        cmocka_unit_test(one_that_ends_is_noticed),
        cmocka_unit_test(one_that_ends_is_noticed_behind_one_that_is_stopped),
        cmocka_unit_test(a_backend_tells_of_it),
        cmocka_unit_test(bad_worlds),
        cmocka_unit_test(a_rank_is_taken_once),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
