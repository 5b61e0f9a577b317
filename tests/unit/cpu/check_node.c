/* check_node.c: see check_node.h. Operands lie between guards, results and workspaces are full of NaN before. */
#include "check_node.h"

bool is_missing[128];

static struct buffer buffer(size_t size)
{
    struct buffer b = {.size = size};
    if (posix_memalign((void **)&b.all, 64, size + 2 * (size_t)GUARD) != 0) {
        abort();
    }
    memset(b.all, 0xa5, size + 2 * (size_t)GUARD);
    b.bytes = b.all + GUARD;
    memset(b.bytes, 0xff, size);
    return b;
}

static bool is_whole(const struct buffer *b)
{
    bool whole = true;
    for (size_t i = 0; i < GUARD; ++i) {
        whole = whole && b->all[i] == 0xa5 && b->bytes[b->size + i] == 0xa5;
    }
    return whole;
}

/* --- Between the reference's rows and how a tensor lies --- */

static bool is_last(const struct running *r, int tensor)
{
    return r->layouts != NULL && r->layouts[tensor] == ULL_LAYOUT_CHANNELS_LAST &&
           r->c->graph->tensors[tensor].rank == 4;
}

/* Where element i of rows lies with channels last. */
static int64_t place(const struct running *r, int tensor, int64_t i)
{
    int64_t c = ref_size(r->ref, tensor, 1), h = ref_size(r->ref, tensor, 2);
    int64_t w = ref_size(r->ref, tensor, 3);
    int64_t x = i % w, y = i / w % h, channel = i / w / h % c, n = i / w / h / c;
    return ((n * h + y) * w + x) * c + channel;
}

static void move(const struct running *r, int tensor, double *rows, void *bytes, bool out)
{
    int64_t count = ref_count(r->ref, tensor);
    enum ull__type type = r->c->graph->tensors[tensor].type;
    double *lying = malloc(sizeof(*lying) * (size_t)(count + 1));
    if (lying == NULL) {
        abort();
    }
    if (out) {
        ref_decode(type, bytes, lying, count);
    }
    for (int64_t i = 0; i < count; ++i) {
        int64_t at = is_last(r, tensor) ? place(r, tensor, i) : i;
        if (out) {
            rows[i] = lying[at];
        } else {
            lying[at] = rows[i];
        }
    }
    if (!out) {
        ref_encode(type, lying, bytes, count);
    }
    free(lying);
}

static size_t bytes_of(const struct running *r, int tensor)
{
    return (size_t)ull__tensor_bytes(r->c->graph, tensor, r->c->values);
}

/* --- Operands --- */

static void prepare_inputs(struct running *r)
{
    const struct ull__node *node = &r->c->graph->nodes[r->node];
    for (int i = 0; i < node->input_count; ++i) {
        struct operand *in = &r->in[i];
        *in = (struct operand){.tensor = node->inputs[i]};
        for (int j = 0; j < i; ++j) {
            if (r->in[j].tensor == in->tensor && in->tensor != ULL_NONE) {
                in->bytes = r->in[j].bytes;
            }
        }
        if (in->tensor != ULL_NONE && in->bytes == NULL) {
            in->own = buffer(bytes_of(r, in->tensor));
            in->bytes = in->own.bytes;
            move(r, in->tensor, ref_data(r->ref, in->tensor), in->bytes, false);
        }
    }
}

/* The operand among the inputs that output i lies in, or NULL. */
static struct operand *lies_in(struct running *r, int i, bool in_place)
{
    const struct ull__graph *g = r->c->graph;
    const struct ull__node *node = &g->nodes[r->node];
    const struct ull__tensor *out = &g->tensors[node->outputs[i]];
    for (int j = 0; j < node->input_count && out->alias != ULL_NONE; ++j) {
        if (node->inputs[j] == out->alias) {
            return &r->in[j];
        }
    }
    int first = node->input_count > 0 ? node->inputs[0] : ULL_NONE;
    bool may = i == 0 && in_place && (node->op->flags & ULL_OP_INPLACE) != 0 && first != ULL_NONE &&
               bytes_of(r, first) == bytes_of(r, node->outputs[0]) &&
               g->tensors[first].type == out->type &&
               is_last(r, first) == is_last(r, node->outputs[0]);
    return may ? &r->in[0] : NULL;
}

static void prepare_outputs(struct running *r, bool in_place)
{
    const struct ull__graph *g = r->c->graph;
    const struct ull__node *node = &g->nodes[r->node];
    for (int i = 0; i < node->output_count; ++i) {
        struct operand *out = &r->out[i], *in = lies_in(r, i, in_place);
        *out = (struct operand){.tensor = node->outputs[i]};
        if (in != NULL) {
            const struct ull__tensor *of = &g->tensors[out->tensor];
            int64_t offset = of->alias == ULL_NONE
                                 ? 0
                                 : ull__dim_value(g->symbols, of->alias_offset, r->c->values);
            out->bytes = in->bytes + offset;
        } else {
            out->own = buffer(bytes_of(r, out->tensor));
            out->bytes = out->own.bytes;
        }
    }
}

static void check_guards(const struct running *r, const struct operand *list, int count)
{
    for (int i = 0; i < count; ++i) {
        if (list[i].own.all != NULL && !is_whole(&list[i].own)) {
            cases_print(r->c);
            fail_msg("%s: node %d wrote outside of tensor %d", r->what, r->node, list[i].tensor);
        }
    }
}

static void free_operands(struct operand *list, int count)
{
    for (int i = 0; i < count; ++i) {
        free(list[i].own.all);
    }
}

/* --- A run --- */

/* Puts what the kernel gives into `results`, rows by output. False: there is no kernel for it. */
static bool run_kernel(struct running *r, bool in_place, double **results)
{
    const struct ull__node *node = &r->c->graph->nodes[r->node];
    const struct ull__backend_ops *ops = r->backend->ops;
    struct ull__selecting selecting = {.graph = r->c->graph,
                                       .node = r->node,
                                       .values = r->c->values,
                                       .layouts = r->layouts,
                                       .most_workspace = ULL_NONE};
    struct ull__selection selection;
    struct ull__kernel *kernel;
    struct ull_error err = {{0}};
    ull_status status = ops->select(r->backend, &selecting, &selection, &err);
    if (status == ULL_E_NOT_FOUND) {
        return false;
    }
    if (status != ULL_OK || ops->compile(r->backend, &selecting, &kernel, &err) != ULL_OK) {
        cases_print(r->c);
        fail_msg("%s: node %d: %s", r->what, r->node, err.message);
    }
    prepare_inputs(r);
    prepare_outputs(r, in_place);
    void *in[OPERANDS] = {NULL}, *out[OPERANDS] = {NULL};
    for (int i = 0; i < node->input_count; ++i) {
        in[i] = r->in[i].bytes;
    }
    for (int i = 0; i < node->output_count; ++i) {
        out[i] = r->out[i].bytes;
    }
    struct buffer workspace = buffer((size_t)selection.workspace);
    struct ull__launch launch = {.inputs = in, .outputs = out, .workspace = workspace.bytes};
    ops->enqueue(r->backend, node->queue, kernel, &launch);
    assert_int_equal(ops->synchronize(r->backend, NULL), ULL_OK);
    ops->release(r->backend, kernel);
    check_guards(r, r->in, node->input_count);
    check_guards(r, r->out, node->output_count);
    if (!is_whole(&workspace)) {
        cases_print(r->c);
        fail_msg("%s: node %d (%s) wrote outside of its workspace of %lld bytes", r->what, r->node,
                 selection.algorithm, (long long)selection.workspace);
    }
    for (int i = 0; i < node->output_count; ++i) {
        move(r, r->out[i].tensor, results[i], r->out[i].bytes, true);
    }
    free(workspace.all);
    free_operands(r->in, node->input_count);
    free_operands(r->out, node->output_count);
    return true;
}

/* --- Comparison --- */

static double most_of(struct ref *ref, int tensor)
{
    double most = 0;
    for (int64_t i = 0; tensor != ULL_NONE && i < ref_count(ref, tensor); ++i) {
        double amount = fabs(ref_data(ref, tensor)[i]);
        most = isfinite(amount) ? fmax(most, amount) : most;
    }
    return most;
}

/* How many elements of the largest input go into one of the result, at least 1. */
static double terms_of(const struct running *r)
{
    const struct ull__node *node = &r->c->graph->nodes[r->node];
    double most = 1, results = 1;
    for (int i = 0; i < node->input_count; ++i) {
        if (node->inputs[i] != ULL_NONE) {
            most = fmax(most, (double)ref_count(r->ref, node->inputs[i]));
        }
    }
    if (node->output_count > 0) {
        results = fmax(1, (double)ref_count(r->ref, node->outputs[0]));
    }
    return fmax(1, most / results);
}

/* How large the numbers are that a sum of this node is made of, and the sums on the way: those of long ones are larger. */
static double magnitude(struct running *r)
{
    const struct ull__node *node = &r->c->graph->nodes[r->node];
    double most = 1, product = 1;
    for (int i = 0; i < node->input_count; ++i) {
        double of = most_of(r->ref, node->inputs[i]);
        bool floats = node->inputs[i] != ULL_NONE &&
                      ull__type_is_float(r->c->graph->tensors[node->inputs[i]].type);
        most = floats ? fmax(most, of) : most;
        product *= floats && i < 2 ? fmax(of, 1) : 1;
    }
    return fmax(most, product) * fmax(1, sqrt(terms_of(r)) / 4);
}

static double unit(enum ull__type type)
{
    return type == ULL_TYPE_BF16 ? 0x1p-8 : type == ULL_TYPE_F16 ? 0x1p-11 : 0;
}

/* What is computed of 16-bit operands may be rounded to them on the way. */
static double tolerance(struct running *r, enum ull__type type, double value, double most)
{
    const struct ull__node *node = &r->c->graph->nodes[r->node];
    double half = unit(type);
    for (int i = 0; i < node->input_count; ++i) {
        if (node->inputs[i] != ULL_NONE) {
            half = fmax(half, unit(r->c->graph->tensors[node->inputs[i]].type));
        }
    }
    bool several = node->op->precision == ULL_PRECISION_HALF;
    return 1e-5 * most + 1.01 * unit(type) * fabs(value) + (several ? half * most / 4 : 0) +
           (type == ULL_TYPE_F16 ? 0x1p-24 : 0);
}

/* Zeros of padding times infinity are no numbers in some algorithms; what is lost is wrong in all. */
static bool is_near(struct running *r, enum ull__type type, double a, double b, double most)
{
    bool exact = !ull__type_is_float(type);
    if (r->poisoned && !exact) {
        bool lost = !isfinite(ref_rounded(b, type)) && isfinite(a);
        return !lost &&
               (!isfinite(a) || !isfinite(most) || fabs(a - b) <= tolerance(r, type, b, most));
    }
    return !exact && isfinite(b) && fabs(a - b) <= tolerance(r, type, b, most);
}

static void compare(struct running *r, double **results, double size)
{
    const struct ull__graph *g = r->c->graph;
    const struct ull__node *node = &g->nodes[r->node];
    for (int i = 0; i < node->output_count; ++i) {
        int tensor = node->outputs[i];
        enum ull__type type = g->tensors[tensor].type;
        double *expected = ref_data(r->ref, tensor);
        double most = fmax(size, most_of(r->ref, tensor));
        for (int64_t j = 0; j < ref_count(r->ref, tensor); ++j) {
            double a = results[i][j], b = expected[j];
            bool same = a == b || (isnan(a) && isnan(b)) || a == ref_rounded(b, type);
            if (!same && !is_near(r, type, a, b, most)) {
                cases_print(r->c);
                fail_msg("%s: node %d (%s), output %d, element %lld: %.9g, expected %.9g", r->what,
                         r->node, node->op->name, i, (long long)j, a, b);
            }
        }
    }
}

/* What the next node reads is what a kernel would have stored. */
static void round_outputs(struct running *r)
{
    const struct ull__node *node = &r->c->graph->nodes[r->node];
    for (int i = 0; i < node->output_count; ++i) {
        double *data = ref_data(r->ref, node->outputs[i]);
        for (int64_t j = 0; j < ref_count(r->ref, node->outputs[i]); ++j) {
            data[j] = ref_rounded(data[j], r->c->graph->tensors[node->outputs[i]].type);
        }
    }
}

static int place_of(const struct ull__op *op)
{
    int at = 0;
    while (ull__ops[at] != op) {
        at += 1;
    }
    return at;
}

static bool is_only_view(const struct running *r)
{
    const struct ull__node *node = &r->c->graph->nodes[r->node];
    bool view = true;
    for (int i = 0; i < node->output_count; ++i) {
        const struct ull__tensor *out = &r->c->graph->tensors[node->outputs[i]];
        view = view && out->alias != ULL_NONE && !out->writes;
    }
    return view;
}

void check_node(struct running *r, bool in_place)
{
    const struct ull__node *node = &r->c->graph->nodes[r->node];
    double *results[2][OPERANDS] = {{NULL}};
    if (is_only_view(r)) {
        ref_node(r->ref, r->node);
        return;
    }
    assert_true(node->input_count <= OPERANDS && node->output_count <= OPERANDS);
    for (int i = 0; i < 2 * node->output_count; ++i) {
        int64_t count = ref_count(r->ref, node->outputs[i / 2]);
        results[i % 2][i / 2] = calloc((size_t)count + 1, sizeof(double));
    }
    bool found = run_kernel(r, false, results[0]) && run_kernel(r, in_place, results[1]);
    is_missing[place_of(node->op)] |= !found;
    double size = magnitude(r);
    ref_node(r->ref, r->node);
    for (int i = 0; i < node->output_count && found; ++i) {
        size_t bytes = sizeof(double) * (size_t)ref_count(r->ref, node->outputs[i]);
        if (memcmp(results[0][i], results[1][i], bytes) != 0) {
            cases_print(r->c);
            fail_msg("%s: node %d (%s) gives other bits %s", r->what, r->node, node->op->name,
                     in_place ? "in place" : "in a second run");
        }
    }
    if (found) {
        compare(r, results[0], size);
    }
    round_outputs(r);
    for (int i = 0; i < 2 * node->output_count; ++i) {
        free(results[i % 2][i / 2]);
    }
}
