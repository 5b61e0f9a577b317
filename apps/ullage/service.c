/*
 * service.c: see service.h. A daemon that restarts is waited for: whoever waits for room goes on waiting.
 */
#include "service.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "conf.h"
#include "control.h"
#include "error.h"
#include "suspend/mover.h"

enum { ANNOUNCE_MS = 1000, COMES_BACK_S = 30, LOOK_MS = 100 };

/* --- connecting ------------------------------------------------------------------------------------------- */

/*
 * Only the daemon itself can tell: of the socket the kernel knows who listened first, which may be systemd, and the number
 * of a process in another pid namespace is another one here, or none.
 */
static ull_status ask_who(const char *path, uint32_t pid, struct ull__ipc_connection *connection,
                          struct ull_error *err)
{
    struct ull__ipc_message answer, ask = {.kind = ULL_IPC_PING};
    if (ull__ipc_send(connection, &ask, NULL) != ULL_OK ||
        ull__ipc_receive(connection, ULL_SERVED_MS, &answer, NULL) != ULL_OK)
        return ull__fail(err, ULL_E_NOT_FOUND, "nobody answers at %s", path);
    if (answer.daemon != pid)
        return ull__fail(err, ULL_E_NOT_FOUND, "at %s another daemon answers, process %llu", path,
                         (unsigned long long)answer.daemon);
    return ULL_OK;
}

static ull_status try_path(const char *path, uint32_t pid, struct ull__ipc_connection *connection,
                           struct ull_error *err)
{
    ull_status status = ull__ipc_open(path, connection, err);
    if (status != ULL_OK || pid == 0)
        return status;
    status = ask_who(path, pid, connection, err);
    if (status != ULL_OK)
        ull__ipc_close(connection);
    return status;
}

ull_status service_open(uint32_t pid, struct ull__ipc_connection *connection, struct ull_error *err)
{
    static struct ull__conf conf;
    char path[ULL_IPC_PATH], ledgers[ULL_PATH_TEXT];
    ull_status status = ull__conf_load(&conf, err);
    if (status != ULL_OK)
        return status;
    const struct ull__conf_item *asked = &conf.item[ULL_CONF_SOCKET];
    bool has_folder = ull__ledger_folder(false, ledgers, NULL) == ULL_OK;
    status = ull__ipc_socket_path(asked->set ? asked->value : NULL, has_folder ? ledgers : NULL,
                                  path, err);
    if (status == ULL_OK)
        status = try_path(path, pid, connection, err);
    if (status != ULL_OK && !asked->set && strcmp(path, ULL_IPC_SYSTEM_SOCKET) != 0 &&
        try_path(ULL_IPC_SYSTEM_SOCKET, pid, connection, NULL) == ULL_OK)
        status = ULL_OK;
    return status;
}

static void name_job(struct ull__ledger *ledger, struct ull__ipc_message *message)
{
    struct ull__job_view view;
    ull__ledger_job(ledger, &view);
    snprintf(message->job, sizeof message->job, "%.*s", (int)sizeof message->job - 1, view.id);
}

bool service_announce(struct ull__ledger *ledger)
{
    struct ull__ipc_connection connection;
    struct ull__ipc_message answer, ask = {.kind = ULL_IPC_PING, .number = 1};
    if (service_open(0, &connection, NULL) != ULL_OK)
        return false;
    name_job(ledger, &ask);
    bool known = ull__ipc_send(&connection, &ask, NULL) == ULL_OK &&
                 ull__ipc_receive(&connection, ANNOUNCE_MS, &answer, NULL) == ULL_OK;
    ull__ipc_close(&connection);
    return known;
}

/* --- waiting for room ------------------------------------------------------------------------------------- */

/* Those that end a wait are blocked by the supervisor, and taken here. */
static int signal_came(void)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigaddset(&ends, SIGQUIT);
    int number = sigtimedwait(&ends, NULL, &(struct timespec){0});
    return number > 0 ? number : 0;
}

/* *lost: there was one, which ended before it was asked. */
static ull_status connect_and_ask(struct ull__ledger *ledger, struct ull__ipc_connection *connection,
                                  bool *lost, struct ull_error *err)
{
    struct ull__ipc_message ask = {.kind = ULL_IPC_RUN, .number = 1};
    ull_status status = service_open(0, connection, err);
    *lost = false;
    if (status != ULL_OK)
        return status;
    name_job(ledger, &ask);
    status = ull__ipc_send(connection, &ask, err);
    *lost = status != ULL_OK;
    if (*lost)
        ull__ipc_close(connection);
    return status;
}

/* 0 to go on waiting, 1: it starts; -code: it does not. */
static int take_answer(const struct ull__ipc_message *answer, bool quiet, uint64_t *said_ns)
{
    uint64_t now = cli_monotonic_ns();
    switch (answer->kind) {
    case ULL_IPC_STARTS:
        return 1;
    case ULL_IPC_WAITS:
        if (!quiet && (*said_ns == 0 || now > *said_ns + 60000000000ull)) {
            cli_say("waits: %s", answer->text);
            *said_ns = now;
        }
        return 0;
    case ULL_IPC_FAILED:
        cli_say("%s; the command was not started. Ask for less, or wait for it with --wait",
                answer->text);
        return -(answer->status == ULL_E_PERMISSION ? EXIT_PERMISSION : EXIT_FAILED);
    default:
        return 0;
    }
}

int service_wait(struct ull__ledger *ledger, bool may_queue, double wait_s, bool quiet)
{
    struct ull__ipc_connection connection;
    struct ull__ipc_message answer;
    struct ull_error err = {""};
    uint64_t began = cli_monotonic_ns(), lost_ns = 0, said_ns = 0;
    uint64_t until = wait_s > 0 ? began + (uint64_t)(wait_s * 1e9) : UINT64_MAX;
    bool lost;
    ull_status asked = connect_and_ask(ledger, &connection, &lost, &err);
    if (lost) {
        lost_ns = began;
    } else if (asked == ULL_E_SYSTEM || asked == ULL_E_FORMAT) { /* whether there is one is not known */
        cli_say("%s; the command was not started", err.message);
        return EXIT_OWN_FAILURE;
    } else if (asked != ULL_OK) {
        cli_say("%s: start ullaged, which keeps promises and queues; the command was not started",
                err.message);
        return EXIT_NO_DAEMON;
    }
    for (int code = 0;;) {
        uint64_t now = cli_monotonic_ns();
        int number = signal_came();
        ull_status status = ULL_E_NOT_FOUND;
        if (lost_ns == 0)
            status = ull__ipc_receive(&connection, LOOK_MS, &answer, &err);
        else if (connect_and_ask(ledger, &connection, &lost, &err) == ULL_OK)
            lost_ns = 0;
        else
            nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
        if (status == ULL_OK)
            code = take_answer(&answer, quiet, &said_ns);
        if (status == ULL_E_SYSTEM || status == ULL_E_FORMAT) {
            ull__ipc_close(&connection);
            lost_ns = now;
        }
        if (number)
            code = -(EXIT_SIGNAL + number);
        if (code == 0 && lost_ns && now > lost_ns + COMES_BACK_S * 1000000000ull) {
            cli_say("the daemon went away and did not come back; the command was not started");
            code = -EXIT_NO_DAEMON;
        }
        if (code == 0 && may_queue && now >= until) {
            cli_say("there was no room in %g s; the command was not started", wait_s);
            code = -EXIT_FAILED;
        }
        if (code == 0)
            continue;
        if (lost_ns == 0)
            ull__ipc_close(&connection);
        return code > 0 ? 0 : -code;
    }
}

/* --- suspend and resume ----------------------------------------------------------------------------------- */

/* Not found is what a caller hears where no daemon is. */
static ull_status status_of(const struct ull__ipc_message *answer)
{
    bool plain = answer->status < 0 && answer->status > -100 && answer->status != ULL_E_NOT_FOUND;
    return plain ? (ull_status)answer->status : ULL_E_INVALID;
}

ull_status service_move(struct ull__ledger *ledger, uint32_t daemon_pid, bool out,
                        const struct move_options *options, struct move_progress *moved,
                        bool *waits, struct ull_error *err)
{
    struct ull__ipc_connection connection;
    struct ull__ipc_message answer,
        ask = {.kind = out ? ULL_IPC_SUSPEND : ULL_IPC_RESUME,
               .number = 1,
               .nanoseconds = out ? options->expected_s * 1000000000ull : 0};
    struct move_progress progress = {.processes = 1};
    ull_status status = service_open(daemon_pid, &connection, err);
    if (status != ULL_OK)
        return status;
    name_job(ledger, &ask);
    status = ull__ipc_send(&connection, &ask, err);
    while (status == ULL_OK) {
        status = ull__ipc_receive(&connection, LOOK_MS, &answer, err);
        /* Closing is how it is told to stop: what was moved comes back. */
        if (options->step && options->step(&progress, options->data) && out)
            status = ull__fail(err, ULL_E_SYSTEM, "it was stopped");
        else if (status == ULL_E_NOT_FOUND)
            status = ULL_OK;
        else if (status == ULL_OK && answer.kind == ULL_IPC_PROGRESS)
            progress = (struct move_progress){.moved_bytes = answer.moved_bytes,
                                              .to_move_bytes = answer.to_move_bytes,
                                              .processes = 1};
        else if (status == ULL_OK && answer.kind == ULL_IPC_FAILED)
            status = ull__fail(err, status_of(&answer), "%s", answer.text);
        else if (status == ULL_OK && (answer.kind == ULL_IPC_DONE || answer.kind == ULL_IPC_WAITS))
            break;
    }
    ull__ipc_close(&connection);
    if (status != ULL_OK)
        return status;
    *waits = answer.kind == ULL_IPC_WAITS;
    moved->moved_bytes = answer.moved_bytes;
    return ULL_OK;
}
