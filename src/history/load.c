/*
 * load.c: see load.h. Definitions are taken in load_define.c; here are the events, and what becomes of them at the end.
 *
 * A process's end is known from itself (at exit), or from its supervisor with the exit code, or both: it is
 * when it said so itself, if it recorded nothing afterwards.
 */
#include "load.h"

#include <stdlib.h>

#include "error.h"
#include "load_private.h"

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
                          : ull__load_number(&writer->devices, event->device);
    uint32_t process = ull__load_process(load, writer, event->process);
    uint32_t stack = ull__load_number(&writer->stacks, event->stack);
    uint32_t tag = ull__load_number(&writer->texts, event->tag);
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
    struct writer *writer = ull__load_writer(load, &block->head);
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
        if (what == 'i' && !ull__load_item(load, writer, &item))
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
    ull__map_finish(&load->writers_by_name);
    ull__map_finish(&load->people_by_name);
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
