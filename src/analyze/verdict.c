/* verdict.c: see verdict.h. */
#include "verdict.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *ull__verdict_name(enum ull__verdict_kind kind)
{
    static const char *const names[] = {"unknown", "steady", "cache", "leak"};
    return (unsigned int)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

static ull_status none(struct ull__verdict *verdict)
{
    memset(verdict, 0, sizeof *verdict);
    verdict->process = UINT32_MAX;
    verdict->period_seconds = verdict->bytes_per_period = verdict->bytes_per_second = (double)NAN;
    return ULL_OK;
}

ull_status ull__verdict_device(const struct ull__facts *facts, struct ull__verdict *verdict,
                               struct ull_error *err)
{
    (void)facts;
    (void)err;
    return none(verdict);
}

ull_status ull__verdict_host(const struct ull__facts *facts, struct ull__verdict *verdict,
                             struct ull_error *err)
{
    (void)facts;
    (void)err;
    return none(verdict);
}
