/*
 * others.h: other daemons on this machine: root's beside a user's, or two users'.
 *
 * They share the cards and do not know of each other's promises. So each says by a locked file in the folder of all
 * ledgers that it is there, and tells its log of the others and what that means.
 */
#ifndef ULLAGED_OTHERS_H
#define ULLAGED_OTHERS_H

#include "daemon.h"

/* Every few seconds: others that came or went are told of. */
void others_look(uint64_t now);
/* How many there are now. */
int others_count(void);
void others_close(void);

#endif
