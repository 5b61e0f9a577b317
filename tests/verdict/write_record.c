/*
 * write_record.c: makes record files without a GPU, for the tests and benchmarks of `ullage report`.
 *
 *   write_record scene NAME SEED FILE          one of the labelled set (scenes.c)
 *   write_record trace TRACE EVENTS LEAK FILE  a recorded program (bench/traces), played over and over, with LEAK
 *                                              bytes lost in each round; segments of a simple allocator too
 *   write_record kept EVENTS FILE              that many allocations of many sizes, of which none is freed
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scenes.h"
#include "trace.h"
#include "writer.h"

static struct ull__writer *open_record(const char *path)
{
    char id[ULL_RECORD_ID];
    struct ull_error err;
    struct ull__writer *writer;
    if (ull__record_create(path, id, &err) != ULL_OK ||
        ull__writer_open(path, id, &writer, &err) != ULL_OK) {
        fprintf(stderr, "write_record: %s\n", err.message);
        exit(1);
    }
    return writer;
}

static int close_record(struct ull__writer *writer, uint64_t end_ns, uint64_t dropped)
{
    ull__writer_over(writer, end_ns, 0);
    bool good = ull__writer_flush(writer, dropped);
    ull__writer_close(writer);
    return good ? 0 : 1;
}

/* --- a scene ------------------------------------------------------------------------------------------------ */

static uint32_t text_of(struct ull__writer *writer, const struct ull__history *history, uint32_t text)
{
    return text ? ull__writer_text(writer, ull__history_string(history, text)) : 0;
}

static int write_history(const struct ull__history *history, const char *path)
{
    struct ull__writer *writer = open_record(path);
    const uint64_t origin = ull__record_now();
    ull__writer_job(writer, "scene", "python3 train.py", "0");
    for (uint32_t d = 0; d < history->device_count; d++) {
        const struct ull__history_device *device = &history->devices[d];
        ull__writer_device(writer,
                           &(struct ull__record_device){.uuid = "GPU-0",
                                                        .name = "Made-up card",
                                                        .logical = device->logical,
                                                        .physical = device->physical,
                                                        .total_bytes = device->total_bytes,
                                                        .budget_bytes = device->budget_bytes});
    }
    for (uint32_t p = 0; p < history->process_count; p++) {
        const struct ull__history_process *process = &history->processes[p];
        ull__writer_process(
            writer, p,
            &(struct ull__record_process){.pid = process->pid,
                                          .start_ticks = 1,
                                          .begin_ns = process->begin_ns + origin,
                                          .name = ull__history_string(history, process->name)});
    }
    for (size_t i = 0; i < history->event_count; i++) {
        struct ull__event event = history->events[i];
        event.time_ns += origin;
        event.tag = text_of(writer, history, event.tag);
        ull__writer_event(writer, &event);
    }
    return close_record(writer, history->end_ns + origin, history->dropped);
}

static int write_scene(const char *name, const char *seed, const char *path)
{
    for (int s = 0; s < scene_count; s++) {
        if (strcmp(scenes[s].name, name) != 0)
            continue;
        struct ull__history *history = scenes[s].play(strtoull(seed, NULL, 10));
        int code = write_history(history, path);
        ull__history_destroy(history);
        return code;
    }
    fprintf(stderr, "write_record: no scene '%s'\n", name);
    return 2;
}

/* --- a trace -------------------------------------------------------------------------------------------------- */

/* Places a caching allocator might give: by size from free lists, else the next. */
struct places {
    uint64_t next, next_segment;
    uint64_t *address; /* by slot of the trace */
    uint64_t *sizes;
    struct spot {
        uint64_t size, address;
    } * free;
    size_t free_count;
};

static uint64_t take(struct places *places, uint64_t size)
{
    for (size_t i = places->free_count; i-- > 0;) {
        if (places->free[i].size == size) {
            uint64_t address = places->free[i].address;
            places->free[i] = places->free[--places->free_count];
            return address;
        }
    }
    uint64_t address = places->next;
    places->next += size;
    return address;
}

static struct ull__event chunk(enum ull__event_kind kind, uint64_t now, uint64_t address,
                               uint64_t size)
{
    return (struct ull__event){.time_ns = now,
                               .address = address,
                               .size = size,
                               .charged = (int64_t)((size + 511) / 512 * 512),
                               .latency_ns =
                                   kind == ULL_EVENT_CHUNK_ALLOC ? 300 + (uint32_t)(now % 97) : 0,
                               .thread = 1,
                               .class = ULL_CLASS_DATA,
                               .kind = (uint8_t)kind};
}

static void segments_to(struct ull__writer *writer, struct places *places, uint64_t now,
                        uint64_t *events)
{
    while (places->next > places->next_segment) {
        struct ull__event event = {.time_ns = now,
                                   .address = places->next_segment,
                                   .size = 64 << 20,
                                   .charged = 64 << 20,
                                   .latency_ns = 90000,
                                   .class = ULL_CLASS_DATA,
                                   .kind = ULL_EVENT_ALLOC};
        ull__writer_event(writer, &event);
        places->next_segment += 64 << 20;
        ++*events;
    }
}

static int write_trace(const char *path, uint64_t wanted, uint64_t leak, const char *out)
{
    struct trace trace;
    struct ull_error err;
    if (trace_load(path, &trace, &err) != ULL_OK) {
        fprintf(stderr, "write_record: %s\n", err.message);
        return 1;
    }
    struct ull__writer *writer = open_record(out);
    struct places places = {.next = 0x7f0000000000, .next_segment = 0x7f0000000000};
    places.address = calloc(trace.slots + 1, sizeof *places.address);
    places.sizes = calloc(trace.slots + 1, sizeof *places.sizes);
    places.free = calloc(trace.count + trace.slots + 1, sizeof *places.free);
    ull__writer_job(writer, "trace", path, "0");
    ull__writer_device(writer, &(struct ull__record_device){.uuid = "GPU-0",
                                                            .name = "Made-up card",
                                                            .total_bytes = 140ull << 30,
                                                            .budget_bytes = 100ull << 30});
    uint64_t now = ull__record_now(), events = 0;
    ull__writer_process(
        writer, 0, &(struct ull__record_process){.pid = 4242, .begin_ns = now, .name = "python3"});
    while (events < wanted) {
        for (size_t i = 0; i < trace.count && events < wanted; i++, events++, now += 3000) {
            const struct trace_event *line = &trace.events[i];
            struct ull__event event;
            if (line->allocates) {
                uint64_t address = take(&places, (line->size + 511) / 512 * 512);
                segments_to(writer, &places, now, &events);
                places.address[line->slot] = address;
                places.sizes[line->slot] = line->size;
                event = chunk(ULL_EVENT_CHUNK_ALLOC, now, address, line->size);
            } else {
                uint64_t size = places.sizes[line->slot];
                event = chunk(ULL_EVENT_CHUNK_FREE, now, places.address[line->slot], size);
                places.free[places.free_count++] =
                    (struct spot){(size + 511) / 512 * 512, event.address};
                places.sizes[line->slot] = 0;
            }
            ull__writer_event(writer, &event);
        }
        /* What the recorded program still had at its end. */
        for (size_t b = 0; b < trace.slots && events < wanted; b++) {
            if (places.sizes[b] == 0)
                continue;
            struct ull__event event =
                chunk(ULL_EVENT_CHUNK_FREE, now, places.address[b], places.sizes[b]);
            places.free[places.free_count++] =
                (struct spot){(places.sizes[b] + 511) / 512 * 512, event.address};
            places.sizes[b] = 0;
            ull__writer_event(writer, &event);
            events++;
        }
        if (leak) {
            struct ull__event event = chunk(ULL_EVENT_CHUNK_ALLOC, now, places.next, leak);
            places.next += (leak + 511) / 512 * 512;
            segments_to(writer, &places, now, &events);
            ull__writer_event(writer, &event);
            events++;
        }
    }
    free(places.address);
    free(places.sizes);
    free(places.free);
    trace_free(&trace);
    return close_record(writer, now, 0);
}

/* --- nothing is freed -------------------------------------------------------------------------------------------- */

static int write_kept(uint64_t wanted, const char *path)
{
    struct ull__writer *writer = open_record(path);
    uint64_t now = ull__record_now(), address = 0x7f0000000000, random = 1;
    ull__writer_job(writer, "kept", "python3 train.py", "0");
    ull__writer_device(writer, &(struct ull__record_device){.uuid = "GPU-0",
                                                            .name = "Made-up card",
                                                            .total_bytes = 140ull << 30,
                                                            .budget_bytes = 100ull << 30});
    ull__writer_process(
        writer, 0, &(struct ull__record_process){.pid = 4242, .begin_ns = now, .name = "python3"});
    for (uint64_t i = 0; i < wanted; i++, now += 3000) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t size = 512 * (1 + (random >> 33) % 200);
        struct ull__event event = chunk(ULL_EVENT_CHUNK_ALLOC, now, address, size);
        address += size;
        ull__writer_event(writer, &event);
    }
    return close_record(writer, now, 0);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "scene") == 0)
        return write_scene(argv[2], argv[3], argv[4]);
    if (argc == 6 && strcmp(argv[1], "trace") == 0)
        return write_trace(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10),
                           argv[5]);
    if (argc == 4 && strcmp(argv[1], "kept") == 0)
        return write_kept(strtoull(argv[2], NULL, 10), argv[3]);
    fprintf(stderr, "usage: write_record scene NAME SEED FILE\n"
                    "       write_record trace TRACE EVENTS LEAK FILE\n"
                    "       write_record kept EVENTS FILE\n");
    return 2;
}
