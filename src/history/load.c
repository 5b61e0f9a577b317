/*
 * load.c: see load.h.
 *
 * Each writer counts texts, stacks, devices and processes in its own way, so there are tables that translate them for
 * each. Devices are the same if their UUIDs are. A process is told of by itself (its allocations) and by the
 * supervisor that watches it (host memory, its end): they are put together by pid and start time. A process
 * that executes another program keeps both; what it held before is gone then, so it becomes a new process here,
 * and the old one ends where the new one begins.
 *
 * A process's end is known from itself (at exit), or from its supervisor with the exit code, or both: it is
 * when it said so itself, if it recorded nothing afterwards.
 */
#include "load.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "reader.h"

enum {
    UNKNOWN = UINT32_MAX,
    LEFT_OUT = UINT32_MAX - 1, /* a process for which the history has no room */
};

struct numbers {
    uint32_t *of; /* number of the writer -> number in the history */
    uint32_t count, capacity;
};

struct writer {
    uint64_t sequence, dropped;
    struct numbers texts, stacks, devices;
    struct numbers people; /* -> index into load->people, the processes as the system counts them */
    uint32_t own;          /* its own process in the history, UNKNOWN until it is defined */
};

/* A process of the system: several in the history, one after another, if it executed programs. */
struct person {
    uint32_t newest;          /* in the history */
    bool has_writer, watched; /* told of by itself, by a supervisor */
};

/* What is known of the end of a process in the history. */
struct end {
    uint64_t own_ns, seen_ns, last_ns; /* said by itself, by a supervisor; its last event; 0: not */
    bool watched;                      /* by a supervisor, who would say so */
    size_t start;                      /* its START among the events */
    int exit_code;
};

/* (pid, when it began) -> number, by open addressing; at most half full. */
struct place {
    uint64_t pid, began;
    uint32_t number; /* + 1; 0: empty */
};
struct index {
    struct place *places;
    uint32_t count, capacity;
};

struct load {
    struct ull__history *history;
    struct index writers_by_name, people_by_name;
    struct writer **writers;
    uint32_t writer_count, writer_capacity;
    struct person *people;
    uint32_t person_count, person_capacity;
    struct end *ends; /* of history->processes */
    uint32_t end_capacity;
    uint64_t job_ns, over_ns; /* monotonic */
    struct writer *job;       /* who told of the job */
    bool no_memory;
};

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

static struct place *find_place(const struct index *index, uint64_t pid, uint64_t began)
{
    uint64_t hash = (pid * 0x9e3779b97f4a7c15ull ^ began) * 0x9e3779b97f4a7c15ull;
    uint32_t at = (uint32_t)(hash >> 32) & (index->capacity - 1);
    while (index->places[at].number &&
           (index->places[at].pid != pid || index->places[at].began != began))
        at = (at + 1) & (index->capacity - 1);
    return &index->places[at];
}

/* The place of a name, which is empty if it is new. NULL without memory. */
static struct place *place_of(struct index *index, uint64_t pid, uint64_t began)
{
    if (index->count * 2 >= index->capacity) {
        struct index grown = {.count = index->count,
                              .capacity = index->capacity ? index->capacity * 2 : 64};
        grown.places = calloc(grown.capacity, sizeof *grown.places);
        if (!grown.places)
            return NULL;
        for (uint32_t i = 0; i < index->capacity; i++)
            if (index->places[i].number)
                *find_place(&grown, index->places[i].pid, index->places[i].began) = index->places[i];
        free(index->places);
        *index = grown;
    }
    return find_place(index, pid, began);
}

static void take_place(struct index *index, struct place *place, uint64_t pid, uint64_t began,
                       uint32_t number)
{
    *place = (struct place){pid, began, number + 1};
    index->count++;
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

static uint32_t look_up(const struct numbers *numbers, uint32_t number)
{
    return number < numbers->count ? numbers->of[number] : UNKNOWN;
}

/* --- writers ---------------------------------------------------------------------------------------------- */

static struct writer *find_writer(struct load *load, const struct ull__block_head *head)
{
    struct place *place = place_of(&load->writers_by_name, head->pid, head->started);
    if (place && place->number)
        return load->writers[place->number - 1];
    struct writer *writer = place ? calloc(1, sizeof *writer) : NULL;
    if (!writer ||
        !room(&load->writers, sizeof *load->writers, load->writer_count, &load->writer_capacity)) {
        free(writer);
        load->no_memory = true;
        return NULL;
    }
    writer->own = UNKNOWN;
    take_place(&load->writers_by_name, place, head->pid, head->started, load->writer_count);
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
    struct place *place = place_of(&load->people_by_name, pid, start_ticks);
    if (place && place->number)
        return place->number - 1;
    if (!place ||
        !room(&load->people, sizeof *load->people, load->person_count, &load->person_capacity)) {
        load->no_memory = true;
        return UNKNOWN;
    }
    load->people[load->person_count] = (struct person){.newest = UNKNOWN};
    take_place(&load->people_by_name, place, pid, start_ticks, load->person_count);
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
    process.name = look_up(&writer->texts, ull__get_number32(body));
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

static uint32_t process_of(const struct load *load, const struct writer *writer, uint32_t number)
{
    if (number == 0)
        return writer->own;
    uint32_t person = look_up(&writer->people, number);
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
        frames[i].function = look_up(&writer->texts, ull__get_number32(body));
        frames[i].file = look_up(&writer->texts, ull__get_number32(body));
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
    device.uuid = look_up(&writer->texts, ull__get_number32(body));
    device.name = look_up(&writer->texts, ull__get_number32(body));
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
        texts[i] = look_up(&writer->texts, ull__get_number32(body));
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

static bool take_item(struct load *load, struct writer *writer, struct ull__item *item)
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

/* --- events --------------------------------------------------------------------------------------------------- */

static void take_end(struct load *load, const struct writer *writer, const struct ull__event *event)
{
    struct end *end = &load->ends[event->process];
    if (event->process == writer->own)
        end->own_ns = event->time_ns;
    else
        end->seen_ns = event->time_ns;
    if (event->result >= 0)
        end->exit_code = event->result;
}

static bool take_event(struct load *load, struct writer *writer, struct ull__event *event)
{
    uint32_t device = event->device == ULL_EVENT_NO_DEVICE
                          ? ULL_EVENT_NO_DEVICE
                          : look_up(&writer->devices, event->device);
    uint32_t process = process_of(load, writer, event->process);
    uint32_t stack = look_up(&writer->stacks, event->stack);
    uint32_t tag = look_up(&writer->texts, event->tag);
    if (device == UNKNOWN || process == UNKNOWN || stack == UNKNOWN || tag == UNKNOWN)
        return false;
    if (process == LEFT_OUT) {
        load->history->dropped++;
        return true;
    }
    event->device = (uint8_t)device;
    event->process = (uint16_t)process;
    event->stack = stack;
    event->tag = tag;
    if (event->kind == ULL_EVENT_END) {
        take_end(load, writer, event);
        return true;
    }
    if (process == writer->own && event->time_ns > load->ends[process].last_ns)
        load->ends[process].last_ns = event->time_ns;
    if (!ull__history_add(load->history, event)) {
        load->no_memory = true;
        return false;
    }
    return true;
}

/* --- blocks --------------------------------------------------------------------------------------------------- */

static ull_status bad(const struct load *load, const struct ull__block_view *block,
                      const char *what, struct ull_error *err)
{
    if (load->no_memory)
        return ull__fail(err, ULL_E_SYSTEM, "no memory for the %zu events of the record",
                         load->history->event_count);
    return ull__fail(err, ULL_E_FORMAT, "the record is damaged: the block at offset %llu %s",
                     (unsigned long long)block->offset, what);
}

static ull_status take_block(struct load *load, const struct ull__block_view *block,
                             struct ull_error *err)
{
    struct writer *writer = find_writer(load, &block->head);
    struct ull__cursor payload = {.at = block->payload, .end = block->payload + block->head.payload};
    struct ull__deltas last = {.time_ns = block->head.base};
    struct ull__event event;
    struct ull__item item;
    int what;
    if (!writer)
        return bad(load, block, "", err);
    if (block->head.sequence != writer->sequence + 1)
        return bad(load, block, "comes after one of its writer that is missing", err);
    writer->sequence++;
    writer->dropped = block->head.dropped;
    while ((what = ull__next_item(&payload, &last, &event, &item)) != 0) {
        if (what == '!')
            return bad(load, block, "holds what is no item", err);
        if (what == 'e' && !take_event(load, writer, &event))
            return bad(load, block,
                       "has an event that names a process, device, stack or text which its writer "
                       "never defined",
                       err);
        if (what == 'i' && !take_item(load, writer, &item))
            return bad(load, block, "has a definition that cannot be right", err);
    }
    return ULL_OK;
}

static ull_status take_blocks(struct load *load, struct ull__reader *reader, struct ull_error *err)
{
    struct ull__block_view block;
    ull_status status;
    while ((status = ull__reader_next(reader, &block, err)) == ULL_OK) {
        status = take_block(load, &block, err);
        if (status != ULL_OK)
            return status;
    }
    if (status != ULL_E_NOT_FOUND)
        return status;
    load->history->torn_blocks = ull__reader_torn(reader);
    load->history->truncated = ull__reader_truncated(reader, &load->history->broken_offset);
    return ULL_OK;
}

/* --- the end ---------------------------------------------------------------------------------------------------- */

static void count_dropped(struct load *load)
{
    for (uint32_t i = 0; i < load->writer_count; i++) {
        const struct writer *writer = load->writers[i];
        load->history->dropped += writer->dropped;
        if (writer->own < LEFT_OUT)
            load->history->processes[writer->own].dropped += writer->dropped;
    }
}

/*
 * When it ended, 0: not, as far as the record says. A process that nobody watched, in another pid namespace or shorter
 * than a second, ended with the run at the latest.
 */
static uint64_t end_of(const struct end *end, uint64_t over_ns)
{
    uint64_t when = end->own_ns;
    if (when == 0 || when < end->last_ns)
        when = end->seen_ns ? end->seen_ns : when;
    if (when == 0 && !end->watched)
        when = over_ns;
    return when && when < end->last_ns ? end->last_ns : when;
}

static bool add_end(struct load *load, uint32_t number)
{
    struct ull__history_process *process = &load->history->processes[number];
    const struct end *end = &load->ends[number];
    load->history->events[end->start].time_ns = process->begin_ns;
    uint64_t when = end_of(end, load->over_ns);
    if (when == 0)
        return true;
    process->ended = true;
    process->end_ns = when > process->begin_ns ? when : process->begin_ns;
    process->exit_code = end->exit_code;
    struct ull__event event = {.time_ns = process->end_ns,
                               .process = (uint16_t)number,
                               .result = (int16_t)end->exit_code,
                               .kind = ULL_EVENT_END,
                               .device = ULL_EVENT_NO_DEVICE};
    return ull__history_add(load->history, &event);
}

static uint64_t earliest(const struct ull__history *history)
{
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < history->event_count; i++)
        if (history->events[i].time_ns < first)
            first = history->events[i].time_ns;
    return first == UINT64_MAX ? 0 : first;
}

static ull_status finish(struct load *load, struct ull_error *err)
{
    struct ull__history *history = load->history;
    count_dropped(load);
    for (uint32_t i = 0; i < history->process_count; i++)
        if (!add_end(load, i))
            return ull__fail(err, ULL_E_SYSTEM, "no memory for the events of the record");
    history->end_ns = load->over_ns;
    return ull__history_finish(history, load->job ? load->job_ns : earliest(history), err);
}

static void free_all(struct load *load)
{
    for (uint32_t i = 0; i < load->writer_count; i++) {
        struct writer *writer = load->writers[i];
        free(writer->texts.of);
        free(writer->stacks.of);
        free(writer->devices.of);
        free(writer->people.of);
        free(writer);
    }
    free(load->writers);
    free(load->people);
    free(load->writers_by_name.places);
    free(load->people_by_name.places);
    free(load->ends);
}

ull_status ull__history_load(const char *path, struct ull__history **history, struct ull_error *err)
{
    struct ull__reader *reader;
    ull_status status = ull__reader_open(path, &reader, err);
    if (status != ULL_OK)
        return status;
    struct load load = {.history = ull__history_create()};
    if (load.history) {
        status = take_blocks(&load, reader, err);
        if (status == ULL_OK)
            status = finish(&load, err);
    } else {
        status = ull__fail(err, ULL_E_SYSTEM, "no memory for a history");
    }
    ull__reader_close(reader);
    free_all(&load);
    if (status == ULL_OK)
        *history = load.history;
    else
        ull__history_destroy(load.history);
    return status;
}
