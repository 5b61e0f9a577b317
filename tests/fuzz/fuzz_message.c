/*
 * fuzz_message.c: messages to the daemon (src/ipc/message.c), as one stream of bytes. What is taken for one is
 * written again and must be read as the same.
 */
#include "fuzz.h"

#include <string.h>

#include "message.h"

const char *const fuzz_tokens[] = {"UL\x01", "\x01", "\x02",     "\x04",
                                   "\x08",   "job1", "\xff\xff", NULL};

static void check(const struct ull__ipc_message *message)
{
    uint8_t bytes[ULL_IPC_MOST];
    struct ull__ipc_message again;
    size_t size = ull__ipc_encode(message, bytes);
    FUZZ_EXPECT(size <= sizeof bytes);
    FUZZ_EXPECT(ull__ipc_decode(bytes, size, &again, NULL) == ULL_OK);
    FUZZ_EXPECT(again.kind == message->kind && again.number == message->number);
    FUZZ_EXPECT(strcmp(again.job, message->job) == 0 && strcmp(again.text, message->text) == 0);
    FUZZ_EXPECT(again.status == message->status && again.moved_bytes == message->moved_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        ull_status status;
        struct ull__ipc_message message = {.kind = 77};
        struct ull_error err = {""};
        size_t whole = ull__ipc_size(data + at, size - at, &status);
        FUZZ_EXPECT(status == ULL_OK || whole == 0);
        if (whole == 0)
            break;
        FUZZ_EXPECT(whole <= size - at && whole <= ULL_IPC_MOST);
        status = ull__ipc_decode(data + at, whole, &message, &err);
        if (status == ULL_OK)
            check(&message);
        else
            FUZZ_EXPECT(status == ULL_E_FORMAT && message.kind == 77 && err.message[0]);
        at += whole;
    }
    return 0;
}
