/*
 * order.c: nodes in an order in which each comes after all that it reads, the first of the file that can go first:
 * a heap of those that wait for nothing.
 */
#include "order.h"

struct wait {
    int *missing; /* by node: inputs that are not made yet */
    int *first;   /* by node: where its readers begin in `readers` */
    int *readers; /* nodes */
    int *heap, heap_count;
};

static void heap_push(struct wait *w, int node)
{
    int at = w->heap_count++;
    for (; at > 0 && w->heap[(at - 1) / 2] > node; at = (at - 1) / 2) {
        w->heap[at] = w->heap[(at - 1) / 2];
    }
    w->heap[at] = node;
}

static int heap_pop(struct wait *w)
{
    int least = w->heap[0], last = w->heap[--w->heap_count], at = 0;
    for (int child = 1; child < w->heap_count; child = 2 * at + 1) {
        child += child + 1 < w->heap_count && w->heap[child + 1] < w->heap[child];
        if (w->heap[child] >= last) {
            break;
        }
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = last;
    return least;
}

/* The maker of an input; ULL_NONE: it is there before. False and an error: nobody makes it. */
static bool maker_of(struct reader *r, int node, size_t i, int *maker)
{
    const char *name = r->file->node[node]->input[i];
    *maker = ULL_NONE;
    if (name == NULL || name[0] == '\0') {
        return true;
    }
    const struct value *value = value_find(r, name);
    if (value == NULL) {
        struct call call = {.reader = r, .node = r->file->node[node]};
        call_fail(&call, "it reads '%s', which nothing makes", shown(name));
        return false;
    }
    *maker = value->maker;
    return true;
}

static bool count_readers(struct reader *r, struct wait *w, int count)
{
    size_t edges = 0;
    for (int i = 0; i < count; ++i) {
        for (size_t j = 0; j < r->file->node[i]->n_input; ++j) {
            int maker;
            if (!maker_of(r, i, j, &maker)) {
                return false;
            }
            if (maker != ULL_NONE) {
                w->first[maker + 1] += 1;
                w->missing[i] += 1;
                edges += 1;
            }
        }
    }
    w->readers = reader_alloc(r, edges + 1, sizeof(int));
    int *next = reader_alloc(r, (size_t)count + 1, sizeof(int));
    if (w->readers == NULL || next == NULL) {
        return false;
    }
    for (int i = 0; i < count; ++i) {
        w->first[i + 1] += w->first[i];
        next[i] = w->first[i];
    }
    for (int i = 0; i < count; ++i) {
        for (size_t j = 0; j < r->file->node[i]->n_input; ++j) {
            int maker;
            if (maker_of(r, i, j, &maker) && maker != ULL_NONE) {
                w->readers[next[maker]++] = i;
            }
        }
    }
    return true;
}

int *order_of_nodes(struct reader *r)
{
    size_t room = r->file->n_node + 1;
    int count = (int)r->file->n_node, done = 0;
    int *order = reader_alloc(r, room, sizeof(int));
    struct wait w = {.missing = reader_alloc(r, room, sizeof(int)),
                     .first = reader_alloc(r, room + 1, sizeof(int)),
                     .heap = reader_alloc(r, room, sizeof(int))};
    if (order == NULL || w.missing == NULL || w.first == NULL || w.heap == NULL ||
        !count_readers(r, &w, count)) {
        return NULL;
    }
    for (int i = 0; i < count; ++i) {
        if (w.missing[i] == 0) {
            heap_push(&w, i);
        }
    }
    while (w.heap_count > 0) {
        int node = heap_pop(&w);
        order[done++] = node;
        for (int i = w.first[node]; i < w.first[node + 1]; ++i) {
            if (--w.missing[w.readers[i]] == 0) {
                heap_push(&w, w.readers[i]);
            }
        }
    }
    for (int i = 0; done < count && i < count; ++i) {
        if (w.missing[i] > 0) {
            struct call call = {.reader = r, .node = r->file->node[i]};
            call_fail(&call, "%d nodes wait for each other in a cycle, this one among them",
                      count - done);
        }
    }
    return done == count ? order : NULL;
}
