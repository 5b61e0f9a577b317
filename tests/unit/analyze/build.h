/* build.h: histories for tests, event by event. */
#ifndef ULLAGE_TEST_BUILD_H
#define ULLAGE_TEST_BUILD_H

#include "facts.h"

/* One process, one device of 16 GiB. */
struct ull__history *build_history(void);
/* Adds an event of process 0 and device 0; fields that differ are set through the pointer, valid until the next. */
struct ull__event *build_event(struct ull__history *history, uint64_t time_ns,
                               enum ull__event_kind kind, uint64_t address, uint64_t size);
/* Finishes; the facts own nothing but themselves. */
struct ull__facts *build_facts(struct ull__history *history);
/* The facts and their history. */
void build_free(struct ull__facts *facts);

#endif
