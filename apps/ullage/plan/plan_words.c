/* plan_words.c: figures as words. See plan_words.h. */
#include "plan_words.h"

#include <math.h>
#include <stdio.h>

/* "12.3 ms", "1.25 s"; a sign where `sign`. */
const char *plan_seconds_text(double seconds, bool sign, char *buffer, size_t size)
{
    double amount = fabs(seconds);
    const char *unit = amount < 1e-3 ? "us" : amount < 1 ? "ms" : "s";
    double scale = amount < 1e-3 ? 1e6 : amount < 1 ? 1e3 : 1;
    snprintf(buffer, size, sign ? "%+.*f %s" : "%.*f %s",
             seconds * scale < 100 && seconds * scale > -100 ? 1 : 0, seconds * scale, unit);
    return buffer;
}

const char *plan_bytes_text(int64_t bytes, char buffer[ULL_SIZE_TEXT])
{
    return ull__size_text(bytes > 0 ? (uint64_t)bytes : 0, buffer);
}

const char *plan_count_text(int64_t count, char *buffer, size_t size)
{
    double value = (double)count;
    if (count >= 1000000000) {
        snprintf(buffer, size, "%.2f billion", value / 1e9);
    } else if (count >= 1000000) {
        snprintf(buffer, size, "%.1f million", value / 1e6);
    } else {
        snprintf(buffer, size, "%lld", (long long)count);
    }
    return buffer;
}

/* A role as words. */
const char *plan_role_words(enum ull__role role, char *buffer, size_t size)
{
    snprintf(buffer, size, "%s", ull__role_text(role));
    for (char *at = buffer; *at != '\0'; ++at) {
        *at = *at == '_' ? ' ' : *at;
    }
    return buffer;
}
