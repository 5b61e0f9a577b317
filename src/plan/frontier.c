/* frontier.c: the decisions that are worth having. See search.h. */
#include <stdlib.h>
#include <string.h>

#include "search_private.h"

bool ull__frontier_put(struct ull__frontier *frontier, const struct ull__program *program,
                       const struct ull__decision *decision, const struct ull__cost_of *cost)
{
    /* From the most memory to the least, so times rise. */
    int at = 0, end = frontier->count;
    while (at < end) {
        int middle = (at + end) / 2;
        if (frontier->entries[middle].cost.peak_bytes > cost->peak_bytes) {
            at = middle + 1;
        } else {
            end = middle;
        }
    }
    int same = at < frontier->count && frontier->entries[at].cost.peak_bytes == cost->peak_bytes;
    for (int i = at; i < frontier->count && i <= at; ++i) {
        if (ull__seconds_of(&frontier->entries[i].cost) <= ull__seconds_of(cost)) {
            return true; /* no larger and no slower */
        }
    }
    int first = at;
    while (first > 0 && ull__seconds_of(&frontier->entries[first - 1].cost) >= ull__seconds_of(cost)) {
        first -= 1;
    }
    struct ull__found found = {{NULL, NULL}, *cost};
    if (!ull__decision_clone(program, &found.decision, decision)) {
        return false;
    }
    int after = at + same;
    for (int i = first; i < after; ++i) {
        ull__decision_finish(&frontier->entries[i].decision);
    }
    if (frontier->count - (after - first) + 1 > frontier->room) {
        int room = frontier->room == 0 ? 64 : 2 * frontier->room;
        struct ull__found *more = realloc(frontier->entries, sizeof(*more) * (size_t)room);
        if (more == NULL) {
            ull__decision_finish(&found.decision);
            return false;
        }
        frontier->entries = more;
        frontier->room = room;
    }
    memmove(&frontier->entries[first + 1], &frontier->entries[after],
            sizeof(found) * (size_t)(frontier->count - after));
    frontier->entries[first] = found;
    frontier->count += 1 - (after - first);
    return true;
}

void ull__frontier_finish(struct ull__frontier *frontier)
{
    for (int i = 0; i < frontier->count; ++i) {
        ull__decision_finish(&frontier->entries[i].decision);
    }
    free(frontier->entries);
    *frontier = (struct ull__frontier){NULL, 0, 0};
}
