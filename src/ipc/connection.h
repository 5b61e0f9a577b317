/*
 * connection.h: the client's end of a connection to the daemon, and where its socket is.
 *
 * The daemon of the machine, which root runs, is at /run/ullage/ullaged.sock. One user's own is in
 * $XDG_RUNTIME_DIR/ullage, or where that is not set in the folder of the user's ledgers. A client asks the
 * user's own first. It only talks to a daemon of its own user or of root.
 */
#ifndef ULLAGE_CONNECTION_H
#define ULLAGE_CONNECTION_H

#include "message.h"

#define ULL_IPC_SYSTEM_SOCKET "/run/ullage/ullaged.sock"
enum { ULL_IPC_PATH = 104 }; /* of a socket, with its end */

/*
 * Where a daemon of this user listens. `asked` (may be NULL) is what was configured, `ledgers` the folder of this
 * user's ledgers, or NULL. ULL_E_INVALID: too long for a socket.
 */
ull_status ull__ipc_socket_path(const char *asked, const char *ledgers, char path[ULL_IPC_PATH],
                                struct ull_error *err);

struct ull__ipc_connection {
    int fd;
    uint32_t uid; /* of the daemon */
    size_t count;
    uint8_t bytes[ULL_IPC_MOST]; /* received, not yet read */
};

/* ULL_E_NOT_FOUND: nobody listens there. ULL_E_PERMISSION: not for this user, or somebody else's. */
ull_status ull__ipc_open(const char *path, struct ull__ipc_connection *connection,
                         struct ull_error *err);
void ull__ipc_close(struct ull__ipc_connection *connection);

/* ULL_E_SYSTEM: the connection broke. */
ull_status ull__ipc_send(struct ull__ipc_connection *connection,
                         const struct ull__ipc_message *message, struct ull_error *err);
/*
 * The next message. ULL_E_NOT_FOUND: none within that time, or a signal came; ULL_E_SYSTEM: the connection
 * broke; ULL_E_FORMAT.
 */
ull_status ull__ipc_receive(struct ull__ipc_connection *connection, int timeout_ms,
                            struct ull__ipc_message *message, struct ull_error *err);

#endif
