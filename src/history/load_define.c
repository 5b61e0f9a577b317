/*
 * load_define.c: the definitions of a record, whose numbers are each writer's own.
 *
 * Each writer counts texts, stacks, devices and processes in its own way, so there are tables that translate them for
 * each. Devices are the same if their UUIDs are. A process is told of by itself (its allocations) and by the
 * supervisor that watches it (host memory, its end): they are put together by pid and start time. A process
 * that executes another program keeps both; what it held before is gone then, so it becomes a new process here,
 * and the old one ends where the new one begins.
 */
#include <stdlib.h>
#include <string.h>

#include "load_private.h"

static bool room(void *array, size_t size, uint32_t count, uint32_t *capacity)
{
    void **items = array;
    if (count < *capacity)
        return true;
    if (count > UINT32_MAX / 4)
        return false;
    uint32_t wanted = *capacity ? *capacity * 2 : 64;
    void *grown = realloc(*items, wanted * size);
    if (!grown)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

/* Two that begin at different times under different pids have the same once in 2^64. */
static uint64_t key_of(uint64_t pid, uint64_t began)
{
    return pid * 0x9e3779b97f4a7c15ull ^ began;
}

/* Numbers are defined in order, so a table grows by one at a time whatever the file says. */
static bool define(struct load *load, struct numbers *numbers, uint32_t number, uint32_t value)
{
    if (number != numbers->count)
        return false;
    if (value == UNKNOWN || !room(&numbers->of, sizeof *numbers->of, number, &numbers->capacity)) {
        load->no_memory = true;
        return false;
    }
    numbers->of[numbers->count++] = value;
    return true;
}

uint32_t ull__load_number(const struct numbers *numbers, uint32_t number)
{
    return number < numbers->count ? numbers->of[number] : UNKNOWN;
}

/* --- writers ---------------------------------------------------------------------------------------------- */

struct writer *ull__load_writer(struct load *load, const struct ull__block_head *head)
{
    uint64_t key = key_of(head->pid, head->started);
    uint32_t known = ull__map_get(&load->writers_by_name, key);
    if (known != ULL_MAP_NONE)
        return load->writers[known];
    struct writer *writer = calloc(1, sizeof *writer);
    if (!writer ||
        !room(&load->writers, sizeof *load->writers, load->writer_count, &load->writer_capacity) ||
        !ull__map_put(&load->writers_by_name, key, load->writer_count)) {
        free(writer);
        load->no_memory = true;
        return NULL;
    }
    writer->own = UNKNOWN;
    load->writers[load->writer_count++] = writer;
    /* Number 0 is the empty text and no stack. */
    return define(load, &writer->texts, 0, 0) && define(load, &writer->stacks, 0, 0) ? writer : NULL;
}

/* --- processes --------------------------------------------------------------------------------------------- */

static uint32_t new_process(struct load *load, const struct ull__history_process *process)
{
    uint32_t number = ull__history_process(load->history, process);
    if (number == UINT32_MAX && load->history->process_count == UINT16_MAX)
        return LEFT_OUT;
    struct ull__event event = {.time_ns = process->begin_ns,
                               .process = (uint16_t)number,
                               .kind = ULL_EVENT_START,
                               .device = ULL_EVENT_NO_DEVICE};
    if (number == UINT32_MAX || !room(&load->ends, sizeof *load->ends, number, &load->end_capacity) ||
        !ull__history_add(load->history, &event)) {
        load->no_memory = true;
        return UNKNOWN;
    }
    load->ends[number] = (struct end){.exit_code = -1, .start = load->history->event_count - 1};
    return number;
}

static uint32_t find_person(struct load *load, uint32_t pid, uint64_t start_ticks)
{
    uint64_t key = key_of(pid, start_ticks);
    uint32_t known = ull__map_get(&load->people_by_name, key);
    if (known != ULL_MAP_NONE)
        return known;
    if (!room(&load->people, sizeof *load->people, load->person_count, &load->person_capacity) ||
        !ull__map_put(&load->people_by_name, key, load->person_count)) {
        load->no_memory = true;
        return UNKNOWN;
    }
    load->people[load->person_count] = (struct person){.newest = UNKNOWN};
    return load->person_count++;
}

/* A process executed another program: what it was before ended there. */
static void superseded(struct load *load, uint32_t number, uint64_t when)
{
    if (load->ends[number].own_ns == 0)
        load->ends[number].own_ns =
            when > load->ends[number].last_ns ? when : load->ends[number].last_ns;
}

static bool define_process(struct load *load, struct writer *writer, struct ull__cursor *body)
{
    uint32_t number = ull__get_number32(body);
    struct ull__history_process process = {.exit_code = -1};
    process.pid = ull__get_number32(body);
    process.parent = ull__get_number32(body);
    uint64_t start_ticks = ull__get_number(body);
    process.begin_ns = ull__get_number(body);
    process.name = ull__load_number(&writer->texts, ull__get_number32(body));
    if (body->failed || process.name == UNKNOWN || number > writer->people.count)
        return false;
    uint32_t index = find_person(load, process.pid, start_ticks);
    if (index == UNKNOWN)
        return false;
    struct person *person = &load->people[index];
    bool own = number == 0, executed = own && person->has_writer && writer->own == UNKNOWN;
    if (person->newest == UNKNOWN || executed) {
        if (executed && person->newest != LEFT_OUT)
            superseded(load, person->newest, process.begin_ns);
        person->newest = new_process(load, &process);
        if (person->newest == UNKNOWN)
            return false;
    } else if (person->newest != LEFT_OUT && (own || !person->has_writer)) {
        struct ull__history_process *known = &load->history->processes[person->newest];
        known->name = process.name;
        if (process.begin_ns < known->begin_ns)
            known->begin_ns = process.begin_ns;
        if (process.parent)
            known->parent = process.parent;
    }
    if (own) {
        person->has_writer = true;
        writer->own = person->newest;
    } else {
        person->watched = true;
    }
    if (person->newest != LEFT_OUT)
        load->ends[person->newest].watched = person->watched;
    if (number < writer->people.count) {
        writer->people.of[number] = index;
        return true;
    }
    return define(load, &writer->people, number, index);
}

/* A supervisor has no process 0: its numbers begin at 1. */
static bool reserve_own(struct load *load, struct writer *writer, uint32_t number)
{
    if (number != 0 && writer->people.count == 0) {
        if (!room(&writer->people.of, sizeof *writer->people.of, 0, &writer->people.capacity)) {
            load->no_memory = true;
            return false;
        }
        writer->people.of[0] = UNKNOWN;
        writer->people.count = 1;
    }
    return true;
}

uint32_t ull__load_process(const struct load *load, const struct writer *writer, uint32_t number)
{
    if (number == 0)
        return writer->own;
    uint32_t person = ull__load_number(&writer->people, number);
    return person == UNKNOWN ? UNKNOWN : load->people[person].newest;
}

/* --- definitions -------------------------------------------------------------------------------------------- */

static bool define_text(struct load *load, struct writer *writer, struct ull__cursor *body)
{
    uint32_t number = ull__get_number32(body);
    size_t size = (size_t)(body->end - body->at);
    if (body->failed || size == 0 || memchr(body->at, 0, size))
        return false;
    return define(load, &writer->texts, number,
                  ull__history_text(load->history, (const char *)body->at, size));
}

static bool define_stack(struct load *load, struct writer *writer, struct ull__cursor *body)
{
    struct ull__frame frames[ULL_STACK_MOST];
    uint32_t number = ull__get_number32(body), count = ull__get_number32(body);
    if (body->failed || count == 0 || count > ULL_STACK_MOST)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        frames[i].function = ull__load_number(&writer->texts, ull__get_number32(body));
        frames[i].file = ull__load_number(&writer->texts, ull__get_number32(body));
        frames[i].line = ull__get_number32(body);
        if (body->failed || frames[i].function == UNKNOWN || frames[i].file == UNKNOWN)
            return false;
    }
    return define(load, &writer->stacks, number, ull__history_stack(load->history, frames, count));
}

/* Where a device is told of more than once, the first who tells counts: the job's own supervisor. */
static uint32_t find_device(struct load *load, const struct ull__history_device *device)
{
    struct ull__history *history = load->history;
    for (uint32_t i = 0; device->uuid && i < history->device_count; i++)
        if (history->devices[i].uuid == device->uuid)
            return i;
    return ull__history_device(history, device);
}

static bool define_device(struct load *load, struct writer *writer, struct ull__cursor *body)
{
    struct ull__history_device device;
    uint32_t number = ull__get_number32(body);
    device.uuid = ull__load_number(&writer->texts, ull__get_number32(body));
    device.name = ull__load_number(&writer->texts, ull__get_number32(body));
    int64_t logical = ull__get_signed(body), physical = ull__get_signed(body);
    device.total_bytes = ull__get_number(body);
    device.budget_bytes = ull__get_number(body);
    device.logical = logical > INT16_MAX || logical < 0 ? -1 : (int)logical;
    device.physical = physical > INT16_MAX || physical < 0 ? -1 : (int)physical;
    if (body->failed || device.uuid == UNKNOWN || device.name == UNKNOWN)
        return false;
    return define(load, &writer->devices, number, find_device(load, &device));
}

static bool define_job(struct load *load, struct writer *writer, struct ull__cursor *body)
{
    uint32_t texts[3];
    for (int i = 0; i < 3; i++)
        texts[i] = ull__load_number(&writer->texts, ull__get_number32(body));
    uint64_t unix_ns = ull__get_number(body), monotonic_ns = ull__get_number(body);
    if (body->failed || texts[0] == UNKNOWN || texts[1] == UNKNOWN || texts[2] == UNKNOWN)
        return false;
    if (load->job) /* a library that records into the file of a run: the run was first */
        return true;
    load->job = writer;
    load->history->job = texts[0];
    load->history->command = texts[1];
    load->history->version = texts[2];
    load->history->unix_ns = unix_ns;
    load->job_ns = monotonic_ns;
    return true;
}

static bool define_over(struct load *load, struct writer *writer, struct ull__cursor *body)
{
    uint64_t time_ns = ull__get_number(body);
    ull__get_signed(body);
    if (body->failed)
        return false;
    if (writer == load->job) {
        load->history->over = true;
        load->over_ns = time_ns;
    }
    return true;
}

bool ull__load_item(struct load *load, struct writer *writer, struct ull__item *item)
{
    struct ull__cursor peek = item->body;
    switch (item->kind) {
    case ULL_ITEM_TEXT:
        return define_text(load, writer, &item->body);
    case ULL_ITEM_STACK:
        return define_stack(load, writer, &item->body);
    case ULL_ITEM_DEVICE:
        return define_device(load, writer, &item->body);
    case ULL_ITEM_PROCESS:
        return reserve_own(load, writer, ull__get_number32(&peek)) &&
               define_process(load, writer, &item->body);
    case ULL_ITEM_JOB:
        return define_job(load, writer, &item->body);
    case ULL_ITEM_OVER:
        return define_over(load, writer, &item->body);
    }
    return true; /* of a later version */
}
