/* event.c: see event.h. */
#include "event.h"

const char *ull__event_name(enum ull__event_kind kind)
{
    static const char *const names[] = {"?",
#define X(name, text) text,
                                        ULL_EVENT_MAP(X)
#undef X
    };
    return (unsigned int)kind < ULL_EVENT_KINDS ? names[kind] : "?";
}
