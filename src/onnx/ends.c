/*
 * ends.c: results of a model, and what a training of it minimizes: scalars that it gives, or else a loss behind its
 * first output, with an input `target` for what should come out.
 */
#include <string.h>

#include "onnx_private.h"

/* Cross-entropy over the last dimension. */
static void put_cross_entropy(struct ull__graph *g, int logits)
{
    struct ull__tensor of = g->tensors[logits];
    int order[ULL_RANK] = {0};
    if (of.rank > 3) { /* pictures of classes: behind the channels are the points */
        for (int i = 1; i < of.rank - 1; ++i) {
            order[i] = i + 1;
        }
        order[of.rank - 1] = 1;
        logits = ull__transpose(g, logits, order);
        of = g->tensors[logits != ULL_NONE ? logits : 0];
    }
    int target = ull__graph_input(g, "target", ULL_TYPE_I64, of.rank - 1, of.dims);
    int count = ull__graph_control(g, "target_count", ULL_TYPE_F32);
    ull__graph_loss(
        g, ull__cross_entropy(g, logits, target, count, (struct ull__loss_attrs){.ignored = -100}),
        1);
}

static void put_mse(struct ull__graph *g, int y)
{
    struct ull__tensor of = g->tensors[y];
    int target = ull__graph_input(g, "target", of.type, of.rank, of.dims);
    int count = ull__graph_control(g, "target_count", ULL_TYPE_F32);
    ull__graph_loss(g, ull__mse(g, y, target, count), 1);
}

static void put_loss(struct reader *r)
{
    struct ull__graph *g = r->graph;
    if (g->output_count == 0) {
        return;
    }
    int chosen = 0; /* the first one of numbers that can be trained on */
    for (int i = g->output_count - 1; i >= 0; --i) {
        const struct ull__tensor *output = &g->tensors[g->outputs[i]];
        chosen = ull__type_is_float(output->type) && output->rank > 0 ? i : chosen;
    }
    int y = g->outputs[chosen];
    const struct ull__tensor *of = &g->tensors[y];
    bool classes = (of->rank == 2 || of->rank == 3) && of->dims[of->rank - 1] != 1;
    if (!ull__type_is_float(of->type) || of->rank == 0) {
        reader_fail(r, ULL_E_FORMAT,
                    "its output is of %s: expected floating-point numbers to train on",
                    ull__type_text(of->type));
    } else if (r->options->loss == ULL_ONNX_LOSS_CROSS_ENTROPY && of->rank < 2) {
        reader_fail(r, ULL_E_INVALID, "its first output has no classes for a cross-entropy");
    } else if (r->options->loss == ULL_ONNX_LOSS_CROSS_ENTROPY ||
               (r->options->loss == ULL_ONNX_LOSS_AUTO && classes)) {
        put_cross_entropy(g, y);
    } else {
        put_mse(g, y);
    }
}

static void check_batch(struct reader *r)
{
    for (int i = 0; i < r->graph->tensor_count; ++i) {
        const struct ull__tensor *of = &r->graph->tensors[i];
        for (int j = 0; of->role == ULL_ROLE_INPUT && j < of->rank; ++j) {
            if (!ull__dim_is_const(of->dims[j])) {
                return;
            }
        }
    }
    reader_fail(r, ULL_E_FORMAT, "none of its inputs has a dimension for the samples of a batch");
}

/* A batch that was a number in the file must have gone all the way. */
static void check_results(struct reader *r)
{
    const struct ull__graph *g = r->graph;
    bool follows = g->output_count == 0 || r->first == 0;
    for (int i = 0; i < g->output_count; ++i) {
        const struct ull__tensor *of = &g->tensors[g->outputs[i]];
        for (int j = 0; j < of->rank; ++j) {
            follows |= !ull__dim_is_const(of->dims[j]);
        }
    }
    if (!follows) {
        reader_fail(
            r, ULL_E_FORMAT,
            "its outputs do not depend on the batch: write it with an open first dimension");
    }
}

void put_ends(struct reader *r)
{
    struct ull__graph *g = r->graph;
    bool loss = false;
    if (r->file->n_output == 0) {
        reader_fail(r, ULL_E_FORMAT, "it has no output");
    }
    for (size_t i = 0; i < r->file->n_output && reader_ok(r); ++i) {
        const char *name = r->file->output[i]->name;
        struct value *value = name != NULL ? value_find(r, name) : NULL;
        int made = value != NULL ? value_tensor(r, value) : ULL_NONE;
        if (value == NULL) {
            reader_fail(r, ULL_E_FORMAT, "nothing makes its output '%s'", shown(name));
        } else if (made == ULL_NONE) {
            return;
        } else if (!r->options->as_is && g->tensors[made].rank == 0 &&
                   g->tensors[made].node != ULL_NONE && ull__type_is_float(g->tensors[made].type)) {
            ull__graph_loss(g, made, 1);
            loss = true;
        } else {
            ull__graph_result(g, made);
        }
    }
    if (!r->options->as_is && reader_ok(r)) {
        check_batch(r);
        check_results(r);
    }
    if (!r->options->as_is && !loss && reader_ok(r)) {
        put_loss(r);
    }
}
