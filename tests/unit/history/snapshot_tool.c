/*
 * snapshot_tool.c: for test_torch.py: shows the history that a snapshot gives, an event a line as JSON, after a line
 * for the whole. Exit 1 with the message on standard error if that fails.
 *
 *   snapshot_tool SNAPSHOT
 *   snapshot_tool --damage SNAPSHOT ROUNDS    reads it with a few bytes changed, again and again; says how many
 *                                             were understood and how many refused
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "json.h"
#include "torch.h"

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

/* Everything that it names is there, and sums stay in range. */
static void look_at_all(const struct ull__history *history)
{
    int64_t sum = 0;
    for (size_t i = 0; i < history->event_count; i++) {
        const struct ull__event *event = &history->events[i];
        const struct ull__stack *stack = &history->stacks[event->stack];
        sum += (int64_t)event->size + event->charged;
        if (i > 0 && event->time_ns < history->events[i - 1].time_ns)
            abort();
        for (uint32_t j = 0; j < stack->count; j++) {
            const struct ull__frame *frame = &history->frames[stack->first + j];
            sum += !ull__history_string(history, frame->function)[0];
        }
        sum += !ull__history_string(history, event->tag)[0];
    }
    if (sum < 0 || history->process_count != 1)
        abort();
}

static uint64_t seed = 1;

static uint32_t any(uint32_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % below;
}

/* Bytes are changed, often to an opcode that stands elsewhere; or a part is left out, or comes twice. */
static size_t change(char *to, const char *data, size_t size)
{
    memcpy(to, data, size);
    if (any(4) == 0) {
        size_t length = 1 + any((uint32_t)size / 4), from = any((uint32_t)(size - length)),
               place = any((uint32_t)size);
        memmove(to + place + length, to + place, size - place);
        memcpy(to + place, data + from, length);
        return size + length;
    }
    if (any(4) == 0) {
        size_t length = 1 + any((uint32_t)size / 4), place = any((uint32_t)(size - length));
        memmove(to + place, to + place + length, size - place - length);
        return size - length;
    }
    for (uint32_t i = 1 + any(4); i > 0; i--)
        to[any((uint32_t)size)] = any(2) ? (char)any(256) : data[any((uint32_t)size)];
    return size;
}

static int damage(const char *path, int rounds)
{
    char *data;
    size_t size;
    int good = 0;
    if (ull__file_read(path, 1 << 20, &data, &size, NULL) != ULL_OK || size < 16)
        return 1;
    for (int i = 0; i < rounds; i++) {
        char *changed = malloc(2 * size);
        struct ull__history *history = NULL;
        struct ull_error err = {""};
        size_t changed_size = change(changed, data, size);
        char *exact = realloc(changed, changed_size); /* so that reading past it is noticed */
        if (ull__history_from_torch_bytes(exact, changed_size, "damaged", &history, &err) == ULL_OK) {
            good++;
            look_at_all(history);
        } else if (history || !err.message[0]) {
            abort();
        }
        ull__history_destroy(history);
        free(exact);
    }
    printf("%d %d\n", good, rounds - good);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    struct ull__history *history;
    struct ull_error err = {""};
    if (argc == 4 && strcmp(argv[1], "--damage") == 0)
        return damage(argv[2], atoi(argv[3]));
    if (argc != 2 || ull__history_from_torch(argv[1], &history, &err) != ULL_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    put_history(history);
    ull__history_destroy(history);
    return 0;
}
