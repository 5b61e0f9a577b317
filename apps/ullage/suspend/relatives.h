/*
 * relatives.h: the jobs around a job, and those inside it. A process is a member of its job and of all around that, and
 * is out as long as any of them wants it; each of their ledgers says where its memory is.
 *
 * Processes that move themselves see to that (src/ledger/control.c). This is for those that the driver moves.
 */
#ifndef ULLAGE_RELATIVES_H
#define ULLAGE_RELATIVES_H

#include "control.h"

enum { RELATIVES_AROUND = 8 };

struct relatives {
    struct ull__ledger *around[RELATIVES_AROUND]; /* the nearest first */
    struct ull__ledger **inside;
    int around_count, inside_count;
};

/* Opens their ledgers: those around always, those inside if asked for. What cannot be read is passed over. */
void relatives_open(struct relatives *relatives, struct ull__ledger *ledger, bool inside);
void relatives_close(struct relatives *relatives);

/* The nearest job around that wants to be out, or NULL. */
struct ull__ledger *relatives_out_around(const struct relatives *relatives);
/* Does a job inside that has this process want to be out? */
bool relatives_keep_out(const struct relatives *relatives, const struct ull__process_view *process);
/* Tells all of them where the process's memory is. */
void relatives_report(const struct relatives *relatives, const struct ull__process_view *process,
                      enum ull__residency residency);

#endif
