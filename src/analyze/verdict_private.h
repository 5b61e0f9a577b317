/* verdict_private.h: what device and host verdicts share. */
#ifndef ULLAGE_VERDICT_PRIVATE_H
#define ULLAGE_VERDICT_PRIVATE_H

#include "size.h"
#include "verdict.h"

void ull__verdict_begin(struct ull__verdict *verdict);
/* Adds a piece of evidence. */
void ull__verdict_say(struct ull__verdict *verdict, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Of what is judged so far and one more: what is worse to have overlooked. */
void ull__verdict_worst(struct ull__verdict *worst, const struct ull__verdict *one, bool first);
const char *ull__verdict_size(double bytes, char text[ULL_SIZE_TEXT]);

#endif
