/*
 * collect.h: makes samples, round after round.
 *
 * Asks the ledgers, NVML and /proc; makes no context. NVML stays open between rounds; where there is none it
 * is tried again now and then. One thread at a time; may take as long as the driver does.
 */
#ifndef ULLAGE_TOP_COLLECT_H
#define ULLAGE_TOP_COLLECT_H

#include "sample.h"

struct collector;

/* Opens nothing yet. NULL without memory. */
struct collector *collector_create(void);
void collector_destroy(struct collector *collector);

/* A new sample, which the caller destroys; NULL without memory. */
struct sample *collector_round(struct collector *collector);

#endif
