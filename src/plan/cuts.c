/* cuts.c: decisions that keep only what crosses cuts of the forward pass. See search.h. */
#include <stdlib.h>

#include "search.h"

void ull__decide_by_cuts(const struct ull__program *program, const bool *cut,
                         struct ull__decision *decision)
{
    int *segment = calloc((size_t)program->forward_items + 1, sizeof(*segment));
    for (int i = 0; segment != NULL && i < program->forward_items; ++i) {
        segment[i + 1] = segment[i] + cut[i];
    }
    for (int i = 0; segment != NULL && i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        if (!buffer->forward || buffer->item == ULL_NONE || buffer->life != ULL_LIFE_PASSING) {
            continue;
        }
        bool crosses = segment[buffer->last_forward] > segment[buffer->item];
        decision->keep[i] = crosses || buffer->result ? ULL_KEEP : ULL_DROP;
    }
    free(segment);
}

bool ull__cuts_at_blocks(const struct ull__program *program, int every, bool *cut)
{
    int blocks = 0, before = ULL_NONE;
    for (int i = 0; i < program->forward_items; ++i) {
        int block = program->graph->nodes[program->items[i].node].block;
        cut[i] = false;
        if (i > 0 && block != before) {
            cut[i - 1] = blocks++ % every == 0;
        }
        before = block;
    }
    return blocks > 1;
}

void ull__cuts_by_bytes(const struct ull__program *program, int parts, bool *cut)
{
    double total = 0, so_far = 0;
    for (int turn = 0; turn < 2; ++turn) {
        int part = 1;
        for (int i = 0; i < program->forward_items; ++i) {
            double bytes = 0;
            for (int j = 0; j < program->items[i].output_count; ++j) {
                bytes += (double)program->buffers[program->refs[program->items[i].outputs + j]].bytes;
            }
            if (turn == 0) {
                total += bytes;
                cut[i] = false;
                continue;
            }
            so_far += bytes;
            if (so_far * parts >= total * part) {
                cut[i] = true;
                part += 1;
            }
        }
    }
}
