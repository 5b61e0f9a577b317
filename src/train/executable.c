/* executable.c: see executable.h. record.c has what is put into queues. */
#include "executable_private.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "ops.h"

/* The owner of a tensor's memory, and at which byte of it the tensor begins. */
static int owner_of(const struct ull__graph *graph, int tensor, const int64_t *values, int64_t *offset)
{
    *offset = 0;
    while (graph->tensors[tensor].alias != ULL_NONE) {
        *offset += ull__dim_value(graph->symbols, graph->tensors[tensor].alias_offset, values);
        tensor = graph->tensors[tensor].alias;
    }
    return tensor;
}

/*
 * The stay of a buffer at a place. What was sent and comes back has two that may overlap, as its copies were planned: the
 * forward pass reads the first.
 */
static int stay_at(const struct ull__executable *e, int buffer, int place)
{
    const struct ull__plan_layout *layout = e->request.layout;
    const struct ull__placed *placed = &layout->order[place];
    bool forward = e->request.program->items[placed->item].forward && !placed->again;
    int found = ULL_NONE;
    for (int i = e->first_stay[buffer]; i != ULL_NONE; i = e->next_stay[i]) {
        const struct ull__stay *stay = &layout->stays[i];
        if (stay->begin <= place && place <= stay->end &&
            (found == ULL_NONE || stay->returned != forward)) {
            found = i;
        }
    }
    return found;
}

static char *persistent_address(const struct ull__executable *e, int buffer)
{
    const struct ull__executable_request *r = &e->request;
    const struct ull__program_buffer *of = &r->program->buffers[buffer];
    if (r->persistent != NULL && r->persistent[buffer] != NULL) {
        return r->persistent[buffer];
    }
    if (r->layout->persistent_offsets[buffer] == ULL_NOT_THERE) {
        return of->life == ULL_LIFE_PERSISTENT && r->layout->host_offsets[buffer] != ULL_NOT_THERE
                   ? r->arena.host + r->layout->host_offsets[buffer]
                   : NULL;
    }
    return (of->life == ULL_LIFE_PERSISTENT ? r->arena.persistent : r->arena.step) +
           r->layout->persistent_offsets[buffer];
}

char *ull__executable_at(const struct ull__executable *e, int tensor, int place)
{
    const struct ull__executable_request *r = &e->request;
    if (tensor == ULL_NONE) {
        return NULL;
    }
    int64_t offset;
    int buffer = r->program->buffer_of[owner_of(r->program->graph, tensor, r->values, &offset)];
    if (buffer == ULL_NONE) {
        return NULL;
    }
    if (r->program->buffers[buffer].life != ULL_LIFE_PASSING) {
        char *base = e->staged[buffer] != NULL ? e->staged[buffer] : persistent_address(e, buffer);
        return base != NULL ? base + offset : NULL;
    }
    int stay = stay_at(e, buffer, place);
    return stay != ULL_NONE ? ull__executable_stay(e, stay) + offset : NULL;
}

char *ull__executable_stay(const struct ull__executable *e, int stay)
{
    const struct ull__plan_layout *layout = e->request.layout;
    return e->request.arena.step + layout->step_bytes + layout->offsets[stay];
}

void *ull__executable_address(const struct ull__executable *executable, int tensor)
{
    return ull__executable_at(executable, tensor, 0);
}

const uint8_t *ull__executable_layouts(const struct ull__executable *executable)
{
    return executable->layouts;
}

const char *ull__executable_algorithm(const struct ull__executable *executable, int item)
{
    return executable->algorithms[item];
}

struct ull__took *ull__executable_took(struct ull__executable *executable)
{
    return executable->took;
}

const int64_t *ull__executable_values(const struct ull__executable *executable)
{
    return executable->values;
}

/* Kernels with the workspace that was planned, for each item once, whether it runs once or twice. */
static ull_status compile(struct ull__executable *e, struct ull_error *err)
{
    const struct ull__executable_request *r = &e->request;
    ull_status status =
        r->backend->ops->layouts(r->backend, r->program->graph, r->values, e->layouts, err);
    for (int i = 0; i < r->program->item_count && status == ULL_OK; ++i) {
        const struct ull__program_item *item = &r->program->items[i];
        if ((r->program->graph->nodes[item->node].op->flags & ULL_OP_COLLECTIVE) != 0) {
            int ranks = r->program->graph->nodes[item->node].attrs.collective.size;
            e->algorithms[i] = "collective";
            status = ranks == (r->backend->ranks > 1 ? r->backend->ranks : 1)
                         ? ULL_OK
                         : ull__fail(err, ULL_E_NOT_FOUND,
                                     "a collective of %d devices, where there are %d", ranks,
                                     r->backend->ranks);
            continue;
        }
        int64_t workspace = ull__item_choice(r->program, i, r->decision->algorithm[i])->workspace;
        struct ull__selecting what = {.graph = r->program->graph,
                                      .node = item->node,
                                      .values = r->values,
                                      .layouts = e->layouts,
                                      .most_workspace = workspace,
                                      .deterministic = true};
        struct ull__selection selection;
        status = r->backend->ops->select(r->backend, &what, &selection, err);
        if (status == ULL_OK) {
            e->algorithms[i] = selection.algorithm;
            status = r->backend->ops->compile(r->backend, &what, &e->kernels[i], err);
        }
    }
    return status;
}

static void list_stays(struct ull__executable *e)
{
    const struct ull__plan_layout *layout = e->request.layout;
    for (int i = 0; i < e->request.program->buffer_count; ++i) {
        e->first_stay[i] = ULL_NONE;
    }
    for (int i = 0; i <= layout->count; ++i) {
        e->workspace_stay[i] = ULL_NONE;
    }
    for (int i = layout->stay_count - 1; i >= 0; --i) {
        const struct ull__stay *stay = &layout->stays[i];
        if (stay->buffer == ULL_NONE) {
            e->workspace_stay[stay->begin] = i;
        } else {
            e->next_stay[i] = e->first_stay[stay->buffer];
            e->first_stay[stay->buffer] = i;
        }
    }
}

static bool allocate(struct ull__executable *e)
{
    size_t items = (size_t)e->request.program->item_count + 1;
    size_t buffers = (size_t)e->request.program->buffer_count + 1;
    size_t stays = (size_t)e->request.layout->stay_count + 1;
    e->kernels = calloc(items, sizeof(*e->kernels));
    e->algorithms = calloc(items, sizeof(*e->algorithms));
    e->took = calloc(items, sizeof(*e->took));
    e->layouts = calloc((size_t)e->request.program->graph->tensor_count + 1, 1);
    e->first_stay = calloc(buffers, sizeof(*e->first_stay));
    e->next_stay = calloc(stays, sizeof(*e->next_stay));
    e->workspace_stay = calloc((size_t)e->request.layout->count + 1, sizeof(*e->workspace_stay));
    e->staged = calloc(buffers, sizeof(*e->staged));
    e->last_forward = calloc(buffers, sizeof(*e->last_forward));
    e->waited = calloc(buffers, sizeof(*e->waited));
    return e->kernels != NULL && e->algorithms != NULL && e->took != NULL && e->layouts != NULL &&
           e->first_stay != NULL && e->next_stay != NULL && e->workspace_stay != NULL &&
           e->staged != NULL && e->last_forward != NULL && e->waited != NULL;
}

ull_status ull__executable_create(const struct ull__executable_request *request,
                                  struct ull__executable **executable, struct ull_error *err)
{
    struct ull__executable *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to run a plan");
    }
    made->request = *request;
    size_t symbols = (size_t)ull__dim_symbols(request->program->graph->symbols);
    memcpy(made->values, request->values, symbols * sizeof(*made->values));
    made->request.values = made->values;
    if (!allocate(made)) {
        ull__executable_destroy(made);
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to run a plan");
    }
    list_stays(made);
    ull_status status = compile(made, err);
    if (status == ULL_OK) {
        status = ull__executable_record(made, err);
    }
    if (status != ULL_OK) {
        ull__executable_destroy(made);
        return status;
    }
    *executable = made;
    return ULL_OK;
}

void ull__executable_destroy(struct ull__executable *e)
{
    if (e == NULL) {
        return;
    }
    struct ull__backend *backend = e->request.backend;
    backend->ops->segment_release(backend, e->prologue);
    backend->ops->segment_release(backend, e->micro);
    backend->ops->segment_release(backend, e->update);
    for (int i = 0; e->kernels != NULL && i < e->request.program->item_count; ++i) {
        if (e->kernels[i] != NULL) {
            backend->ops->release(backend, e->kernels[i]);
        }
    }
    free(e->kernels);
    free(e->algorithms);
    free(e->took);
    free(e->layouts);
    free(e->first_stay);
    free(e->next_stay);
    free(e->workspace_stay);
    free(e->staged);
    free(e->last_forward);
    free(e->waited);
    free(e);
}

void ull__executable_prologue(struct ull__executable *e)
{
    if (e->prologue != NULL) {
        e->request.backend->ops->replay(e->request.backend, e->prologue);
    }
}

void ull__executable_micro(struct ull__executable *e)
{
    e->request.backend->ops->replay(e->request.backend, e->micro);
}

void ull__executable_update(struct ull__executable *e)
{
    if (e->update != NULL) {
        e->request.backend->ops->replay(e->request.backend, e->update);
    }
}
