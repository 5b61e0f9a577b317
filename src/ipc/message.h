/*
 * message.h: what a client and the daemon say to each other, as bytes and back. Pure: no sockets.
 *
 * A message is a head of 12 bytes ("UL", version, kind, number, size of the rest; numbers little-endian) and
 * fields: tag, zero, size (2 bytes), value. A tag that is not known is passed over, so that both sides may be of
 * different ages; a kind that is not known is the receiver's to refuse. Nothing a sender writes makes the
 * decoder read beyond ULL_IPC_MOST bytes, or call the message good if a size does not add up.
 */
#ifndef ULLAGE_MESSAGE_H
#define ULLAGE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/status.h"

enum {
    ULL_IPC_VERSION = 1,
    ULL_IPC_HEAD = 12,
    ULL_IPC_MOST = 2048, /* of one message, head included */
    ULL_IPC_JOB_TEXT = 16,
    ULL_IPC_TEXT = 1024,
};

enum ull__ipc_kind {
    /* From a client. The job is named by its id. */
    ULL_IPC_PING = 1, /* with a job: it is known from now on; DONE says who answers */
    ULL_IPC_RUN, /* its command waits: answered by STARTS or FAILED, before that perhaps by WAITS */
    ULL_IPC_SUSPEND, /* nanoseconds: that it will be away, 0: not known; answered by DONE or FAILED, before that by PROGRESS */
    ULL_IPC_RESUME,  /* the same; WAITS: it will, once there is room */
    /* From the daemon; `number` is that of what is answered. */
    ULL_IPC_DONE = 64,
    ULL_IPC_FAILED, /* status, text */
    ULL_IPC_WAITS,  /* text: for what */
    ULL_IPC_STARTS,
    ULL_IPC_PROGRESS, /* moved, to_move */
};

struct ull__ipc_message {
    uint8_t kind;
    uint32_t number; /* the client's own, which answers repeat */
    char job[ULL_IPC_JOB_TEXT];
    char text[ULL_IPC_TEXT];
    int64_t status; /* ull_status */
    uint64_t moved_bytes, to_move_bytes, nanoseconds;
    uint64_t daemon; /* its pid, as it is in the ledgers that it serves; 0: not said */
};

/* Writes the message and returns its size, at most ULL_IPC_MOST. */
size_t ull__ipc_encode(const struct ull__ipc_message *message, uint8_t bytes[ULL_IPC_MOST]);

/*
 * The size of the message that begins here: 0 if more bytes are needed to tell. ULL_E_FORMAT in *status if
 * none does, else ULL_OK.
 */
size_t ull__ipc_size(const uint8_t *bytes, size_t count, ull_status *status);

/* Reads a whole message. ULL_E_FORMAT with the reason. */
ull_status ull__ipc_decode(const uint8_t *bytes, size_t size, struct ull__ipc_message *message,
                           struct ull_error *err);

#endif
