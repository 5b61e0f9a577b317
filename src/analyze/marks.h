/*
 * marks.h: the lowest that a process fell to in each piece of its life: what trends are judged from.
 *
 * Pieces are its periods where there are any, else equal numbers of allocations, or equal times for programs that
 * hardly allocate. The last piece, which is not whole, is left out.
 */
#ifndef ULLAGE_MARKS_H
#define ULLAGE_MARKS_H

#include "period.h"
#include "walk.h"

enum { ULL_WINDOWS = 64 };

enum ull__pieces { ULL_PIECES_NONE, ULL_PIECES_PERIODS, ULL_PIECES_ALLOCS, ULL_PIECES_TIMES };

struct ull__marks {
    double *live, *blocks; /* `count` of each */
    size_t count, capacity;
    enum ull__pieces pieces;
    double held[ULL_WINDOWS]; /* by time, whatever the pieces are */
    size_t held_count;
    uint64_t peak;             /* of held */
    uint64_t begin_ns, end_ns; /* of the process, as far as is known */
    double freed;              /* bytes, of what was live */
    double turnovers;          /* how often the usual byte was allocated anew; 0: none was freed */

    /* While it is filled. */
    struct ull__low {
        uint64_t live, held;
        uint32_t blocks;
    } state, low, held_low; /* now, and the lowest of the piece and of the window by time */
    bool any;
    uint64_t allocs;
    double ages[64]; /* bytes freed by how many allocations ago they came, by powers of two */
};

/* By process; those without memory events have no marks. NULL without memory. */
struct ull__marks *ull__marks_collect(const struct ull__facts *facts,
                                      const struct ull__periods *periods);
void ull__marks_destroy(struct ull__marks *marks, uint32_t process_count);

#endif
