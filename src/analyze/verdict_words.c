/* verdict_words.c: see verdict_private.h. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "verdict_private.h"

const char *ull__verdict_name(enum ull__verdict_kind kind)
{
    static const char *const names[] = {"unknown", "steady", "cache", "leak"};
    return (unsigned int)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

void ull__verdict_begin(struct ull__verdict *verdict)
{
    memset(verdict, 0, sizeof *verdict);
    verdict->process = UINT32_MAX;
    verdict->period_seconds = verdict->bytes_per_period = verdict->bytes_per_second = (double)NAN;
}

void ull__verdict_say(struct ull__verdict *verdict, const char *format, ...)
{
    va_list args;
    if (verdict->evidence_count == ULL_EVIDENCE)
        return;
    va_start(args, format);
    vsnprintf(verdict->evidence[verdict->evidence_count++], ULL_EVIDENCE_TEXT, format, args);
    va_end(args);
}

/* What is worse to have overlooked. */
static int badness(enum ull__verdict_kind kind)
{
    static const int order[] = {
        [ULL_VERDICT_STEADY] = 0, [ULL_VERDICT_CACHE] = 1, [ULL_VERDICT_UNKNOWN] = 2, [ULL_VERDICT_LEAK] = 3};
    return order[kind];
}

void ull__verdict_worst(struct ull__verdict *worst, const struct ull__verdict *one, bool first)
{
    int before = badness(worst->kind), now = badness(one->kind);
    bool leak = one->kind == ULL_VERDICT_LEAK;
    /* Of two leaks the surer one; of two others the less sure. */
    if (first || now > before ||
        (now == before &&
         (leak ? one->confidence > worst->confidence : one->confidence < worst->confidence)))
        *worst = *one;
}

const char *ull__verdict_size(double bytes, char text[ULL_SIZE_TEXT])
{
    if (bytes > 9e18)
        bytes = 9e18;
    if (bytes > 0 && bytes < 9.5) { /* a slope */
        snprintf(text, ULL_SIZE_TEXT, "%.2g B", bytes);
        return text;
    }
    return ull__size_text(bytes > 0 ? (uint64_t)(bytes + 0.5) : 0, text);
}
