/* load.h: a history from a record. */
#ifndef ULLAGE_LOAD_H
#define ULLAGE_LOAD_H

#include "history.h"

/*
 * Reads the record at `path`, which may still grow. *history is finished and the caller's to destroy.
 *
 * A record that was cut, or has blocks of writers that were killed, is loaded as far as it goes: history->truncated
 * and torn_blocks say so. ULL_E_FORMAT with the offset in *err: it is damaged, or no record at all.
 * ULL_E_NOT_FOUND, ULL_E_PERMISSION, ULL_E_SYSTEM.
 */
ull_status ull__history_load(const char *path, struct ull__history **history, struct ull_error *err);

#endif
