/* web.c: see web.h. */
#include "web.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "say.h"

enum { CONNECTIONS = 64, OF_ADDRESS = 32, IDLE_S = 15, MEMORY = 32768, ANSWER_S = 2, TOKEN = 256 };
enum { SHOW_EVERY_NS = 1000000000, SAMPLE_EVERY = 10 };

static struct {
    struct MHD_Daemon *server;
    struct history *history;
    bool loopback;
    char token[TOKEN];
    int wake;
    uint64_t shown_ns;
    unsigned int shown;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    char *metrics, *state;
    /* One wish at a time, from the page to the loop. */
    bool asked, done, suspend;
    char job[ULL_IPC_JOB_TEXT], answer[ULL_IPC_TEXT];
    ull_status status;
} web = {.lock = PTHREAD_MUTEX_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER, .wake = -1};

/* --- answering -------------------------------------------------------------------------------------------- */

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned int code, const char *type,
                             const char *text, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), (void *)text, mode);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
                            "'self'; frame-ancestors 'none'");
    if (code == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    enum MHD_Result queued = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return queued;
}

static enum MHD_Result plain(struct MHD_Connection *connection, unsigned int code, const char *text)
{
    return reply(connection, code, "text/plain; charset=utf-8", text, MHD_RESPMEM_MUST_COPY);
}

/* Takes the same time whatever is wrong. */
static bool has_token(struct MHD_Connection *connection)
{
    const char *given = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    unsigned char differ = 0;
    size_t length = strlen(web.token);
    if (length == 0 || !given || strncmp(given, "Bearer ", 7) != 0 || strlen(given + 7) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        differ |= (unsigned char)(given[7 + i] ^ web.token[i]);
    return differ == 0;
}

/* A name that somebody else's page made lead here is refused. */
static bool host_is_ours(struct MHD_Connection *connection)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    for (size_t i = 0; host && i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i]);
        if (strncmp(host, names[i], length) == 0 && (host[length] == ':' || host[length] == 0))
            return true;
    }
    return !web.loopback;
}

static enum MHD_Result shown(struct MHD_Connection *connection, char **text, const char *type)
{
    pthread_mutex_lock(&web.lock);
    char *copy = *text ? strdup(*text) : NULL;
    pthread_mutex_unlock(&web.lock);
    return copy ? reply(connection, 200, type, copy, MHD_RESPMEM_MUST_FREE)
                : plain(connection, 503, "nothing is known yet\n");
}

static enum MHD_Result past(struct MHD_Connection *connection)
{
    const char *asked = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "seconds");
    unsigned long long seconds = asked ? strtoull(asked, NULL, 10) : 3600;
    char *text = history_json(web.history, seconds < 8000000 ? seconds : 8000000);
    return text ? reply(connection, 200, "application/json", text, MHD_RESPMEM_MUST_FREE)
                : plain(connection, 500, "no memory\n");
}

/* Hands the wish to the loop and waits a little for what it says. */
static enum MHD_Result act(struct MHD_Connection *connection, bool suspend)
{
    const char *job = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "job");
    const uint64_t one = 1;
    struct timespec until;
    char answer[ULL_IPC_TEXT];
    if (!has_token(connection))
        return plain(connection, web.token[0] ? 401 : 403,
                     web.token[0] ? "the token is needed to act\n"
                                  : "no token is set (token_file): nobody may act here\n");
    if (!job || strlen(job) >= sizeof web.job)
        return plain(connection, 400, "expected ?job=ID\n");
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ANSWER_S;
    pthread_mutex_lock(&web.lock);
    snprintf(web.job, sizeof web.job, "%s", job);
    web.suspend = suspend;
    web.asked = true;
    web.done = false;
    snprintf(answer, sizeof answer, "the daemon is busy");
    ull_status status = ULL_E_SYSTEM;
    if (write(web.wake, &one, sizeof one) == (ssize_t)sizeof one)
        while (!web.done && pthread_cond_timedwait(&web.answered, &web.lock, &until) == 0)
            continue;
    if (web.done) {
        status = web.status;
        memcpy(answer, web.answer, sizeof answer);
    }
    web.asked = false;
    pthread_mutex_unlock(&web.lock);
    return plain(connection,
                 status == ULL_OK            ? 202
                 : status == ULL_E_NOT_FOUND ? 404
                                             : 409,
                 answer);
}

static enum MHD_Result serve(void *data, struct MHD_Connection *connection, const char *url,
                             const char *method, const char *version, const char *upload,
                             size_t *upload_size, void **state)
{
    static int seen;
    (void)data, (void)version, (void)upload;
    if (!*state) { /* the head only; the body, which nobody needs, comes with the next calls */
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_size > 0) {
        *upload_size = 0;
        return MHD_YES;
    }
    bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (!host_is_ours(connection))
        return plain(connection, 421, "this host has another name\n");
    if (get && strcmp(url, "/") == 0)
        return reply(connection, 200, "text/html; charset=utf-8", page_html, MHD_RESPMEM_PERSISTENT);
    if (get && strcmp(url, "/page.js") == 0)
        return reply(connection, 200, "text/javascript", page_js, MHD_RESPMEM_PERSISTENT);
    if (get && strcmp(url, "/page.css") == 0)
        return reply(connection, 200, "text/css", page_css, MHD_RESPMEM_PERSISTENT);
    if (!web.loopback && !has_token(connection))
        return plain(connection, 401, "the token is needed\n");
    if (get && strcmp(url, "/metrics") == 0)
        return shown(connection, &web.metrics, "text/plain; version=0.0.4; charset=utf-8");
    if (get && strcmp(url, "/api/state") == 0)
        return shown(connection, &web.state, "application/json");
    if (get && strcmp(url, "/api/history") == 0)
        return past(connection);
    if (strcmp(url, "/api/suspend") == 0 || strcmp(url, "/api/resume") == 0)
        return strcmp(method, "POST") == 0 ? act(connection, url[5] == 's')
                                           : plain(connection, 405, "expected POST\n");
    return plain(connection, get ? 404 : 405, get ? "not found\n" : "expected GET\n");
}

/* --- in the loop ------------------------------------------------------------------------------------------ */

static void sample(const struct daemon *d)
{
    struct history_sample samples[CARDS] = {0};
    for (int c = 0; c < d->cards.count; c++) {
        const struct card *card = &d->cards.card[c];
        memcpy(samples[c].uuid, card->uuid, sizeof samples[c].uuid);
        samples[c].used_bytes = atomic_load(&d->cards.used[c]);
        samples[c].held_bytes = card->held_bytes;
        samples[c].capacity_bytes = card->capacity;
        for (int j = 0; j < d->job_count; j++)
            samples[c].jobs += d->jobs[j]->held[c] > 0;
    }
    history_add(web.history, samples, d->cards.count);
}

void web_show(struct daemon *d)
{
    uint64_t now = now_ns();
    if (!web.server || (web.shown_ns && now < web.shown_ns + SHOW_EVERY_NS))
        return;
    char *metrics = state_metrics(d), *state = state_json(d);
    web.shown_ns = now;
    if (web.shown++ % SAMPLE_EVERY == 0)
        sample(d);
    pthread_mutex_lock(&web.lock);
    char *old_metrics = web.metrics, *old_state = web.state;
    web.metrics = metrics;
    web.state = state;
    pthread_mutex_unlock(&web.lock);
    free(old_metrics);
    free(old_state);
}

void web_serve(struct daemon *d)
{
    uint64_t count;
    struct ull_error err = {""};
    if (read(web.wake, &count, sizeof count) != (ssize_t)sizeof count)
        return;
    pthread_mutex_lock(&web.lock);
    bool asked = web.asked && !web.done, suspend = web.suspend;
    char id[ULL_IPC_JOB_TEXT];
    memcpy(id, web.job, sizeof id);
    pthread_mutex_unlock(&web.lock);
    if (!asked)
        return;
    struct job *job = book_find(d, id);
    ull_status status = !job      ? ull__fail(&err, ULL_E_NOT_FOUND, "there is no job '%s'", id)
                        : suspend ? wish_suspend(d, job, (struct wish){0}, &err)
                                  : wish_resume(d, job, (struct wish){0}, &err);
    web.shown_ns = 0;
    web_show(d);
    pthread_mutex_lock(&web.lock);
    web.done = true;
    web.status = status;
    snprintf(web.answer, sizeof web.answer, "%s",
             status == ULL_OK ? "it is on its way" : err.message);
    pthread_cond_signal(&web.answered);
    pthread_mutex_unlock(&web.lock);
}

/* --- starting --------------------------------------------------------------------------------------------- */

static ull_status read_token(const char *path, struct ull_error *err)
{
    char *text;
    size_t size;
    if (!path[0])
        return ULL_OK;
    ull_status status = ull__file_read(path, TOKEN - 1, &text, &size, err);
    if (status != ULL_OK)
        return status;
    size_t length = strcspn(text, " \t\r\n");
    snprintf(web.token, sizeof web.token, "%.*s", (int)length, text);
    free(text);
    return length >= 8 ? ULL_OK
                       : ull__fail(err, ULL_E_INVALID,
                                   "the token in %.300s has %zu characters: expected 8 to %d", path,
                                   length, TOKEN - 2);
}

static ull_status parse_address(const char *text, struct sockaddr_in *address, struct ull_error *err)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    char *end;
    long port = colon ? strtol(colon + 1, &end, 10) : 0;
    snprintf(host, sizeof host, "%.*s", colon ? (int)(colon - text) : 0, text);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (!colon || *end || port < 1 || port > 65535 ||
        inet_pton(AF_INET, host, &address->sin_addr) != 1)
        return ull__fail(err, ULL_E_INVALID,
                         "listen is '%s': expected an address and a port, as 127.0.0.1:9836", text);
    web.loopback = ntohl(address->sin_addr.s_addr) >> 24 == 127;
    return ULL_OK;
}

ull_status web_start(const struct settings *settings, int *wake, struct ull_error *err)
{
    struct sockaddr_in address;
    *wake = -1;
    if (!settings->listen[0])
        return ULL_OK;
    ull_status status = parse_address(settings->listen, &address, err);
    if (status == ULL_OK)
        status = read_token(settings->token_file, err);
    if (status == ULL_OK && !web.loopback && !web.token[0])
        status = ull__fail(err, ULL_E_INVALID,
                           "listen is '%s', which others can reach: set token_file, or 127.0.0.1",
                           settings->listen);
    if (status != ULL_OK)
        return status;
    web.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    web.server = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, NULL, NULL, serve, NULL,
        MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, OF_ADDRESS, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY, MHD_OPTION_END);
    if (web.wake < 0 || !web.server)
        return ull__fail(err, ULL_E_SYSTEM, "cannot serve at %s: is something else there?",
                         settings->listen);
    web.history = history_open(settings->history);
    *wake = web.wake;
    return ULL_OK;
}

void web_stop(void)
{
    if (web.server)
        MHD_stop_daemon(web.server);
    history_close(web.history);
    free(web.metrics);
    free(web.state);
    if (web.wake >= 0)
        close(web.wake);
}
