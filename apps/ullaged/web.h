/*
 * web.h: the page and the metrics, over HTTP by libmicrohttpd on a thread of its own.
 *
 * What is served is text that the loop made a moment ago, so a scrape never waits for a driver. On a
 * loopback address reading needs nothing; elsewhere all needs the token. Acting always needs it, in a header, so that
 * no other page can do it with a browser's help; and a request must name this host, so that no other name can be
 * made to lead here.
 */
#ifndef ULLAGED_WEB_H
#define ULLAGED_WEB_H

#include "daemon.h"

/* ULL_E_INVALID: the address; ULL_E_SYSTEM: taken, or the token cannot be read. *wake becomes readable on a wish. */
ull_status web_start(const struct settings *settings, int *wake, struct ull_error *err);
/* Once a second, or when something happened. */
void web_show(struct daemon *d);
/* Carries out what was wished on the page. */
void web_serve(struct daemon *d);
void web_stop(void);

/* state.c: as metrics and as JSON; the caller frees. NULL without memory. */
char *state_metrics(const struct daemon *d);
char *state_json(const struct daemon *d);

/* page.c */
extern const char page_html[], page_js[], page_css[];

/* --- history.c: what the cards held, in a database of bounded size --- */

struct history;
/* Keeps nothing and returns NULL if it cannot be opened. */
struct history *history_open(const char *path);
void history_close(struct history *history);
struct history_sample {
    char uuid[ULL_UUID_TEXT];
    uint64_t used_bytes, held_bytes, capacity_bytes;
    int jobs;
};
void history_add(struct history *history, const struct history_sample *samples, int count);
/* The last so many seconds as JSON: [{"time":, "uuid":, "used_bytes":, ...}, ...]. The caller frees. */
char *history_json(struct history *history, uint64_t seconds);

#endif
