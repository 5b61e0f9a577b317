/* clients.c: see clients.h. */
#include "clients.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "error.h"
#include "file.h"
#include "message.h"
#include "say.h"

enum {
    CLIENTS = 1024,
    OF_USER = 512,
    GROUPS = 256,
    BURST = 100,
    A_SECOND = 50,
    OUT = 16384,
    ANSWER_MS = 2000
};
#define SECOND 1000000000ull
#define SAY_AGAIN_NS (10 * SECOND)

struct client {
    int fd;
    uint32_t uid, pid;
    gid_t groups[GROUPS];
    int group_count;
    bool broken, closing; /* closing: once its answers are sent */
    double tokens;        /* messages that it may send now */
    uint64_t tokens_ns, said_ns;
    bool paused;
    uint8_t in[ULL_IPC_MOST], out[OUT];
    size_t in_count, out_count;
};

static struct {
    struct client *client[CLIENTS];
    int count;
    int deaf; /* the listener and 1, where no descriptor was left for who knocks */
} all;

/* --- listening -------------------------------------------------------------------------------------------- */

static ull_status make_folder(const char *path, struct ull_error *err)
{
    char folder[ULL_IPC_PATH];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return ULL_OK;
    *slash = 0;
    if (mkdir(folder, geteuid() == 0 ? 0755 : 0700) != 0 && errno != EEXIST)
        return ull__fail(err, ULL_E_SYSTEM, "cannot make the folder %s: %s", folder, strerror(errno));
    return ULL_OK;
}

/* The socket of one that is just ending takes connections still, and breaks them. One that is busy answers late. */
static bool lives(const char *path)
{
    struct ull__ipc_connection other;
    struct ull__ipc_message message = {.kind = ULL_IPC_PING};
    if (ull__ipc_open(path, &other, NULL) != ULL_OK)
        return false;
    bool broke = ull__ipc_send(&other, &message, NULL) != ULL_OK ||
                 ull__ipc_receive(&other, ANSWER_MS, &message, NULL) == ULL_E_SYSTEM;
    ull__ipc_close(&other);
    return !broke;
}

ull_status clients_listen(const char *path, int *fd, struct ull_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ull_status status = make_folder(path, err);
    if (status != ULL_OK)
        return status;
    if (lives(path))
        return ull__fail(err, ULL_E_STARTED, "a daemon answers at %s already", path);
    unlink(path); /* of one that was killed */
    memcpy(address.sun_path, path, strlen(path) + 1);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask = umask(geteuid() == 0 ? 0111 : 0177);
    bool good = made >= 0 && bind(made, (const struct sockaddr *)&address, sizeof address) == 0 &&
                listen(made, 128) == 0;
    int error = errno;
    umask(mask);
    if (!good) {
        if (made >= 0)
            close(made);
        return ull__fail(err, error == EACCES ? ULL_E_PERMISSION : ULL_E_SYSTEM,
                         "cannot listen at %s: %s", path, strerror(error));
    }
    *fd = made;
    return ULL_OK;
}

static void watch(struct daemon *d, const struct client *client)
{
    struct epoll_event event = {.data.fd = client->fd};
    event.events =
        (client->paused || client->closing ? 0 : EPOLLIN) | (client->out_count > 0 ? EPOLLOUT : 0);
    epoll_ctl(d->epoll, EPOLL_CTL_MOD, client->fd, &event);
}

static void listen_again(struct daemon *d, int listener, bool on)
{
    struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.fd = listener};
    epoll_ctl(d->epoll, EPOLL_CTL_MOD, listener, &event);
}

void clients_accept(struct daemon *d, int listener)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), of_user = 0;
    if (fd < 0 && ull__no_descriptor(errno)) { /* it would be ready again at once, and again */
        listen_again(d, listener, false);
        all.deaf = listener + 1;
    }
    if (fd < 0)
        return;
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    for (int i = 0; i < all.count && known; i++)
        of_user += all.client[i]->uid == peer.uid;
    struct client *client =
        known && all.count < CLIENTS && of_user < OF_USER ? calloc(1, sizeof *client) : NULL;
    if (!client) {
        close(fd);
        return;
    }
    *client = (struct client){.fd = fd, .uid = peer.uid, .pid = (uint32_t)peer.pid};
    client->tokens = BURST;
    client->tokens_ns = now_ns();
    socklen_t groups = sizeof client->groups;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, client->groups, &groups) == 0)
        client->group_count = (int)(groups / sizeof *client->groups);
    all.client[all.count++] = client;
    d->clients_ever++;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &event);
}

static void drop(struct daemon *d, int at)
{
    struct client *client = all.client[at];
    wishes_forget(d, client);
    close(client->fd);
    free(client);
    all.client[at] = all.client[--all.count];
}

void clients_close(struct daemon *d)
{
    while (all.count > 0) {
        struct client *client = all.client[--all.count];
        close(client->fd);
        free(client);
    }
    (void)d;
}

/* --- rights ----------------------------------------------------------------------------------------------- */

static bool is_operator(const struct daemon *d, const struct client *client)
{
    if (client->uid == 0)
        return true;
    for (int i = 0; i < client->group_count && d->settings.has_operators; i++)
        if (client->groups[i] == d->settings.operators)
            return true;
    return false;
}

bool client_may(const struct daemon *d, const struct client *client, const struct job *job)
{
    return client->uid == job->uid || is_operator(d, client);
}

/* --- answering -------------------------------------------------------------------------------------------- */

static void flush(struct daemon *d, struct client *client)
{
    while (client->out_count > 0) {
        ssize_t sent = send(client->fd, client->out, client->out_count, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0) {
            client->broken |= sent < 0 && errno != EAGAIN;
            break;
        }
        client->out_count -= (size_t)sent;
        memmove(client->out, client->out + sent, client->out_count);
    }
    watch(d, client);
}

static void send_to(struct daemon *d, struct client *client, const struct ull__ipc_message *message)
{
    uint8_t bytes[ULL_IPC_MOST];
    size_t size = ull__ipc_encode(message, bytes);
    bool may_be_left_out = message->kind == ULL_IPC_PROGRESS || message->kind == ULL_IPC_WAITS;
    if (client->broken || (may_be_left_out && client->out_count > 0))
        return;
    if (size > sizeof client->out - client->out_count) {
        client->broken = true; /* it does not read what it asked for */
        return;
    }
    memcpy(client->out + client->out_count, bytes, size);
    client->out_count += size;
    flush(d, client);
}

void client_answer(struct daemon *d, struct wish *wish, const struct ull__ipc_message *answer,
                   bool last)
{
    struct ull__ipc_message copy = *answer;
    struct client *client = wish->client;
    copy.number = wish->number;
    if (last)
        *wish = (struct wish){0};
    if (client)
        send_to(d, client, &copy);
}

void client_fail(struct daemon *d, struct wish *wish, ull_status status, const char *text)
{
    struct ull__ipc_message answer = {.kind = ULL_IPC_FAILED, .status = status};
    snprintf(answer.text, sizeof answer.text, "%s", text);
    client_answer(d, wish, &answer, true);
}

/* --- asking ----------------------------------------------------------------------------------------------- */

static void say_waits(struct daemon *d, const struct job *job, struct client *client)
{
    struct ull__ipc_message waits = {.kind = ULL_IPC_WAITS, .number = job->run.number};
    client->said_ns = now_ns();
    shell_explain(d, job, waits.text, sizeof waits.text);
    send_to(d, client, &waits);
}

/* Its command waits: of every user's own, also for operators. */
static ull_status ask_run(struct daemon *d, struct client *client, struct job *job, uint32_t number,
                          struct ull_error *err)
{
    if (client->uid != job->uid)
        return ull__fail(err, ULL_E_PERMISSION, "the job is not yours");
    if (job->joined || job->view.state != ULL_JOB_WAITING)
        return ull__fail(err, ULL_E_INVALID, "the job does not wait");
    if (job->view.priority > d->settings.max_priority && !is_operator(d, client))
        return ull__fail(err, ULL_E_PERMISSION,
                         "priority %d: up to %d is for everybody here (max_priority)",
                         job->view.priority, d->settings.max_priority);
    job->run = (struct wish){.client = client, .number = number};
    shell_join(d, job);
    if (job->run.client)
        say_waits(d, job, client);
    return ULL_OK;
}

static ull_status handle(struct daemon *d, struct client *client,
                         const struct ull__ipc_message *message, struct ull_error *err)
{
    struct wish wish = {.client = client, .number = message->number};
    if (message->kind == ULL_IPC_PING) {
        if (message->job[0])
            book_look(d); /* it begins: from now on it is served */
        client_answer(d, &wish,
                      &(struct ull__ipc_message){.kind = ULL_IPC_DONE, .daemon = (uint32_t)getpid()},
                      true);
        return ULL_OK;
    }
    if (message->kind != ULL_IPC_RUN && message->kind != ULL_IPC_SUSPEND &&
        message->kind != ULL_IPC_RESUME)
        return ull__fail(err, ULL_E_INVALID, "this daemon knows no message of kind %d",
                         message->kind);
    book_look(d);
    struct job *job = book_find(d, message->job);
    if (!job || (!client_may(d, client, job) && message->kind != ULL_IPC_RUN))
        return ull__fail(err, job ? ULL_E_PERMISSION : ULL_E_NOT_FOUND, "%s '%s'",
                         job ? "you have no rights to the job" : "there is no job", message->job);
    if (message->kind == ULL_IPC_RUN)
        return ask_run(d, client, job, message->number, err);
    uint64_t seconds = message->nanoseconds / 1000000000u;
    wish.expected_s = seconds < UINT32_MAX ? (unsigned int)seconds : UINT32_MAX;
    struct wish *other = message->kind == ULL_IPC_SUSPEND ? &job->suspend : &job->resume;
    if (other->client)
        return ull__fail(err, ULL_E_INVALID, "the job is being %s already",
                         message->kind == ULL_IPC_SUSPEND ? "suspended" : "resumed");
    return message->kind == ULL_IPC_SUSPEND ? wish_suspend(d, job, wish, err)
                                            : wish_resume(d, job, wish, err);
}

static void read_messages(struct daemon *d, struct client *client)
{
    size_t at = 0;
    while (!client->broken && !client->closing && client->tokens >= 1) {
        ull_status status;
        struct ull__ipc_message message;
        struct ull_error err = {""};
        size_t size = ull__ipc_size(client->in + at, client->in_count - at, &status);
        if (size == 0 && status == ULL_OK)
            break;
        struct wish wish = {.client = client};
        if (status == ULL_OK)
            status = ull__ipc_decode(client->in + at, size, &message, &err);
        if (status != ULL_OK) {
            d->malformed++;
            client_fail(d, &wish, status, err.message[0] ? err.message : "not a message");
            client->closing = true;
            break;
        }
        client->tokens -= 1;
        at += size;
        status = handle(d, client, &message, &err);
        wish = (struct wish){.client = client, .number = message.number};
        if (status != ULL_OK)
            client_fail(d, &wish, status, err.message);
    }
    client->in_count -= at;
    memmove(client->in, client->in + at, client->in_count);
}

static void refill(struct client *client)
{
    uint64_t now = now_ns();
    client->tokens += (double)(now - client->tokens_ns) / (double)SECOND * A_SECOND;
    client->tokens = client->tokens > BURST ? BURST : client->tokens;
    client->tokens_ns = now;
}

static void take(struct daemon *d, struct client *client)
{
    ssize_t got = recv(client->fd, client->in + client->in_count,
                       sizeof client->in - client->in_count, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        client->broken = true;
        return;
    }
    client->in_count += got > 0 ? (size_t)got : 0;
    refill(client);
    read_messages(d, client);
    client->paused = client->tokens < 1;
    watch(d, client);
}

bool clients_ready(struct daemon *d, int fd, uint32_t events)
{
    int at = 0;
    while (at < all.count && all.client[at]->fd != fd)
        at++;
    if (at == all.count)
        return false;
    struct client *client = all.client[at];
    if (events & EPOLLOUT)
        flush(d, client);
    if (events & EPOLLIN)
        take(d, client);
    else if (events & (EPOLLERR | EPOLLHUP))
        client->broken = true;
    if (client->broken || (client->closing && client->out_count == 0))
        drop(d, at);
    return true;
}

void clients_tick(struct daemon *d)
{
    uint64_t now = now_ns();
    if (all.deaf)
        listen_again(d, all.deaf - 1, true);
    all.deaf = 0;
    for (int j = 0; j < d->job_count; j++) {
        struct client *client = d->jobs[j]->run.client;
        if (client && now > client->said_ns + SAY_AGAIN_NS)
            say_waits(d, d->jobs[j], client);
    }
    for (int i = all.count; i-- > 0;) {
        struct client *client = all.client[i];
        if (client->paused) {
            refill(client);
            read_messages(d, client);
            client->paused = client->tokens < 1;
            watch(d, client);
        }
        if (client->broken || (client->closing && client->out_count == 0))
            drop(d, i);
    }
}
