/*
 * eager.c: PyTorch's memory, simulated. See eager.h.
 *
 * A storage is what the allocator hands out; tensors that are views share one. It is counted while anybody refers to
 * it: the program, until the last operator of the forward pass that reads it; autograd, for what an operator
 * saved, until its gradient has run; a gradient, until it has been passed on.
 */
#include <stdlib.h>
#include <string.h>

#include "eager_private.h"
#include "error.h"

enum { ROUND = 512 };

/*
 * cuBLAS has a workspace for each thread that calls it, and the backward pass runs in a thread of its own: 32 MiB on
 * Hopper (PyTorch, CUDABlas.cpp, parseChosenWorkspaceSize).
 */
enum { BLAS_WORKSPACE = 32 << 20, BLAS_THREADS = 2 };

/* --- Storages --- */

static int allocate(struct eager *e, int64_t bytes)
{
    if (e->storage_count == e->storage_room) {
        int room = e->storage_room == 0 ? 1024 : 2 * e->storage_room;
        struct storage *more = realloc(e->storages, sizeof(*more) * (size_t)room);
        if (more == NULL) {
            e->failed = true;
            return ULL_NONE;
        }
        e->storages = more;
        e->storage_room = room;
    }
    int64_t rounded = (bytes + ROUND - 1) / ROUND * ROUND;
    e->storages[e->storage_count] = (struct storage){rounded, 1};
    e->live += rounded;
    e->peak = e->live > e->peak ? e->live : e->peak;
    return e->storage_count++;
}

static int hold(struct eager *e, int storage)
{
    if (storage != ULL_NONE) {
        e->storages[storage].references += 1;
    }
    return storage;
}

static void let_go(struct eager *e, int storage)
{
    if (storage != ULL_NONE && --e->storages[storage].references == 0) {
        e->live -= e->storages[storage].bytes;
    }
}

/* The workspace of an operator, which is gone when it has run. */
static void work(struct eager *e, const struct ull__node *node, int direction)
{
    int64_t bytes = ull__eager_workspace(e, node, direction);
    if (bytes > 0) {
        let_go(e, allocate(e, bytes));
    }
}

/* --- Forward --- */

static void save(struct eager *e, struct saved *saved, int storage)
{
    if (saved != NULL && saved->count < SAVED_MOST && storage != ULL_NONE) {
        saved->storages[saved->count++] = hold(e, storage);
    }
}

/* An input as an operator reads it: itself, or a copy in another type. The caller lets it go. */
static int read_input(struct eager *e, const struct ull__node *node, int i)
{
    int input = node->inputs[i];
    enum casts casts =
        e->mode.amp && ull__eager_is_float(e, input) ? ull__eager_casts_of(node) : CAST_NONE;
    bool half = e->half[input];
    if (casts == CAST_NONE || half == (casts == CAST_HALF)) {
        return hold(e, e->of[input]);
    }
    if (casts == CAST_HALF && ull__eager_is_weight(e, input)) {
        if (e->cached[input] == ULL_NONE) {
            e->cached[input] = allocate(e, ull__eager_bytes_of(e, input, true));
        }
        return hold(e, e->cached[input]);
    }
    return allocate(e, ull__eager_bytes_of(e, input, casts == CAST_HALF));
}

/* Runs one operator; what its gradient will read goes to `saved`, NULL under a checkpoint. */
static void forward_node(struct eager *e, int at, struct saved *saved)
{
    const struct ull__node *node = &e->graph->nodes[at];
    int read[SAVED_MOST];
    int inputs = node->input_count < SAVED_MOST ? node->input_count : SAVED_MOST;
    bool half = e->mode.amp && ull__eager_half_result(e, node), output_saved;
    if (saved != NULL) {
        saved->count = 0;
    }
    if (ull__eager_is_view(e, node)) {
        for (int i = 0; i < node->output_count; ++i) {
            e->of[node->outputs[i]] = hold(e, e->of[node->inputs[0]]);
            e->half[node->outputs[i]] = e->half[node->inputs[0]];
            e->scattered[node->outputs[i]] =
                e->scattered[node->inputs[0]] || node->op == &ull__op_transpose;
        }
        return;
    }
    for (int i = 0; i < inputs; ++i) {
        read[i] = node->inputs[i] != ULL_NONE ? read_input(e, node, i) : ULL_NONE;
    }
    bool grads = e->wanted[node->outputs[0]];
    unsigned mask = ull__eager_saved_inputs(e, node, &output_saved);
    int besides = ULL_NONE;
    int64_t more = ull__eager_saved_besides(e, node);
    if (more > 0) {
        besides = allocate(e, more);
    }
    if (ull__eager_in_place(e, at, half)) {
        e->of[node->outputs[0]] = hold(e, read[0]);
    } else {
        e->half[node->outputs[0]] = half && ull__eager_is_float(e, node->outputs[0]);
        e->of[node->outputs[0]] = allocate(e, ull__eager_own_bytes(e, node->outputs[0]));
    }
    e->half[node->outputs[0]] = half && ull__eager_is_float(e, node->outputs[0]);
    work(e, node, EAGER_FORWARD);
    for (int i = 0; i < inputs && grads; ++i) {
        if ((mask >> i & 1) != 0) {
            save(e, saved, read[i]);
        }
    }
    if (grads && output_saved) {
        save(e, saved, e->of[node->outputs[0]]);
    }
    if (grads) {
        save(e, saved, besides);
    }
    let_go(e, besides);
    for (int i = 0; i < inputs; ++i) {
        let_go(e, read[i]);
    }
}

/* The program lets go of what it reads no more. */
static void leave_behind(struct eager *e, int at)
{
    const struct ull__node *node = &e->graph->nodes[at];
    for (int side = 0; side < 2; ++side) {
        const int *list = side == 0 ? node->inputs : node->outputs;
        int count = side == 0 ? node->input_count : node->output_count;
        for (int i = 0; i < count; ++i) {
            int tensor = list[i];
            if (tensor != ULL_NONE && e->of[tensor] != ULL_NONE &&
                e->graph->tensors[tensor].node != ULL_NONE && e->last_reader[tensor] <= at) {
                let_go(e, e->of[tensor]);
                e->of[tensor] = ULL_NONE;
            }
        }
    }
}

static int block_of(const struct eager *e, int node)
{
    return e->mode.checkpoint ? e->graph->nodes[node].block : ULL_NONE;
}

/* --- Backward --- */

/* Adds a gradient of `bytes`, which `storage` holds, to that of a tensor; sums are in place. */
static void contribute(struct eager *e, int tensor, int storage)
{
    if (e->gradient[tensor] == ULL_NONE) {
        e->gradient[tensor] = storage;
    } else {
        let_go(e, storage);
    }
}

/* The gradient of an input, cast from the type that the operator read to the tensor's own, becomes that of the tensor. */
static void give_gradient(struct eager *e, const struct ull__node *node, int i, int made)
{
    int input = node->inputs[i];
    if (ull__eager_reads_half(e, node, input) != e->half[input]) {
        int cast = allocate(e, ull__eager_own_bytes(e, input));
        let_go(e, made);
        made = cast;
    }
    contribute(e, input, made);
}

static void pass_on(struct eager *e, const struct ull__node *node, int dy)
{
    for (int i = 0; i < node->input_count; ++i) {
        int input = node->inputs[i];
        if (input == ULL_NONE || !e->wanted[input]) {
            continue;
        }
        bool same = ull__eager_own_bytes(e, input) == ull__eager_own_bytes(e, node->outputs[0]);
        contribute(e, input, same ? hold(e, dy) : allocate(e, ull__eager_own_bytes(e, input)));
    }
}

static void backward_node(struct eager *e, int at, struct saved *saved)
{
    const struct ull__node *node = &e->graph->nodes[at];
    int dy = ULL_NONE;
    for (int i = 0; i < node->output_count; ++i) {
        dy = dy == ULL_NONE ? e->gradient[node->outputs[i]] : dy;
    }
    if (dy == ULL_NONE && node->op != &ull__op_cross_entropy && node->op != &ull__op_mse) {
        for (int i = 0; i < saved->count; ++i) {
            let_go(e, saved->storages[i]);
        }
        saved->count = 0;
        return;
    }
    int besides = ULL_NONE;
    if (node->op == &ull__op_cross_entropy) {
        besides = allocate(e, ull__eager_bytes_of(e, node->inputs[0], false)); /* of nll_loss */
    } else if (node->op == &ull__op_attention &&
               (node->input_count == 1 || node->inputs[1] == ULL_NONE)) {
        besides = allocate(
            e, ull__eager_own_bytes(e, node->inputs[0])); /* of q, k and v, which are then stacked */
    }
    int made[SAVED_MOST];
    int inputs = node->input_count < SAVED_MOST ? node->input_count : SAVED_MOST;
    bool passes = ull__eager_passes_on(node);
    for (int i = 0; i < inputs; ++i) {
        int input = node->inputs[i];
        made[i] =
            !passes && input != ULL_NONE && e->wanted[input]
                ? allocate(e, ull__eager_bytes_of(e, input, ull__eager_reads_half(e, node, input)))
                : ULL_NONE;
        if (made[i] != ULL_NONE) {
            work(e, node, i);
        }
    }
    if (passes) {
        pass_on(e, node, dy);
    }
    let_go(e, besides);
    for (int i = 0; i < saved->count; ++i) {
        let_go(e, saved->storages[i]);
    }
    saved->count = 0;
    for (int i = 0; i < node->output_count; ++i) {
        let_go(e, e->gradient[node->outputs[i]]);
        e->gradient[node->outputs[i]] = ULL_NONE;
    }
    /* Casts are operators of their own, after it. */
    for (int i = 0; i < inputs; ++i) {
        if (made[i] != ULL_NONE) {
            give_gradient(e, node, i, made[i]);
        }
    }
}

/* The storages of what a block reads from outside were let go of in the forward pass, but for its checkpoint. */
static void hold_checkpoints(struct eager *e, int *kept)
{
    for (int i = 0; i < e->graph->node_count; ++i) {
        const struct ull__node *node = &e->graph->nodes[i];
        for (int j = 0; j < node->input_count && block_of(e, i) != ULL_NONE; ++j) {
            int input = node->inputs[j];
            int maker = input != ULL_NONE ? e->graph->tensors[input].node : ULL_NONE;
            if (maker != ULL_NONE && block_of(e, maker) != block_of(e, i)) {
                kept[input] = 1;
            }
        }
    }
}

/* Runs a block again, from its checkpoint, and saves what its gradients read. */
static void again(struct eager *e, int first, int last)
{
    for (int i = first; i <= last && !e->failed; ++i) {
        forward_node(e, i, &e->saved[i]);
        const struct ull__node *node = &e->graph->nodes[i];
        for (int j = 0; j < node->input_count; ++j) {
            int input = node->inputs[j],
                maker = input != ULL_NONE ? e->graph->tensors[input].node : ULL_NONE;
            if (maker >= first && e->of[input] != ULL_NONE && e->last_reader[input] <= i) {
                let_go(e, e->of[input]);
                e->of[input] = ULL_NONE;
            }
        }
    }
    /* What leads out of the block is there a second time, and nobody reads it. */
    for (int i = first; i <= last; ++i) {
        const struct ull__node *node = &e->graph->nodes[i];
        for (int j = 0; j < node->output_count; ++j) {
            let_go(e, e->of[node->outputs[j]]);
            e->of[node->outputs[j]] = ULL_NONE;
        }
    }
    for (int i = 0; i < e->graph->tensor_count; ++i) {
        let_go(e, e->cached[i]);
        e->cached[i] = ULL_NONE;
    }
}

static void backward(struct eager *e, int *kept)
{
    for (int i = e->graph->node_count - 1; i >= 0 && !e->failed; --i) {
        int block = block_of(e, i);
        if (block == ULL_NONE) {
            backward_node(e, i, &e->saved[i]);
            continue;
        }
        int first = i;
        while (first > 0 && block_of(e, first - 1) == block) {
            first -= 1;
        }
        for (int t = 0; t < e->graph->tensor_count; ++t) {
            /* The checkpoint is what the block reads; it stays until the block's gradients are done. */
            e->of[t] = kept[t] > 0 ? kept[t] - 1
                                   : (e->graph->tensors[t].node == ULL_NONE ? e->of[t] : ULL_NONE);
        }
        again(e, first, i);
        for (int j = i; j >= first; --j) {
            backward_node(e, j, &e->saved[j]);
        }
        for (int t = 0; t < e->graph->tensor_count; ++t) {
            if (kept[t] > 1 && e->first_reader[t] >= first) {
                let_go(e, kept[t] - 1);
                kept[t] = 0;
            }
        }
        i = first;
    }
}

/* --- A step --- */

static void look(struct eager *e)
{
    const struct ull__graph *graph = e->graph;
    for (int i = 0; i < graph->tensor_count; ++i) {
        e->of[i] = e->cached[i] = e->gradient[i] = ULL_NONE;
        e->last_reader[i] = graph->tensors[i].node;
        e->first_reader[i] = ULL_NONE;
        e->wanted[i] = ull__eager_is_weight(e, i);
    }
    for (int i = 0; i < graph->node_count; ++i) {
        const struct ull__node *node = &graph->nodes[i];
        bool any = false;
        for (int j = 0; j < node->input_count; ++j) {
            if (node->inputs[j] != ULL_NONE) {
                e->last_reader[node->inputs[j]] = i;
                if (e->first_reader[node->inputs[j]] == ULL_NONE) {
                    e->first_reader[node->inputs[j]] = i;
                }
                any |= e->wanted[node->inputs[j]];
            }
        }
        for (int j = 0; j < node->output_count; ++j) {
            e->wanted[node->outputs[j]] |= any && ull__eager_is_float(e, node->outputs[j]) &&
                                           !graph->tensors[node->outputs[j]].writes;
        }
    }
    for (int i = 0; i < graph->output_count; ++i) {
        e->last_reader[graph->outputs[i]] =
            e->last_reader[graph->outputs[i]] < 0 ? 0 : e->last_reader[graph->outputs[i]];
    }
}

static void one_micro_step(struct eager *e, int *kept, int *gradients)
{
    memset(kept, 0, sizeof(*kept) * (size_t)e->graph->tensor_count);
    if (e->mode.checkpoint) {
        hold_checkpoints(e, kept);
    }
    for (int i = 0; i < e->graph->node_count && !e->failed; ++i) {
        forward_node(e, i, block_of(e, i) == ULL_NONE ? &e->saved[i] : NULL);
        for (int j = 0; j < e->graph->nodes[i].output_count; ++j) {
            int output = e->graph->nodes[i].outputs[j];
            if (kept[output] == 1) {
                kept[output] = hold(e, e->of[output]) + 1;
            }
        }
        leave_behind(e, i);
    }
    for (int i = 0; i < e->graph->tensor_count; ++i) {
        let_go(e, e->cached[i]);
        e->cached[i] = ULL_NONE;
    }
    backward(e, kept);
    for (int i = 0; i < e->graph->tensor_count; ++i) {
        if (e->gradient[i] != ULL_NONE && ull__eager_is_weight(e, i)) {
            /* The first micro-step's gradients stay, those of the others are added to them. */
            if (gradients[i] == ULL_NONE) {
                gradients[i] = e->gradient[i];
            } else {
                let_go(e, e->gradient[i]);
            }
        } else {
            let_go(e, e->gradient[i]);
        }
        e->gradient[i] = ULL_NONE;
    }
    for (int i = 0; i < e->graph->tensor_count; ++i) {
        if (kept[i] > 1) {
            let_go(e, kept[i] - 1);
        }
        if (e->graph->tensors[i].node != ULL_NONE) {
            let_go(e, e->of[i]);
            e->of[i] = ULL_NONE;
        }
    }
}

/* Weights, their state, buffers and inputs: there before the step. */
static void begin(struct eager *e)
{
    const struct ull__graph *graph = e->graph;
    bool products = false;
    for (int i = 0; i < graph->node_count; ++i) {
        products |= graph->nodes[i].op == &ull__op_matmul;
    }
    for (int i = 0; i < BLAS_THREADS && products; ++i) {
        allocate(e, BLAS_WORKSPACE);
    }
    int states = e->mode.optimizer == ULL_OPTIMIZER_SGD ? e->mode.momentum : 2;
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        if (tensor->node == ULL_NONE) {
            e->of[i] = allocate(e, ull__eager_own_bytes(e, i));
            for (int j = 0; j < states && ull__eager_is_weight(e, i); ++j) {
                allocate(e, ull__eager_own_bytes(e, i));
            }
        }
    }
}

static void finish(struct eager *e)
{
    free(e->storages);
    free(e->of);
    free(e->half);
    free(e->scattered);
    free(e->wanted);
    free(e->last_reader);
    free(e->first_reader);
    free(e->cached);
    free(e->gradient);
    free(e->saved);
}

ull_status ull__eager_peak(const struct ull__graph *model, const int64_t *values,
                           const struct ull__eager_mode *mode, int64_t *peak, struct ull_error *err)
{
    size_t tensors = (size_t)model->tensor_count + 1, nodes = (size_t)model->node_count + 1;
    struct eager e = {.graph = model,
                      .values = values,
                      .mode = *mode,
                      .of = calloc(tensors, sizeof(int)),
                      .half = calloc(tensors, sizeof(bool)),
                      .scattered = calloc(tensors, sizeof(bool)),
                      .wanted = calloc(tensors, sizeof(bool)),
                      .last_reader = calloc(tensors, sizeof(int)),
                      .first_reader = calloc(tensors, sizeof(int)),
                      .cached = calloc(tensors, sizeof(int)),
                      .gradient = calloc(tensors, sizeof(int)),
                      .saved = calloc(nodes, sizeof(struct saved))};
    int *kept = calloc(tensors, sizeof(int)), *gradients = calloc(tensors, sizeof(int));
    ull_status status = ULL_OK;
    if (e.of == NULL || e.half == NULL || e.scattered == NULL || e.wanted == NULL ||
        e.last_reader == NULL || e.first_reader == NULL || e.cached == NULL || e.gradient == NULL ||
        e.saved == NULL || kept == NULL || gradients == NULL) {
        status = ull__fail(err, ULL_E_NO_MEMORY, "no memory to simulate '%s'", model->name);
    } else {
        look(&e);
        begin(&e);
        for (size_t i = 0; i < tensors; ++i) {
            gradients[i] = ULL_NONE;
        }
        /* The second micro-step has the first one's gradients beside it, as all after it have. */
        for (int i = 0; i < (mode->accumulation > 1 ? 2 : 1); ++i) {
            one_micro_step(&e, kept, gradients);
        }
        *peak = e.peak;
        if (e.failed) {
            status = ull__fail(err, ULL_E_INVALID, "'%s' is larger than there can be", model->name);
        }
    }
    finish(&e);
    free(kept);
    free(gradients);
    return status;
}
