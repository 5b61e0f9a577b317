/*
 * collective.c: see collective.h.
 *
 * Data goes through the slots a piece at a time. What is reduced is cut over the ranks: each element is reduced by one rank, over the
 * slots from that of rank 0 on, and all take what it has made. So all have the same bits, whoever came first.
 */
#include "collective.h"

#include <string.h>

#include "half.h"
#include "ops.h"

struct place {
    struct ull__world *world;
    const struct ull__collective_run *run;
    int rank, ranks;
    size_t width; /* bytes of an element */
};

static size_t width_of(enum ull__type type)
{
    return (size_t)ull__type_bits(type) / 8;
}

static int64_t whole_of(const struct ull__collective_run *run)
{
    return run->outer * run->whole * run->inner;
}

static int64_t part_of(const struct ull__collective_run *run)
{
    return run->outer * ((run->whole + run->ranks - 1) / run->ranks) * run->inner;
}

size_t ull__collective_from_bytes(const struct ull__collective_run *run)
{
    int64_t elements = run->kind == ULL_ALL_GATHER ? part_of(run) : whole_of(run);
    return (size_t)elements * width_of(run->type);
}

size_t ull__collective_to_bytes(const struct ull__collective_run *run)
{
    bool part = run->kind == ULL_REDUCE_SCATTER || run->kind == ULL_OWN_PART;
    return (size_t)(part ? part_of(run) : whole_of(run)) * width_of(run->type);
}

/* --- Reducing --- */

enum { TILE = 1024 };

static void reduce_floats(const struct place *at, size_t offset, void *to, int64_t count)
{
    float sum[TILE], other[TILE];
    enum ull__type type = at->run->type;
    for (int64_t first = 0; first < count; first += TILE) {
        int64_t n = count - first < TILE ? count - first : TILE;
        size_t here = offset + (size_t)first * at->width;
        ull__load_f32(type, ull__world_slot(at->world, 0) + here, sum, n);
        for (int rank = 1; rank < at->ranks; ++rank) {
            ull__load_f32(type, ull__world_slot(at->world, rank) + here, other, n);
            for (int64_t i = 0; i < n; ++i) {
                /* What is no number stays so. */
                bool over = !(other[i] <= sum[i]) && sum[i] == sum[i];
                sum[i] = at->run->reduce == ULL_REDUCTION_MAX ? (over ? other[i] : sum[i])
                                                              : sum[i] + other[i];
            }
        }
        for (int64_t i = 0; i < n && at->run->reduce == ULL_REDUCTION_MEAN; ++i) {
            sum[i] /= (float)at->ranks;
        }
        ull__store_f32(type, sum, (char *)to + (size_t)first * at->width, n);
    }
}

static int64_t load_whole(enum ull__type type, const char *from)
{
    int64_t wide;
    int32_t narrow;
    memcpy(&wide, from, type == ULL_TYPE_I64 ? sizeof(wide) : 0);
    memcpy(&narrow, from, type == ULL_TYPE_I32 ? sizeof(narrow) : 0);
    return type == ULL_TYPE_I64   ? wide
           : type == ULL_TYPE_I32 ? narrow
                                  : *(const unsigned char *)from;
}

static void reduce_wholes(const struct place *at, size_t offset, char *to, int64_t count)
{
    enum ull__type type = at->run->type;
    for (int64_t i = 0; i < count; ++i) {
        size_t here = (size_t)i * at->width;
        int64_t made = load_whole(type, ull__world_slot(at->world, 0) + offset + here);
        for (int rank = 1; rank < at->ranks; ++rank) {
            int64_t other = load_whole(type, ull__world_slot(at->world, rank) + offset + here);
            bool largest = at->run->reduce == ULL_REDUCTION_MAX || type == ULL_TYPE_BOOL;
            made = largest ? (other > made ? other : made)
                           : (int64_t)((uint64_t)made + (uint64_t)other);
        }
        made = at->run->reduce == ULL_REDUCTION_MEAN ? made / at->ranks : made;
        int32_t narrow = (int32_t)made;
        unsigned char byte = (unsigned char)made;
        memcpy(to + here,
               type == ULL_TYPE_I64   ? (void *)&made
               : type == ULL_TYPE_I32 ? (void *)&narrow
                                      : (void *)&byte,
               at->width);
    }
}

static void reduce(const struct place *at, size_t offset, void *to, int64_t count)
{
    if (ull__type_is_float(at->run->type)) {
        reduce_floats(at, offset, to, count);
    } else {
        reduce_wholes(at, offset, to, count);
    }
}

/* --- The kinds --- */

static ull_status all_reduce(const struct place *at, struct ull_error *err)
{
    int64_t count = whole_of(at->run), most = (int64_t)(ULL_WORLD_SLOT / at->width);
    ull_status status = ULL_OK;
    for (int64_t first = 0; first < count && status == ULL_OK; first += most) {
        int64_t n = count - first < most ? count - first : most;
        size_t offset = (size_t)first * at->width;
        int64_t begin = n * at->rank / at->ranks, end = n * (at->rank + 1) / at->ranks;
        memcpy(ull__world_slot(at->world, at->rank), (const char *)at->run->from + offset,
               (size_t)n * at->width);
        status = ull__world_meet(at->world, err);
        if (status == ULL_OK) {
            size_t own = (size_t)begin * at->width;
            reduce(at, own, ull__world_result(at->world) + own, end - begin);
            status = ull__world_meet(at->world, err);
        }
        if (status == ULL_OK) {
            memcpy((char *)at->run->to + offset, ull__world_result(at->world), (size_t)n * at->width);
        }
    }
    return status;
}

/* One row of outer: `length` elements each of `whole`. Pieces of all parts lie side by side in a slot. */
static ull_status scatter_row(const struct place *at, const char *from, char *to, int64_t length,
                              int64_t whole, struct ull_error *err)
{
    int64_t most = (int64_t)(ULL_WORLD_SLOT / at->width) / at->ranks;
    ull_status status = ULL_OK;
    for (int64_t first = 0; first < length && status == ULL_OK; first += most) {
        int64_t n = length - first < most ? length - first : most;
        char *slot = ull__world_slot(at->world, at->rank);
        for (int part = 0; part < at->ranks; ++part) {
            int64_t begin = part * length + first;
            int64_t there = begin >= whole ? 0 : whole - begin < n ? whole - begin : n;
            memcpy(slot, from + (size_t)begin * at->width * (there > 0), (size_t)there * at->width);
            memset(slot + (size_t)there * at->width, 0, (size_t)(n - there) * at->width);
            slot += (size_t)n * at->width;
        }
        status = ull__world_meet(at->world, err);
        if (status == ULL_OK) {
            reduce(at, (size_t)(at->rank * n) * at->width, to + (size_t)first * at->width, n);
            status = ull__world_meet(at->world, err);
        }
    }
    return status;
}

/* From the last piece on: where `from` is `to`, what is not sent yet lies before what is written. */
static ull_status gather_row(const struct place *at, const char *from, char *to, int64_t length,
                             int64_t whole, struct ull_error *err)
{
    int64_t most = (int64_t)(ULL_WORLD_SLOT / at->width);
    ull_status status = ULL_OK;
    for (int64_t first = (length - 1) / most * most; first >= 0 && status == ULL_OK; first -= most) {
        int64_t n = length - first < most ? length - first : most;
        memcpy(ull__world_slot(at->world, at->rank), from + (size_t)first * at->width,
               (size_t)n * at->width);
        status = ull__world_meet(at->world, err);
        for (int part = 0; part < at->ranks && status == ULL_OK; ++part) {
            int64_t begin = part * length + first;
            int64_t there = begin >= whole ? 0 : whole - begin < n ? whole - begin : n;
            if (there > 0) {
                memcpy(to + (size_t)begin * at->width, ull__world_slot(at->world, part),
                       (size_t)there * at->width);
            }
        }
        status = status == ULL_OK ? ull__world_meet(at->world, err) : status;
    }
    return status;
}

/* `from` may be `to`: then what is not taken yet lies behind what is written. */
static void own_row(const struct place *at, const char *from, char *to, int64_t length, int64_t whole)
{
    int64_t begin = at->rank * length;
    int64_t there = begin >= whole ? 0 : whole - begin < length ? whole - begin : length;
    memmove(to, from + (size_t)begin * at->width * (there > 0), (size_t)there * at->width);
    memset(to + (size_t)there * at->width, 0, (size_t)(length - there) * at->width);
}

static ull_status broadcast(const struct place *at, struct ull_error *err)
{
    size_t bytes = ull__collective_to_bytes(at->run);
    if (at->rank == 0) {
        memmove(at->run->to, at->run->from, bytes);
    }
    return ull__world_tell(at->world, at->run->to, bytes, err);
}

static ull_status by_rows(const struct place *at, struct ull_error *err)
{
    const struct ull__collective_run *run = at->run;
    int64_t length = (run->whole + run->ranks - 1) / run->ranks * run->inner;
    int64_t whole = run->whole * run->inner;
    bool gathers = run->kind == ULL_ALL_GATHER;
    ull_status status = ULL_OK;
    for (int64_t i = 0; i < run->outer && status == ULL_OK; ++i) {
        int64_t row = gathers ? run->outer - 1 - i : i;
        const char *from =
            (const char *)run->from + (size_t)(row * (gathers ? length : whole)) * at->width;
        char *to = (char *)run->to + (size_t)(row * (gathers ? whole : length)) * at->width;
        if (gathers) {
            status = gather_row(at, from, to, length, whole, err);
        } else if (run->kind == ULL_REDUCE_SCATTER) {
            status = scatter_row(at, from, to, length, whole, err);
        } else {
            own_row(at, from, to, length, whole);
        }
    }
    return status;
}

ull_status ull__collective(struct ull__world *world, const struct ull__collective_run *run,
                           struct ull_error *err)
{
    struct place at = {.world = world, .run = run, .ranks = run->ranks, .width = width_of(run->type)};
    if (run->ranks == 1) {
        memmove(run->to, run->from, ull__collective_to_bytes(run));
        return ULL_OK;
    }
    at.rank = ull__world_rank(world);
    switch (run->kind) {
    case ULL_ALL_REDUCE:
        return all_reduce(&at, err);
    case ULL_BROADCAST:
        return broadcast(&at, err);
    default:
        return by_rows(&at, err);
    }
}
