/* plan_words.h: figures as words, the same in all tables of `ullage plan`. Each returns buffer. */
#ifndef ULLAGE_PLAN_WORDS_H
#define ULLAGE_PLAN_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "size.h"
#include "type.h"

/* "12.3 ms", "1.25 s"; a sign where `sign`. */
const char *plan_seconds_text(double seconds, bool sign, char *buffer, size_t size);
/* Negative ones are 0. */
const char *plan_bytes_text(int64_t bytes, char buffer[ULL_SIZE_TEXT]);
/* "124.4 million" */
const char *plan_count_text(int64_t count, char *buffer, size_t size);
/* "optimizer state" */
const char *plan_role_words(enum ull__role role, char *buffer, size_t size);

#endif
