/* words.h: small pieces of text that the text formats share. */
#ifndef ULLAGE_REPORT_WORDS_H
#define ULLAGE_REPORT_WORDS_H

#include "report.h"

enum { WORDS_TEXT = 64 };

/* "1,234". */
const char *words_count(uint64_t count, char text[WORDS_TEXT]);
/* "90 ns", "12 us", "3.4 ms", "1.2 s", "3 min 20 s", "2 h 5 min"; "-" for NaN. */
const char *words_time(double seconds, char text[WORDS_TEXT]);
/* "15 %"; "-" for NaN. */
const char *words_percent(double ratio, char text[WORDS_TEXT]);
/* A device as -m and nvidia-smi count it: "device 0". */
const char *words_device(const struct ull__history *history, uint32_t device, char text[WORDS_TEXT]);

/* Writes text with line breaks at blanks, `indent` columns from the left and up to `width`; the first line is
 * continued where the caller left off. */
void words_wrap(FILE *out, const char *text, int indent, int width);

/* Writes what cannot move the cursor: control characters become '?'. */
void words_plain(FILE *out, const char *text);

#endif
