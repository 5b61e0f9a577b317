/*
 * malloc_policy.c: fails the n-th request for host memory of a stack of all adaptors, pool and device below
 * it. See malloc_pool.c; besides, every adaptor's account is right again when all has been freed.
 */
#include <stdio.h>

#include "allocations.h"
#include "device.h"
#include "pool_private.h"
#include "ullage/policy.h"

enum { PAGE = 1 << 14, PAGES = 64, PIECES = 150, ADAPTORS = 5 };

struct scene {
    struct ull__device *device;
    struct ull_pool *pool;
    struct ull_retry_group *group;
    struct ull_alloc *stack[ADAPTORS]; /* the outermost one last */
    int count;
    void *piece[PIECES];
};

static bool worked(ull_status status, const char *call)
{
    if (status != ULL_OK && status != ULL_E_NO_MEMORY)
        fail(call, ull_status_name(status));
    return status == ULL_OK;
}

static struct ull_alloc *top(struct scene *s)
{
    return s->stack[s->count - 1];
}

static uint64_t relief(void *context, uint64_t wanted)
{
    struct scene *s = context;
    uint64_t returned = 0;
    (void)wanted;
    ull_alloc_trim(s->stack[0], PAGE, &returned);
    return returned;
}

/* Puts the next adaptor in front. */
static bool add(struct scene *s)
{
    struct ull_error error = {.message = ""};
    struct ull_alloc *upstream = s->count ? top(s) : NULL, **place = &s->stack[s->count];
    ull_status status = ULL_OK;
    switch (s->count) {
    case 0:
        status = ull_alloc_over_pool(s->pool, place);
        break;
    case 1:
        status = ull_limit_create(upstream, (uint64_t)PAGES * PAGE, place, &error);
        break;
    case 2:
        status = ull_max_request_create(upstream, (uint64_t)PAGES * PAGE / 2, place, &error);
        break;
    case 3:
        status = ull_guard_create(upstream, place, &error);
        break;
    default:
        status = ull_retry_create(upstream, s->group, 0, place, &error);
        break;
    }
    if (!worked(status, "create: ")) {
        if (*place || (s->count > 0 && error.message[0] == 0))
            fail("an adaptor failed without a message, or was written", "");
        return false;
    }
    s->count++;
    return true;
}

static void get(struct scene *s, int i, uint64_t bytes)
{
    struct ull_request request = {.bytes = bytes, .tag = "a piece"};
    struct ull_report report;
    void *address = s;
    if (worked(ull_alloc_request(top(s), &request, &report, &address), "request: "))
        s->piece[i] = address;
    else if (address != s || !report.by || report.text[0] == 0)
        fail("a request failed without a report, or wrote its result", "");
}

static void give_all(struct scene *s)
{
    for (int i = 0; i < PIECES; i++) {
        if (s->piece[i] && ull_alloc_free(top(s), s->piece[i], NULL) != ULL_OK)
            fail("a free was refused", "");
        s->piece[i] = NULL;
    }
}

static void use(struct scene *s)
{
    struct ull_guard *guard = NULL, *inner = NULL;
    for (int i = 0; i < PIECES / 2; i++)
        get(s, i, i % 10 ? 300 : 2 * PAGE);
    bool open = worked(ull_guard_begin(s->stack[3], 20 * PAGE, &guard, NULL), "guard_begin: ");
    bool nested = worked(ull_guard_begin(s->stack[3], 8 * PAGE, &inner, NULL), "guard_begin: ");
    if (open != (guard != NULL) || nested != (inner != NULL))
        fail("a guard that failed was written", "");
    for (int i = PIECES / 2; i < PIECES; i++)
        get(s, i, i % 10 ? 300 : PAGE);
    if (nested && ull_guard_end(inner) != ULL_OK)
        fail("a guard could not end", "");
    if (open && ull_guard_end(guard) != ULL_OK)
        fail("a guard could not end", "");
    give_all(s);
}

/* Nobody holds anything, and nothing is lost. */
static void all_is_well(struct scene *s)
{
    char what[256];
    struct ull_alloc_info info;
    use(s);
    for (int i = 0; i < s->count; i++) {
        ull_alloc_info(s->stack[i], &info);
        if (info.in_use != 0)
            fail("still in use: ", s->stack[i]->ops->name);
    }
    for (int i = 0; i < 2; i++) {
        get(s, i, (uint64_t)PAGES * PAGE / 2);
        if (!s->piece[i])
            fail("memory was lost", "");
    }
    give_all(s);
    if (!ull__pool_check(s->pool, what, sizeof what))
        fail("an invariant is broken: ", what);
}

static void with_pool(struct scene *s)
{
    if (!worked(ull_retry_group_create(&s->group), "group: "))
        return;
    while (s->count < ADAPTORS && add(s))
        continue;
    if (s->count == ADAPTORS) {
        if (ull_retry_add_callback(top(s), "trim", relief, s) != ULL_OK ||
            ull_guard_add_fallback(s->stack[3], "trim", relief, s) != ULL_OK)
            fail("a callback could not be added", "");
        use(s);
        allocations_work();
        all_is_well(s);
    }
    while (s->count > 0)
        ull_alloc_destroy(s->stack[--s->count]);
    ull_retry_group_destroy(s->group);
}

static void scene(void)
{
    struct scene s = {.pool = NULL};
    struct ull_pool_options options;
    ull_status status = ull__device_host_create((uint64_t)PAGES * PAGE, PAGE, &s.device, NULL);
    if (status == ULL_E_SYSTEM || !worked(status, "device_create: "))
        return;
    ull_pool_options_init(&options);
    options.small_bytes = 4096;
    if (worked(ull_pool_create(s.device, &options, &s.pool, NULL), "pool_create: "))
        with_pool(&s);
    ull_pool_destroy(s.pool);
    struct ull__device_held held = ull__device_host_held(s.device);
    if (held.pages || held.mappings || held.reserved_bytes || held.events || held.misuses)
        fail("something leaked, or the device was misused", "");
    ull__device_destroy(s.device);
}

int main(void)
{
    if (each_fails("malloc_policy", scene) < 50)
        fail("the scene asks for hardly any memory", "");
    return 0;
}
