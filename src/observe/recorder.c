/*
 * recorder.c: the adaptor that records what goes through it.
 *
 * It remembers the size of what is in use, since a free says only the address. A free is told with the time at
 * which it was called: the address may be another's when it returns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "observe.h"

enum { OUT_OF_MEMORY = 2 /* as CUDA says it */ };

static bool promise(struct recorder *recorder)
{
    pthread_mutex_lock(&recorder->lock);
    bool promised = ull__sizes_promise(&recorder->sizes);
    pthread_mutex_unlock(&recorder->lock);
    return promised;
}

static void settle(struct recorder *recorder, const struct ull__size_entry *entry)
{
    pthread_mutex_lock(&recorder->lock);
    if (entry)
        ull__sizes_add(&recorder->sizes, entry);
    else
        ull__sizes_unpromise(&recorder->sizes);
    pthread_mutex_unlock(&recorder->lock);
}

static struct ull__event event_of(const struct recorder *recorder, enum ull__event_kind kind,
                                  uint64_t size, void *stream, uint32_t tag)
{
    uint64_t rounded = 0;
    ull__round(size, &rounded);
    return (struct ull__event){.size = size,
                               .charged = (int64_t)rounded,
                               .stream = (uint64_t)(uintptr_t)stream,
                               .tag = tag,
                               .kind = (uint8_t)kind,
                               .class = ULL_CLASS_DATA,
                               .device = recorder->device};
}

static ull_status recorder_allocate(struct ull_alloc *alloc, const struct ull_request *request,
                                    struct ull_report *report, void **address)
{
    struct recorder *recorder = (struct recorder *)alloc;
    uint64_t began_ns = ull__record_now();
    if (!promise(recorder)) {
        ull__report_begin(report, alloc->ops->name);
        ull__report_add(report, "record: no host memory to remember a request");
        return ULL_E_NO_MEMORY;
    }
    ull_status status =
        recorder->upstream->ops->allocate(recorder->upstream, request, report, address);
    uint32_t tag = ull__record_text(recorder->record, request->tag);
    struct ull__event event =
        event_of(recorder, ULL_EVENT_CHUNK_ALLOC, request->bytes, request->stream, tag);
    if (status == ULL_OK) {
        event.address = (uintptr_t)*address;
        uint64_t in_use = atomic_fetch_add(&recorder->in_use, (uint64_t)event.charged);
        if (in_use + (uint64_t)event.charged >
            atomic_load(&recorder->record->held_told[recorder->number]))
            ull__record_held(recorder);
        settle(recorder, &(struct ull__size_entry){.address = event.address,
                                                   .bytes = request->bytes,
                                                   .owner = (void *)(uintptr_t)tag});
    } else {
        settle(recorder, NULL);
        event.charged = 0;
        event.result = OUT_OF_MEMORY;
    }
    if (status == ULL_OK || status == ULL_E_NO_MEMORY)
        ull__record_put(recorder->record, &event, began_ns);
    return status;
}

static ull_status recorder_free(struct ull_alloc *alloc, void *address, void *stream)
{
    struct recorder *recorder = (struct recorder *)alloc;
    struct ull__size_entry entry;
    uint64_t began_ns = ull__record_now();
    /* Out of the table first: once upstream has it, another thread may be given the same address. */
    pthread_mutex_lock(&recorder->lock);
    bool known = ull__sizes_take(&recorder->sizes, address, &entry);
    if (known)
        recorder->sizes.count++; /* a place to put it back into */
    pthread_mutex_unlock(&recorder->lock);
    ull_status status = recorder->upstream->ops->free(recorder->upstream, address, stream);
    if (!known) /* made before this adaptor was, or not at all: upstream knows */
        return status;
    settle(recorder, status == ULL_OK ? NULL : &entry);
    if (status == ULL_OK) {
        struct ull__event event = event_of(recorder, ULL_EVENT_CHUNK_FREE, entry.bytes, stream,
                                           (uint32_t)(uintptr_t)entry.owner);
        event.address = (uintptr_t)address;
        atomic_fetch_sub(&recorder->in_use, (uint64_t)event.charged);
        ull__record_put(recorder->record, &event, began_ns);
    }
    return status;
}

static ull_status recorder_use_on(struct ull_alloc *alloc, void *address, void *stream)
{
    struct recorder *recorder = (struct recorder *)alloc;
    return recorder->upstream->ops->use_on(recorder->upstream, address, stream);
}

static void recorder_info(struct ull_alloc *alloc, struct ull_alloc_info *info)
{
    struct recorder *recorder = (struct recorder *)alloc;
    recorder->upstream->ops->info(recorder->upstream, info);
}

static ull_status recorder_trim(struct ull_alloc *alloc, uint64_t bytes, uint64_t *returned)
{
    struct recorder *recorder = (struct recorder *)alloc;
    return recorder->upstream->ops->trim(recorder->upstream, bytes, returned);
}

static void recorder_destroy(struct ull_alloc *alloc)
{
    struct recorder *recorder = (struct recorder *)alloc;
    struct ull_record *record = recorder->record;
    pthread_mutex_lock(&record->lock);
    for (uint32_t i = 0; i < record->recorder_count; i++)
        if (record->recorders[i] == recorder)
            record->recorders[i] = NULL;
    pthread_mutex_unlock(&record->lock);
    ull__sizes_finish(&recorder->sizes);
    pthread_mutex_destroy(&recorder->lock);
    free(recorder);
}

static const struct ull_alloc_ops recorder_ops = {.name = "record",
                                                  .allocate = recorder_allocate,
                                                  .free = recorder_free,
                                                  .use_on = recorder_use_on,
                                                  .info = recorder_info,
                                                  .trim = recorder_trim,
                                                  .destroy = recorder_destroy};

/* With the record's lock: the number of a device, which is new or not. */
static uint8_t device_number(struct ull_record *record, const char *device)
{
    for (uint32_t i = 0; i < record->device_count; i++)
        if (strcmp(record->devices[i], device) == 0)
            return (uint8_t)i;
    snprintf(record->devices[record->device_count], DEVICE_TEXT, "%s", device);
    return (uint8_t)record->device_count++;
}

ull_status ull_recorder_create(struct ull_alloc *upstream, struct ull_record *record,
                               const char *device, struct ull_alloc **out, struct ull_error *err)
{
    if (!device || !device[0] || strlen(device) >= DEVICE_TEXT)
        return ull__fail(err, ULL_E_INVALID, "a device's name has 1 to %d bytes", DEVICE_TEXT - 1);
    struct recorder *recorder = calloc(1, sizeof *recorder);
    if (!recorder)
        return ull__fail(err, ULL_E_NO_MEMORY, "no host memory for a recorder");
    *recorder = (struct recorder){.alloc.ops = &recorder_ops, .upstream = upstream, .record = record};
    pthread_mutex_init(&recorder->lock, NULL);
    pthread_mutex_lock(&record->lock);
    bool room = record->recorder_count < MAX_RECORDERS;
    if (room) {
        recorder->device = device_number(record, device);
        recorder->number = record->recorder_count;
        record->recorder_device[record->recorder_count] = recorder->device;
        record->recorders[record->recorder_count++] = recorder;
    }
    pthread_mutex_unlock(&record->lock);
    if (room) {
        *out = &recorder->alloc;
        return ULL_OK;
    }
    pthread_mutex_destroy(&recorder->lock);
    free(recorder);
    return ull__fail(err, ULL_E_FULL, "a record has at most %d recorders", MAX_RECORDERS);
}
