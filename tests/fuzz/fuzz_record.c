/*
 * fuzz_record.c: any bytes as a record, as they are and with the checksums of all blocks made right, so that the
 * items inside are reached. What is loaded must hold together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format.h"
#include "fuzz.h"
#include "load.h"

const char *const fuzz_tokens[] = {ULL_RECORD_MAGIC, "\x41", "\x43\x83", "\xff\xff\xff\xff\x0f",
                                   NULL};

static void check(const struct ull__history *history)
{
    for (size_t i = 0; i < history->event_count; i++) {
        const struct ull__event *event = &history->events[i];
        FUZZ_EXPECT(event->kind > ULL_EVENT_NONE && event->kind < ULL_EVENT_KINDS);
        FUZZ_EXPECT(event->process < history->process_count);
        FUZZ_EXPECT(event->device == ULL_EVENT_NO_DEVICE || event->device < history->device_count);
        FUZZ_EXPECT(event->tag < history->text_count && event->stack < history->stack_count);
        FUZZ_EXPECT(i == 0 || history->events[i - 1].time_ns <= event->time_ns);
    }
    for (uint32_t i = 0; i < history->process_count; i++)
        FUZZ_EXPECT(!history->processes[i].ended ||
                    history->processes[i].end_ns >= history->processes[i].begin_ns);
}

static void load(const uint8_t *data, size_t size)
{
    char path[64];
    struct ull__history *history = NULL;
    struct ull_error err = {""};
    int fd = memfd_create("record", 0);
    FUZZ_EXPECT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ull_status status = ull__history_load(path, &history, &err);
    FUZZ_EXPECT(status == ULL_OK || err.message[0]);
    if (status == ULL_OK) {
        check(history);
        ull__history_destroy(history);
    }
    close(fd);
}

/* A block wherever the magic is. Its length is cut to what is there. */
static void make_checks_right(uint8_t *data, size_t size)
{
    for (size_t at = 0; at + ULL_BLOCK_HEAD <= size; at++) {
        uint8_t *head = data + at;
        if (memcmp(head, ULL_RECORD_MAGIC, 8) != 0)
            continue;
        uint32_t payload = head[12] | head[13] << 8 | head[14] << 16;
        if (payload > size - at - ULL_BLOCK_HEAD)
            payload = (uint32_t)(size - at - ULL_BLOCK_HEAD);
        uint32_t sum = ull__crc(0, head + ULL_BLOCK_HEAD, payload);
        for (int i = 0; i < 4; i++) {
            head[12 + i] = (uint8_t)(payload >> 8 * i);
            head[16 + i] = (uint8_t)(sum >> 8 * i);
        }
        sum = ull__crc(0, head, 60);
        for (int i = 0; i < 4; i++)
            head[60 + i] = (uint8_t)(sum >> 8 * i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    load(data, size);
    uint8_t *copy = malloc(size ? size : 1);
    FUZZ_EXPECT(copy);
    memcpy(copy, data, size);
    make_checks_right(copy, size);
    load(copy, size);
    free(copy);
    return 0;
}
