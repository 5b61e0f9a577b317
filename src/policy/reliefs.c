/*
 * reliefs.c: callbacks of the program that give memory back: run one at a time, in the order in which
 * they were registered, without a lock. One may be taken out while it runs on another thread: taking it
 * out then waits for it, so that the caller can free the context afterwards.
 */
#include "policy_private.h"

enum { SLICE_NS = 100000000 };

static _Thread_local struct inside {
    unsigned int depth;
    const struct ull__reliefs *reliefs; /* of the innermost one */
    uint64_t id;
} inside;

bool ull__in_relief(void)
{
    return inside.depth > 0;
}

void ull__reliefs_init(struct ull__reliefs *reliefs)
{
    *reliefs = (struct ull__reliefs){.count = 0};
    pthread_mutex_init(&reliefs->lock, NULL);
    ull__condition_init(&reliefs->idle);
}

void ull__reliefs_finish(struct ull__reliefs *reliefs)
{
    pthread_mutex_destroy(&reliefs->lock);
    pthread_cond_destroy(&reliefs->idle);
}

ull_status ull__reliefs_add(struct ull__reliefs *reliefs, const char *name, ull_relief_fn call,
                            void *context)
{
    if (!call || !name)
        return ULL_E_INVALID;
    pthread_mutex_lock(&reliefs->lock);
    bool full = reliefs->count == ULL_RELIEFS;
    if (!full)
        reliefs->list[reliefs->count++] = (struct ull__relief){
            .id = ++reliefs->last_id, .name = name, .call = call, .context = context};
    pthread_mutex_unlock(&reliefs->lock);
    return full ? ULL_E_FULL : ULL_OK;
}

static struct ull__relief *by_id(struct ull__reliefs *reliefs, uint64_t id)
{
    for (unsigned int i = 0; i < reliefs->count; i++) {
        if (reliefs->list[i].id == id)
            return &reliefs->list[i];
    }
    return NULL;
}

ull_status ull__reliefs_remove(struct ull__reliefs *reliefs, ull_relief_fn call, void *context)
{
    pthread_mutex_lock(&reliefs->lock);
    uint64_t id = 0;
    for (unsigned int i = 0; i < reliefs->count && id == 0; i++) {
        if (reliefs->list[i].call == call && reliefs->list[i].context == context)
            id = reliefs->list[i].id;
    }
    /* One that takes itself out must not wait for itself. */
    unsigned int own = inside.depth > 0 && inside.reliefs == reliefs && inside.id == id;
    struct ull__relief *relief = by_id(reliefs, id);
    if (relief)
        relief->call = NULL; /* nobody starts it any more */
    while (relief && relief->running > own) {
        ull__condition_wait(&reliefs->idle, &reliefs->lock, ull__policy_now() + SLICE_NS);
        relief = by_id(reliefs, id);
    }
    if (relief) {
        struct ull__relief *end = &reliefs->list[--reliefs->count];
        for (; relief < end; relief++)
            relief[0] = relief[1];
    }
    pthread_mutex_unlock(&reliefs->lock);
    return id ? ULL_OK : ULL_E_NOT_FOUND;
}

bool ull__reliefs_next(struct ull__reliefs *reliefs, uint64_t wanted, uint64_t *id,
                       const char **name, uint64_t *returned)
{
    pthread_mutex_lock(&reliefs->lock);
    struct ull__relief *next = NULL;
    for (unsigned int i = 0; i < reliefs->count && !next; i++) {
        if (reliefs->list[i].id > *id && reliefs->list[i].call)
            next = &reliefs->list[i];
    }
    if (!next) {
        pthread_mutex_unlock(&reliefs->lock);
        return false;
    }
    next->running++;
    struct ull__relief copy = *next;
    pthread_mutex_unlock(&reliefs->lock);

    struct inside outer = inside;
    inside = (struct inside){.depth = outer.depth + 1, .reliefs = reliefs, .id = copy.id};
    uint64_t given = copy.call(copy.context, wanted);
    inside = outer;

    pthread_mutex_lock(&reliefs->lock);
    next = by_id(reliefs, copy.id);
    if (next)
        next->running--;
    pthread_cond_broadcast(&reliefs->idle);
    pthread_mutex_unlock(&reliefs->lock);
    *id = copy.id;
    *name = copy.name;
    *returned = given;
    return true;
}
