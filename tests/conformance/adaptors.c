/*
 * adaptors.c: see adaptors.h. A stack is a word, a letter an adaptor from the pool outwards: limit,
 * max_request, guard, Guard of which one is open, and retry.
 */
#include "adaptors.h"

static const char *const stacks[ADAPTOR_STACKS] = {"",  "l",   "m",    "g",    "G",
                                                   "r", "lgr", "mlrg", "grlmG"};

static bool add(struct adaptors *a, char kind, uint64_t bytes)
{
    struct ull_alloc *below = adaptors_top(a), **place = &a->list[a->count];
    ull_status status = ULL_E_INVALID;
    switch (kind) {
    case 'l':
        status = ull_limit_create(below, bytes, place, NULL);
        break;
    case 'm':
        status = ull_max_request_create(below, bytes, place, NULL);
        break;
    case 'g':
    case 'G':
        status = ull_guard_create(below, place, NULL);
        break;
    case 'r':
        status = ull_retry_create(below, NULL, 50000000, place, NULL);
        break;
    }
    if (status != ULL_OK)
        return false;
    a->count++;
    a->set_aside = kind == 'G' ? bytes / 3 : a->set_aside;
    return kind != 'G' || ull_guard_begin(*place, a->set_aside, &a->guard, NULL) == ULL_OK;
}

bool adaptors_create(struct adaptors *a, struct ull_pool *pool, int stack, uint64_t bytes)
{
    *a = (struct adaptors){.count = 1};
    bool good = ull_alloc_over_pool(pool, &a->list[0]) == ULL_OK;
    for (const char *kind = stacks[stack]; good && *kind; kind++)
        good = add(a, *kind, bytes);
    return good;
}

struct ull_alloc *adaptors_top(const struct adaptors *a)
{
    return a->list[a->count - 1];
}

uint64_t adaptors_set_aside(const struct adaptors *a)
{
    return a->set_aside;
}

bool adaptors_end_guard(struct adaptors *a)
{
    bool ended = !a->guard || ull_guard_end(a->guard) == ULL_OK;
    a->guard = NULL;
    return ended;
}

bool adaptors_destroy(struct adaptors *a)
{
    bool ended = adaptors_end_guard(a);
    while (a->count > 0)
        ull_alloc_destroy(a->list[--a->count]);
    return ended;
}
