/* error.c: statuses as text, messages into a struct ull_error. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

const char *ull_status_name(ull_status status)
{
    switch (status) {
#define X(name, value, text)                                                                       \
    case ULL_##name:                                                                               \
        return "ULL_" #name;
        ULL_STATUS_MAP(X)
#undef X
    }
    return "ULL_UNKNOWN";
}

const char *ull_status_text(ull_status status)
{
    switch (status) {
#define X(name, value, text)                                                                       \
    case ULL_##name:                                                                               \
        return text;
        ULL_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

ull_status ull__fail(struct ull_error *err, ull_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
    }
    return status;
}
