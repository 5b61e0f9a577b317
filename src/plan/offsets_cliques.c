/*
 * offsets_cliques.c: conflicts given by a predicate, as a matrix of bits, and sets of buffers that all conflict
 * with each other, which bound the height from below.
 *
 * The heaviest such set is hard to find, so they are grown greedily: from each buffer (in large parts from the
 * heaviest ones), adding the one that is largest, or has the most around it, until none fits. Every buffer is in one
 * set at least.
 */
#include <stdlib.h>
#include <string.h>

#include "offsets_private.h"

enum {
    ALL_SEEDS = 1024, /* parts up to this grow a clique from each buffer */
    SEEDS = 128,      /* else from this many, and from each that is in none yet */
};

struct growth {
    const struct ull__instance *in;
    uint32_t *by_size, *by_length; /* all buffers, largest first */
    uint64_t *candidates;          /* bits */
    uint32_t *members;             /* the clique that is being grown */
    size_t size;
    size_t used, room; /* of in->section_member */
    bool *covered;
};

static bool fill_rows(struct ull__instance *in, const struct ull__offsets_problem *problem)
{
    in->words = (in->count + 63) / 64;
    in->rows = calloc(in->count * in->words, sizeof *in->rows);
    if (!in->rows)
        return false;
    for (size_t i = 0; i < in->count; i++) {
        for (size_t j = i + 1; j < in->count; j++) {
            if (!ull__ask(problem, in->id[i], in->id[j]))
                continue;
            in->rows[i * in->words + j / 64] |= UINT64_C(1) << (j % 64);
            in->rows[j * in->words + i / 64] |= UINT64_C(1) << (i % 64);
            in->length[i] += in->size[j];
            in->length[j] += in->size[i];
        }
    }
    return true;
}

static void grow(struct growth *g, uint32_t seed, const uint32_t *order)
{
    const struct ull__instance *in = g->in;
    g->size = 0;
    g->members[g->size++] = seed;
    memcpy(g->candidates, in->rows + seed * in->words, in->words * sizeof *g->candidates);
    for (size_t k = 0; k < in->count; k++) {
        uint32_t b = order[k];
        if (!(g->candidates[b / 64] >> (b % 64) & 1))
            continue;
        g->members[g->size++] = b;
        for (size_t w = 0; w < in->words; w++)
            g->candidates[w] &= in->rows[b * in->words + w];
    }
}

/* Adds the grown clique to the sections. */
static bool keep(struct growth *g, struct ull__instance *in)
{
    if (g->used + g->size > g->room) {
        size_t room = 2 * (g->used + g->size);
        uint32_t *more = realloc(in->section_member, room * sizeof *more);
        if (!more)
            return false;
        in->section_member = more;
        g->room = room;
    }
    uint64_t load = 0, spare = 0;
    for (size_t k = 0; k < g->size; k++) {
        uint32_t b = g->members[k];
        in->section_member[g->used + k] = b;
        load += in->size[b];
        spare = in->spare[b] > spare ? in->spare[b] : spare;
        g->covered[b] = true;
    }
    for (size_t k = 0; k < g->size; k++) {
        uint32_t b = g->members[k];
        in->busiest[b] = load > in->busiest[b] ? load : in->busiest[b];
    }
    g->used += g->size;
    in->section_load[in->sections++] = load;
    in->section_from[in->sections] = (uint32_t)g->used;
    uint64_t bound = load * in->unit - spare;
    in->lower_bound = bound > in->lower_bound ? bound : in->lower_bound;
    return true;
}

static bool grow_all(struct growth *g, struct ull__instance *in)
{
    size_t seeds = in->count <= ALL_SEEDS ? in->count : SEEDS;
    for (size_t k = 0; k < seeds; k++) {
        grow(g, g->by_length[k], g->by_size);
        if (!keep(g, in))
            return false;
        grow(g, g->by_length[k], g->by_length);
        if (!keep(g, in))
            return false;
    }
    for (size_t k = 0; k < in->count; k++) {
        if (g->covered[g->by_size[k]])
            continue;
        grow(g, g->by_size[k], g->by_size);
        if (!keep(g, in))
            return false;
    }
    return true;
}

bool ull__cliques(struct ull__instance *in, const struct ull__offsets_problem *problem)
{
    if (!fill_rows(in, problem))
        return false;
    size_t n = in->count;
    struct growth g = {
        .in = in,
        .by_size = calloc(n, sizeof *g.by_size),
        .by_length = calloc(n, sizeof *g.by_length),
        .candidates = calloc(in->words, sizeof *g.candidates),
        .members = calloc(n, sizeof *g.members),
        .covered = calloc(n, sizeof *g.covered),
    };
    in->section_from = calloc(3 * n + 1, sizeof *in->section_from);
    in->section_load = calloc(3 * n + 1, sizeof *in->section_load);
    bool ok = g.by_size && g.by_length && g.candidates && g.members && g.covered &&
              in->section_from && in->section_load;
    if (ok) {
        for (size_t i = 0; i < n; i++)
            g.by_size[i] = g.by_length[i] = (uint32_t)i;
        ull__sort_largest(g.by_size, g.members, n, in->size);
        ull__sort_largest(g.by_length, g.members, n, in->length);
        ok = grow_all(&g, in);
    }
    free(g.by_size);
    free(g.by_length);
    free(g.candidates);
    free(g.members);
    free(g.covered);
    return ok;
}
