/*
 * offsets_search.c: one round of the exact search: depth first, with the rules of offsets_search.h.
 *
 * Recursion is as deep as there are buffers; lists of a level are on the heap.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "offsets_search.h"

enum { TABLE_BITS_LEAST = 6, TABLE_BITS_MOST = 19 };

struct key {
    uint64_t high, low;
};

/* What failed, by hash; a newer entry takes an older one's place. */
struct ull__offsets_table {
    int bits;
    struct key keys[];
};

enum outcome {
    FOUND,
    FAILED,   /* with this placement */
    HOPELESS, /* with any placement at this node */
    STOPPED,  /* limit, another round's answer, or no memory */
};

struct dive {
    struct ull__offsets_round *round;
    struct ull__offsets_state *state;
    struct ull__offsets_table *table;
    uint32_t *ranks;
    uint64_t *offsets; /* of what is placed */
    uint32_t *seen;    /* predicate: marks and a queue for parts */
    uint64_t salt;     /* of the round, so that entries of others are not taken for its own */
};

static enum outcome solve(struct dive *dive, const uint32_t *list, size_t count);

struct ull__offsets_table *ull__offsets_table_create(uint64_t nodes)
{
    int bits = TABLE_BITS_LEAST;
    while (bits < TABLE_BITS_MOST && nodes >> bits)
        bits++;
    struct ull__offsets_table *table = calloc(1, sizeof *table + (sizeof *table->keys << bits));
    if (table)
        table->bits = bits;
    return table;
}

void ull__offsets_table_destroy(struct ull__offsets_table *table)
{
    free(table);
}

/* --- what failed ------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static struct key make_key(const struct dive *dive, const uint32_t *list, size_t count)
{
    struct key key = {dive->salt, ~dive->salt};
    for (size_t k = 0; k < count; k++) {
        const struct ull__offsets_spot *spot = &dive->state->spots[list[k]];
        uint64_t place = (uint64_t)spot->low * 2 + (spot->blocked != ULL__FREE);
        uint64_t word = mix(mix(place + UINT64_C(0x9e3779b97f4a7c15)) ^
                            (list[k] + 1) * UINT64_C(0xbf58476d1ce4e5b9));
        key.high += word;
        key.low += mix(word ^ UINT64_C(0x94d049bb133111eb));
    }
    return key;
}

static struct key *find_key(const struct dive *dive, struct key key)
{
    return &dive->table->keys[key.high >> (64 - dive->table->bits)];
}

static bool is_known(const struct dive *dive, struct key key)
{
    const struct key *known = find_key(dive, key);
    return known->high == key.high && known->low == key.low;
}

/* --- parts ------------------------------------------------------------------------------------------------------ */

struct part {
    uint32_t from, count;
    bool touched; /* by the last placement */
};

static bool is_near(const struct ull__instance *in, uint32_t b, uint32_t x)
{
    return b != ULL__NO_BUFFER && ull__in_conflict(in, b, x);
}

/* `list` is by start. Nothing of a part is live when something of another is. */
static size_t cut_lifetimes(const struct ull__instance *in, const uint32_t *list, size_t count,
                            uint32_t last, struct part *parts)
{
    size_t made = 0;
    uint32_t end = 0;
    for (size_t k = 0; k < count; k++) {
        if (k == 0 || in->first[list[k]] >= end)
            parts[made++] = (struct part){.from = (uint32_t)k};
        parts[made - 1].count++;
        parts[made - 1].touched |= is_near(in, last, list[k]);
        end = in->end[list[k]] > end ? in->end[list[k]] : end;
    }
    return made;
}

/* Orders `list` by parts. */
static size_t cut_graph(struct dive *dive, uint32_t *list, size_t count, uint32_t last,
                        struct part *parts)
{
    const struct ull__offsets_space *space = dive->round->space;
    size_t made = 0, done = 0;
    uint32_t *mark = dive->seen, *queue = dive->seen + space->in->count;
    for (size_t k = 0; k < count; k++)
        mark[list[k]] = 1;
    for (size_t k = 0; k < count; k++) {
        if (!mark[list[k]])
            continue;
        struct part *part = &parts[made++];
        *part = (struct part){.from = (uint32_t)done};
        mark[list[k]] = 0;
        queue[done++] = list[k];
        for (size_t next = part->from; next < done; next++) {
            part->touched |= is_near(space->in, last, queue[next]);
            for (uint32_t i = space->near_from[queue[next]]; i < space->near_from[queue[next] + 1];
                 i++) {
                if (mark[space->near[i]]) {
                    mark[space->near[i]] = 0;
                    queue[done++] = space->near[i];
                }
            }
        }
        part->count = (uint32_t)done - part->from;
    }
    memcpy(list, queue, count * sizeof *list);
    return made;
}

/* Smaller ones first: if one of them fails, it is soon known. */
static void sort_parts(struct part *parts, size_t count)
{
    for (size_t k = 1; k < count; k++) {
        struct part part = parts[k];
        size_t at = k;
        for (; at > 0 && parts[at - 1].count > part.count; at--)
            parts[at] = parts[at - 1];
        parts[at] = part;
    }
}

/* Searches the parts of what is left after `last` was placed; those that it touched first (rule 4). */
static enum outcome solve_parts(struct dive *dive, uint32_t *list, size_t count, uint32_t last,
                                struct part *parts)
{
    const struct ull__instance *in = dive->round->space->in;
    size_t made = in->first ? cut_lifetimes(in, list, count, last, parts)
                            : cut_graph(dive, list, count, last, parts);
    sort_parts(parts, made);
    for (size_t k = 0; k < made; k++) {
        if (parts[k].touched && !ull__offsets_state_lift(dive->state, list + parts[k].from,
                                                         parts[k].count, dive->state->spots[last].low))
            return FAILED;
    }
    /* Before any part is looked at: what fails here must not be remembered as that part's failure. */
    if (!ull__offsets_state_settle(dive->state))
        return FAILED;
    for (int touched = 1; touched >= 0; touched--) {
        for (size_t k = 0; k < made; k++) {
            if (parts[k].touched != touched)
                continue;
            enum outcome outcome = solve(dive, list + parts[k].from, parts[k].count);
            if (outcome != FOUND)
                return outcome == STOPPED ? STOPPED : touched ? FAILED : HOPELESS;
        }
    }
    return FOUND;
}

/* --- one node --------------------------------------------------------------------------------------------------- */

static bool comes_before(const struct dive *dive, uint32_t left, uint32_t right)
{
    int64_t a = dive->state->spots[left].low, b = dive->state->spots[right].low;
    return a != b ? a < b : dive->ranks[left] < dive->ranks[right];
}

static bool may_be_next(const struct ull__offsets_spot *spot)
{
    return spot->blocked == ULL__FREE && spot->earliest == spot->low;
}

/* What may be placed next, in the order in which it is tried (rules 1, 2, 6). */
static size_t list_choices(const struct dive *dive, const uint32_t *list, size_t count,
                           uint32_t *choices)
{
    const struct ull__offsets_space *space = dive->round->space;
    const struct ull__offsets_spot *spots = dive->state->spots;
    int64_t lowest = INT64_MAX;
    size_t found = 0;
    for (size_t k = 0; k < count; k++) {
        const struct ull__offsets_spot *spot = &spots[list[k]];
        if (spot->blocked != ULL__UNDER_PIN && spot->low + spot->size < lowest)
            lowest = spot->low + spot->size;
    }
    for (size_t k = 0; k < count; k++) {
        uint32_t b = list[k], twin = space->twin[b];
        if (!may_be_next(&spots[b]) || spots[b].low >= lowest ||
            (twin != ULL__NO_BUFFER && spots[twin].left))
            continue;
        size_t at = found++;
        for (; at > 0 && comes_before(dive, b, choices[at - 1]); at--)
            choices[at] = choices[at - 1];
        choices[at] = b;
    }
    return found;
}

static bool is_stopped(const struct dive *dive)
{
    const struct ull__offsets_round *round = dive->round;
    return round->used >= round->nodes || dive->state->failed ||
           atomic_load_explicit(round->stop, memory_order_relaxed) < round->round;
}

static enum outcome try_choice(struct dive *dive, const uint32_t *list, size_t count, uint32_t b,
                               uint32_t *rest, struct part *parts)
{
    size_t left = 0;
    for (size_t k = 0; k < count; k++)
        if (list[k] != b)
            rest[left++] = list[k];
    dive->offsets[b] = (uint64_t)dive->state->spots[b].low;
    if (!ull__offsets_state_place(dive->state, b))
        return FAILED;
    return solve_parts(dive, rest, left, b, parts);
}

static enum outcome try_choices(struct dive *dive, const uint32_t *list, size_t count)
{
    struct ull__offsets_state *state = dive->state;
    uint32_t *choices = malloc(2 * count * sizeof *choices);
    struct part *parts = malloc(count * sizeof *parts);
    enum outcome outcome = FAILED;
    if (!choices || !parts) {
        state->failed = true;
        outcome = STOPPED;
    }
    size_t found = outcome == STOPPED ? 0 : list_choices(dive, list, count, choices);
    for (size_t k = 0; k < found; k++) {
        if (!may_be_next(&state->spots[choices[k]]))
            continue; /* bounds have risen */
        size_t mark = state->used;
        outcome = try_choice(dive, list, count, choices[k], choices + count, parts);
        if (outcome != FAILED)
            break;
        ull__offsets_state_undo(state, mark);
        ull__offsets_state_forget(state);
        ull__offsets_state_block(state, choices[k]);
        if (k + 1 < found && !ull__offsets_state_propagate(state, list, count))
            break;
    }
    free(choices);
    free(parts);
    return outcome;
}

/* Places all of `list`, one part. What failed is undone. */
static enum outcome solve(struct dive *dive, const uint32_t *list, size_t count)
{
    struct ull__offsets_state *state = dive->state;
    size_t mark = state->used;
    if (is_stopped(dive))
        return STOPPED;
    dive->round->used++;
    struct key key = make_key(dive, list, count);
    if (is_known(dive, key))
        return FAILED;
    enum outcome outcome = FAILED;
    if (ull__offsets_state_propagate(state, list, count))
        outcome = try_choices(dive, list, count);
    if (outcome == FOUND || outcome == STOPPED)
        return outcome;
    *find_key(dive, key) = key;
    ull__offsets_state_undo(state, mark);
    return FAILED;
}

/* --- a round ---------------------------------------------------------------------------------------------------- */

enum ull__offsets_search_end ull__offsets_round_run(struct ull__offsets_round *round,
                                                    struct ull__offsets_state *state,
                                                    struct ull__offsets_table *table)
{
    size_t n = round->space->in->count;
    struct dive dive = {.round = round,
                        .state = state,
                        .table = table,
                        .ranks = calloc(n, sizeof *dive.ranks),
                        .offsets = round->offsets,
                        .seen = calloc(2 * n, sizeof *dive.seen),
                        .salt = mix(round->round + 1)};
    uint32_t *list = calloc(n, sizeof *list);
    struct part *parts = calloc(n, sizeof *parts);
    enum outcome outcome = STOPPED;
    round->used = 0;
    if (!dive.ranks || !dive.seen || !list || !parts ||
        !ull__offsets_round_ranks(round->space->in, round->round, dive.ranks)) {
        state->failed = true;
    } else {
        for (size_t k = 0; k < n; k++)
            list[k] = (uint32_t)k;
        outcome = ull__offsets_state_begin(state, round->capacity)
                      ? solve_parts(&dive, list, n, ULL__NO_BUFFER, parts)
                      : FAILED;
    }
    free(dive.ranks);
    free(dive.seen);
    free(list);
    free(parts);
    if (state->failed)
        return ULL__OFFSETS_SEARCH_FAILED;
    return outcome == FOUND     ? ULL__OFFSETS_SEARCH_FOUND
           : outcome == STOPPED ? ULL__OFFSETS_SEARCH_LIMIT
                                : ULL__OFFSETS_SEARCH_NONE;
}
