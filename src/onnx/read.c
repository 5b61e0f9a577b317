/*
 * read.c: from the bytes of a file to a graph: names, order, one operator after the other. See onnx.h.
 *
 * Operators are translated in the order of the file; where that is none to run them in, in the nearest one that
 * is. A node that nobody reads is translated too, for it may be wrong, and dropped afterwards (fuse.c).
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "file.h"
#include "onnx_private.h"
#include "order.h"

struct piece {
    struct piece *before;
    max_align_t bytes[];
};

void reader_fail(struct reader *r, ull_status status, const char *format, ...)
{
    if (r->status == ULL_OK) {
        r->status = status;
        va_list list;
        va_start(list, format);
        vsnprintf(r->error.message, sizeof(r->error.message), format, list);
        va_end(list);
    }
}

bool reader_ok(const struct reader *r)
{
    return r->status == ULL_OK && ull__graph_ok(r->graph);
}

const char *shown(const char *name)
{
    static _Thread_local char texts[4][100];
    static _Thread_local int next;
    char *text = texts[next = (next + 1) % 4];
    size_t length = 0;
    for (; name != NULL && name[length] != '\0' && length < sizeof(texts[0]) - 1; ++length) {
        text[length] = (unsigned char)name[length] < ' ' || name[length] == 127 ? '?' : name[length];
    }
    text[length] = '\0';
    return text;
}

void call_fail(const struct call *call, const char *format, ...)
{
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    const char *name = call->node->name;
    if (name == NULL || name[0] == '\0') {
        name = call->node->n_output > 0 ? call->node->output[0] : "";
    }
    reader_fail(call->reader, ULL_E_FORMAT, "%s '%s': %s", shown(call->node->op_type), shown(name),
                text);
}

void *reader_alloc(struct reader *r, size_t count, size_t size)
{
    struct piece *piece =
        count < SIZE_MAX / size / 2 ? calloc(1, sizeof(*piece) + count * size) : NULL;
    if (piece == NULL) {
        reader_fail(r, ULL_E_NO_MEMORY, "no memory for %zu bytes of a model", count * size);
        return NULL;
    }
    piece->before = r->pieces;
    r->pieces = piece;
    return piece->bytes;
}

static bool is_onnx_domain(const char *domain)
{
    return domain == NULL || domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0;
}

static void check_opset(struct reader *r, const Onnx__ModelProto *model)
{
    r->opset = 0;
    for (size_t i = 0; i < model->n_opset_import; ++i) {
        if (is_onnx_domain(model->opset_import[i]->domain)) {
            r->opset = model->opset_import[i]->version;
        }
    }
    if (model->graph == NULL) {
        reader_fail(r, ULL_E_FORMAT, "it has no graph");
    } else if (r->opset == 0) {
        reader_fail(r, ULL_E_FORMAT, "it does not say which operator set of ONNX it uses");
    } else if (r->opset < ULL_ONNX_OPSET_LEAST || r->opset > ULL_ONNX_OPSET_MOST) {
        reader_fail(r, ULL_E_FORMAT, "it is of operator set %lld: expected %d to %d",
                    (long long)r->opset, ULL_ONNX_OPSET_LEAST, ULL_ONNX_OPSET_MOST);
    }
}

/* --- Operators that are not supported --- */

struct missing {
    char name[100];
    int count;
};

static int compare_missing(const void *a, const void *b)
{
    const struct missing *one = a, *other = b;
    return one->count != other->count ? other->count - one->count : strcmp(one->name, other->name);
}

static int list_missing(const Onnx__GraphProto *file, struct missing *list, int most)
{
    int count = 0;
    for (size_t i = 0; i < file->n_node; ++i) {
        const Onnx__NodeProto *node = file->node[i];
        const char *type = node->op_type != NULL ? node->op_type : "";
        char name[100];
        int at = 0;
        if (is_onnx_domain(node->domain) && operator_find(type) != NULL) {
            continue;
        }
        snprintf(name, sizeof(name), "%s%s%s",
                 is_onnx_domain(node->domain) ? "" : shown(node->domain),
                 is_onnx_domain(node->domain) ? "" : ".", type[0] != '\0' ? shown(type) : "''");
        while (at < count && strcmp(list[at].name, name) != 0) {
            at += 1;
        }
        if (at == count && count < most) {
            snprintf(list[count].name, sizeof(list[count].name), "%s", name);
            list[count++].count = 0;
        }
        if (at < count) {
            list[at].count += 1;
        }
    }
    qsort(list, (size_t)count, sizeof(*list), compare_missing);
    return count;
}

static void check_operators(struct reader *r)
{
    enum { MOST = 256 };
    struct missing *list = reader_alloc(r, MOST, sizeof(*list));
    int count = list != NULL ? list_missing(r->file, list, MOST) : 0;
    char text[300] = "";
    for (int i = 0; i < count; ++i) {
        char one[140];
        snprintf(one, sizeof(one), "%s%s (%d)", i > 0 ? ", " : "", list[i].name, list[i].count);
        if (strlen(text) + strlen(one) + 20 > sizeof(text)) {
            snprintf(text + strlen(text), sizeof(text) - strlen(text), " and %d more", count - i);
            break;
        }
        strcat(text, one);
    }
    if (count > 0) {
        reader_fail(r, ULL_E_FORMAT, "operators that are not supported: %s", text);
    }
}

/* --- Names --- */

static void add_initializers(struct reader *r)
{
    for (size_t i = 0; i < r->file->n_initializer && reader_ok(r); ++i) {
        const Onnx__TensorProto *tensor = r->file->initializer[i];
        struct value *value = value_add(r, tensor->name != NULL ? tensor->name : "");
        if (value != NULL) {
            value->initializer = tensor;
        }
    }
    if (r->file->n_sparse_initializer > 0) {
        reader_fail(r, ULL_E_FORMAT, "it has sparse weights, which are not supported");
    }
}

static void add_outputs(struct reader *r)
{
    for (size_t i = 0; i < r->file->n_node && reader_ok(r); ++i) {
        for (size_t j = 0; j < r->file->node[i]->n_output; ++j) {
            const char *name = r->file->node[i]->output[j];
            struct value *value = name != NULL && name[0] != '\0' ? value_add(r, name) : NULL;
            if (value != NULL) {
                value->maker = (int)i;
            }
        }
    }
}

static void make_table(struct reader *r)
{
    size_t most = r->file->n_initializer + r->file->n_input + 1;
    for (size_t i = 0; i < r->file->n_node; ++i) {
        most += r->file->node[i]->n_output;
    }
    for (r->slot_count = 16; r->slot_count < 2 * most; r->slot_count *= 2) {
    }
    r->values = reader_alloc(r, most, sizeof(*r->values));
    r->slots = reader_alloc(r, r->slot_count, sizeof(*r->slots));
    for (size_t i = 0; r->slots != NULL && i < r->slot_count; ++i) {
        r->slots[i] = ULL_NONE;
    }
}

/* --- Nodes --- */

/* Blocks of a model have a number: "layer1.0" of node "/layer1/layer1.0/conv1/Conv" or weight "layer1.0.conv1.weight". */
static size_t block_length(const char *name, char between)
{
    for (size_t i = 0; name[i] != '\0';) {
        size_t end = i + strcspn(name + i, between == '/' ? "/" : ".");
        if (name[end] == '\0') {
            return 0; /* the last part is no module */
        }
        size_t digits = end;
        while (digits > i && isdigit((unsigned char)name[digits - 1])) {
            digits -= 1;
        }
        if (digits < end && (digits == i || (between == '/' && name[digits - 1] == '.'))) {
            return end;
        }
        i = end + 1;
    }
    return 0;
}

static void set_block(struct reader *r, const Onnx__NodeProto *node)
{
    struct ull__graph *g = r->graph;
    const char *name = node->name != NULL && node->name[0] == '/' ? node->name + 1 : NULL;
    size_t length = name != NULL ? block_length(name, '/') : 0;
    for (size_t i = 0; name == NULL && i < node->n_input; ++i) {
        const struct value *value = node->input[i] != NULL ? value_find(r, node->input[i]) : NULL;
        if (value != NULL && value->initializer != NULL &&
            (length = block_length(value->name, '.')) > 0) {
            name = value->name;
        }
    }
    if (name == NULL) {
        return; /* nothing is said: where the last one was */
    }
    g->block = ULL_NONE;
    for (int i = g->block_count - 1;
         i >= 0 && i >= g->block_count - 256 && length > 0 && g->block == ULL_NONE; --i) {
        if (strlen(g->blocks[i]) == length && strncmp(g->blocks[i], name, length) == 0) {
            g->block = i;
        }
    }
    if (length > 0 && g->block == ULL_NONE) {
        ull__graph_block(g, ull__graph_text(g, "%.*s", (int)length, name));
    }
}

static void translate(struct reader *r, const Onnx__NodeProto *node)
{
    struct call call = {.reader = r, .graph = r->graph, .node = node, .opset = r->opset};
    set_block(r, node);
    operator_find(node->op_type)->translate(&call);
    if (r->status == ULL_OK && !ull__graph_ok(r->graph)) {
        call_fail(&call, "%s", r->graph->error.message);
    }
    for (int i = 0; (size_t)i < node->n_output && reader_ok(r); ++i) {
        if (wants_output(&call, i) && !value_find(r, node->output[i])->made) {
            call_fail(&call, "its output %d is not supported", i);
        }
    }
}

/* What comes before the first block is one as well. */
static void name_stem(struct ull__graph *g)
{
    if (g->block_count == 0) {
        return;
    }
    int first = 0;
    while (first < g->node_count && g->nodes[first].block == ULL_NONE) {
        first += 1;
    }
    if (first > 0 && first < g->node_count) {
        ull__graph_block(g, "stem");
        for (int i = 0; i < first && ull__graph_ok(g); ++i) {
            g->nodes[i].block = g->block_count - 1;
        }
        ull__graph_block_end(g);
    }
}

static void build(struct reader *r, const Onnx__ModelProto *model)
{
    check_opset(r, model);
    r->file = model->graph;
    if (reader_ok(r)) {
        check_operators(r);
    }
    if (reader_ok(r)) {
        make_table(r);
    }
    if (reader_ok(r)) {
        add_initializers(r);
        check_sizes(r);
        add_inputs(r);
        add_outputs(r);
    }
    int *order = reader_ok(r) ? order_of_nodes(r) : NULL;
    for (size_t i = 0; order != NULL && i < r->file->n_node && reader_ok(r); ++i) {
        translate(r, r->file->node[order[i]]);
    }
    ull__graph_block_end(r->graph);
    if (reader_ok(r)) {
        put_ends(r);
        name_stem(r->graph);
    }
}

static void finish(struct reader *r)
{
    while (r->pieces != NULL) {
        struct piece *before = r->pieces->before;
        free(r->pieces);
        r->pieces = before;
    }
    ull__graph_destroy(r->graph);
}

/* Sizes for one sample and for many are there. */
static void check(struct reader *r)
{
    int64_t values[ULL_SYMBOLS];
    for (int64_t batch = 1; batch < 100 && reader_ok(r); batch += 63) {
        ull__graph_values(r->graph, batch, values);
        struct ull_error err;
        if (ull__graph_check(r->graph, values, &err) != ULL_OK) {
            reader_fail(r, ULL_E_FORMAT, "%s", err.message);
        }
    }
}

ull_status ull__onnx_parse(const void *data, size_t size, const struct ull__onnx_options *options,
                           struct ull__graph **graph, struct ull_error *err)
{
    const char *label = options->label != NULL ? options->label : "model";
    struct ull_error why;
    if (ull__onnx_scan(&onnx__model_proto__descriptor, data, size, &why) != ULL_OK) {
        return ull__fail(err, ULL_E_FORMAT, "'%.200s' is no model in the format of ONNX: %s", label,
                         why.message);
    }
    Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, size, data);
    if (model == NULL) {
        return ull__fail(err, ULL_E_FORMAT, "'%.200s' is no model in the format of ONNX", label);
    }
    struct reader r = {.options = options, .graph = ull__graph_create(), .cells_left = CELLS_OF_ALL};
    if (r.graph != NULL) {
        r.graph->name = ull__graph_text(r.graph, "%s", label);
        build(&r, model);
    }
    onnx__model_proto__free_unpacked(model, NULL);
    if (r.graph != NULL && reader_ok(&r)) {
        r.graph = ull__onnx_fuse(r.graph, options->apart);
    }
    if (r.graph == NULL) {
        r.status = ull__fail(&r.error, ULL_E_NO_MEMORY, "no memory for the graph");
    } else {
        check(&r);
        if (!ull__graph_ok(r.graph)) {
            ull_status status = r.graph->status;
            reader_fail(&r, status == ULL_E_INVALID ? ULL_E_FORMAT : status, "%s",
                        r.graph->error.message);
        }
    }
    if (r.status == ULL_OK) {
        *graph = r.graph;
        r.graph = NULL;
    } else if (r.first > 1) {
        ull__fail(err, r.status, "'%.150s' has a batch of %lld: %.300s", label, (long long)r.first,
                  r.error.message);
    } else {
        ull__fail(err, r.status, "'%.150s': %.340s", label, r.error.message);
    }
    finish(&r);
    return r.status;
}

ull_status ull__onnx_read(const char *path, const struct ull__onnx_options *options,
                          struct ull__graph **graph, struct ull_error *err)
{
    char *data;
    size_t size;
    ull_status status = ull__file_read(path, ULL_ONNX_MOST_BYTES, &data, &size, err);
    if (status != ULL_OK) {
        return status;
    }
    const char *slash = strrchr(path, '/');
    char folder[ULL_FILE_PATH] = ".";
    size_t length = slash != NULL ? (size_t)(slash - path) : 0;
    if (length < sizeof(folder) && slash != NULL) {
        snprintf(folder, sizeof(folder), "%.*s", length > 0 ? (int)length : 1, path);
    }
    struct ull__onnx_options with = *options;
    with.folder = folder;
    with.label = options->label != NULL ? options->label : path;
    status = ull__onnx_parse(data, size, &with, graph, err);
    free(data);
    return status;
}
