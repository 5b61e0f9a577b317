/*
 * record.c: a record of a program's own: its texts, its devices, and what its thread adds to the events.
 *
 * Where no `ullage run` tells what the driver handed out, the thread asks the allocators below the adaptors
 * for what they hold and writes down by how much that changed. So `held` in such a record is as of every 50 ms, or
 * of when more was in use than that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "observe.h"
#include "self.h"

#define VERSION "libullage"

/* --- texts ------------------------------------------------------------------------------------------------- */

static uint32_t hash_text(const char *text)
{
    uint32_t hash = 0x811c9dc5u; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x01000193u;
    return hash ^ hash >> 15;
}

static uint32_t *slot_of(const struct ull_record *record, const char *text)
{
    uint32_t at = hash_text(text) & (record->slot_count - 1);
    while (record->text_slots[at] && strcmp(record->texts[record->text_slots[at] - 1], text) != 0)
        at = (at + 1) & (record->slot_count - 1);
    return &record->text_slots[at];
}

/* Room for one more. Slots are at most half full. */
static bool grow_texts(struct ull_record *record)
{
    if (record->text_count < record->text_capacity)
        return true;
    uint32_t wanted = record->text_capacity ? record->text_capacity * 2 : 64;
    char **texts = realloc(record->texts, wanted * sizeof *texts);
    if (texts)
        record->texts = texts;
    uint32_t *slots = texts ? calloc(wanted * 2, sizeof *slots) : NULL;
    if (!slots)
        return false;
    free(record->text_slots);
    record->text_slots = slots;
    record->slot_count = wanted * 2;
    record->text_capacity = wanted;
    for (uint32_t i = 0; i < record->text_count; i++)
        *slot_of(record, record->texts[i]) = i + 1;
    return true;
}

uint32_t ull__record_text(struct ull_record *record, const char *text)
{
    uint32_t number = 0;
    if (!text || !text[0])
        return 0;
    pthread_mutex_lock(&record->lock);
    if (grow_texts(record)) {
        uint32_t *slot = slot_of(record, text);
        char *copy = *slot ? NULL : strdup(text);
        if (copy) {
            record->texts[record->text_count++] = copy;
            *slot = record->text_count;
        }
        number = *slot;
    }
    pthread_mutex_unlock(&record->lock);
    return number;
}

/* --- the thread ---------------------------------------------------------------------------------------------- */

/* Devices are numbered as they were named, so all before this one come first. */
static void write_devices(struct ull_record *record, struct ull__writer *writer, uint32_t count)
{
    for (; record->devices_written < count; record->devices_written++) {
        const char *name = record->devices[record->devices_written];
        ull__writer_device(writer, &(struct ull__record_device){
                                       .uuid = name, .name = name, .logical = -1, .physical = -1});
    }
}

static void complete(void *data, struct ull__writer *writer, struct ull__event *event)
{
    struct ull_record *record = data;
    if (event->device != ULL_EVENT_NO_DEVICE)
        write_devices(record, writer, event->device + 1u);
    if (event->tag) {
        pthread_mutex_lock(&record->lock);
        const char *text = record->texts[event->tag - 1]; /* never freed before the thread ends */
        pthread_mutex_unlock(&record->lock);
        event->tag = ull__writer_text(writer, text);
    }
    event->process = record->under_run; /* its process 0 is the interposer's to tell of */
}

/* Two adaptors over one pool would tell its pages twice: only the first one over an allocator counts. */
static bool counts(const struct ull_record *record, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (record->recorders[k] && record->recorders[k]->upstream == record->recorders[i]->upstream)
            return false;
    return true;
}

/* With the lock: by how much what is held below an adaptor changed. False: by nothing. */
static bool held_changed(struct ull_record *record, uint32_t i, struct ull__event *event)
{
    struct recorder *recorder = record->recorders[i];
    struct ull_alloc_info info = {0};
    if (recorder && counts(record, i))
        ull_alloc_info(recorder->upstream, &info);
    uint64_t told = atomic_exchange(&record->held_told[i], info.held);
    *event = (struct ull__event){.time_ns = ull__record_now(),
                                 .charged = (int64_t)(info.held - told),
                                 .kind = ULL_EVENT_CHARGE,
                                 .class = ULL_CLASS_DATA,
                                 .device = record->recorder_device[i]};
    return info.held != told;
}

static void tell_held(void *data, struct ull__writer *writer)
{
    struct ull_record *record = data;
    struct ull__event event;
    if (record->under_run)
        return;
    pthread_mutex_lock(&record->lock);
    for (uint32_t i = 0; i < record->recorder_count; i++) {
        if (!held_changed(record, i, &event))
            continue;
        write_devices(record, writer, record->device_count);
        ull__writer_event(writer, &event);
    }
    pthread_mutex_unlock(&record->lock);
}

void ull__record_held(struct recorder *recorder)
{
    struct ull_record *record = recorder->record;
    struct ull__event event;
    if (record->under_run)
        return;
    pthread_mutex_lock(&record->lock);
    if (held_changed(record, recorder->number, &event))
        ull__record_put(record, &event, 0);
    pthread_mutex_unlock(&record->lock);
}

static void failed(void *data, const char *why)
{
    struct ull_record *record = data;
    pthread_mutex_lock(&record->lock);
    record->failed = strdup(why);
    pthread_mutex_unlock(&record->lock);
}

/* --- beginning and end ----------------------------------------------------------------------------------------- */

void ull__record_put(struct ull_record *record, struct ull__event *event, uint64_t began_ns)
{
    ull__pump_put(record->pump, event, began_ns);
}

static void describe(struct ull_record *record, const struct ull_record_options *options)
{
    char command[64];
    struct ull__writer *writer = ull__pump_writer(record->pump);
    ull__own_command(command);
    if (!record->under_run)
        ull__writer_job(writer, options->name ? options->name : command, command, VERSION);
    ull__writer_process(writer, record->under_run,
                        &(struct ull__record_process){.pid = (uint32_t)getpid(),
                                                      .parent = (uint32_t)getppid(),
                                                      .start_ticks = ull__own_start_ticks(),
                                                      .begin_ns = ull__record_now(),
                                                      .name = command});
}

static ull_status open_pump(struct ull_record *record, const char *path, const char *id,
                            const struct ull_record_options *options, struct ull_error *err)
{
    const struct ull__pump_options pump = {.path = path,
                                           .id = id,
                                           .stacks = options->stacks,
                                           .alone = !record->under_run,
                                           .second = record->under_run,
                                           .thread_name = "ullage-rec",
                                           .event = complete,
                                           .tick = tell_held,
                                           .failed = failed,
                                           .data = record};
    ull_status status = ull__pump_create(&pump, &record->pump, err);
    if (status != ULL_OK)
        return status;
    describe(record, options);
    if (ull__pump_start(record->pump))
        return ULL_OK;
    ull__pump_forget(record->pump);
    return ull__fail(err, ULL_E_SYSTEM, "no thread to record with");
}

ull_status ull_record_create(const char *path, const struct ull_record_options *options,
                             struct ull_record **out, struct ull_error *err)
{
    const struct ull_record_options plain = {0};
    const char *around = getenv("ULLAGE_RECORD"), *id = getenv("ULLAGE_RECORD_ID");
    char own_id[ULL_RECORD_ID];
    if (!path && (!around || !around[0]))
        return ull__fail(err, ULL_E_NOT_FOUND,
                         "no `ullage run --record` is around this program: give a path");
    struct ull_record *record = calloc(1, sizeof *record);
    if (!record)
        return ull__fail(err, ULL_E_SYSTEM, "no memory for a record");
    record->owner = getpid();
    record->under_run = !path;
    pthread_mutex_init(&record->lock, NULL);
    ull_status status = path ? ull__record_create(path, own_id, err) : ULL_OK;
    if (status == ULL_OK)
        status = open_pump(record, path ? path : around, path ? own_id : id,
                           options ? options : &plain, err);
    if (status == ULL_OK) {
        *out = record;
        return ULL_OK;
    }
    pthread_mutex_destroy(&record->lock);
    free(record);
    return status;
}

void ull_record_destroy(struct ull_record *record)
{
    if (!record)
        return;
    if (record->owner == getpid()) {
        ull__pump_finish(record->pump, 5000);
        ull__pump_destroy(record->pump);
    } else {
        ull__pump_forget(record->pump);
    }
    for (uint32_t i = 0; i < record->text_count; i++)
        free(record->texts[i]);
    free(record->texts);
    free(record->text_slots);
    free(record->failed);
    pthread_mutex_destroy(&record->lock);
    free(record);
}

ull_status ull_record_error(struct ull_record *record, struct ull_error *err)
{
    pthread_mutex_lock(&record->lock);
    ull_status status = record->failed
                            ? ull__fail(err, ULL_E_SYSTEM, "the recording ended: %s", record->failed)
                            : ULL_OK;
    pthread_mutex_unlock(&record->lock);
    return status;
}

void ull_record_mark(struct ull_record *record, const char *text)
{
    char cut[MARK_TEXT + 1];
    snprintf(cut, sizeof cut, "%s", text);
    struct ull__event event = {
        .tag = ull__record_text(record, cut), .kind = ULL_EVENT_MARK, .device = ULL_EVENT_NO_DEVICE};
    ull__record_put(record, &event, 0);
}
