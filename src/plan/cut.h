/*
 * cut.h: a program cut into units, and what a device needs that has some of them: the part of parallel.h that looks at one
 * schedule.
 */
#ifndef ULLAGE_PLAN_CUT_H
#define ULLAGE_PLAN_CUT_H

#include "parallel.h"

/* A program's units: blocks of the forward pass with the backward pass and the update that belong to them. */
struct ull__units {
    const struct ull__program *program;
    int count;
    int64_t values[ULL_SYMBOLS];
    int *of_item; /* by item */
    int *first_reader,
        *last_reader;   /* by buffer: the units between which it is read; ULL_NONE: nobody */
    bool *home;         /* by buffer and unit: what is persistent lies there */
    const char **names; /* in the graph's memory, or the operators' */
};

/* False without memory. */
bool ull__units_create(const struct ull__program *program, const int64_t *values,
                       struct ull__units *units);
void ull__units_destroy(struct ull__units *units);

/* Whether a persistent buffer lies where the unit does. */
bool ull__unit_home(const struct ull__units *units, int buffer, int unit);
/* The weights that a buffer belongs to: itself, or what it is a gradient or state of. ULL_NONE: neither. */
int ull__unit_parameter(const struct ull__program *program, int buffer);

/* A schedule by units. */
struct ull__cut_schedule;

/* What is dropped but passes from one device to another is kept: `cut` says behind which units a device ends; NULL: nowhere. */
struct ull__cut_schedule *ull__cut_create(const struct ull__units *units,
                                          const struct ull__profile *profile,
                                          const struct ull__decision *decision, const bool *cut);
void ull__cut_destroy(struct ull__cut_schedule *cut);

/* Fills in a stage whose first, last and in_flight are set. `placed`: with addresses. False without memory. */
bool ull__cut_stage(const struct ull__cut_schedule *cut, bool placed, struct ull__stage *stage);

#endif
