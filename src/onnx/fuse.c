/*
 * fuse.c: a graph without what nobody reads, with decomposed operators put together.
 *
 * From the last node to the first: is what is read the end of a pattern, then the pattern's inputs are read in its
 * place, and what lies between drops out unless others read it too. Then the graph is written again in its old order.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuse.h"

bool near(double a, double b)
{
    return fabs(a - b) <= 1e-4 * fabs(b) + 1e-9;
}

static void read_by(struct fuse *f, int tensor)
{
    int node = tensor != ULL_NONE ? f->from->tensors[tensor].node : ULL_NONE;
    if (node != ULL_NONE) {
        f->live[node] = true;
    }
}

static void read_ends(struct fuse *f)
{
    memset(f->live, 0, sizeof(*f->live) * (size_t)f->from->node_count);
    for (int i = 0; i < f->from->output_count; ++i) {
        read_by(f, f->from->outputs[i]);
    }
    for (int i = 0; i < f->from->loss_count; ++i) {
        read_by(f, f->from->losses[i]);
    }
}

/* What is used at all, and by how many. */
static void count_uses(struct fuse *f)
{
    read_ends(f);
    for (int i = f->from->node_count - 1; i >= 0; --i) {
        const struct ull__node *node = &f->from->nodes[i];
        for (int j = 0; f->live[i] && j < node->input_count; ++j) {
            if (node->inputs[j] != ULL_NONE) {
                f->uses[node->inputs[j]] += 1;
                read_by(f, node->inputs[j]);
            }
        }
    }
    for (int i = 0; i < f->from->output_count; ++i) {
        f->uses[f->from->outputs[i]] += 2; /* it has to stay */
    }
}

static void find_trained(struct fuse *f)
{
    for (int i = 0; i < f->from->tensor_count; ++i) {
        f->trained[i] = f->from->tensors[i].role == ULL_ROLE_PARAMETER;
    }
    for (int i = 0; i < f->from->node_count; ++i) {
        const struct ull__node *node = &f->from->nodes[i];
        bool trained = false;
        for (int j = 0; j < node->input_count; ++j) {
            trained |= node->inputs[j] != ULL_NONE && f->trained[node->inputs[j]];
        }
        for (int j = 0; j < node->output_count; ++j) {
            f->trained[node->outputs[j]] =
                trained && ull__type_is_float(f->from->tensors[node->outputs[j]].type);
        }
    }
}

/* x [..., n] + b [n]: a bias. */
static bool match_bias(const struct fuse *f, int tensor, struct match *match)
{
    int side[2];
    if (!is_binary(f, tensor, ULL_BINARY_ADD, &side[0], &side[1])) {
        return false;
    }
    for (int i = 0; i < 2; ++i) {
        const struct ull__tensor *b = &f->from->tensors[side[i]], *x = &f->from->tensors[side[1 - i]];
        if (b->role == ULL_ROLE_PARAMETER && b->rank == 1 && x->role != ULL_ROLE_PARAMETER &&
            x->rank > 1 && x->dims[x->rank - 1] == b->dims[0]) {
            *match = (struct match){.op = &ull__op_bias,
                                    .attrs = {.axis = {.axis = x->rank - 1}},
                                    .inputs = {side[1 - i], side[i]},
                                    .count = 2,
                                    .turned = ULL_NONE};
            return true;
        }
    }
    return false;
}

/* Whether a tensor is another one with its last two dimensions exchanged: that one. */
static int exchanged(const struct fuse *f, int tensor)
{
    const struct ull__node *node = made_by(f, tensor, &ull__op_transpose);
    if (node == NULL) {
        return ULL_NONE;
    }
    int rank = f->from->tensors[tensor].rank;
    for (int i = 0; i < rank; ++i) {
        int from = i < rank - 2 ? i : i == rank - 2 ? rank - 1 : rank - 2;
        if (node->attrs.shape.order[i] != from) {
            return ULL_NONE;
        }
    }
    return node->inputs[0];
}

/* A product of matrices that are transposed. */
bool match_product(const struct fuse *f, int tensor, struct match *match)
{
    const struct ull__node *node = made_by(f, tensor, &ull__op_matmul);
    if (node == NULL) {
        return false;
    }
    int a = exchanged(f, node->inputs[0]), b = exchanged(f, node->inputs[1]);
    *match = (struct match){
        .op = &ull__op_matmul,
        .attrs = node->attrs,
        .inputs = {a != ULL_NONE ? a : node->inputs[0], b != ULL_NONE ? b : node->inputs[1]},
        .count = 2,
        .turned = ULL_NONE};
    match->attrs.matmul.transpose_a ^= a != ULL_NONE;
    match->attrs.matmul.transpose_b ^= b != ULL_NONE;
    return a != ULL_NONE || b != ULL_NONE;
}

static void find_matches(struct fuse *f, bool apart)
{
    read_ends(f);
    for (int i = f->from->node_count - 1; i >= 0; --i) {
        const struct ull__node *node = &f->from->nodes[i];
        struct match *match = &f->match[i];
        if (!f->live[i]) {
            continue;
        }
        int y = node->outputs[0];
        bool found =
            !apart && node->output_count == 1 &&
            (match_norm(f, y, match) || match_activation(f, y, match) ||
             match_attention(f, y, match) || match_product(f, y, match) || match_bias(f, y, match));
        match->op = found ? match->op : NULL;
        for (int j = 0; j < (found ? match->count : node->input_count); ++j) {
            read_by(f, found ? match->inputs[j] : node->inputs[j]);
        }
    }
}

/* --- Writing --- */

/* The tensor in the new graph; what no node makes is made there when it is first read. */
static int mapped(struct fuse *f, int tensor)
{
    if (tensor == ULL_NONE) {
        return ULL_NONE;
    }
    if (f->mapped[tensor] == ULL_NONE && f->from->tensors[tensor].node == ULL_NONE) {
        struct ull__tensor copy = f->from->tensors[tensor];
        f->mapped[tensor] = ull__graph_tensor(f->to, &copy);
    }
    return f->mapped[tensor];
}

/* [n, t, heads, d] or [n, t, heads * d] with heads side by side. */
static int flattened(struct ull__graph *g, int x)
{
    return g->tensors[x].rank == 4 ? ull__flatten(g, x, 2) : x;
}

static int write_match(struct fuse *f, const struct match *match, int old)
{
    int inputs[5];
    for (int i = 0; i < match->count; ++i) {
        inputs[i] = mapped(f, match->inputs[i]);
        if (inputs[i] == ULL_NONE) {
            continue;
        }
        if (match->flat && i < 3) {
            inputs[i] = flattened(f->to, inputs[i]);
        } else if (i == match->turned) {
            inputs[i] = ull__transpose(f->to, inputs[i], match->order);
        }
    }
    int y = ull__graph_apply(f->to, match->op, &match->attrs, inputs, match->count);
    const struct ull__tensor *of = &f->from->tensors[old];
    if (y != ULL_NONE && f->to->tensors[y].rank != of->rank) {
        y = ull__reshape(f->to, y, of->rank, of->dims);
    }
    return y;
}

/* Blocks in the order in which they begin. */
static void set_block(struct fuse *f, int old)
{
    ull__graph_block_end(f->to);
    if (old != ULL_NONE && f->blocks[old] == ULL_NONE) {
        ull__graph_block(f->to, f->from->blocks[old]);
        f->blocks[old] = f->to->block;
    } else if (old != ULL_NONE) {
        f->to->block = f->blocks[old];
    }
}

static void write_node(struct fuse *f, int at)
{
    const struct ull__node *node = &f->from->nodes[at];
    set_block(f, node->block);
    if (f->match[at].op != NULL) {
        f->mapped[node->outputs[0]] = write_match(f, &f->match[at], node->outputs[0]);
        return;
    }
    int *inputs = ull__graph_alloc(f->to, sizeof(*inputs) * (size_t)(node->input_count + 1));
    for (int i = 0; inputs != NULL && i < node->input_count; ++i) {
        inputs[i] = mapped(f, node->inputs[i]);
    }
    int made = inputs != NULL
                   ? ull__graph_node(f->to, node->op, &node->attrs, inputs, node->input_count)
                   : ULL_NONE;
    for (int i = 0; made != ULL_NONE && i < node->output_count; ++i) {
        f->mapped[node->outputs[i]] = f->to->nodes[made].outputs[i];
    }
}

static void write_graph(struct fuse *f)
{
    const struct ull__graph *from = f->from;
    struct ull__graph *to = f->to;
    to->name = from->name;
    for (int i = 0; i < from->tensor_count; ++i) {
        if (from->tensors[i].role == ULL_ROLE_INPUT && strcmp(from->tensors[i].name, "target") != 0) {
            mapped(f, i);
        }
    }
    for (int i = 0; i < from->node_count && ull__graph_ok(to); ++i) {
        if (f->live[i]) {
            write_node(f, i);
        }
    }
    ull__graph_block_end(to);
    for (int i = 0; i < from->output_count; ++i) {
        ull__graph_result(to, mapped(f, from->outputs[i]));
    }
    for (int i = 0; i < from->loss_count; ++i) {
        ull__graph_loss(to, mapped(f, from->losses[i]), from->loss_weights[i]);
    }
}

struct ull__graph *ull__onnx_fuse(struct ull__graph *from, bool apart)
{
    size_t tensors = (size_t)from->tensor_count + 1, nodes = (size_t)from->node_count + 1;
    struct fuse f = {.from = from,
                     .to = ull__graph_create(),
                     .uses = calloc(tensors, sizeof(int)),
                     .trained = calloc(tensors, sizeof(bool)),
                     .live = calloc(nodes, sizeof(bool)),
                     .match = calloc(nodes, sizeof(struct match)),
                     .mapped = malloc(tensors * sizeof(int)),
                     .blocks = malloc(((size_t)from->block_count + 1) * sizeof(int))};
    struct ull__dims *symbols = ull__dims_copy(from->symbols);
    bool memory = f.to != NULL && f.uses != NULL && f.trained != NULL && f.live != NULL &&
                  f.match != NULL && f.mapped != NULL && f.blocks != NULL && symbols != NULL;
    if (memory) {
        ull__dims_destroy(f.to->symbols);
        f.to->symbols = symbols;
        f.to->batch = from->batch;
        symbols = NULL;
        for (size_t i = 0; i < tensors; ++i) {
            f.mapped[i] = ULL_NONE;
        }
        for (int i = 0; i < from->block_count; ++i) {
            f.blocks[i] = ULL_NONE;
        }
        count_uses(&f);
        find_trained(&f);
        find_matches(&f, apart);
        write_graph(&f);
        ull__graph_adopt(f.to, from);
    } else {
        ull__graph_destroy(f.to);
        f.to = NULL;
    }
    ull__dims_destroy(symbols);
    ull__graph_destroy(from);
    free(f.uses);
    free(f.trained);
    free(f.live);
    free(f.match);
    free(f.mapped);
    free(f.blocks);
    return f.to;
}
