/*
 * alloc.c: the allocator interface as calls, and the pool as the innermost allocator.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy_private.h"

/* --- reports ---------------------------------------------------------------------------------------------- */

void ull__report_begin(struct ull_report *report, const char *by)
{
    memset(report, 0, sizeof *report);
    report->by = by;
}

void ull__report_add(struct ull_report *report, const char *format, ...)
{
    size_t at = strlen(report->text);
    va_list args;
    va_start(args, format);
    vsnprintf(report->text + at, sizeof report->text - at, format, args);
    va_end(args);
}

uint64_t ull__policy_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void ull__condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

void ull__condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    pthread_cond_timedwait(condition, lock, &until);
}

/* --- calls ------------------------------------------------------------------------------------------------ */

ull_status ull_alloc_request(struct ull_alloc *alloc, const struct ull_request *request,
                             struct ull_report *report, void **address)
{
    if (request->bytes == 0 || (request->alignment & (request->alignment - 1)) != 0)
        return ULL_E_INVALID;
    if (report)
        return alloc->ops->allocate(alloc, request, report, address);
    struct ull_report unread;
    return alloc->ops->allocate(alloc, request, &unread, address);
}

ull_status ull_alloc_allocate(struct ull_alloc *alloc, uint64_t bytes, void *stream, void **address)
{
    struct ull_request request = {.bytes = bytes, .stream = stream};
    return ull_alloc_request(alloc, &request, NULL, address);
}

ull_status ull_alloc_free(struct ull_alloc *alloc, void *address, void *stream)
{
    return address ? alloc->ops->free(alloc, address, stream) : ULL_OK;
}

ull_status ull_alloc_use_on(struct ull_alloc *alloc, void *address, void *stream)
{
    return address ? alloc->ops->use_on(alloc, address, stream) : ULL_E_INVALID;
}

void ull_alloc_info(struct ull_alloc *alloc, struct ull_alloc_info *info)
{
    alloc->ops->info(alloc, info);
}

ull_status ull_alloc_trim(struct ull_alloc *alloc, uint64_t bytes, uint64_t *returned)
{
    uint64_t unread;
    return alloc->ops->trim(alloc, bytes, returned ? returned : &unread);
}

void ull_alloc_destroy(struct ull_alloc *alloc)
{
    if (alloc)
        alloc->ops->destroy(alloc);
}

/* --- the pool --------------------------------------------------------------------------------------------- */

struct over_pool {
    struct ull_alloc alloc;
    struct ull_pool *pool;
};

static struct ull_pool *pool_of(struct ull_alloc *alloc)
{
    return ((struct over_pool *)alloc)->pool;
}

static ull_status pool_allocate(struct ull_alloc *alloc, const struct ull_request *request,
                                struct ull_report *report, void **address)
{
    struct ull_refusal refusal;
    ull_status status = ull_pool_request(pool_of(alloc), request, &refusal, address);
    if (status == ULL_E_NO_MEMORY) {
        ull__report_begin(report, alloc->ops->name);
        report->pool = refusal;
        ull_refusal_text(&refusal, report->text, sizeof report->text);
    }
    return status;
}

static ull_status pool_free(struct ull_alloc *alloc, void *address, void *stream)
{
    return ull_pool_free(pool_of(alloc), address, stream);
}

static ull_status pool_use_on(struct ull_alloc *alloc, void *address, void *stream)
{
    return ull_pool_use_on(pool_of(alloc), address, stream);
}

static void pool_info(struct ull_alloc *alloc, struct ull_alloc_info *info)
{
    struct ull_stats stats = {.size = sizeof stats};
    ull_pool_stats(pool_of(alloc), &stats);
    *info = (struct ull_alloc_info){
        .in_use = stats.in_use, .peak = stats.peak_in_use, .limit = stats.limit, .held = stats.held};
}

static ull_status pool_trim(struct ull_alloc *alloc, uint64_t bytes, uint64_t *returned)
{
    return ull_pool_trim(pool_of(alloc), bytes, returned);
}

static void pool_destroy(struct ull_alloc *alloc)
{
    free(alloc);
}

static const struct ull_alloc_ops pool_ops = {.name = "pool",
                                              .allocate = pool_allocate,
                                              .free = pool_free,
                                              .use_on = pool_use_on,
                                              .info = pool_info,
                                              .trim = pool_trim,
                                              .destroy = pool_destroy};

ull_status ull_alloc_over_pool(struct ull_pool *pool, struct ull_alloc **alloc)
{
    struct over_pool *over = malloc(sizeof *over);
    if (!over)
        return ULL_E_NO_MEMORY;
    *over = (struct over_pool){.alloc = {.ops = &pool_ops}, .pool = pool};
    *alloc = &over->alloc;
    return ULL_OK;
}
