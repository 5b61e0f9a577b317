/*
 * searches.c: the searches of a planner, one for each precision and form of the loss, side by side in threads. What each finds
 * does not depend on the others, so the order in which they end does not matter. See plan.h.
 */
#include <pthread.h>
#include <unistd.h>

#include "error.h"
#include "plan_private.h"

/* Threads that run next to each other; more only take each other's caches. */
enum { AT_ONCE = 8 };

/* --- Threads --- */

struct sharing {
    void (*one)(void *context, int at);
    void *context;
    int count;
    atomic_int next;
};

static void *do_some(void *argument)
{
    struct sharing *sharing = argument;
    int at;
    while ((at = atomic_fetch_add(&sharing->next, 1)) < sharing->count) {
        sharing->one(sharing->context, at);
    }
    return NULL;
}

void ull__plan_share(int count, void (*one)(void *context, int at), void *context)
{
    struct sharing sharing = {.one = one, .context = context, .count = count};
    pthread_t threads[AT_ONCE];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int most = processors < AT_ONCE ? (int)processors : AT_ONCE, started = 0;
    most = most < count ? most : count;
    while (started + 1 < most && pthread_create(&threads[started], NULL, do_some, &sharing) == 0) {
        started += 1;
    }
    do_some(&sharing);
    while (started > 0) {
        pthread_join(threads[--started], NULL);
    }
}

/* --- Searches --- */

static void search_one(void *context, int at)
{
    struct ull__plan_search *search = (struct ull__plan_search *)context + at;
    const struct ull__planner *planner = search->planner;
    search->status = ull__search(planner->variants[search->variant].program, &planner->profile,
                                 &search->options, &search->frontier, &search->error);
}

bool ull__plan_same_search(const struct ull__planner *planner, int left, int right)
{
    const struct ull__plan_graph *a = &planner->graphs[planner->variants[left].graph];
    const struct ull__plan_graph *b = &planner->graphs[planner->variants[right].graph];
    /* Weights that are gathered are nodes of the forward pass. */
    return a->precision == b->precision && a->chunked == b->chunked &&
           (a->zero_stage == 3) == (b->zero_stage == 3);
}

ull_status ull__plan_searches(struct ull__planner *planner, const struct ull__search_options *options,
                              struct ull__plan_search searches[ULL_PLAN_GRAPHS], int *count,
                              struct ull_error *err)
{
    struct ull__progress *progress = planner->request.progress;
    *count = 0;
    for (int i = 0; i < planner->variant_count; ++i) {
        if (i > 0 && ull__plan_same_search(planner, i, i - 1)) {
            continue;
        }
        searches[*count] =
            (struct ull__plan_search){.planner = planner, .variant = i, .options = *options};
        searches[*count].options.progress = progress;
        if (progress != NULL) {
            atomic_fetch_add(&progress->all,
                             ull__search_schedules(planner->variants[i].program, options));
        }
        *count += 1;
    }
    ull__plan_share(*count, search_one, searches);
    for (int i = 0; i < *count; ++i) {
        if (searches[i].status != ULL_OK) {
            return ull__fail(err, searches[i].status, "%s", searches[i].error.message);
        }
    }
    return ULL_OK;
}
