/*
 * check.h: conditions on a job, as `ullage ps --check 'held>90% and refusals>0'` takes them.
 *
 * Pure functions of a text and of figures. A condition is FIELD OPERATOR VALUE. "and" binds stronger
 * than "or"; there are no parentheses. A share is of the budget, and for the budget itself of the card.
 */
#ifndef ULLAGE_CHECK_H
#define ULLAGE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/status.h"

/* Of one job (or child of --each) on one device. */
struct check_facts {
    uint64_t held, peak, average, budget, total; /* bytes */
    uint64_t refusals, processes, outside;
};

enum check_field {
    CHECK_HELD,
    CHECK_PEAK,
    CHECK_AVERAGE,
    CHECK_FREE, /* budget - held */
    CHECK_BUDGET,
    CHECK_REFUSALS,
    CHECK_PROCESSES,
    CHECK_OUTSIDE,
    CHECK_FIELDS
};

enum check_relation { CHECK_LE, CHECK_GE, CHECK_NE, CHECK_EQ, CHECK_LT, CHECK_GT, CHECK_OPERATORS };

enum { CHECK_CONDITIONS = 16, CHECK_TEXT = 512 };

struct check {
    int count;
    struct {
        enum check_field field;
        enum check_relation relation;
        uint64_t number;  /* bytes, or a count */
        double percent;   /* 0: number counts */
        bool alternative; /* after "or" */
    } condition[CHECK_CONDITIONS];
};

/* ULL_E_INVALID: the message names what cannot be read, and what was expected. */
ull_status check_parse(const char *text, struct check *check, struct ull_error *err);
bool check_holds(const struct check *check, const struct check_facts *facts);
/* "held 3.8 GiB, refusals 2": the figures that the conditions are about. */
void check_tell(const struct check *check, const struct check_facts *facts, char text[CHECK_TEXT]);

#endif
