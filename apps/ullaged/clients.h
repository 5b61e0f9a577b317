/*
 * clients.h: who is connected to the socket.
 *
 * A client is known by SO_PEERCRED. What it sends is bounded: messages of 2 KiB, a hundred at once and then fifty a
 * second, so many connections a user. One that does not read is not waited for: its progress is left
 * out, and when its answers do not fit any more it is cut off.
 */
#ifndef ULLAGED_CLIENTS_H
#define ULLAGED_CLIENTS_H

#include "daemon.h"

/* Binds the socket, unless systemd did. ULL_E_STARTED: another daemon answers there. */
ull_status clients_listen(const char *path, int *fd, struct ull_error *err);
void clients_accept(struct daemon *d, int listener);
/* Something can be read or written. False if no client has this descriptor. */
bool clients_ready(struct daemon *d, int fd, uint32_t events);
/* Ten times a second: who was too fast may go on, and who waits hears why. */
void clients_tick(struct daemon *d);
void clients_close(struct daemon *d);

#endif
