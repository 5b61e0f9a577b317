/* self.h: who this process is, as /proc says, and its standard streams. */
#ifndef ULLAGE_SELF_H
#define ULLAGE_SELF_H

#include <stdint.h>

enum { ULL_OWN_COMMAND = 64 };

/* Field 22 of /proc/self/stat: when the process started, in clock ticks after boot; 0: not known. */
uint64_t ull__own_start_ticks(void);
void ull__own_command(char command[ULL_OWN_COMMAND]);

/*
 * For a program of our own, before it opens anything: what is opened later must not get the number of a standard stream that
 * was closed, or what is printed goes there. Reading and writing fails as before, and what is started sees them closed.
 */
void ull__hold_standard_streams(void);

#endif
