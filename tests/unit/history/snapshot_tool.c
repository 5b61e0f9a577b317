/*
 * snapshot_tool.c: for test_torch.py: shows the history that a snapshot gives, an event a line as JSON, after a line
 * for the whole. Exit 1 with the message on standard error if that fails.
 *
 *   snapshot_tool SNAPSHOT
 *   snapshot_tool --copy SNAPSHOT OUT         also writes what it read as a snapshot
 *   snapshot_tool --make OUT                  writes a snapshot of a history made of lines from standard input:
 *                                             TIME PROCESS DEVICE KIND CLASS ADDRESS SIZE CHARGED RESULT STREAM
 *                                             TAG STACK (texts without blanks, "-" for none)
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "torch.h"
#include "torch_write.h"

static void put_text(struct ull_json *json, const char *key, const struct ull__history *history,
                     uint32_t text)
{
    ull__json_key(json, key);
    ull__json_string(json, ull__history_string(history, text));
}

static void put_number(struct ull_json *json, const char *key, uint64_t number)
{
    ull__json_key(json, key);
    ull__json_u64(json, number);
}

static void put_stack(struct ull_json *json, const struct ull__history *history, uint32_t number)
{
    const struct ull__stack *stack = &history->stacks[number];
    ull__json_key(json, "stack");
    ull__json_array(json);
    for (uint32_t i = 0; i < stack->count; i++) {
        const struct ull__frame *frame = &history->frames[stack->first + i];
        ull__json_array(json);
        ull__json_string(json, ull__history_string(history, frame->function));
        ull__json_string(json, ull__history_string(history, frame->file));
        ull__json_u64(json, frame->line);
        ull__json_array_end(json);
    }
    ull__json_array_end(json);
}

static void put_event(struct ull_json *json, const struct ull__history *history,
                      const struct ull__event *event)
{
    ull__json_object(json);
    ull__json_key(json, "kind");
    ull__json_string(json, ull__event_name(event->kind));
    put_number(json, "time", event->time_ns);
    put_number(json, "address", event->address);
    put_number(json, "size", event->size);
    ull__json_key(json, "charged");
    ull__json_i64(json, event->charged);
    put_number(json, "stream", event->stream);
    put_number(json, "result", (uint64_t)event->result);
    put_number(json, "device", event->device);
    put_text(json, "tag", history, event->tag);
    put_stack(json, history, event->stack);
    ull__json_object_end(json);
}

static void put_history(const struct ull__history *history)
{
    struct ull_json json;
    ull__json_init(&json, stdout);
    ull__json_object(&json);
    put_number(&json, "unix_ns", history->unix_ns);
    put_number(&json, "end_ns", history->end_ns);
    ull__json_key(&json, "devices");
    ull__json_array(&json);
    for (uint32_t i = 0; i < history->device_count; i++)
        ull__json_i64(&json, history->devices[i].logical);
    ull__json_array_end(&json);
    ull__json_key(&json, "events");
    ull__json_array(&json);
    for (size_t i = 0; i < history->event_count; i++)
        put_event(&json, history, &history->events[i]);
    ull__json_array_end(&json);
    ull__json_object_end(&json);
    ull__json_finish(&json);
}

static int write_to(const struct ull__history *history, const char *path)
{
    struct ull_error err = {""};
    FILE *out = fopen(path, "w");
    if (!out || ull__history_to_torch(history, out, &err) != ULL_OK || fclose(out) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    return 0;
}

static uint32_t text_of(struct ull__history *history, const char *text)
{
    return strcmp(text, "-") == 0 ? 0 : ull__history_text(history, text, strlen(text));
}

/* As far as the lines go: they name processes and devices from 0 up. */
static bool add_line(struct ull__history *history, const char *line)
{
    struct ull__event event = {0};
    unsigned int process, device, kind, class;
    int result;
    char tag[64], stack[64];
    if (sscanf(line, "%" SCNu64 "%u%u%u%u%" SCNu64 "%" SCNu64 "%" SCNd64 "%d%" SCNu64 "%63s%63s",
               &event.time_ns, &process, &device, &kind, &class, &event.address, &event.size,
               &event.charged, &result, &event.stream, tag, stack) != 12)
        return false;
    while (history->process_count <= process)
        ull__history_process(history,
                             &(struct ull__history_process){.pid = 1 + history->process_count});
    while (device != ULL_EVENT_NO_DEVICE && history->device_count <= device)
        ull__history_device(history,
                            &(struct ull__history_device){.logical = -1, .total_bytes = 1 << 30});
    event.process = (uint16_t)process;
    event.device = (uint8_t)device;
    event.kind = (uint8_t)kind;
    event.class = (uint8_t) class;
    event.result = (int16_t)result;
    event.tag = text_of(history, tag);
    struct ull__frame frame = {.function = text_of(history, stack), .line = 7};
    event.stack = frame.function ? ull__history_stack(history, &frame, 1) : 0;
    return ull__history_add(history, &event);
}

static int make(const char *path)
{
    struct ull__history *history = ull__history_create();
    char line[512];
    while (fgets(line, sizeof line, stdin))
        if (!add_line(history, line))
            return 1;
    if (ull__history_finish(history, 0, NULL) != ULL_OK)
        return 1;
    int code = write_to(history, path);
    ull__history_destroy(history);
    return code;
}

int main(int argc, char **argv)
{
    struct ull__history *history;
    struct ull_error err = {""};
    int code = 0;
    if (argc == 3 && strcmp(argv[1], "--make") == 0)
        return make(argv[2]);
    bool copy = argc == 4 && strcmp(argv[1], "--copy") == 0;
    if ((argc != 2 && !copy) ||
        ull__history_from_torch(argv[copy ? 2 : 1], &history, &err) != ULL_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (copy)
        code = write_to(history, argv[3]);
    put_history(history);
    ull__history_destroy(history);
    return code;
}
