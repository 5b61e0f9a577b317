/* error.h: filling a struct ull_error. */
#ifndef ULLAGE_ERROR_H
#define ULLAGE_ERROR_H

#include "ullage/status.h"

/* Writes the message when err is not NULL, and returns status so that a caller can return both. */
ull_status ull__fail(struct ull_error *err, ull_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
