/*
 * offsets_rounds.c: the rounds of the exact search: orders in turn, node limits that grow, threads that share them.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "offsets_search.h"

enum {
    ORDERS = 8,
    ROUND_NODES = 2000, /* of the shortest rounds */
};

/* --- orders ------------------------------------------------------------------------------------------------------ */

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 32;
}

/* A share of the largest, in 2^20ths. */
static uint64_t share(uint64_t value, uint64_t most)
{
    while (most >= UINT64_C(1) << 43) {
        most >>= 1;
        value >>= 1;
    }
    return most ? (value << 20) / most : 0;
}

static uint64_t weigh(unsigned int order, uint64_t busy, uint64_t length, uint64_t size)
{
    uint64_t area = (size * length) >> 20;
    switch (order) {
    case 0:
        return (busy << 7) + length;
    case 1:
        return area << 7;
    case 2:
        return length << 7;
    case 3:
        return (busy << 7) + area;
    case 4:
        return (busy << 7) + size;
    case 5:
        return size << 7;
    case 6:
        return (length + size) << 7;
    default:
        return (length + area) << 7;
    }
}

bool ull__offsets_round_ranks(const struct ull__instance *in, uint64_t round, uint32_t *ranks)
{
    size_t n = in->count;
    unsigned int order = round % ORDERS;
    uint64_t cycle = round / ORDERS, seed = round * UINT64_C(0x9e3779b97f4a7c15) + 1;
    uint64_t most_busy = 0, most_length = 0, most_size = 0;
    uint64_t *weight = calloc(n, sizeof *weight);
    uint32_t *sorted = calloc(n, sizeof *sorted), *scratch = calloc(n, sizeof *scratch);
    bool ok = weight && sorted && scratch;
    for (size_t b = 0; b < n; b++) {
        most_busy = in->busiest[b] > most_busy ? in->busiest[b] : most_busy;
        most_length = in->length[b] > most_length ? in->length[b] : most_length;
        most_size = in->size[b] > most_size ? in->size[b] : most_size;
    }
    for (size_t b = 0; ok && b < n; b++) {
        uint64_t value = weigh(order, share(in->busiest[b], most_busy),
                               share(in->length[b], most_length), share(in->size[b], most_size));
        /* Chance: up to a half, in orders by the busiest section up to a 200th, either way. */
        uint64_t range = (value >> (weigh(order, 1, 0, 0) ? 8 : 1)) * (1 + cycle % 8) / 8;
        uint64_t chance = next_random(&seed);
        weight[b] = cycle ? value - range + (range * chance >> 31) : value;
        sorted[b] = (uint32_t)b;
    }
    if (ok) {
        ull__sort_largest(sorted, scratch, n, weight);
        for (size_t k = 0; k < n; k++)
            ranks[sorted[k]] = (uint32_t)k;
    }
    free(weight);
    free(sorted);
    free(scratch);
    return ok;
}

/* --- threads ----------------------------------------------------------------------------------------------------- */

struct search {
    const struct ull__offsets_space *space;
    uint64_t capacity, nodes;         /* nodes of all rounds */
    _Atomic(uint64_t) next;           /* round */
    _Atomic(uint64_t) answered;       /* the first round with an answer so far */
    pthread_mutex_t lock;             /* of what follows */
    enum ull__offsets_search_end end; /* of that round */
    uint64_t used;                    /* nodes of that round */
    uint64_t *offsets;
    _Atomic(bool) failed;
};

/* 1, 1, 2, 1, 1, 2, 4, 1, ... (Luby, Sinclair and Zuckerman 1993); place is 1 and up. */
static uint64_t luby(uint64_t place)
{
    for (;;) {
        uint64_t power = 1;
        while (2 * power - 1 < place)
            power *= 2;
        if (2 * power - 1 == place)
            return power;
        place -= power - 1;
    }
}

/* Nodes of a round at most; the same for each order of a cycle. */
static uint64_t round_limit(uint64_t round)
{
    return ROUND_NODES * luby(round / ORDERS + 1);
}

/* The limit of a round within the limit of all; 0: there is none any more. */
static uint64_t round_share(const struct search *search, uint64_t round, uint64_t *before)
{
    uint64_t sum = 0;
    for (uint64_t k = 0; k < round && sum < search->nodes; k++)
        sum += round_limit(k);
    *before = sum < search->nodes ? sum : search->nodes;
    uint64_t limit = round_limit(round);
    return limit < search->nodes - *before ? limit : search->nodes - *before;
}

static void keep_answer(struct search *search, const struct ull__offsets_round *round,
                        enum ull__offsets_search_end end)
{
    pthread_mutex_lock(&search->lock);
    if (round->round < atomic_load(&search->answered)) {
        atomic_store(&search->answered, round->round);
        search->end = end;
        search->used = round->used;
        if (end == ULL__OFFSETS_SEARCH_FOUND)
            memcpy(search->offsets, round->offsets,
                   search->space->in->count * sizeof *search->offsets);
    }
    pthread_mutex_unlock(&search->lock);
}

static void *work(void *argument)
{
    struct search *search = argument;
    struct ull__offsets_state state = {0};
    struct ull__offsets_table *table = ull__offsets_table_create(search->nodes);
    uint64_t *offsets = calloc(search->space->in->count, sizeof *offsets);
    bool failed = !ull__offsets_state_init(&state, search->space) || !table || !offsets;
    while (!failed) {
        struct ull__offsets_round round = {.space = search->space,
                                           .capacity = search->capacity,
                                           .round = atomic_fetch_add(&search->next, 1),
                                           .offsets = offsets,
                                           .stop = &search->answered};
        uint64_t before;
        round.nodes = round_share(search, round.round, &before);
        if (round.nodes == 0 || round.round > atomic_load(&search->answered) ||
            atomic_load(&search->failed))
            break;
        enum ull__offsets_search_end end = ull__offsets_round_run(&round, &state, table);
        failed = end == ULL__OFFSETS_SEARCH_FAILED;
        if (end == ULL__OFFSETS_SEARCH_FOUND || end == ULL__OFFSETS_SEARCH_NONE)
            keep_answer(search, &round, end);
    }
    if (failed)
        atomic_store(&search->failed, true);
    ull__offsets_state_finish(&state);
    ull__offsets_table_destroy(table);
    free(offsets);
    return NULL;
}

enum ull__offsets_search_end ull__offsets_search(const struct ull__offsets_space *space,
                                                 uint64_t capacity, uint64_t nodes,
                                                 unsigned int threads, uint64_t *offsets,
                                                 uint64_t *used)
{
    struct search search = {.space = space,
                            .capacity = capacity,
                            .nodes = nodes,
                            .answered = UINT64_MAX,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .end = ULL__OFFSETS_SEARCH_LIMIT,
                            .offsets = offsets};
    pthread_t others[ULL__OFFSETS_THREADS_MOST];
    unsigned int started = 0;
    while (started + 1 < threads && started < ULL__OFFSETS_THREADS_MOST &&
           pthread_create(&others[started], NULL, work, &search) == 0)
        started++;
    work(&search);
    while (started > 0)
        pthread_join(others[--started], NULL);
    if (atomic_load(&search.failed))
        return ULL__OFFSETS_SEARCH_FAILED;
    uint64_t before = nodes;
    if (search.end != ULL__OFFSETS_SEARCH_LIMIT)
        round_share(&search, atomic_load(&search.answered), &before);
    *used = search.end == ULL__OFFSETS_SEARCH_LIMIT ? nodes : before + search.used;
    return search.end;
}
