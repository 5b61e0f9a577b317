/*
 * evict.c: the bytes of our pieces, and of what the program mapped itself, out to host memory and back to the same addresses.
 *
 * A piece that was copied out is unmapped and its memory released at once, so that the card gets free while the rest
 * moves; where that fails or is cancelled, what is out comes back. To come back, memory for all pieces is made
 * before any is mapped. Pieces go one behind the other without a pause: host_store.c is where their bytes go, ring.c
 * makes the copies.
 *
 * Called with the gate closed and the devices at rest, by one thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "async.h"
#include "evict.h"
#include "size.h"

static bool holding;              /* something is out, or was and has not all come back */
static struct ull__piece **items; /* all that can be moved, as of the last look with all of it in */
static size_t item_count;

void ull__evict_forget(void)
{
    ull__ring_forget();
    ull__store_forget();
    holding = false; /* a child has no device memory */
    items = NULL;
    item_count = 0;
}

/* --- devices ----------------------------------------------------------------------------------------------- */

bool ull__use_context(int ordinal)
{
    CUcontext contexts[64];
    int count = ull__block_contexts(contexts, 64);
    for (int i = 0; i < count; i++) {
        CUdevice device = -1;
        if (ull__driver->cuCtxSetCurrent(contexts[i]) == CUDA_SUCCESS &&
            ull__driver->cuCtxGetDevice(&device) == CUDA_SUCCESS &&
            (device == ordinal || ordinal < 0))
            return true;
    }
    return false;
}

/* What can be moved: pieces of ours, and what the program mapped itself. */
static void collect(void)
{
    size_t count;
    ull__async_before_move();
    struct ull__piece *pieces = ull__backing_pieces(&count);
    size_t max = count + ull__handles_count() + ull__async_piece_count();
    free(items);
    items = malloc((max + 1) * sizeof *items);
    item_count = 0;
    for (size_t i = 0; i < count && items; i++)
        if (!pieces[i].stays)
            items[item_count++] = &pieces[i];
    if (items)
        item_count += ull__handles_movable(items + item_count, max - item_count);
    if (items)
        item_count += ull__async_pieces(items + item_count, max - item_count);
}

uint64_t ull__evictable(void)
{
    uint64_t sum = 0;
    if (!holding) /* else the pieces that are out must not be lost sight of */
        collect();
    for (size_t i = 0; i < item_count; i++)
        sum += items[i]->bytes;
    return sum;
}

/* --- out ----------------------------------------------------------------------------------------------------- */

static bool fail(char why[ULL_TROUBLE_TEXT], const char *text)
{
    snprintf(why, ULL_TROUBLE_TEXT, "%s", text);
    return false;
}

static void release(struct ull__piece *piece)
{
    if (piece->pooled) {
        ull__async_unmap(piece);
        return;
    }
    if (piece->object)
        ull__object_unmap(piece);
    else
        ull__driver->cuMemUnmap(piece->base, piece->bytes);
    ull__driver->cuMemRelease(piece->handle);
    piece->handle = 0;
}

/*
 * Pieces whose chunks are on their way, so that the device goes on with the next while the last is still copied. Each
 * has at least one chunk, so no more are on their way than there are buffers.
 */
enum { ON_THE_WAY = RING_MOST + 2 };
struct convoy {
    struct ull__eviction *eviction;
    bool (*arrived)(struct convoy *convoy, struct ull__piece *piece);
    struct ull__piece *piece[ON_THE_WAY];
    uint64_t end[ON_THE_WAY]; /* copies begun when its last one was */
    size_t first, last;
};

/* Begins all chunks of a piece. */
static bool send_chunks(const struct ull__piece *piece)
{
    size_t bytes;
    for (uint64_t at = 0; at < piece->bytes; at += bytes) {
        uint64_t left = piece->bytes - at;
        bool direct = false;
        bytes = ull__store_ready(piece->host + at, &direct);
        size_t most = direct ? RING_DIRECT : RING_BUFFER;
        bytes = bytes < most ? bytes : most;
        bytes = bytes < left ? bytes : (size_t)left;
        if (!ull__ring_copy(piece->host + at, piece->base + at, bytes, direct))
            return false;
    }
    return true;
}

/* Those whose last chunk is there: its buffer was used again since, or all was drained. */
static bool receive(struct convoy *convoy, bool drained)
{
    for (; convoy->first < convoy->last; convoy->first++) {
        size_t at = convoy->first % ON_THE_WAY;
        if (!drained && ull__ring_over() < convoy->end[at])
            return true;
        if (!convoy->arrived(convoy, convoy->piece[at]))
            return false;
        convoy->eviction->progress(convoy->eviction);
    }
    return true;
}

static bool send(struct convoy *convoy, struct ull__piece *piece)
{
    if (convoy->last - convoy->first == ON_THE_WAY && !(ull__ring_drain() && receive(convoy, true)))
        return false;
    convoy->piece[convoy->last % ON_THE_WAY] = piece;
    convoy->end[convoy->last++ % ON_THE_WAY] = UINT64_MAX; /* not yet */
    if (!send_chunks(piece))
        return false;
    convoy->end[(convoy->last - 1) % ON_THE_WAY] = ull__ring_begun();
    return receive(convoy, false);
}

static bool let_go(struct convoy *convoy, struct ull__piece *piece)
{
    release(piece);
    convoy->eviction->moved += piece->bytes;
    convoy->eviction->by_ordinal[piece->ordinal] += piece->bytes;
    return true;
}

static bool evict_device(struct ull__eviction *eviction, int ordinal, char why[ULL_TROUBLE_TEXT])
{
    struct convoy leaving = {.eviction = eviction, .arrived = let_go};
    bool opened = false, good = true, copied = true;
    unsigned char *place =
        ull__store_base(); /* each piece has its own, also one that went out before */
    for (size_t i = 0; i < item_count && good; place += items[i++]->bytes) {
        struct ull__piece *piece = items[i];
        if (piece->ordinal != ordinal || piece->host)
            continue;
        if (!opened && !(ull__use_context(ordinal) && (opened = ull__ring_open(true))))
            return fail(why, "its device could not be used");
        ull__store_prepare();
        if (eviction->cancelled(eviction)) {
            good = fail(why, "it was cancelled");
            break;
        }
        piece->host = place;
        copied = send(&leaving, piece);
        if (!copied)
            good = fail(why, "the device could not copy");
    }
    if (opened && !ull__ring_drain() && copied) {
        copied = false;
        good = fail(why, "the device could not copy");
    }
    if (copied)
        receive(&leaving, true);
    for (; leaving.first < leaving.last; leaving.first++) /* these never left */
        leaving.piece[leaving.first % ON_THE_WAY]->host = NULL;
    if (opened)
        ull__ring_close();
    return good;
}

bool ull__evict(struct ull__eviction *eviction, char why[ULL_TROUBLE_TEXT])
{
    bool good = true;
    eviction->total = ull__evictable();
    if (eviction->total == 0)
        return true;
    if (!holding && !ull__store_open(eviction->total))
        return fail(why, "the host has no memory for it");
    if (!holding)
        ull__async_views_out();
    holding = true;
    for (int ordinal = 0; ordinal < MAX_ORDINALS && good; ordinal++)
        good = evict_device(eviction, ordinal, why);
    ull__store_settle();
    return good;
}

/* --- back ---------------------------------------------------------------------------------------------------- */

static bool make_memory(struct ull__piece *piece)
{
    CUmemAllocationProp properties;
    if (piece->pooled)
        return ull__async_make(piece) == CUDA_SUCCESS;
    if (piece->object)
        ull__object_properties(piece, &properties);
    else
        ull__backing_properties(piece->ordinal, &properties);
    if (ull__driver->cuMemCreate(&piece->handle, piece->bytes, &properties, 0) == CUDA_SUCCESS)
        return true;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    if (!piece->object &&
        ull__driver->cuMemCreate(&piece->handle, piece->bytes, &properties, 0) == CUDA_SUCCESS)
        return true;
    piece->handle = 0;
    return false;
}

/* What was made for pieces that are still out. */
static void unmake_memory(void)
{
    for (size_t i = 0; i < item_count; i++) {
        if (!items[i]->host || !items[i]->handle)
            continue;
        if (items[i]->pooled)
            ull__async_unmake(items[i]);
        else
            ull__driver->cuMemRelease(items[i]->handle);
        items[i]->handle = 0;
    }
}

static CUresult map_piece(const struct ull__piece *piece)
{
    return piece->pooled   ? ull__async_map(piece)
           : piece->object ? ull__object_map(piece)
                           : ull__backing_map(piece);
}

/* Memory for all of them, or for none. */
static bool make_all(char why[ULL_TROUBLE_TEXT])
{
    uint64_t out = 0;
    bool good = true;
    char size[ULL_SIZE_TEXT];
    for (size_t i = 0; i < item_count; i++) {
        if (!items[i]->host)
            continue;
        out += items[i]->bytes;
        good = good && make_memory(items[i]);
    }
    if (good)
        return true;
    unmake_memory();
    snprintf(why, ULL_TROUBLE_TEXT, "the card has no room for the %s that are out",
             ull__size_text(out, size));
    return false;
}

static bool is_back(struct convoy *convoy, struct ull__piece *piece)
{
    struct ull__eviction *eviction = convoy->eviction;
    if (piece->object && ull__object_back(piece) != CUDA_SUCCESS)
        return false;
    piece->host = NULL;
    eviction->moved -= piece->bytes < eviction->moved ? piece->bytes : eviction->moved;
    eviction->by_ordinal[piece->ordinal] -= piece->bytes;
    return true;
}

static bool restore_device(struct ull__eviction *eviction, int ordinal, char why[ULL_TROUBLE_TEXT])
{
    struct convoy coming = {.eviction = eviction, .arrived = is_back};
    bool opened = false, good = true, sent = true;
    for (size_t i = 0; i < item_count && good; i++) {
        struct ull__piece *piece = items[i];
        if (piece->ordinal != ordinal || !piece->host)
            continue;
        if (!opened && !(ull__use_context(ordinal) && (opened = ull__ring_open(false))))
            return fail(why, "its device could not be used");
        if (map_piece(piece) != CUDA_SUCCESS)
            good = fail(why, "the device could not map its memory");
        else if (!(sent = send(&coming, piece)))
            good =
                fail(why, "the device could not copy, or give its memory the rights that it had");
    }
    if (opened && !(ull__ring_drain() && sent && receive(&coming, true)) && good)
        good = fail(why, "the device could not copy, or give its memory the rights that it had");
    for (; coming.first < coming.last; coming.first++) /* these are still out */
        release(coming.piece[coming.first % ON_THE_WAY]);
    if (opened)
        ull__ring_close();
    return good;
}

bool ull__restore(struct ull__eviction *eviction, char why[ULL_TROUBLE_TEXT])
{
    if (!holding)
        return true;
    if (!make_all(why))
        return false;
    for (int ordinal = 0; ordinal < MAX_ORDINALS; ordinal++)
        if (!restore_device(eviction, ordinal, why)) {
            unmake_memory(); /* what is back stays back; the rest can be tried again */
            return false;
        }
    if (ull__async_views_in() != CUDA_SUCCESS)
        return fail(why, "the device could not map its memory a second time");
    ull__store_unpin(NULL, NULL); /* what was not yet: frees of pinned memory wait for the devices */
    holding = false;
    return true;
}
