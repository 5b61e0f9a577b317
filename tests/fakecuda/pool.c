/*
 * pool.c: stream-ordered memory.
 *
 * A pool is one run of addresses, held in steps of 32 MiB and cut first fit, 256 bytes aligned. What
 * was freed on a stream may be used again at once on that stream, and on others once the stream has
 * got there; it counts as unused, and its steps can be released, only after the program has waited
 * for that stream. Steps above the release threshold go back whenever a program waits.
 *
 * Odd but measured: cuMemFree on pool memory works and leaves the "used" figure as it was.
 *
 * Sharing pools between processes is not supported.
 */
#include "pool.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

enum state { FREE, USED, FREED }; /* FREED: on a stream, nobody has waited for it yet */

struct piece {
    uint64_t start, size; /* first, so that a key looks like a piece */
    struct piece *next, *previous;
    struct CUmemPoolHandle_st *pool;
    enum state state;
    size_t asked;
    CUstream stream;
    uint64_t number;
};

static CUmemoryPool all;

static int compare(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return x->start + x->size <= y->start ? -1 : x->start >= y->start + y->size ? 1 : 0;
}

static struct piece *find_piece(CUmemoryPool pool, CUdeviceptr at)
{
    struct piece key = {.start = at - pool->base, .size = 1};
    struct piece **found = tfind(&key, &pool->tree, compare);
    return found ? *found : NULL;
}

/* What is freed on a stream is in no tree any more, though work that was there before still uses it. */
static bool resolve_held(CUmemoryPool pool, CUdeviceptr at, struct fake_range *range)
{
    uint64_t offset = at - pool->base, step = offset / pool->step;
    if (!pool->steps[step].window)
        return false;
    range->base = at;
    range->size = range->length = pool->step - offset % pool->step;
    range->host = pool->steps[step].host + offset % pool->step;
    range->card = pool->card;
    range->pool = pool;
    return true;
}

static bool resolve(const struct fake_span *span, CUdeviceptr at, struct fake_range *range)
{
    CUmemoryPool pool = span->object;
    struct piece *piece = find_piece(pool, at);
    if (fake_at_work)
        return resolve_held(pool, at, range);
    if (!piece || at >= pool->base + piece->start + piece->asked)
        return false;
    uint64_t offset = at - pool->base, step = offset / pool->step;
    range->host = pool->steps[step].host + offset % pool->step;
    range->base = pool->base + piece->start;
    range->size = piece->asked;
    range->length = range->base + piece->asked - at;
    if (range->length > pool->step - offset % pool->step)
        range->length = pool->step - offset % pool->step;
    range->card = pool->card;
    range->pool = pool;
    return true;
}

CUmemoryPool fake_pool_new(int card, size_t max_size)
{
    CUmemoryPool pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->card = card;
    pool->live = true;
    pool->step = fake_lenient("pool.step") ? FAKE_PAGE : 32 * FAKE_MIB;
    uint64_t span = 2 * fake_config()->card[card].total + 1024 * FAKE_MIB;
    pool->step_count = span / pool->step;
    pool->max_steps = max_size ? (max_size + pool->step - 1) / pool->step : pool->step_count;
    pool->steps = calloc(pool->step_count, sizeof *pool->steps);
    pool->first = calloc(1, sizeof *pool->first);
    pool->base = fake_addresses_reserve(pool->step_count * pool->step, 32 * FAKE_MIB);
    if (!pool->steps || !pool->first || !pool->base)
        return NULL;
    pool->first->pool = pool;
    pool->first->size = pool->step_count * pool->step;
    for (int i = 0; i < 3; i++)
        pool->reuse[i] = 1;
    fake_span_add(
        (struct fake_span){pool->base, pool->step_count * pool->step, FAKE_POOL, pool, resolve});
    pool->next = all;
    all = pool;
    return pool;
}

/* --- pieces --- */

static struct piece *split(struct piece *piece, uint64_t at)
{
    if (at <= piece->start || at >= piece->start + piece->size)
        return piece;
    struct piece *right = malloc(sizeof *right);
    if (!right)
        return NULL;
    *right = *piece;
    right->start = at;
    right->size = piece->start + piece->size - at;
    piece->size = at - piece->start;
    right->previous = piece;
    if (right->next)
        right->next->previous = right;
    piece->next = right;
    return right;
}

static void absorb_next(struct piece *piece)
{
    struct piece *next = piece->next;
    piece->size += next->size;
    piece->next = next->next;
    if (piece->next)
        piece->next->previous = piece;
    free(next);
}

static bool mergeable(const struct piece *a, const struct piece *b)
{
    return a && b && a->state == b->state && a->state != USED &&
           (a->state == FREE || a->stream == b->stream);
}

static struct piece *merge(struct piece *piece)
{
    if (mergeable(piece->previous, piece)) {
        piece = piece->previous;
        if (piece->next->number > piece->number)
            piece->number = piece->next->number;
        absorb_next(piece);
    }
    if (mergeable(piece, piece->next)) {
        if (piece->next->number > piece->number)
            piece->number = piece->next->number;
        absorb_next(piece);
    }
    return piece;
}

static bool usable(const struct piece *piece, CUstream stream)
{
    return piece->state == FREE || (piece->state == FREED && (piece->stream == stream ||
                                                              piece->stream->done >= piece->number));
}

/* Where in a run of usable pieces the bytes fit; `held`: using only steps that are held. */
static bool place(CUmemoryPool pool, uint64_t start, uint64_t end, uint64_t size, bool held,
                  uint64_t *at)
{
    while (start + size <= end) {
        uint64_t step = start / pool->step, last = (start + size - 1) / pool->step;
        while (held && step <= last && pool->steps[step].window)
            step++;
        if (!held || step > last) {
            *at = start;
            return true;
        }
        start = (step + 1) * pool->step;
    }
    return false;
}

static struct piece *find_run(CUmemoryPool pool, CUstream stream, uint64_t size, bool held,
                              uint64_t *at)
{
    struct piece *first = pool->first;
    while (first) {
        if (!usable(first, stream)) {
            first = first->next;
            continue;
        }
        struct piece *last = first;
        while (last->next && usable(last->next, stream))
            last = last->next;
        if (place(pool, first->start, last->start + last->size, size, held, at)) {
            while (first->start + first->size <= *at)
                first = first->next;
            return first;
        }
        first = last->next;
    }
    return NULL;
}

static void account(CUmemoryPool pool)
{
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
}

static CUresult hold(CUmemoryPool pool, uint64_t start, uint64_t size)
{
    uint64_t first = start / pool->step, last = (start + size - 1) / pool->step, missing = 0;
    for (uint64_t i = first; i <= last; i++)
        missing += pool->steps[i].window == NULL;
    if (pool->reserved / pool->step + missing > pool->max_steps)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = missing ? fake_charge(pool->card, missing * pool->step, 0) : CUDA_SUCCESS;
    if (r != CUDA_SUCCESS)
        return r;
    for (uint64_t i = first; i <= last; i++)
        if (!pool->steps[i].window && !fake_block_take(pool->step, &pool->steps[i]))
            return CUDA_ERROR_OUT_OF_MEMORY; /* no addresses left: cannot happen in practice */
    pool->reserved += missing * pool->step;
    return CUDA_SUCCESS;
}

static CUresult allocate_at(CUmemoryPool pool, struct piece *piece, uint64_t at, uint64_t size,
                            size_t asked, CUdeviceptr *out)
{
    CUresult r = hold(pool, at, size);
    if (r != CUDA_SUCCESS)
        return r;
    piece = split(piece, at);
    while (piece && piece->size < size) {
        uint64_t missing = size - piece->size;
        if (piece->next->size > missing)
            split(piece->next, piece->next->start + missing);
        absorb_next(piece);
    }
    if (!piece || !split(piece, at + size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    piece->state = USED;
    piece->asked = asked;
    tsearch(piece, &pool->tree, compare);
    pool->used_pieces++;
    pool->used += size;
    account(pool);
    fake_count(pool->card, 1);
    *out = pool->base + at;
    return CUDA_SUCCESS;
}

CUresult fake_pool_allocate(CUmemoryPool pool, size_t bytes, CUstream stream, CUdeviceptr *out)
{
    uint64_t size = (bytes + 255) / 256 * 256, at = 0;
    if (bytes > pool->step_count * pool->step)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct piece *piece = find_run(pool, stream, size, true, &at);
    if (!piece)
        piece = find_run(pool, stream, size, false, &at);
    CUresult r = piece ? allocate_at(pool, piece, at, size, bytes, out) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_ERROR_OUT_OF_MEMORY)
        return r;
    /* Rather wait for what other streams have freed than fail. */
    bool waited = false;
    for (struct piece *p = pool->first; p; p = p->next)
        if (p->state == FREED && p->stream != stream && p->stream->done < p->number) {
            fake_wait_stream(p->stream, p->number); /* drops the lock: the list may have changed */
            waited = true;
            p = pool->first;
        }
    piece = waited ? find_run(pool, stream, size, true, &at) : NULL;
    return piece ? allocate_at(pool, piece, at, size, bytes, out) : r;
}

/* --- giving back --- */

void fake_pool_release(CUmemoryPool pool, uint64_t keep)
{
    for (struct piece *p = pool->first; p && pool->reserved > keep; p = p->next) {
        if (p->state != FREE)
            continue;
        uint64_t first = (p->start + pool->step - 1) / pool->step;
        uint64_t end = (p->start + p->size) / pool->step;
        for (uint64_t i = first; i < end && pool->reserved > keep; i++)
            if (pool->steps[i].window) {
                fake_block_drop(&pool->steps[i]);
                pool->reserved -= pool->step;
                fake_uncharge(pool->card, pool->step, 0);
            }
    }
}

void fake_pool_synchronized(CUstream stream, uint64_t number)
{
    for (CUmemoryPool pool = all; pool; pool = pool->next) {
        for (struct piece *p = pool->first; p; p = p->next)
            if (p->state == FREED && (stream ? p->stream == stream && p->number <= number
                                             : p->stream->done >= p->number)) {
                p->state = FREE;
                p = merge(p);
            }
        fake_pool_release(pool, pool->live ? pool->threshold : 0);
    }
}

static void piece_free(CUmemoryPool pool, struct piece *piece, CUstream stream)
{
    tdelete(piece, &pool->tree, compare);
    pool->used_pieces--;
    piece->state = stream ? FREED : FREE;
    piece->stream = stream;
    if (stream) {
        piece->number = stream->queued;
        pool->used -= piece->size;
    }
    fake_count(pool->card, -1);
    merge(piece);
}

CUresult fake_pool_free(CUdeviceptr ptr, CUstream stream)
{
    const struct fake_span *span = fake_span_at(ptr);
    CUmemoryPool pool = span->object;
    struct piece *piece = find_piece(pool, ptr);
    if (!piece || pool->base + piece->start != ptr)
        return CUDA_ERROR_INVALID_VALUE;
    piece_free(pool, piece, stream);
    return CUDA_SUCCESS;
}

CUresult fake_pool_free_now(CUdeviceptr ptr)
{
    return fake_pool_free(ptr, NULL);
}

bool fake_pool_known(CUmemoryPool pool)
{
    for (CUmemoryPool p = all; p; p = p->next)
        if (p == pool)
            return p->live;
    return false;
}

void fake_pool_destroy(CUmemoryPool pool)
{
    pool->live = false;
    for (struct piece *p = pool->first; p; p = p->next)
        if (p->state == FREED && p->stream->done >= p->number) {
            p->state = FREE;
            p = merge(p);
        }
    fake_pool_release(pool, 0);
}
