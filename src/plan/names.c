/* names.c: see names.h. */
#include "names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op.h"

enum { NAME = 240 };

struct ull__names {
    const struct ull__graph *graph;
    char **nodes;
    int *table; /* of nodes, by name; ULL_NONE: free */
    size_t room;
};

static uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; ++i) {
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static const uint64_t first_hash = UINT64_C(0xcbf29ce484222325);

/* The place of a name: that of its node, or a free one. */
static size_t place_of(const struct ull__names *names, const char *name)
{
    size_t at = mix(first_hash, name, strlen(name)) % names->room;
    while (names->table[at] != ULL_NONE && strcmp(names->nodes[names->table[at]], name) != 0) {
        at = (at + 1) % names->room;
    }
    return at;
}

/* Whether a node's name is this text and a number. */
static bool begins_with(const char *name, const char *text, size_t length)
{
    return strncmp(name, text, length) == 0 && name[length] == '.' &&
           name[length + 1 + strspn(name + length + 1, "0123456789")] == '\0';
}

/* How many nodes have the same text before their number: by a table of counters with room for all nodes. */
static int next_of(const struct ull__names *names, int node, const char *text, int *first, int *counts)
{
    size_t length = strlen(text), at = mix(first_hash, text, length) % names->room;
    while (first[at] != ULL_NONE && !begins_with(names->nodes[first[at]], text, length)) {
        at = (at + 1) % names->room;
    }
    first[at] = first[at] != ULL_NONE ? first[at] : node;
    return counts[at]++;
}

/* Blocks may have the same name, or the same beginning of one that is too long: they count on. */
static bool name_nodes(struct ull__names *names)
{
    const struct ull__graph *graph = names->graph;
    int *first = malloc(names->room * sizeof(*first));
    int *counts = calloc(names->room, sizeof(*counts));
    bool fine = first != NULL && counts != NULL;
    for (size_t i = 0; i < names->room && fine; ++i) {
        first[i] = ULL_NONE;
    }
    for (int i = 0; i < graph->node_count && fine; ++i) {
        const struct ull__node *node = &graph->nodes[i];
        const char *block = node->block != ULL_NONE ? graph->blocks[node->block] : NULL;
        char text[NAME];
        int length = snprintf(text, sizeof(text), "%.160s%s%.40s", block != NULL ? block : "",
                              block != NULL ? "/" : "", node->op->name);
        snprintf(text + length, sizeof(text) - (size_t)length, ".%d",
                 next_of(names, i, text, first, counts));
        names->nodes[i] = strdup(text);
        fine = names->nodes[i] != NULL;
        if (fine) {
            names->table[place_of(names, text)] = i;
        }
    }
    free(first);
    free(counts);
    return fine;
}

struct ull__names *ull__names_create(const struct ull__graph *graph)
{
    struct ull__names *names = calloc(1, sizeof(*names));
    if (names == NULL) {
        return NULL;
    }
    names->graph = graph;
    names->room = 2 * (size_t)graph->node_count + 1;
    names->nodes = calloc((size_t)graph->node_count + 1, sizeof(*names->nodes));
    names->table = malloc(names->room * sizeof(*names->table));
    for (size_t i = 0; i < names->room && names->table != NULL; ++i) {
        names->table[i] = ULL_NONE;
    }
    if (names->nodes == NULL || names->table == NULL || !name_nodes(names)) {
        ull__names_destroy(names);
        return NULL;
    }
    return names;
}

void ull__names_destroy(struct ull__names *names)
{
    if (names == NULL) {
        return;
    }
    for (int i = 0; i < names->graph->node_count && names->nodes != NULL; ++i) {
        free(names->nodes[i]);
    }
    free(names->nodes);
    free(names->table);
    free(names);
}

const char *ull__names_node(const struct ull__names *names, int node)
{
    return names->nodes[node];
}

const char *ull__names_tensor(const struct ull__names *names, int tensor, char *buffer)
{
    const struct ull__tensor *of = &names->graph->tensors[tensor];
    if (of->node == ULL_NONE) {
        snprintf(buffer, NAME + 16, "%.200s", of->name);
    } else if (of->output > 0) {
        snprintf(buffer, NAME + 16, "%s:%d", names->nodes[of->node], of->output);
    } else {
        snprintf(buffer, NAME + 16, "%s", names->nodes[of->node]);
    }
    return buffer;
}

int ull__names_find_node(const struct ull__names *names, const char *name)
{
    return names->table[place_of(names, name)];
}

int ull__names_find_tensor(const struct ull__names *names, const char *name)
{
    char text[NAME + 16];
    snprintf(text, sizeof(text), "%.240s", name);
    char *colon = strrchr(text, ':'), *end;
    int output = 0;
    int node = ull__names_find_node(names, text);
    if (node == ULL_NONE && colon != NULL) {
        output = (int)strtol(colon + 1, &end, 10);
        *colon = '\0';
        node = *end == '\0' ? ull__names_find_node(names, text) : ULL_NONE;
    }
    if (node != ULL_NONE) {
        const struct ull__node *of = &names->graph->nodes[node];
        return output >= 0 && output < of->output_count ? of->outputs[output] : ULL_NONE;
    }
    for (int i = 0; i < names->graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &names->graph->tensors[i];
        if (tensor->node == ULL_NONE && tensor->name[0] != '\0' && strcmp(tensor->name, name) == 0) {
            return i;
        }
    }
    return ULL_NONE;
}

uint64_t ull__graph_identity(const struct ull__graph *graph)
{
    int64_t values[ULL_SYMBOLS];
    uint64_t hash = first_hash;
    ull__graph_values(graph, 1, values);
    for (int i = 0; i < graph->tensor_count; ++i) {
        const struct ull__tensor *tensor = &graph->tensors[i];
        hash = mix(hash, ull__role_text(tensor->role), strlen(ull__role_text(tensor->role)));
        if (tensor->role == ULL_ROLE_PARAMETER) {
            hash = mix(hash, tensor->name, strlen(tensor->name));
        }
        for (int j = 0; j < tensor->rank; ++j) {
            int64_t size = ull__dim_value(graph->symbols, tensor->dims[j], values);
            hash = mix(hash, &size, sizeof(size));
        }
        int type = (int)tensor->type;
        hash = mix(hash, &type, sizeof(type));
    }
    for (int i = 0; i < graph->node_count; ++i) {
        const struct ull__node *node = &graph->nodes[i];
        hash = mix(hash, node->op->name, strlen(node->op->name));
        hash = mix(hash, node->inputs, sizeof(*node->inputs) * (size_t)node->input_count);
    }
    return hash;
}
