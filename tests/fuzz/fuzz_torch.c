/*
 * fuzz_torch.c: PyTorch's memory snapshots (src/history/torch.c). What is accepted is a history whose sums stay in
 * range, and comes back from a snapshot that is written of it.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "torch.h"
#include "torch_write.h"

const char *const fuzz_tokens[] = {"\x80\x04",
                                   "]\x94(",
                                   "}\x94(",
                                   "u",
                                   "e",
                                   "a",
                                   "s",
                                   "t",
                                   "\x86",
                                   "N",
                                   "h\x01",
                                   "j\x01\x01\x01\x01",
                                   "q\x05",
                                   "K\x01",
                                   "J\xff\xff\xff\xff",
                                   "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
                                   "\x8a\x06\x01\x01\x01\x01\xff\x7f",
                                   "G?\xf0\x01\x01\x01\x01\x01\x01",
                                   "\x8c\x05"
                                   "alloc",
                                   "\x8c\x0e"
                                   "free_completed",
                                   "\x8c\x0dsegment_unmap",
                                   "\x8c\x0bsegment_map",
                                   "\x8c\x03oom",
                                   "cos\nsystem\n",
                                   "R",
                                   NULL};

static void check_history(const struct ull__history *history)
{
    int64_t sum = 0;
    FUZZ_EXPECT(history->process_count == 1);
    for (size_t i = 0; i < history->event_count; i++) {
        const struct ull__event *event = &history->events[i];
        const struct ull__stack *stack = &history->stacks[event->stack];
        sum += (int64_t)event->size + event->charged;
        FUZZ_EXPECT(sum >= 0 && event->charged >= 0);
        FUZZ_EXPECT(i == 0 || event->time_ns >= history->events[i - 1].time_ns);
        FUZZ_EXPECT(stack->first + stack->count <= history->frame_count);
        FUZZ_EXPECT(event->tag < history->text_count);
    }
}

/* A block and its segment may be twice as many bytes as were read. */
static void check_copy(const struct ull__history *history)
{
    char *text = NULL;
    size_t size = 0;
    struct ull__history *copy = NULL;
    struct ull_error error = {.message = ""};
    FILE *out = open_memstream(&text, &size);
    FUZZ_EXPECT(out && ull__history_to_torch(history, out, &error) == ULL_OK);
    FUZZ_EXPECT(fclose(out) == 0 && ull__is_torch(text, size));
    ull_status status = ull__history_from_torch_bytes(text, size, "copy", &copy, &error);
    FUZZ_EXPECT(status == ULL_OK || strstr(error.message, "more than 4 EiB"));
    ull__history_destroy(copy);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ull__history *history = NULL;
    struct ull_error error = {.message = ""};
    ull_status status = ull__history_from_torch_bytes(data, size, "input", &history, &error);
    if (status == ULL_OK) {
        check_history(history);
        check_copy(history);
        ull__history_destroy(history);
    } else {
        FUZZ_EXPECT(status == ULL_E_FORMAT && history == NULL);
        FUZZ_EXPECT(memchr(error.message, 0, sizeof error.message) != NULL && error.message[0]);
    }
    return 0;
}
