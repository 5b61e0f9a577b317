/*
 * ops_einsum.c: sums of products of one or two tensors, "bhid,bhjd->bhij", as one product of matrices: dimensions that
 * both have and the result too in front, those that are summed within, those of one tensor alone around.
 */
#include <string.h>

#include "onnx_private.h"

/* Letters of a tensor, and where they go. */
struct side {
    char letters[ULL_RANK + 1];
    int rank, x;
};

struct equation {
    struct side in[2];
    char out[ULL_RANK + 1];
    int inputs, out_rank;
};

static bool read_letters(const char **text, char *letters, int *rank)
{
    *rank = 0;
    for (; **text != '\0' && **text != ',' && **text != '-'; ++*text) {
        char letter = **text;
        bool fits = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
        if (letter == ' ') {
            continue;
        }
        if (!fits || *rank == ULL_RANK || memchr(letters, letter, (size_t)*rank) != NULL) {
            return false; /* dots, diagonals */
        }
        letters[(*rank)++] = letter;
    }
    letters[*rank] = '\0';
    return true;
}

/* The result of an equation that does not say it: letters that there are once, in the order of the alphabet. */
static bool those_named_once(struct equation *e)
{
    for (int letter = 'A'; letter <= 'z'; ++letter) {
        bool first = strchr(e->in[0].letters, letter) != NULL;
        bool second = strchr(e->in[1].letters, letter) != NULL;
        if (first != second) {
            if (e->out_rank == ULL_RANK) {
                return false;
            }
            e->out[e->out_rank++] = (char)letter;
        }
    }
    return true;
}

static bool read_equation(const struct call *call, struct equation *e)
{
    const Onnx__AttributeProto *found = attribute(call, "equation");
    char text[128];
    const char *at = text;
    *e = (struct equation){.inputs = 0};
    if (found == NULL || !found->has_s || found->s.len >= sizeof(text) || call->node->n_input > 2) {
        return false;
    }
    memcpy(text, found->s.data, found->s.len);
    text[found->s.len] = '\0';
    while (e->inputs < 2 && read_letters(&at, e->in[e->inputs].letters, &e->in[e->inputs].rank)) {
        e->inputs += 1;
        if (*at != ',') {
            break;
        }
        at += 1;
    }
    if ((size_t)e->inputs == call->node->n_input && *at == '\0') {
        return those_named_once(e);
    }
    return (size_t)e->inputs == call->node->n_input && at[0] == '-' && at[1] == '>' &&
           (at += 2, read_letters(&at, e->out, &e->out_rank)) && *at == '\0';
}

/* Adds up the dimensions that neither the result nor the other tensor has. */
static void sum_alone(struct ull__graph *g, struct side *side, const char *other, const char *out)
{
    uint32_t axes = 0;
    int rank = 0;
    for (int i = 0; i < side->rank; ++i) {
        if (strchr(other, side->letters[i]) == NULL && strchr(out, side->letters[i]) == NULL) {
            axes |= 1u << i;
        } else {
            side->letters[rank++] = side->letters[i];
        }
    }
    side->letters[rank] = '\0';
    side->rank = rank;
    if (axes != 0) {
        side->x = ull__reduce(g, ULL_REDUCE_SUM, side->x, axes, false);
    }
}

/* Brings the dimensions into an order of letters. */
static int ordered(struct ull__graph *g, int x, const char *is, const char *wanted)
{
    int order[ULL_RANK];
    for (int i = 0; wanted[i] != '\0'; ++i) {
        order[i] = (int)(strchr(is, wanted[i]) - is);
    }
    return strcmp(is, wanted) == 0 ? x : ull__transpose(g, x, order);
}

/* Letters of `from` that are in `in` (or not) and in `also` (or not). */
static int pick(char *letters, int count, const char *from, const char *in, bool is_in,
                const char *also, bool is_also)
{
    for (; *from != '\0'; ++from) {
        if ((strchr(in, *from) != NULL) == is_in && (strchr(also, *from) != NULL) == is_also) {
            letters[count++] = *from;
        }
    }
    letters[count] = '\0';
    return count;
}

static ull__dim span(struct ull__graph *g, int x, int from, int to)
{
    return ull__dims_product(g, to - from, g->tensors[x].dims + from);
}

static int product(struct call *call, struct equation *e)
{
    struct ull__graph *g = call->graph;
    const char *a = e->in[0].letters, *b = e->in[1].letters;
    char left[ULL_RANK + 1], right[ULL_RANK + 1], last[2 * ULL_RANK + 1];
    int batch = pick(left, 0, a, b, true, e->out, true);
    int rows = pick(left, batch, a, b, false, e->out, true);
    int all = pick(left, rows, a, b, true, e->out, false);
    memcpy(right, left, (size_t)batch);
    memcpy(right + batch, left + rows, (size_t)(all - rows));
    int within = batch + all - rows, whole = pick(right, within, b, a, false, e->out, true);
    memcpy(last, left, (size_t)rows);
    memcpy(last + rows, right + within, (size_t)(whole - within + 1));
    int x = ordered(g, e->in[0].x, a, left), y = ordered(g, e->in[1].x, b, right);
    if (x == ULL_NONE || y == ULL_NONE || (int)strlen(last) != e->out_rank) {
        return ULL_NONE;
    }
    ull__dim dims[ULL_RANK];
    for (int i = 0; i < within; ++i) {
        int at = i < batch ? i : i - batch + rows;
        if (!same_size(call->reader, g->tensors[x].dims[at], g->tensors[y].dims[i])) {
            call_fail(call, "dimension '%c' is not the same in both tensors", right[i]);
            return ULL_NONE;
        }
    }
    for (int i = 0; i < e->out_rank; ++i) {
        dims[i] = i < rows ? g->tensors[x].dims[i] : g->tensors[y].dims[within + i - rows];
    }
    ull__dim n = span(g, x, 0, batch), inner = span(g, x, rows, all);
    int m = ull__reshape(g, x, 3, (ull__dim[]){n, span(g, x, batch, rows), inner});
    int k = ull__reshape(g, y, 3, (ull__dim[]){n, inner, span(g, y, within, whole)});
    int z = ull__reshape(g, ull__matmul(g, m, k, false, false), e->out_rank, dims);
    return z == ULL_NONE ? z : ordered(g, z, last, e->out);
}

void translate_einsum(struct call *call)
{
    struct equation e;
    if (!read_equation(call, &e)) {
        call_fail(call,
                  "expected one or two tensors, each dimension with a letter of its own, and ->");
        return;
    }
    for (int i = 0; i < e.inputs; ++i) {
        e.in[i].x = tensor(call, i);
        if (e.in[i].x == ULL_NONE || call->graph->tensors[e.in[i].x].rank != e.in[i].rank) {
            call_fail(call, "tensor %d does not have %d dimensions", i, e.in[i].rank);
            return;
        }
    }
    for (int i = 0; i < e.inputs; ++i) {
        sum_alone(call->graph, &e.in[i], e.inputs > 1 ? e.in[1 - i].letters : "", e.out);
    }
    for (int i = 0; i < e.out_rank; ++i) {
        if (strchr(e.in[0].letters, e.out[i]) == NULL && strchr(e.in[1].letters, e.out[i]) == NULL) {
            call_fail(call, "no tensor has the dimension '%c' of the result", e.out[i]);
            return;
        }
    }
    put(call, 0,
        e.inputs == 2 ? product(call, &e) : ordered(call->graph, e.in[0].x, e.in[0].letters, e.out));
}
