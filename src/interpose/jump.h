/* jump.h: the exported entry points (jump.S) and the driver behind them. */
#ifndef ULLAGE_JUMP_H
#define ULLAGE_JUMP_H

#include "cuda_load.h"

/* The real driver, loaded on first use; NULL if there is none. */
const union ull__cuda *ull__jump_driver(void);

/* The dynamic linker's own dlopen, behind our hook of that name. */
void *ull__real_open(const char *path, int flags);

#endif
