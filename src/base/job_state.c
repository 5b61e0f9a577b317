/* job_state.c: see job_state.h. */
#include "job_state.h"

const char *ull__job_state_name(enum ull__job_state state)
{
    static const char *const names[] = {
#define X(name, text) text,
        ULL_JOB_STATE_MAP(X)
#undef X
    };
    return (unsigned int)state < sizeof names / sizeof *names ? names[state] : "unknown";
}
