/*
 * model.c: random requests, frees and guards of two threads against what limits and guards promise.
 *
 *   model_policy [SEED [OPERATIONS]]
 *
 * Between program and pool stand a limit and a guard adaptor. All sizes are whole pages of 2 MiB, for which
 * the promises of a guard are exact: what is set aside is served whatever others do, and everything else is
 * served as long as there is memory that nobody holds or has set aside. The model keeps plain sums, so it
 * knows of every request and every guard whether it has to be refused.
 *
 * Guards belong to threads, so there are two, which take turns: an operation is done by one of them from
 * beginning to end.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "device.h"
#include "pool_private.h"
#include "ullage/policy.h"

enum { PAGES = 96, LIVE = 60, DEPTH = 4, THREADS = 2 };
#define PAGE ((uint64_t)2 << 20)

static uint64_t seed, operation, state;

__attribute__((noreturn, noinline)) static void fail(const char *what, uint64_t a, uint64_t b)
{
    printf("model_policy: seed %llu, operation %llu: %s (%llu, %llu)\n", (unsigned long long)seed,
           (unsigned long long)operation, what, (unsigned long long)a, (unsigned long long)b);
    exit(1);
}

static uint64_t random_below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % n;
}

/* --- what the model knows, in pages ------------------------------------------------------------------------- */

struct guard {
    struct ull_guard *guard;
    struct ull_guard_options options;
    uint64_t bytes, used, peak, lent, from_outer;
    struct guard *before; /* the one for all threads before this one */
};

struct piece {
    void *address; /* NULL: none */
    uint64_t pages;
    int thread, depth; /* whose guard it is counted in; depth 0: none */
};

static struct {
    struct ull_pool *pool;
    struct ull_alloc *over, *limit, *guarded;
    struct guard guards[THREADS][DEPTH]; /* the innermost one last */
    int depth[THREADS];
    struct guard *shared;
    struct piece pieces[LIVE];
    uint64_t in_use, most; /* most: the limit's */
    uint64_t requests, refusals, begins, refused_begins;
} model;

static uint64_t set_aside(const struct guard *g)
{
    uint64_t gone = g->used + g->lent;
    return g->bytes > gone ? g->bytes - gone : 0;
}

/* What nobody holds or has set aside, within the pool and the limit. */
static uint64_t left(void)
{
    uint64_t gone = model.in_use;
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < model.depth[t]; i++)
            gone += set_aside(&model.guards[t][i]);
    }
    return model.most > gone ? model.most - gone : 0;
}

static struct guard *guard_of(int thread)
{
    return model.depth[thread] ? &model.guards[thread][model.depth[thread] - 1] : model.shared;
}

static void find(const struct guard *g, int *thread, int *depth)
{
    *thread = g >= model.guards[1];
    *depth = (int)(g - model.guards[*thread]) + 1;
}

/* --- operations --------------------------------------------------------------------------------------------- */

static bool may_have(const struct guard *g, uint64_t pages)
{
    if (!g)
        return pages <= left();
    if (g->options.max_request && pages * PAGE > g->options.max_request)
        return false;
    if (g->options.cap && g->used + pages > g->bytes)
        return false;
    return pages <= set_aside(g) + left();
}

static void request(struct piece *piece, int thread)
{
    struct guard *g = guard_of(thread);
    uint64_t pages = 1 + random_below(random_below(3) ? 4 : PAGES / 2);
    struct ull_request r = {.bytes = pages * PAGE};
    struct ull_report report;
    bool expected = may_have(g, pages);
    ull_status status = ull_alloc_request(model.guarded, &r, &report, &piece->address);
    model.requests++;
    if ((status == ULL_OK) != expected) {
        puts(status == ULL_OK ? "" : report.text);
        fail(expected ? "refused though there was room" : "served though it must not be", pages,
             left());
    }
    if (status != ULL_OK) {
        piece->address = NULL;
        model.refusals++;
        return;
    }
    piece->pages = pages;
    piece->depth = 0;
    model.in_use += pages;
    if (g) {
        find(g, &piece->thread, &piece->depth);
        g->used += pages;
        g->peak = g->used > g->peak ? g->used : g->peak;
    }
}

static void release(struct piece *piece)
{
    void *address = piece->address;
    if (ull_alloc_free(model.guarded, address, NULL) != ULL_OK)
        fail("a free was refused", piece->pages, 0);
    if (random_below(8) == 0 && ull_alloc_free(model.guarded, address, NULL) != ULL_E_INVALID)
        fail("freed twice", piece->pages, 0);
    model.in_use -= piece->pages;
    if (piece->depth)
        model.guards[piece->thread][piece->depth - 1].used -= piece->pages;
    piece->address = NULL;
}

static void begin(int thread)
{
    struct guard *outer = model.depth[thread] ? guard_of(thread) : NULL;
    struct guard *g = &model.guards[thread][model.depth[thread]];
    uint64_t pages = 1 + random_below(PAGES / 6);
    *g = (struct guard){.bytes = pages, .before = model.shared};
    g->options = (struct ull_guard_options){.bytes = pages * PAGE,
                                            .cap = random_below(4) == 0,
                                            .max_request = random_below(4) ? 0 : 3 * PAGE,
                                            .all_threads = random_below(4) == 0};
    uint64_t outers = outer ? set_aside(outer) : 0;
    g->from_outer = outers < pages ? outers : pages;
    bool busy = g->options.all_threads && model.shared;
    for (int i = 0; i < model.depth[thread] && busy; i++)
        busy = model.shared != &model.guards[thread][i]; /* one's own may be nested */
    ull_status expected = busy                              ? ULL_E_INVALID
                          : pages - g->from_outer <= left() ? ULL_OK
                                                            : ULL_E_NO_MEMORY;
    ull_status status = ull_guard_begin_with(model.guarded, &g->options, &g->guard, NULL);
    model.begins++;
    if (status != expected)
        fail("a guard began, or did not", (uint64_t)-status, (uint64_t)-expected);
    if (status != ULL_OK) {
        model.refused_begins++;
        return;
    }
    model.depth[thread]++;
    if (outer)
        outer->lent += g->from_outer;
    if (g->options.all_threads)
        model.shared = g;
}

static void end(int thread)
{
    struct guard *g = guard_of(thread);
    if (model.depth[thread] > 1 && ull_guard_end(model.guards[thread][0].guard) != ULL_E_INVALID)
        fail("an outer guard ended first", 0, 0);
    if (ull_guard_end(g->guard) != ULL_OK)
        fail("a guard could not end", 0, 0);
    int depth = model.depth[thread]--;
    if (g->options.all_threads)
        model.shared = g->before;
    if (depth > 1) {
        struct guard *outer = g - 1;
        outer->lent -= g->from_outer;
        outer->used += g->used;
        outer->peak = outer->used > outer->peak ? outer->used : outer->peak;
    }
    for (int i = 0; i < LIVE; i++) {
        if (model.pieces[i].address && model.pieces[i].depth == depth &&
            model.pieces[i].thread == thread)
            model.pieces[i].depth--;
    }
}

static void check(void)
{
    struct ull_alloc_info info;
    char what[256];
    ull_alloc_info(model.guarded, &info);
    if (info.in_use != model.in_use * PAGE)
        fail("in use", info.in_use / PAGE, model.in_use);
    ull_alloc_info(model.limit, &info);
    if (info.in_use > info.limit && model.most == PAGES)
        fail("above the limit", info.in_use / PAGE, info.limit / PAGE);
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < model.depth[t]; i++) {
            const struct guard *g = &model.guards[t][i];
            struct ull_guard_info guard;
            ull_guard_info(g->guard, &guard);
            if (guard.in_use != g->used * PAGE || guard.peak != g->peak * PAGE)
                fail("used in a guard", guard.in_use / PAGE, g->used);
            if (guard.left != set_aside(g) * PAGE)
                fail("left in a guard", guard.left / PAGE, set_aside(g));
        }
    }
    if (!ull__pool_check(model.pool, what, sizeof what)) {
        puts(what);
        fail("an invariant is broken", 0, 0);
    }
}

/* One operation of a thread. */
static void step(int thread)
{
    struct piece *piece = &model.pieces[random_below(LIVE)];
    switch (random_below(20)) {
    case 0:
        if (model.depth[thread] < DEPTH)
            begin(thread);
        break;
    case 1:
        if (model.depth[thread] > 0)
            end(thread);
        break;
    default:
        if (piece->address)
            release(piece);
        else
            request(piece, thread);
        break;
    }
    if (operation % 64 == 0)
        check();
}

/* --- two threads that take turns ---------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;
static uint64_t operations;

static void *live(void *context)
{
    int self = context != NULL;
    pthread_mutex_lock(&lock);
    while (operation < operations) {
        while (turn != self && operation < operations)
            pthread_cond_wait(&turned, &lock);
        for (uint64_t i = 1 + random_below(40); i > 0 && operation < operations; i--, operation++)
            step(self);
        turn = !self;
        pthread_cond_broadcast(&turned);
    }
    while (model.depth[self] > 0)
        end(self);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void make(struct ull__device *device)
{
    struct ull_pool_options options;
    struct ull_error error = {.message = ""};
    ull_pool_options_init(&options);
    model.most = PAGES - random_below(2) * PAGES / 4;
    if (ull_pool_create(device, &options, &model.pool, &error) != ULL_OK ||
        ull_alloc_over_pool(model.pool, &model.over) != ULL_OK ||
        ull_limit_create(model.over, model.most * PAGE, &model.limit, &error) != ULL_OK ||
        ull_guard_create(model.limit, &model.guarded, &error) != ULL_OK)
        fail(error.message, 0, 0);
}

int main(int argc, char **argv)
{
    struct ull__device *device;
    pthread_t other;
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    operations = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    if (ull__device_host_create(PAGES * PAGE, PAGE, &device, NULL) != ULL_OK)
        fail("no device", 0, 0);
    make(device);
    if (pthread_create(&other, NULL, live, &model) != 0)
        fail("no thread", 0, 0);
    live(NULL);
    pthread_join(other, NULL);
    for (int i = 0; i < LIVE; i++) {
        if (model.pieces[i].address)
            release(&model.pieces[i]);
    }
    check();
    if (left() != model.most)
        fail("something is still set aside", left(), model.most);
    ull_alloc_destroy(model.guarded);
    ull_alloc_destroy(model.limit);
    ull_alloc_destroy(model.over);
    ull_pool_destroy(model.pool);
    ull__device_destroy(device);
    printf("model_policy: seed %llu, %llu operations, %llu requests, %llu refused, %llu guards, "
           "%llu refused\n",
           (unsigned long long)seed, (unsigned long long)operations,
           (unsigned long long)model.requests, (unsigned long long)model.refusals,
           (unsigned long long)model.begins, (unsigned long long)model.refused_begins);
    return 0;
}
