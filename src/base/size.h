/*
 * size.h: sizes as people write and read them.
 *
 * 4GiB, 4G, 4096M, 512Ki are 1024-based, 4GB is decimal, a bare number is bytes; 1.5GiB is allowed
 * where it is a whole number of bytes or is rounded down to one. 40% is a share, where the caller
 * allows shares. Anything else is refused with a message that names the text.
 */
#ifndef ULLAGE_SIZE_H
#define ULLAGE_SIZE_H

#include <stddef.h>
#include <stdint.h>

#include "ullage/status.h"

struct ull_size {
    uint64_t bytes; /* when percent is 0 */
    double percent; /* 0 < percent <= 100, or 0 for an absolute size */
};

/* Parses a size of at least one byte. ULL_E_INVALID: bad text, zero, negative, above 2^63 - 1. */
ull_status ull__size_parse(const char *text, uint64_t *bytes, struct ull_error *err);

/* The same, and also "N%" with 0 < N <= 100. */
ull_status ull__size_or_share_parse(const char *text, struct ull_size *size, struct ull_error *err);

/*
 * Writes bytes for a person in 1024-based units with one digit ("3.4 GiB", "512 B", "2.0 MiB") and
 * returns buffer. 16 bytes always suffice.
 */
#define ULL_SIZE_TEXT 16
const char *ull__size_text(uint64_t bytes, char buffer[ULL_SIZE_TEXT]);

/* The same, but rounded up: for what is needed, so that whoever types it as a limit has enough. */
const char *ull__size_text_up(uint64_t bytes, char buffer[ULL_SIZE_TEXT]);

#endif
