/* connection.c: see connection.h. */
#include "connection.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "error.h"

enum { SEND_S = 5 };

ull_status ull__ipc_socket_path(const char *asked, const char *ledgers, char path[ULL_IPC_PATH],
                                struct ull_error *err)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    int length;
    if (asked && asked[0])
        length = snprintf(path, ULL_IPC_PATH, "%s", asked);
    else if (geteuid() == 0)
        length = snprintf(path, ULL_IPC_PATH, "%s", ULL_IPC_SYSTEM_SOCKET);
    else if (run && run[0] == '/')
        length = snprintf(path, ULL_IPC_PATH, "%s/ullage/ullaged.sock", run);
    else if (ledgers)
        length = snprintf(path, ULL_IPC_PATH, "%s/ullaged.sock", ledgers);
    else
        return ull__fail(err, ULL_E_NOT_FOUND, "there is no folder for a socket");
    if (length >= ULL_IPC_PATH)
        return ull__fail(err, ULL_E_INVALID,
                         "the path of the socket is too long (%d bytes, at most %d): %.120s...",
                         length, ULL_IPC_PATH - 1, path);
    return ULL_OK;
}

static ull_status check_peer(struct ull__ipc_connection *connection, const char *path,
                             struct ull_error *err)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return ull__fail(err, ULL_E_SYSTEM, "cannot tell who listens at %s", path);
    connection->uid = peer.uid;
    if (peer.uid != 0 && peer.uid != geteuid())
        return ull__fail(err, ULL_E_PERMISSION,
                         "user %u listens at %s: expected root or this user, %u", peer.uid, path,
                         geteuid());
    return ULL_OK;
}

ull_status ull__ipc_open(const char *path, struct ull__ipc_connection *connection,
                         struct ull_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = SEND_S};
    if (strlen(path) >= sizeof address.sun_path)
        return ull__fail(err, ULL_E_INVALID, "the path of the socket is too long: %.120s", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    connection->count = 0;
    connection->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->fd < 0)
        return ull__fail(err, ULL_E_SYSTEM, "cannot make a socket: %s", strerror(errno));
    setsockopt(connection->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(connection->fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        int error = errno;
        ull__ipc_close(connection);
        return ull__fail(err, error == EACCES || error == EPERM ? ULL_E_PERMISSION : ULL_E_NOT_FOUND,
                         "no daemon answers at %s: %s", path, strerror(error));
    }
    ull_status status = check_peer(connection, path, err);
    if (status != ULL_OK)
        ull__ipc_close(connection);
    return status;
}

void ull__ipc_close(struct ull__ipc_connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
}

ull_status ull__ipc_send(struct ull__ipc_connection *connection,
                         const struct ull__ipc_message *message, struct ull_error *err)
{
    uint8_t bytes[ULL_IPC_MOST];
    size_t size = ull__ipc_encode(message, bytes);
    for (size_t sent = 0; sent < size;) {
        ssize_t wrote = send(connection->fd, bytes + sent, size - sent, MSG_NOSIGNAL);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return ull__fail(err, ULL_E_SYSTEM, "the daemon does not take messages: %s",
                             strerror(errno));
        sent += (size_t)wrote;
    }
    return ULL_OK;
}

static ull_status take(struct ull__ipc_connection *connection, size_t size,
                       struct ull__ipc_message *message, struct ull_error *err)
{
    ull_status status = ull__ipc_decode(connection->bytes, size, message, err);
    connection->count -= size;
    memmove(connection->bytes, connection->bytes + size, connection->count);
    return status;
}

ull_status ull__ipc_receive(struct ull__ipc_connection *connection, int timeout_ms,
                            struct ull__ipc_message *message, struct ull_error *err)
{
    for (;;) {
        ull_status status;
        size_t size = ull__ipc_size(connection->bytes, connection->count, &status);
        if (status != ULL_OK)
            return ull__fail(err, status, "what answers is no ullaged of this version");
        if (size > 0)
            return take(connection, size, message, err);
        struct pollfd wait = {.fd = connection->fd, .events = POLLIN};
        int ready = poll(&wait, 1, timeout_ms);
        if (ready == 0 || (ready < 0 && errno == EINTR))
            return ull__fail(err, ULL_E_NOT_FOUND, "no answer yet");
        ssize_t got = recv(connection->fd, connection->bytes + connection->count,
                           sizeof connection->bytes - connection->count, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return ull__fail(err, ULL_E_SYSTEM, "the daemon ended the connection");
        connection->count += (size_t)got;
    }
}
