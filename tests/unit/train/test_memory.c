/*
 * test_memory.c: where a training's bytes are: what is measured is not what was planned but what kernels were handed, nothing is
 * read that was not written, nothing is written beyond, and a step allocates nothing.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif

#include "adapt.h"
#include "session_private.h"
#include "trainee.h"

#define TOKENS "gpt-char:context=12,vocab=20,layers=2,width=32,heads=2,dropout=0.1"
#define PICTURES "resnet20:image=8,channels=3,width=8,classes=10"

static struct ull__session_options options(uint64_t budget)
{
    return (struct ull__session_options){.budget_bytes = budget,
                                         .rates = true,
                                         .plan = {.batch = 8,
                                                  .bn_group = 4,
                                                  .precision = ULL_PRECISION_F32,
                                                  .optimizer = ULL_OPTIMIZER_ADAMW}};
}

/* --- Regions of our own, with a page behind them that nobody may touch --- */

struct ground {
    char *memory, *begin; /* begin: of the persistent region; its end is the guard */
    size_t mapped, persistent, step;
};

static void ground_make(struct ground *ground, const struct ull__plan_layout *layout, size_t more)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    ground->persistent = (size_t)layout->persistent_bytes;
    ground->step = (size_t)(layout->step_bytes + layout->passing_bytes) + more;
    ground->mapped = (ground->persistent + ground->step + 2 * page) / page * page + page;
    ground->memory =
        mmap(NULL, ground->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(ground->memory != MAP_FAILED);
    assert_int_equal(mprotect(ground->memory + ground->mapped - page, page, PROT_NONE), 0);
    /* Sizes are multiples of 64, so the end lies just before the guard. */
    ground->begin = ground->memory + ground->mapped - page - ground->persistent - ground->step;
}

static void ground_end(struct ground *ground)
{
    munmap(ground->memory, ground->mapped);
}

static struct ull__executable *make_executable(const struct ull__session *session,
                                               const struct ull__plan_layout *layout,
                                               const struct ground *ground, int64_t more)
{
    int count;
    struct ull_error err;
    struct ull__executable *executable = NULL;
    int64_t values[ULL_SYMBOLS];
    const struct ull__plan *plan =
        &ull__planner_plans(session->at->planner, &count)[session->at->plan];
    ull__graph_values(ull__session_graph(session), plan->micro_batch + more, values);
    struct ull__executable_request request = {
        .backend = session->backend,
        .program = session->at->program,
        .layout = layout,
        .decision = &plan->decision,
        .values = values,
        .arena = {.persistent = ground->begin, .step = ground->begin + ground->persistent}};
    if (ull__executable_create(&request, &executable, &err) != ULL_OK) {
        fail_msg("%s", err.message);
    }
    return executable;
}

/* The highest end of what a micro-step and an update hand to kernels, over all regions. */
static size_t run_and_measure(const struct ull__session *session,
                              struct ull__executable *executable, const struct ground *ground)
{
    const struct ull__backend_ops *ops = session->backend->ops;
    const char *end = ground->begin + ground->persistent + ground->step;
    ops->reached(session->backend, ground->begin, end);
    ull__executable_micro(executable);
    ull__executable_update(executable);
    ops->synchronize(session->backend, NULL);
    uintptr_t reached = ops->reached(session->backend, ground->begin, end);
    return (reached - (uintptr_t)ground->begin + 63) / 64 * 64;
}

static void set_up(const struct ull__session *session, struct ull__executable *executable,
                   const struct ground *ground, unsigned char pattern)
{
    memset(ground->begin + ground->persistent, pattern, ground->step);
    memcpy(ground->begin, session->arena.persistent, ground->persistent);
    const struct ull__graph *graph = ull__session_graph(session);
    int64_t values[ULL_SYMBOLS];
    int count;
    const struct ull__plan *plan =
        &ull__planner_plans(session->at->planner, &count)[session->at->plan];
    ull__graph_values(graph, plan->micro_batch, values);
    int64_t elements = ull__tensor_elements(graph, session->at->input, values);
    int32_t *x = calloc((size_t)elements + 64, sizeof(*x));
    ull__session_put_input(executable, graph, session->at->input, values, x, session->tokens);
    ull__session_put_input(executable, graph, session->at->target, values, x, true);
    free(x);
}

static uint64_t smallest(struct trainee *trainee)
{
    int count, least = ull__planner_smallest(trainee->session->at->planner);
    return (uint64_t)ull__planner_plans(trainee->session->at->planner, &count)[least].peak_bytes;
}

#if !defined(__SANITIZE_THREAD__)
/* Whose workspaces do not depend on the number of samples. */
static bool whole_loss(void *context, int64_t length, const struct ull__plan *plan)
{
    (void)context;
    (void)length;
    return !plan->chunked_loss;
}

static void what_is_measured_is_not_the_plan(void **state)
{
    (void)state;
    struct ull__session_options o = options(UINT64_C(1) << 32);
    o.accepts = whole_loss;
    o.plan.batch = 64; /* activations are most of it */
    struct trainee *trainee = trainee_create(TOKENS, o);
    struct ull__session *session = trainee->session;
    struct ull__plan_layout layout;
    struct ground ground;
    trainee_step(trainee, 0.01);
    assert_int_equal(ull__planner_layout(session->at->planner, session->at->plan, &layout, NULL),
                     ULL_OK);
    size_t predicted = (size_t)(layout.persistent_bytes + layout.step_bytes + layout.passing_bytes);
    ground_make(&ground, &layout, 2 * (size_t)layout.passing_bytes);
    struct ull__executable *executable = make_executable(session, &layout, &ground, 0);
    set_up(session, executable, &ground, 0);
    assert_int_equal(run_and_measure(session, executable, &ground), predicted);
    ull__executable_destroy(executable);

    /* One offset that is not as planned. */
    int top = 0;
    for (int i = 0; i < layout.stay_count; ++i) {
        top = layout.offsets[i] > layout.offsets[top] ? i : top;
    }
    layout.offsets[top] += layout.passing_bytes;
    executable = make_executable(session, &layout, &ground, 0);
    set_up(session, executable, &ground, 0);
    assert_true(run_and_measure(session, executable, &ground) > predicted);
    ull__executable_destroy(executable);
    ull__plan_layout_finish(&layout);

    /* Sizes that are not those of the plan: more samples. */
    assert_int_equal(ull__planner_layout(session->at->planner, session->at->plan, &layout, NULL),
                     ULL_OK);
    for (int i = 0; i < session->at->program->item_count; ++i) {
        session->at->program->choices[session->at->program->items[i].choices].workspace +=
            65536; /* what is planned for a kernel is a bound for it */
    }
    executable = make_executable(session, &layout, &ground, 8);
    set_up(session, executable, &ground, 0);
    assert_true(run_and_measure(session, executable, &ground) > predicted);
    ull__executable_destroy(executable);
    ull__plan_layout_finish(&layout);
    ground_end(&ground);
    trainee_destroy(trainee);
}

#endif

/* Two patterns where nothing was written yet: what comes out is the same, and the page behind is not touched. */
static void poison_is_not_read(const char *model, bool tight)
{
    struct trainee *trainee = trainee_create(model, options(UINT64_C(1) << 32));
    if (tight) {
        uint64_t budget = smallest(trainee);
        trainee_destroy(trainee);
        trainee = trainee_create(model, options(budget));
    }
    struct ull__session *session = trainee->session;
    struct ull__plan_layout layout;
    struct ground ground;
    trainee_step(trainee, 0.01);
    assert_int_equal(ull__planner_layout(session->at->planner, session->at->plan, &layout, NULL),
                     ULL_OK);
    ground_make(&ground, &layout, 0);
    struct ull__executable *executable = make_executable(session, &layout, &ground, 0);
    char *first = malloc(ground.persistent);
    bool adding = false;
    int control = ull__graph_find(ull__session_graph(session), ULL_ROLE_CONTROL, "adding");
    static const unsigned char patterns[] = {0xff, 0x3c};
    for (int i = 0; i < 2; ++i) {
        set_up(session, executable, &ground, patterns[i]);
        if (control != ULL_NONE && ull__executable_address(executable, control) != NULL) {
            memcpy(ull__executable_address(executable, control), &adding, sizeof(adding));
        }
        run_and_measure(session, executable, &ground);
        if (i == 0) {
            memcpy(first, ground.begin, ground.persistent);
        }
    }
    assert_memory_equal(first, ground.begin, ground.persistent);
    free(first);
    ull__executable_destroy(executable);
    ull__plan_layout_finish(&layout);
    ground_end(&ground);
    trainee_destroy(trainee);
}

static void poison(void **state)
{
    (void)state;
#if !defined(__SANITIZE_THREAD__)
    poison_is_not_read(TOKENS, false);
    poison_is_not_read(TOKENS, true);
#endif
    poison_is_not_read(PICTURES, true);
}

/* --- What a step allocates --- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static _Atomic bool counting;
static _Atomic unsigned long own_calls;
static _Atomic long live;

extern char __executable_start, etext;
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void __libc_free(void *memory);

/* Called by code of this program, and not of a library that it loaded? */
static bool is_ours(const void *caller)
{
    return (const char *)caller >= &__executable_start && (const char *)caller < &etext;
}

static void *note(void *made, const void *caller)
{
    if (atomic_load(&counting) && made != NULL) {
        atomic_fetch_add(&own_calls, is_ours(caller));
        atomic_fetch_add(&live, (long)malloc_usable_size(made));
    }
    return made;
}

void *malloc(size_t size)
{
    return note(__libc_malloc(size), __builtin_return_address(0));
}

void *calloc(size_t count, size_t size)
{
    return note(__libc_calloc(count, size), __builtin_return_address(0));
}

void *realloc(void *memory, size_t size)
{
    if (atomic_load(&counting) && memory != NULL) {
        atomic_fetch_sub(&live, (long)malloc_usable_size(memory));
    }
    return note(__libc_realloc(memory, size), __builtin_return_address(0));
}

void free(void *memory)
{
    if (atomic_load(&counting) && memory != NULL) {
        atomic_fetch_sub(&live, (long)malloc_usable_size(memory));
    }
    __libc_free(memory);
}

/* Kernels of some steps are timed, unless rates count. */
static void allocates_nothing(bool rates)
{
    static const char *const models[] = {TOKENS, PICTURES, "lenet:image=28,channels=1,classes=10"};
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); ++i) {
        struct trainee *trainee = trainee_create(models[i], options(UINT64_C(1) << 32));
        uint64_t budget = smallest(trainee);
        trainee_destroy(trainee);
        struct ull__session_options o = options(rates ? budget : UINT64_C(1) << 32);
        o.rates = rates;
        trainee = trainee_create(models[i], o);
        trainee_step(trainee, 0.01);
        atomic_store(&own_calls, 0);
        atomic_store(&live, 0);
        long after[10];
        for (int j = 0; j < 10; ++j) {
            atomic_store(&counting, true);
            trainee_step(trainee, 0.01);
            atomic_store(&counting, false);
            after[j] = atomic_load(&live);
        }
        assert_int_equal(atomic_load(&own_calls), 0);
        /* Libraries may, but what they keep does not grow. */
        assert_int_equal(after[1], after[9]);
        assert_true(trainee->session->at->pace.steps > 8);
        trainee_destroy(trainee);
    }
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    allocates_nothing(true);
    allocates_nothing(false);
}
#endif

/* --- When a plan changes --- */

static void use_decides(void **state)
{
    (void)state;
    struct ull__adapt_input in = {.now = 100,
                                  .changed_at = 90,
                                  .used_bytes = 800,
                                  .total_bytes = 1000,
                                  .own_bytes = 300,
                                  .doubled_bytes = 500,
                                  .micro_batch = 8};
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_KEEP);
    in.used_bytes = 901;
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_HALVE);
    in.changed_at = 95.1; /* 4.9 s ago */
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_KEEP);
    in.changed_at = 95;
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_HALVE);
    in.least = 5;
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_KEEP);
    in.least = 0;
    in.micro_batch = 1;
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_KEEP);
    in.micro_batch = 8;
    in.used_bytes = 699; /* 399 of others and 500 are 899 of 1000 */
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_DOUBLE);
    in.doubled_bytes = 502;
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_KEEP);
    in.doubled_bytes = 500;
    in.most = 15;
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_KEEP);
    in.most = 16;
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_DOUBLE);
    /* A training that fills its own memory, on a machine with room, is let alone or doubled, never halved. */
    in.used_bytes = in.own_bytes = 300;
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_DOUBLE);
    in.total_bytes = 0;
    assert_int_equal(ull__adapt(&in), ULL_ADAPT_KEEP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if !defined(__SANITIZE_THREAD__) /* memory that is not as planned is written by two threads at once */
        cmocka_unit_test(what_is_measured_is_not_the_plan),
#endif
        cmocka_unit_test(poison),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(steps_allocate_nothing),
#endif
        cmocka_unit_test(use_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
