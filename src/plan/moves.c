/* moves.c: what can be done about the memory that is needed at a place. See search_private.h. */
#include "search_private.h"

/* About how long it takes to make a buffer again: with what it needs that is not kept nor made again anyway. */
static double again_seconds(struct ull__searching *s, int buffer, int depth)
{
    const struct ull__program_buffer *of = &s->program->buffers[buffer];
    if (of->item == ULL_NONE || s->seen[buffer] || depth > 64) {
        return 0;
    }
    s->seen[buffer] = true;
    const struct ull__program_item *item = &s->program->items[of->item];
    double total = ull__item_choice(s->program, of->item, 0)->seconds;
    for (int i = 0; i < item->input_count; ++i) {
        int input = s->program->refs[item->inputs + i];
        const struct ull__program_buffer *needs = &s->program->buffers[input];
        if (needs->forward && needs->life == ULL_LIFE_PASSING &&
            s->current.keep[input] == ULL_DROP && !needs->backward) {
            total += again_seconds(s, input, depth + 1);
        }
    }
    s->seen[buffer] = false;
    return total;
}

void ull__move_insert(struct ull__move *moves, int *count, int most, const struct ull__move *move)
{
    if (*count == most && moves[most - 1].score >= move->score) {
        return;
    }
    int at = *count < most ? (*count)++ : most - 1;
    while (at > 0 && moves[at - 1].score < move->score) {
        moves[at] = moves[at - 1];
        at -= 1;
    }
    moves[at] = *move;
}

/* The next smaller workspace of an item. */
static void smaller_algorithm(const struct ull__searching *s, int item, struct ull__move *moves,
                              int *count, int most)
{
    int next = s->current.algorithm[item] + 1;
    if (!s->options->fastest && next < s->program->items[item].choice_count) {
        const struct ull__choice *from = ull__item_choice(s->program, item, next - 1);
        const struct ull__choice *to = ull__item_choice(s->program, item, next);
        double freed = (double)(from->workspace - to->workspace);
        ull__move_insert(moves, count, most,
                         &(struct ull__move){ULL_NONE, item, ULL_KEEP,
                                             freed / (to->seconds - from->seconds + 1e-9)});
    }
}

/* Whether a candidate is kept, and in memory at a place. */
static bool kept_at(const struct ull__searching *s, int buffer, int place, int *begin, int *end)
{
    if (s->current.keep[buffer] != ULL_KEEP) {
        return false;
    }
    ull__schedule_kept(s->scheduler, buffer, begin, end);
    return *begin <= place && place <= *end;
}

int ull__moves_at(struct ull__searching *s, int place, struct ull__move *moves, int most)
{
    int count = 0, begin, end;
    for (int i = 0; i < s->candidate_count && !s->options->no_drop; ++i) {
        int buffer = s->candidates[i];
        if (kept_at(s, buffer, place, &begin, &end)) {
            double bytes = (double)s->program->buffers[buffer].bytes;
            ull__move_insert(moves, &count, most,
                             &(struct ull__move){buffer, ULL_NONE, ULL_DROP,
                                                 bytes / (again_seconds(s, buffer, 0) + 1e-9)});
        }
    }
    smaller_algorithm(s, ull__schedule_item(s->scheduler, place), moves, &count, most);
    return count;
}

int ull__sends_at(struct ull__searching *s, int place, struct ull__move *moves, int most)
{
    int count = 0, begin, end;
    for (int i = 0; i < s->candidate_count && s->options->host_bytes > 0; ++i) {
        int buffer = s->candidates[i];
        const struct ull__program_buffer *of = &s->program->buffers[buffer];
        /* What came first has the most time to leave, and to come back. */
        if (of->backward && of->bytes >= ULL_SEND_LEAST &&
            s->cost.sent_bytes + of->bytes <= s->options->host_bytes &&
            kept_at(s, buffer, place, &begin, &end)) {
            ull__move_insert(moves, &count, most,
                             &(struct ull__move){buffer, ULL_NONE, ULL_SEND,
                                                 (double)of->bytes * (double)(end - begin)});
        }
    }
    return count;
}
