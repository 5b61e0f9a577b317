/*
 * offsets_state.c: what the exact search knows at a node, how a placement changes it, and the bounds that follow
 * (rule 3 in offsets_search.h). Every change is written on a trail, by which the search goes back.
 */
#include <stdlib.h>
#include <string.h>

#include "offsets_search.h"

static const int64_t nowhere = INT64_MAX / 2;

/* --- what does not change ----------------------------------------------------------------------------------- */

static bool list_members(struct ull__offsets_space *space)
{
    const struct ull__instance *in = space->in;
    size_t total = 0;
    space->section_from = calloc(in->count + 1, sizeof *space->section_from);
    space->member_from = calloc(in->sections + 1, sizeof *space->member_from);
    if (!space->section_from || !space->member_from)
        return false;
    for (size_t b = 0; in->first && b < in->count; b++) {
        for (uint32_t s = in->first[b]; s < in->end[b]; s++)
            space->member_from[s + 1]++;
    }
    for (size_t s = 0; s < in->sections; s++) {
        if (!in->first)
            space->member_from[s + 1] = in->section_from[s + 1] - in->section_from[s];
        total += space->member_from[s + 1];
        space->member_from[s + 1] = (uint32_t)total;
    }
    space->member = calloc(total + 1, sizeof *space->member);
    space->section = calloc(total + 1, sizeof *space->section);
    uint32_t *next = calloc(in->sections + in->count + 1, sizeof *next);
    if (!space->member || !space->section || !next) {
        free(next);
        return false;
    }
    if (in->first) {
        memcpy(next, space->member_from, in->sections * sizeof *next);
        for (size_t b = 0; b < in->count; b++)
            for (uint32_t s = in->first[b]; s < in->end[b]; s++)
                space->member[next[s]++] = (uint32_t)b;
    } else {
        memcpy(space->member, in->section_member, total * sizeof *space->member);
    }
    for (size_t k = 0; k < total; k++)
        space->section_from[space->member[k] + 1]++;
    for (size_t b = 0; b < in->count; b++)
        space->section_from[b + 1] += space->section_from[b];
    memcpy(next, space->section_from, in->count * sizeof *next);
    for (uint32_t s = 0; s < in->sections; s++)
        for (uint32_t k = space->member_from[s]; k < space->member_from[s + 1]; k++)
            space->section[next[space->member[k]]++] = s;
    free(next);
    return true;
}

static bool list_neighbours(struct ull__offsets_space *space)
{
    const struct ull__instance *in = space->in;
    size_t total = 0, used = 0;
    for (size_t b = 0; b < in->count; b++)
        for (size_t x = 0; x < in->count; x++)
            total += x != b && ull__in_conflict(in, b, x);
    space->near_from = calloc(in->count + 1, sizeof *space->near_from);
    space->near = calloc(total + 1, sizeof *space->near);
    if (!space->near_from || !space->near)
        return false;
    for (size_t b = 0; b < in->count; b++) {
        for (size_t x = 0; x < in->count; x++)
            if (x != b && ull__in_conflict(in, b, x))
                space->near[used++] = (uint32_t)x;
        space->near_from[b + 1] = (uint32_t)used;
    }
    return true;
}

/* Equal in every respect; with a predicate, in what they conflict with besides each other. */
static bool are_twins(const struct ull__offsets_space *space, size_t a, size_t b)
{
    const struct ull__instance *in = space->in;
    if (in->size[a] != in->size[b] || in->spare[a] != in->spare[b] ||
        in->align[a] != in->align[b] || in->pin[a] != ULL__UNPINNED || in->pin[b] != ULL__UNPINNED)
        return false;
    if (in->first)
        return in->first[a] == in->first[b] && in->end[a] == in->end[b];
    if (!ull__in_conflict(in, a, b))
        return false;
    for (size_t x = 0; x < in->count; x++)
        if (x != a && x != b && ull__in_conflict(in, a, x) != ull__in_conflict(in, b, x))
            return false;
    return true;
}

bool ull__offsets_space_init(struct ull__offsets_space *space, const struct ull__instance *in)
{
    *space = (struct ull__offsets_space){.in = in, .twin = calloc(in->count, sizeof *space->twin)};
    if (!space->twin || !list_members(space) || !list_neighbours(space))
        return false;
    for (size_t b = 0; b < in->count; b++) {
        space->twin[b] = ULL__NO_BUFFER;
        for (uint32_t k = space->near_from[b]; k < space->near_from[b + 1]; k++) {
            uint32_t x = space->near[k];
            if (x < b && are_twins(space, x, b))
                space->twin[b] = x;
        }
    }
    return true;
}

void ull__offsets_space_finish(struct ull__offsets_space *space)
{
    free(space->member_from);
    free(space->member);
    free(space->section_from);
    free(space->section);
    free(space->near_from);
    free(space->near);
    free(space->twin);
}

/* --- the trail -------------------------------------------------------------------------------------------------- */

static void set(struct ull__offsets_state *state, int64_t *where, int64_t value)
{
    if (*where == value)
        return;
    if (state->used == state->room) {
        struct ull__offsets_change *more = realloc(state->trail, 2 * state->room * sizeof *more);
        if (!more) {
            state->failed = true; /* the search ends; what cannot be undone does not matter then */
            *where = value;
            return;
        }
        state->trail = more;
        state->room *= 2;
    }
    state->trail[state->used++] = (struct ull__offsets_change){where, *where};
    *where = value;
}

void ull__offsets_state_undo(struct ull__offsets_state *state, size_t used)
{
    while (state->used > used) {
        state->used--;
        *state->trail[state->used].where = state->trail[state->used].old;
    }
}

/* --- bounds ------------------------------------------------------------------------------------------------------ */

static void mark(struct ull__offsets_state *state, uint32_t b)
{
    const struct ull__offsets_space *space = state->space;
    for (uint32_t k = space->section_from[b]; k < space->section_from[b + 1]; k++)
        state->dirty[space->section[k] / 64] |= UINT64_C(1) << (space->section[k] % 64);
}

static int64_t align_up(int64_t offset, int64_t align)
{
    return (offset + align - 1) & -align;
}

/* b begins at `offset` at least. */
static bool raise(struct ull__offsets_state *state, uint32_t b, int64_t offset)
{
    struct ull__offsets_spot *spot = &state->spots[b];
    if (offset <= spot->earliest)
        return true;
    offset = align_up(offset, spot->align);
    if (offset > spot->latest)
        return false;
    set(state, &spot->earliest, offset);
    mark(state, b);
    return true;
}

/* What is left of a section by its earliest offsets, into its part of state->member; returns how many. */
static size_t sort_section(struct ull__offsets_state *state, uint32_t s)
{
    uint32_t *member = state->member + state->space->member_from[s];
    size_t all = state->space->member_from[s + 1] - state->space->member_from[s];
    size_t left = 0, gone = 0;
    for (size_t k = 0; k < all; k++) {
        uint32_t b = member[k];
        if (!state->spots[b].left) {
            state->scratch[gone++] = b;
            continue;
        }
        size_t at = left++;
        int64_t earliest = state->spots[b].earliest;
        for (; at > 0 && state->spots[member[at - 1]].earliest > earliest; at--)
            member[at] = member[at - 1];
        member[at] = b;
    }
    memcpy(member + left, state->scratch, gone * sizeof *member);
    return left;
}

static bool judge_section(struct ull__offsets_state *state, uint32_t s)
{
    const uint32_t *member = state->member + state->space->member_from[s];
    size_t left = sort_section(state, s), firsts = 0;
    int64_t sum = 0, end1 = nowhere, end2 = nowhere, holder = -1, end_first = nowhere;
    for (size_t k = left; k-- > 0;) {
        const struct ull__offsets_spot *spot = &state->spots[member[k]];
        int64_t end = spot->earliest + spot->size;
        sum += spot->size;
        if (spot->earliest + sum > state->top)
            return false;
        if (end < end1) {
            end2 = end1;
            end1 = end;
            holder = member[k];
        } else if (end < end2) {
            end2 = end;
        }
    }
    set(state, &state->end1[s], end1);
    set(state, &state->end2[s], end2);
    set(state, &state->holder[s], holder);
    /* Those that may be the lowest come first, since they are sorted. The others are above one of them. */
    for (; firsts < left; firsts++) {
        const struct ull__offsets_spot *spot = &state->spots[member[firsts]];
        int64_t end = spot->earliest + spot->size;
        if (spot->earliest + sum > state->top)
            break;
        end_first = end < end_first ? end : end_first;
    }
    for (size_t k = firsts; k < left; k++)
        if (!raise(state, member[k], end_first))
            return false;
    return true;
}

/* The lowest end of what b may lie on. */
static int64_t lowest_end(const struct ull__offsets_state *state, uint32_t b)
{
    const struct ull__offsets_space *space = state->space;
    int64_t lowest = nowhere;
    if (space->in->first) {
        for (uint32_t s = space->in->first[b]; s < space->in->end[b]; s++) {
            int64_t end = state->holder[s] == b ? state->end2[s] : state->end1[s];
            lowest = end < lowest ? end : lowest;
        }
        return lowest;
    }
    for (uint32_t k = space->near_from[b]; k < space->near_from[b + 1]; k++) {
        const struct ull__offsets_spot *spot = &state->spots[space->near[k]];
        if (spot->left && spot->earliest + spot->size < lowest)
            lowest = spot->earliest + spot->size;
    }
    return lowest;
}

static bool judge_dirty(struct ull__offsets_state *state)
{
    for (size_t w = 0; w < state->dirty_words; w++) {
        while (state->dirty[w]) {
            uint32_t s = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(state->dirty[w]);
            state->dirty[w] &= state->dirty[w] - 1;
            if (!judge_section(state, s))
                return false;
        }
    }
    return true;
}

static bool any_dirty(const struct ull__offsets_state *state)
{
    for (size_t w = 0; w < state->dirty_words; w++)
        if (state->dirty[w])
            return true;
    return false;
}

static bool raise_blocked(struct ull__offsets_state *state, const uint32_t *list, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        const struct ull__offsets_spot *spot = &state->spots[list[k]];
        if ((spot->blocked || spot->earliest > spot->low) &&
            !raise(state, list[k], lowest_end(state, list[k])))
            return false;
    }
    return true;
}

void ull__offsets_state_forget(struct ull__offsets_state *state)
{
    memset(state->dirty, 0, state->dirty_words * sizeof *state->dirty);
}

bool ull__offsets_state_settle(struct ull__offsets_state *state)
{
    bool fine = true;
    while (fine && any_dirty(state))
        fine = judge_dirty(state);
    if (!fine)
        ull__offsets_state_forget(state);
    return fine;
}

bool ull__offsets_state_propagate(struct ull__offsets_state *state, const uint32_t *list, size_t count)
{
    do {
        if (!ull__offsets_state_settle(state))
            return false;
        if (!raise_blocked(state, list, count)) {
            ull__offsets_state_forget(state);
            return false;
        }
    } while (any_dirty(state));
    return true;
}

/* --- placing ----------------------------------------------------------------------------------------------------- */

/* Is a pinned buffer that is not placed yet in the way of b at its low? */
static bool is_under_pin(const struct ull__offsets_state *state, uint32_t b)
{
    const struct ull__offsets_space *space = state->space;
    const struct ull__offsets_spot *spot = &state->spots[b];
    if (space->in->pin[b] != ULL__UNPINNED)
        return false;
    for (uint32_t k = space->near_from[b]; k < space->near_from[b + 1]; k++) {
        uint32_t x = space->near[k];
        const struct ull__offsets_spot *other = &state->spots[x];
        if (space->in->pin[x] != ULL__UNPINNED && other->left &&
            spot->low < other->low + other->size && other->low < spot->low + spot->size)
            return true;
    }
    return false;
}

bool ull__offsets_state_place(struct ull__offsets_state *state, uint32_t b)
{
    const struct ull__offsets_space *space = state->space;
    struct ull__offsets_spot *placed = &state->spots[b];
    int64_t end = placed->low + placed->size;
    set(state, &placed->left, 0);
    mark(state, b);
    for (uint32_t k = space->near_from[b]; k < space->near_from[b + 1]; k++) {
        uint32_t x = space->near[k];
        struct ull__offsets_spot *spot = &state->spots[x];
        if (!spot->left || spot->low >= end)
            continue;
        int64_t low = align_up(end, spot->align);
        if (low > spot->latest)
            return false;
        set(state, &spot->low, low);
        set(state, &spot->blocked,
            state->pins && is_under_pin(state, x) ? ULL__UNDER_PIN : ULL__FREE);
        if (!raise(state, x, low))
            return false;
    }
    return true;
}

void ull__offsets_state_block(struct ull__offsets_state *state, uint32_t b)
{
    if (state->spots[b].blocked == ULL__FREE)
        set(state, &state->spots[b].blocked, ULL__BLOCKED);
}

bool ull__offsets_state_lift(struct ull__offsets_state *state, const uint32_t *list, size_t count,
                             int64_t floor)
{
    for (size_t k = 0; k < count; k++) {
        if (state->spots[list[k]].low < floor)
            ull__offsets_state_block(state, list[k]);
        if (!raise(state, list[k], floor))
            return false;
    }
    return true;
}

/* --- beginning --------------------------------------------------------------------------------------------------- */

bool ull__offsets_state_init(struct ull__offsets_state *state, const struct ull__offsets_space *space)
{
    const struct ull__instance *in = space->in;
    size_t members = space->member_from[in->sections];
    *state = (struct ull__offsets_state){
        .space = space,
        .spots = calloc(in->count, sizeof *state->spots),
        .end1 = calloc(in->sections, sizeof *state->end1),
        .end2 = calloc(in->sections, sizeof *state->end2),
        .holder = calloc(in->sections, sizeof *state->holder),
        .member = calloc(members, sizeof *state->member),
        .scratch = calloc(in->count, sizeof *state->scratch),
        .dirty_words = in->sections / 64 + 1,
        .room = 16384,
    };
    state->dirty = calloc(state->dirty_words, sizeof *state->dirty);
    state->trail = calloc(state->room, sizeof *state->trail);
    return state->spots && state->end1 && state->end2 && state->holder && state->member &&
           state->scratch && state->dirty && state->trail;
}

void ull__offsets_state_finish(struct ull__offsets_state *state)
{
    free(state->spots);
    free(state->end1);
    free(state->end2);
    free(state->holder);
    free(state->member);
    free(state->scratch);
    free(state->dirty);
    free(state->trail);
}

bool ull__offsets_state_begin(struct ull__offsets_state *state, uint64_t capacity)
{
    const struct ull__instance *in = state->space->in;
    bool fine = true;
    state->used = 0;
    state->pins = false;
    state->top = (int64_t)((capacity + in->unit - 1) / in->unit);
    memcpy(state->member, state->space->member,
           state->space->member_from[in->sections] * sizeof *state->member);
    for (size_t b = 0; b < in->count; b++) {
        uint64_t bytes = in->size[b] * in->unit - in->spare[b];
        bool pinned = in->pin[b] != ULL__UNPINNED;
        fine = fine && bytes <= capacity;
        struct ull__offsets_spot *spot = &state->spots[b];
        *spot = (struct ull__offsets_spot){.left = 1,
                                           .size = (int64_t)in->size[b],
                                           .align = (int64_t)in->align[b],
                                           .latest =
                                               fine ? (int64_t)((capacity - bytes) / in->unit) : 0};
        if (pinned) {
            state->pins = true;
            fine = fine && (int64_t)in->pin[b] <= spot->latest;
            spot->low = spot->earliest = spot->latest = (int64_t)in->pin[b];
        }
    }
    for (size_t b = 0; state->pins && b < in->count; b++)
        if (is_under_pin(state, (uint32_t)b))
            state->spots[b].blocked = ULL__UNDER_PIN;
    memset(state->dirty, 0, state->dirty_words * sizeof *state->dirty);
    for (size_t s = 0; s < in->sections; s++)
        state->dirty[s / 64] |= UINT64_C(1) << (s % 64);
    return fine;
}
