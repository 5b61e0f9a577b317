/*
 * retry.c: what is tried before a request is refused, from cheap to dear.
 *
 * The pool below has waited for pending frees already. Caches of other pools are trimmed only if it was
 * the device that had no memory: against a limit that would cost them their pages for nothing. Each step
 * that gave something back is followed by another attempt. No lock is held during any step.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "error.h"
#include "policy_private.h"
#include "size.h"

enum { SLICE_NS = 100000000 };

struct retry {
    struct ull_alloc alloc;
    struct ull_alloc *upstream;
    struct ull_retry_group *group;
    struct ull_retry_group *own; /* the group if nobody else has it */
    uint64_t wait_ns;
    struct ull__reliefs callbacks;
    /* In the group, under its lock. */
    struct retry *next;
    uint64_t id; /* ascending along the list */
    unsigned int trimming;
};

struct ull_retry_group {
    pthread_mutex_t lock;
    pthread_cond_t idle;
    struct retry *members;
    uint64_t last_id;
    struct ull__threads *threads;
};

/* --- groups ----------------------------------------------------------------------------------------------- */

ull_status ull_retry_group_create(struct ull_retry_group **out)
{
    struct ull_retry_group *group = calloc(1, sizeof *group);
    if (!group)
        return ULL_E_NO_MEMORY;
    group->threads = ull__threads_create();
    if (!group->threads) {
        free(group);
        return ULL_E_NO_MEMORY;
    }
    pthread_mutex_init(&group->lock, NULL);
    ull__condition_init(&group->idle);
    *out = group;
    return ULL_OK;
}

void ull_retry_group_destroy(struct ull_retry_group *group)
{
    if (!group)
        return;
    ull__threads_destroy(group->threads);
    pthread_mutex_destroy(&group->lock);
    pthread_cond_destroy(&group->idle);
    free(group);
}

static void join(struct retry *retry, struct ull_retry_group *group)
{
    retry->group = group;
    pthread_mutex_lock(&group->lock);
    struct retry **at = &group->members;
    while (*at)
        at = &(*at)->next;
    *at = retry;
    retry->id = ++group->last_id;
    pthread_mutex_unlock(&group->lock);
}

static void leave(struct retry *retry)
{
    struct ull_retry_group *group = retry->group;
    pthread_mutex_lock(&group->lock);
    struct retry **at = &group->members;
    while (*at != retry)
        at = &(*at)->next;
    *at = retry->next;
    while (retry->trimming > 0)
        ull__condition_wait(&group->idle, &group->lock, ull__policy_now() + SLICE_NS);
    pthread_mutex_unlock(&group->lock);
}

/* Trims the first sibling after *id. False when there is none. */
static bool trim_next(struct retry *self, uint64_t bytes, uint64_t *id, uint64_t *returned)
{
    struct ull_retry_group *group = self->group;
    pthread_mutex_lock(&group->lock);
    struct retry *sibling = group->members;
    while (sibling && (sibling->id <= *id || sibling == self))
        sibling = sibling->next;
    if (sibling) {
        sibling->trimming++;
        *id = sibling->id;
    }
    pthread_mutex_unlock(&group->lock);
    if (!sibling)
        return false;
    *returned = 0;
    sibling->upstream->ops->trim(sibling->upstream, bytes, returned);
    pthread_mutex_lock(&group->lock);
    sibling->trimming--;
    pthread_cond_broadcast(&group->idle);
    pthread_mutex_unlock(&group->lock);
    return true;
}

/* --- requests --------------------------------------------------------------------------------------------- */

/* A request on its way, and what was tried for it. */
struct attempt {
    struct retry *retry;
    const struct ull_request *request;
    struct ull_report *report;
    void **address;
    char tried[1024];
    size_t length;
};

static void note(struct attempt *attempt, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void note(struct attempt *attempt, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int more = vsnprintf(attempt->tried + attempt->length, sizeof attempt->tried - attempt->length,
                         format, args);
    va_end(args);
    attempt->length += more > 0 ? (size_t)more : 0;
    if (attempt->length >= sizeof attempt->tried)
        attempt->length = sizeof attempt->tried - 1;
}

static ull_status ask(struct attempt *attempt)
{
    struct ull_alloc *upstream = attempt->retry->upstream;
    return upstream->ops->allocate(upstream, attempt->request, attempt->report, attempt->address);
}

static ull_status with_siblings(struct attempt *attempt)
{
    ull_status status = ULL_E_NO_MEMORY;
    uint64_t id = 0, returned = 0, sum = 0;
    unsigned int count = 0;
    char text[ULL_SIZE_TEXT];
    if (!attempt->report->pool.device_full) {
        note(attempt,
             "\n  other pools on the device: left alone, since it was not the device that refused");
        return status;
    }
    while (status == ULL_E_NO_MEMORY &&
           trim_next(attempt->retry, attempt->request->bytes, &id, &returned)) {
        count++;
        sum += returned;
        if (returned > 0)
            status = ask(attempt);
    }
    note(attempt, "\n  caches of other pools on the device: %u trimmed, %s given back", count,
         ull__size_text(sum, text));
    return status;
}

static ull_status with_callbacks(struct attempt *attempt)
{
    ull_status status = ULL_E_NO_MEMORY;
    uint64_t id = 0, returned = 0;
    const char *name;
    char text[ULL_SIZE_TEXT];
    while (status == ULL_E_NO_MEMORY &&
           ull__reliefs_next(&attempt->retry->callbacks, attempt->request->bytes, &id, &name,
                             &returned)) {
        note(attempt, "\n  callback '%.60s': %s given back", name, ull__size_text(returned, text));
        if (returned > 0)
            status = ask(attempt);
    }
    if (id == 0)
        note(attempt, "\n  callbacks: none registered");
    return status;
}

static ull_status with_wait(struct attempt *attempt, uint64_t seen)
{
    struct retry *retry = attempt->retry;
    struct ull__threads *threads = retry->group->threads;
    if (retry->wait_ns == 0) {
        note(attempt, "\n  waiting for other threads: off");
        return ULL_E_NO_MEMORY;
    }
    ull_status status = ULL_E_NO_MEMORY;
    bool alone = false;
    uint64_t began = ull__policy_now();
    uint64_t deadline = retry->wait_ns > UINT64_MAX - began ? UINT64_MAX : began + retry->wait_ns;
    while (status == ULL_E_NO_MEMORY && ull__threads_wait(threads, seen, deadline, &alone)) {
        seen = ull__threads_frees(threads);
        status = ask(attempt);
    }
    note(attempt, "\n  waiting for other threads: %.1f ms of at most %.1f ms%s",
         (double)(ull__policy_now() - began) / 1e6, (double)retry->wait_ns / 1e6,
         alone ? ", since no other thread could free" : "");
    return status;
}

static ull_status retry_allocate(struct ull_alloc *alloc, const struct ull_request *request,
                                 struct ull_report *report, void **address)
{
    struct retry *retry = (struct retry *)alloc;
    ull__threads_note(retry->group->threads);
    uint64_t seen = ull__threads_frees(retry->group->threads);
    report->pool.device_full = false;
    ull_status status = retry->upstream->ops->allocate(retry->upstream, request, report, address);
    if (status != ULL_E_NO_MEMORY)
        return status;
    if (ull__in_relief()) {
        ull__report_add(report, "\nTried nothing else: the request comes from a callback");
        return status;
    }
    struct attempt attempt = {
        .retry = retry, .request = request, .report = report, .address = address};
    status = with_siblings(&attempt);
    if (status == ULL_E_NO_MEMORY)
        status = with_callbacks(&attempt);
    if (status == ULL_E_NO_MEMORY)
        status = with_wait(&attempt, seen);
    if (status == ULL_E_NO_MEMORY)
        ull__report_add(report, "\nTried after frees that wait for streams:%s", attempt.tried);
    return status;
}

uint64_t ull_retry_relieve(void *context, uint64_t wanted)
{
    struct retry *retry = context;
    uint64_t sum = 0, id = 0, returned = 0;
    const char *name;
    while (sum < wanted && trim_next(retry, wanted - sum, &id, &returned))
        sum += returned;
    id = 0;
    while (sum < wanted && ull__reliefs_next(&retry->callbacks, wanted - sum, &id, &name, &returned))
        sum = returned > UINT64_MAX - sum ? UINT64_MAX : sum + returned;
    return sum;
}

/* --- the rest --------------------------------------------------------------------------------------------- */

static ull_status retry_free(struct ull_alloc *alloc, void *address, void *stream)
{
    struct retry *retry = (struct retry *)alloc;
    ull__threads_note(retry->group->threads);
    ull_status status = retry->upstream->ops->free(retry->upstream, address, stream);
    if (status == ULL_OK)
        ull__threads_freed(retry->group->threads);
    return status;
}

static ull_status retry_use_on(struct ull_alloc *alloc, void *address, void *stream)
{
    struct retry *retry = (struct retry *)alloc;
    return retry->upstream->ops->use_on(retry->upstream, address, stream);
}

static void retry_info(struct ull_alloc *alloc, struct ull_alloc_info *info)
{
    struct retry *retry = (struct retry *)alloc;
    retry->upstream->ops->info(retry->upstream, info);
}

static ull_status retry_trim(struct ull_alloc *alloc, uint64_t bytes, uint64_t *returned)
{
    struct retry *retry = (struct retry *)alloc;
    return retry->upstream->ops->trim(retry->upstream, bytes, returned);
}

static void retry_destroy(struct ull_alloc *alloc)
{
    struct retry *retry = (struct retry *)alloc;
    leave(retry);
    ull_retry_group_destroy(retry->own);
    ull__reliefs_finish(&retry->callbacks);
    free(retry);
}

static const struct ull_alloc_ops retry_ops = {.name = "retry",
                                               .allocate = retry_allocate,
                                               .free = retry_free,
                                               .use_on = retry_use_on,
                                               .info = retry_info,
                                               .trim = retry_trim,
                                               .destroy = retry_destroy};

ull_status ull_retry_create(struct ull_alloc *upstream, struct ull_retry_group *group,
                            uint64_t wait_ns, struct ull_alloc **out, struct ull_error *err)
{
    struct retry *retry = calloc(1, sizeof *retry);
    if (!retry || (!group && ull_retry_group_create(&retry->own) != ULL_OK)) {
        free(retry);
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for an adaptor");
    }
    retry->alloc.ops = &retry_ops;
    retry->upstream = upstream;
    retry->wait_ns = wait_ns;
    ull__reliefs_init(&retry->callbacks);
    join(retry, group ? group : retry->own);
    *out = &retry->alloc;
    return ULL_OK;
}

static struct retry *retry_of(struct ull_alloc *alloc)
{
    return alloc->ops == &retry_ops ? (struct retry *)alloc : NULL;
}

ull_status ull_retry_add_callback(struct ull_alloc *alloc, const char *name, ull_relief_fn callback,
                                  void *context)
{
    struct retry *retry = retry_of(alloc);
    return retry ? ull__reliefs_add(&retry->callbacks, name, callback, context) : ULL_E_INVALID;
}

ull_status ull_retry_remove_callback(struct ull_alloc *alloc, ull_relief_fn callback, void *context)
{
    struct retry *retry = retry_of(alloc);
    return retry ? ull__reliefs_remove(&retry->callbacks, callback, context) : ULL_E_INVALID;
}

void ull_retry_announce_thread(struct ull_alloc *alloc)
{
    struct retry *retry = retry_of(alloc);
    if (retry)
        ull__threads_note(retry->group->threads);
}
