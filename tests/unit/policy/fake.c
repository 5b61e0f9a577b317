/* fake.c: see fake.h. */
#include "fake.h"

#include <string.h>

static ull_status fake_allocate(struct ull_alloc *alloc, const struct ull_request *request,
                                struct ull_report *report, void **address)
{
    struct fake *fake = (struct fake *)alloc;
    ull_status status = ULL_E_NO_MEMORY;
    pthread_mutex_lock(&fake->lock);
    int place = 0;
    while (place < FAKE_LIVE && fake->live[place].address)
        place++;
    if (place < FAKE_LIVE && request->bytes <= fake->capacity &&
        fake->in_use <= fake->capacity - request->bytes) {
        fake->next += 1u << 20;
        fake->live[place].address = fake->next;
        fake->live[place].bytes = request->bytes;
        fake->in_use += request->bytes;
        fake->peak = fake->in_use > fake->peak ? fake->in_use : fake->peak;
        fake->allocations++;
        *address = (void *)(uintptr_t)fake->next;
        status = ULL_OK;
    } else {
        memset(report, 0, sizeof *report);
        report->by = "fake";
        report->pool.device_full = fake->device_full;
        strcpy(report->text, "fake: full");
        fake->refusals++;
    }
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static ull_status fake_free(struct ull_alloc *alloc, void *address, void *stream)
{
    struct fake *fake = (struct fake *)alloc;
    ull_status status = ULL_E_INVALID;
    (void)stream;
    pthread_mutex_lock(&fake->lock);
    for (int i = 0; i < FAKE_LIVE && status != ULL_OK; i++) {
        if (fake->live[i].address != (uintptr_t)address)
            continue;
        fake->in_use -= fake->live[i].bytes;
        fake->live[i].address = 0;
        fake->frees++;
        status = ULL_OK;
    }
    pthread_mutex_unlock(&fake->lock);
    return status;
}

static ull_status fake_use_on(struct ull_alloc *alloc, void *address, void *stream)
{
    (void)address;
    (void)stream;
    ((struct fake *)alloc)->uses++;
    return ULL_OK;
}

static void fake_info(struct ull_alloc *alloc, struct ull_alloc_info *info)
{
    struct fake *fake = (struct fake *)alloc;
    pthread_mutex_lock(&fake->lock);
    *info = (struct ull_alloc_info){fake->in_use, fake->peak, UINT64_MAX, fake->capacity};
    pthread_mutex_unlock(&fake->lock);
}

static ull_status fake_trim(struct ull_alloc *alloc, uint64_t bytes, uint64_t *returned)
{
    struct fake *fake = (struct fake *)alloc;
    pthread_mutex_lock(&fake->lock);
    uint64_t given = bytes < fake->cached ? bytes : fake->cached;
    fake->cached -= given;
    fake->trims++;
    pthread_mutex_unlock(&fake->lock);
    if (fake->gives_to) {
        pthread_mutex_lock(&fake->gives_to->lock);
        fake->gives_to->capacity += given;
        pthread_mutex_unlock(&fake->gives_to->lock);
    }
    *returned = given;
    return ULL_OK;
}

static void fake_destroy(struct ull_alloc *alloc)
{
    (void)alloc;
}

static const struct ull_alloc_ops fake_ops = {.name = "fake",
                                              .allocate = fake_allocate,
                                              .free = fake_free,
                                              .use_on = fake_use_on,
                                              .info = fake_info,
                                              .trim = fake_trim,
                                              .destroy = fake_destroy};

void fake_init(struct fake *fake, uint64_t capacity)
{
    memset(fake, 0, sizeof *fake);
    fake->alloc.ops = &fake_ops;
    fake->capacity = capacity;
    pthread_mutex_init(&fake->lock, NULL);
}
