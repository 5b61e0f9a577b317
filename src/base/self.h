/* self.h: who this process is, as /proc says. */
#ifndef ULLAGE_SELF_H
#define ULLAGE_SELF_H

#include <stdint.h>

enum { ULL_OWN_COMMAND = 64 };

/* Field 22 of /proc/self/stat: when the process started, in clock ticks after boot; 0: not known. */
uint64_t ull__own_start_ticks(void);
void ull__own_command(char command[ULL_OWN_COMMAND]);

#endif
