/* plan_offsets.h: `ullage plan --offsets FILE`: lifetimes to offsets. */
#ifndef ULLAGE_PLAN_OFFSETS_COMMAND_H
#define ULLAGE_PLAN_OFFSETS_COMMAND_H

#include <stdbool.h>

/* Is there the option --offsets among the words? */
bool plan_offsets_is_meant(int argc, char **argv);

/* Returns the exit code. argv begins with "plan". */
int plan_offsets(int argc, char **argv);

#endif
