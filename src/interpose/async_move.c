/*
 * async_move.c: the pages of our pools as pieces that evict.c moves: runs of pages as home has them. Views of them
 * are unmapped before the first goes, and mapped again when all are back.
 *
 * Free pages have no bytes worth keeping: they are given back before, in the books too, and are taken anew
 * when the program needs them. Free parts of pages that are also in use move along.
 */
#include <stdlib.h>
#include <string.h>

#include "async.h"
#include "move.h"

enum { MOST_PAGES = 64 }; /* of a piece, so that the card gets free while the rest moves */

struct async_piece {
    struct ull__piece piece; /* first */
    struct ull__async *async;
    struct ull__run run;
};

static struct async_piece *pieces;
static size_t count;
static bool out; /* views are, and the books do not change with pages */

void ull__async_move_forget(void)
{
    pieces = NULL; /* the parent's */
    count = 0;
    out = false;
}

static const struct async_piece *of(const struct ull__piece *piece)
{
    return (const struct async_piece *)piece;
}

static struct ull_pool *pool_of(const struct ull__piece *piece)
{
    return ull__async_pool(of(piece)->async);
}

void ull__async_before_move(void)
{
    ull__async_trim(NULL, 0);
}

/* --- pieces -------------------------------------------------------------------------------------------------- */

static size_t add_runs(int ordinal, size_t at, size_t max)
{
    struct ull__async *async = ull__async_of(ordinal);
    struct ull__run *runs = async && max > at ? malloc((max - at) * sizeof *runs) : NULL;
    if (!async || (max > 0 && !runs))
        return at;
    size_t found = ull__move_runs(ull__async_pool(async), MOST_PAGES, runs, runs ? max - at : 0);
    for (size_t i = 0; i < found && runs; i++)
        pieces[at + i] = (struct async_piece){.piece = {.base = runs[i].address,
                                                        .bytes = runs[i].bytes,
                                                        .ordinal = ordinal,
                                                        .pooled = true,
                                                        .handle = 1},
                                              .async = async,
                                              .run = runs[i]};
    free(runs);
    return at + found;
}

size_t ull__async_piece_count(void)
{
    size_t most = 0;
    for (int i = 0; i < MAX_ORDINALS; i++)
        most = add_runs(i, most, 0);
    return most;
}

size_t ull__async_pieces(struct ull__piece **list, size_t max)
{
    size_t most = ull__async_piece_count(), at = 0;
    free(pieces);
    pieces = calloc(most + 1, sizeof *pieces);
    most = most < max ? most : max;
    for (int i = 0; i < MAX_ORDINALS && pieces; i++)
        at = add_runs(i, at, most);
    count = pieces ? at : 0;
    for (size_t i = 0; i < count; i++)
        list[i] = &pieces[i].piece;
    return count;
}

/* --- moving -------------------------------------------------------------------------------------------------- */

static void set_moving(bool moving)
{
    for (int i = 0; i < MAX_ORDINALS; i++) {
        struct ull__async *async = ull__async_of(i);
        if (async)
            ull__async_device_moving(async->device, moving);
    }
    out = moving;
}

void ull__async_views_out(void)
{
    if (out)
        return;
    set_moving(true);
    for (int i = 0; i < MAX_ORDINALS; i++)
        if (ull__async_of(i))
            ull__move_views_out(ull__async_pool(ull__async_of(i)));
}

CUresult ull__async_views_in(void)
{
    ull_status status = ULL_OK;
    int done = 0;
    if (!out)
        return CUDA_SUCCESS;
    for (; done < MAX_ORDINALS && status == ULL_OK; done++)
        if (ull__async_of(done))
            status = ull__move_views_in(ull__async_pool(ull__async_of(done)));
    if (status == ULL_OK) {
        set_moving(false);
        return CUDA_SUCCESS;
    }
    for (int i = 0; i < done - 1; i++) /* all of them the next time */
        if (ull__async_of(i))
            ull__move_views_out(ull__async_pool(ull__async_of(i)));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ull__async_make(struct ull__piece *piece)
{
    if (ull__move_make(pool_of(piece), &of(piece)->run) != ULL_OK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    piece->handle = 1; /* there are pages for it */
    return CUDA_SUCCESS;
}

void ull__async_unmake(struct ull__piece *piece)
{
    ull__move_unmake(pool_of(piece), &of(piece)->run);
    piece->handle = 0;
}

CUresult ull__async_map(const struct ull__piece *piece)
{
    return ull__move_map(pool_of(piece), &of(piece)->run) == ULL_OK ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_OUT_OF_MEMORY;
}

void ull__async_unmap(struct ull__piece *piece)
{
    ull__move_unmap(pool_of(piece), &of(piece)->run);
    piece->handle = 0;
}
