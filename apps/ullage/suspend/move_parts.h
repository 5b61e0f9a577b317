/*
 * move_parts.h: one move, out or back, of a job and its group: what mover.c carries out and may_move.c looks at before.
 */
#ifndef ULLAGE_MOVE_PARTS_H
#define ULLAGE_MOVE_PARTS_H

#include "mover.h"
#include "relatives.h"

/* A job that is moved: the one that was named is the first, the others are of its group. */
struct move_part {
    struct ull__ledger *ledger;
    struct relatives relatives;
    uint64_t number; /* of the command */
};

struct move {
    struct move_part *parts;
    int count;
    const struct move_options *options;
    bool out;
    bool stopped;
    bool moves_shared; /* known: the driver moves what is shared */
    struct move_progress progress;
};

/* A process by the part it is in and its slot there. */
struct move_place {
    int part, slot;
};

/* The processes of all parts that are alive, from `at` on; false when there are no more. */
static inline bool move_next(const struct move *move, struct move_place *at,
                             struct ull__process_view *process)
{
    for (; at->part < move->count; at->part++, at->slot = 0)
        for (; at->slot < ULL_MAX_SLOTS; at->slot++)
            if (ull__ledger_process(move->parts[at->part].ledger, at->slot, process) &&
                !process->draining)
                return true;
    return false;
}

/* What a process holds of all devices, in bytes, with what is out. */
static inline uint64_t move_held(const struct ull__process_view *process)
{
    uint64_t sum = 0;
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        sum += process->usage[d].held_bytes;
    return sum;
}

/* --- may_move.c: before anything moves ------------------------------------------------------------------- */

/*
 * Whether all of it may go out: it is where it can, the driver brings back what it moves, the host has room, and the
 * group's collectives wait for so long. Errors as job_move_out; notes in *move whether the driver moves what is shared.
 */
ull_status may_move_out(struct move *move, struct ull_error *err);
/* Only whether it is out, and not with a job around it. */
ull_status may_move_back(const struct move *move, struct ull_error *err);
/* Seconds that they may be away for before their collectives give up; 0: for ever. */
unsigned int move_patience(const struct move *move);

#endif
