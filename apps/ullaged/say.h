/* say.h: what the daemon tells its log: lines on standard error, which systemd ranks by "<N>" in front. */
#ifndef ULLAGED_SAY_H
#define ULLAGED_SAY_H

#include <stdint.h>

enum say_rank { LOG_ERROR = 3, LOG_WARN = 4, LOG_NOTE = 5, LOG_TELL = 6 };

void say(enum say_rank rank, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * One line to systemd ("READY=1"), if it started us with Type=notify; nothing otherwise. See sd_notify(3):
 * a datagram to the socket in NOTIFY_SOCKET.
 */
void notify(const char *state);
/* Within which systemd wants to hear of us again and again; 0: it does not. Only the first call counts. */
uint64_t watchdog_ns(void);
/* Descriptors that systemd listens on for us begin at 3; their number. Only the first call counts. */
int listen_descriptors(void);

#endif
