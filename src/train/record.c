/*
 * record.c: what a micro-step and an update put into which queue.
 *
 * Events: for each buffer that is sent, one when it has left and one when it is back; one for the point of the compute queue that a
 * copy or a collective waits for, and one for the end of a collective, which the compute queue waits for; and for each of the two
 * places of the optimizer's state one when it has come and one when it has left.
 */
#include <stdlib.h>

#include "error.h"
#include "executable_private.h"
#include "ops.h"

enum { SLOTS = 2, STATE_EVENTS = 2 * SLOTS + 2 };

struct recording {
    struct ull__executable *e;
    struct ull__backend *backend;
    const struct ull__backend_ops *ops;
    int turn; /* of the places for the optimizer's state */
};

static int left(int buffer)
{
    return STATE_EVENTS + 2 * buffer;
}

static int back(int buffer)
{
    return STATE_EVENTS + 2 * buffer + 1;
}

static int state_came(int slot)
{
    return 2 * slot;
}

static int state_left(int slot)
{
    return 2 * slot + 1;
}

enum { REACHED = 2 * SLOTS, SAID };

/* A queue goes on once what is now in another has passed. */
static void follow(struct recording *r, enum ull__queue who, enum ull__queue whom, int event)
{
    r->ops->event_record(r->backend, whom, event);
    r->ops->event_wait(r->backend, who, event);
}

static bool is_sent(const struct ull__executable *e, int buffer)
{
    return buffer != ULL_NONE && e->request.decision->keep[buffer] == ULL_SEND &&
           e->request.layout->host_offsets[buffer] != ULL_NOT_THERE &&
           e->request.program->buffers[buffer].life == ULL_LIFE_PASSING;
}

static size_t bytes_of(const struct ull__executable *e, int buffer)
{
    const struct ull__program *program = e->request.program;
    return (size_t)ull__tensor_bytes(program->graph, program->buffers[buffer].tensor,
                                     e->request.values);
}

static char *host_of(const struct ull__executable *e, int buffer)
{
    return e->request.arena.host + e->request.layout->host_offsets[buffer];
}

/* What must be so before the item at `place`: memory that others have left, and copies that begin now. */
static void before(struct recording *r, int place)
{
    const struct ull__executable *e = r->e;
    const struct ull__plan_layout *layout = e->request.layout;
    for (int i = 0; i < layout->stay_count; ++i) {
        const struct ull__stay *stay = &layout->stays[i];
        if (!is_sent(e, stay->buffer)) {
            continue;
        }
        if (!stay->returned && stay->end + 1 == place) {
            r->ops->event_wait(r->backend, ULL_QUEUE_COMPUTE, left(stay->buffer));
        }
    }
    for (int i = 0; i < layout->stay_count; ++i) {
        const struct ull__stay *stay = &layout->stays[i];
        if (!is_sent(e, stay->buffer) || !stay->returned || stay->begin != place) {
            continue;
        }
        follow(r, ULL_QUEUE_TO_DEVICE, ULL_QUEUE_COMPUTE, REACHED);
        r->ops->event_wait(r->backend, ULL_QUEUE_TO_DEVICE, left(stay->buffer));
        r->ops->copy(r->backend, ULL_QUEUE_TO_DEVICE, ull__executable_stay(e, i),
                     host_of(e, stay->buffer), bytes_of(e, stay->buffer));
        r->ops->event_record(r->backend, ULL_QUEUE_TO_DEVICE, back(stay->buffer));
    }
}

/* Who reads what comes back waits until it is there. */
static void wait_for_inputs(struct recording *r, int place)
{
    struct ull__executable *e = r->e;
    const struct ull__program *program = e->request.program;
    const struct ull__placed *placed = &e->request.layout->order[place];
    const struct ull__program_item *item = &program->items[placed->item];
    for (int i = 0; i < item->input_count; ++i) {
        int buffer = program->refs[item->inputs + i];
        if (is_sent(e, buffer) && !(item->forward && !placed->again) && !e->waited[buffer]) {
            r->ops->event_wait(r->backend, ULL_QUEUE_COMPUTE, back(buffer));
            e->waited[buffer] = true;
        }
    }
}

/* After the item: results go to the host, and what is sent leaves. */
static void after(struct recording *r, int place)
{
    const struct ull__executable *e = r->e;
    const struct ull__program *program = e->request.program;
    const struct ull__placed *placed = &e->request.layout->order[place];
    const struct ull__program_item *item = &program->items[placed->item];
    const struct ull__graph *graph = program->graph;
    for (int i = 0; i < e->request.result_count && !placed->again; ++i) {
        const struct ull__result *result = &e->request.results[i];
        int owner = ull__tensor_owner(graph, result->tensor);
        if (graph->tensors[owner].node == item->node) {
            r->ops->copy(r->backend, ULL_QUEUE_COMPUTE, result->to,
                         ull__executable_at(e, result->tensor, place),
                         (size_t)ull__tensor_bytes(graph, result->tensor, e->request.values));
        }
    }
    if (!item->forward || placed->again) {
        return;
    }
    for (int i = 0; i < item->input_count + item->output_count; ++i) {
        int buffer = program->refs[item->inputs + i];
        if (is_sent(e, buffer) && e->last_forward[buffer] == place) {
            int stay = e->first_stay[buffer];
            while (e->request.layout->stays[stay].returned) {
                stay = e->next_stay[stay];
            }
            follow(r, ULL_QUEUE_TO_HOST, ULL_QUEUE_COMPUTE, REACHED);
            r->ops->copy(r->backend, ULL_QUEUE_TO_HOST, host_of(e, buffer),
                         ull__executable_stay(e, stay), bytes_of(e, buffer));
            r->ops->event_record(r->backend, ULL_QUEUE_TO_HOST, left(buffer));
        }
    }
}

/* --- The optimizer's state, which is in the host's memory, in one of two places while its parameter is updated --- */

static bool in_host(const struct ull__executable *e, int buffer)
{
    return e->request.program->buffers[buffer].life == ULL_LIFE_PERSISTENT &&
           e->request.layout->host_offsets[buffer] != ULL_NOT_THERE;
}

static bool state_in(struct recording *r, int place)
{
    struct ull__executable *e = r->e;
    const struct ull__program *program = e->request.program;
    const struct ull__program_item *item = &program->items[e->request.layout->order[place].item];
    const struct ull__plan_layout *layout = e->request.layout;
    int slot = r->turn % SLOTS;
    uint64_t at = layout->staging_offsets[slot];
    bool any = false;
    for (int i = 0; i < item->input_count; ++i) {
        int buffer = program->refs[item->inputs + i];
        if (!in_host(e, buffer)) {
            continue;
        }
        if (!any) {
            r->ops->event_wait(r->backend, ULL_QUEUE_TO_DEVICE, state_left(slot));
        }
        any = true;
        e->staged[buffer] = e->request.arena.persistent + at;
        r->ops->copy(r->backend, ULL_QUEUE_TO_DEVICE, e->staged[buffer], host_of(e, buffer),
                     bytes_of(e, buffer));
        at += (uint64_t)program->buffers[buffer].bytes;
    }
    if (any) {
        follow(r, ULL_QUEUE_COMPUTE, ULL_QUEUE_TO_DEVICE, state_came(slot));
    }
    return any;
}

static void state_out(struct recording *r, int place)
{
    struct ull__executable *e = r->e;
    const struct ull__program *program = e->request.program;
    const struct ull__program_item *item = &program->items[e->request.layout->order[place].item];
    follow(r, ULL_QUEUE_TO_HOST, ULL_QUEUE_COMPUTE, REACHED);
    for (int i = 0; i < item->input_count; ++i) {
        int buffer = program->refs[item->inputs + i];
        if (e->staged[buffer] != NULL) {
            r->ops->copy(r->backend, ULL_QUEUE_TO_HOST, host_of(e, buffer), e->staged[buffer],
                         bytes_of(e, buffer));
            e->staged[buffer] = NULL;
        }
    }
    r->ops->event_record(r->backend, ULL_QUEUE_TO_HOST, state_left(r->turn % SLOTS));
    r->turn += 1;
}

/* --- */

static void collective(struct recording *r, const struct ull__node *node, void *const *operands)
{
    const struct ull__executable *e = r->e;
    const struct ull__graph *graph = e->request.program->graph;
    const struct ull__collective_attrs *attrs = &node->attrs.collective;
    /* The one that is whole. */
    const struct ull__tensor *of =
        &graph->tensors[attrs->kind == ULL_ALL_GATHER ? node->outputs[0] : node->inputs[0]];
    struct ull__collective_run run = {.kind = attrs->kind,
                                      .reduce = attrs->reduce,
                                      .ranks = attrs->size,
                                      .type = of->type,
                                      .outer = 1,
                                      .whole = 1,
                                      .inner = 1,
                                      .from = operands[0],
                                      .to = operands[node->input_count]};
    for (int i = 0; i < of->rank; ++i) {
        int64_t size = ull__dim_value(graph->symbols, of->dims[i], e->request.values);
        *(i < attrs->axis ? &run.outer : i == attrs->axis ? &run.whole : &run.inner) *= size;
    }
    follow(r, node->queue, ULL_QUEUE_COMPUTE, REACHED);
    r->ops->collective(r->backend, node->queue, &run);
    follow(r, ULL_QUEUE_COMPUTE, node->queue, SAID);
}

static ull_status launch(struct recording *r, int place, struct ull_error *err)
{
    const struct ull__executable *e = r->e;
    const struct ull__placed *placed = &e->request.layout->order[place];
    const struct ull__graph *graph = e->request.program->graph;
    const struct ull__node *node = &graph->nodes[e->request.program->items[placed->item].node];
    size_t count = (size_t)node->input_count + (size_t)node->output_count;
    void **operands = calloc(count + 1, sizeof(*operands));
    if (operands == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory to run a plan");
    }
    void **outputs = operands + node->input_count;
    ull_status status = ULL_OK;
    for (int i = 0; i < node->input_count; ++i) {
        operands[i] = ull__executable_at(e, node->inputs[i], place);
        if (operands[i] == NULL && node->inputs[i] != ULL_NONE) {
            status = ull__fail(err, ULL_E_INVALID,
                               "%s (node %d) reads tensor %d, which is not there", node->op->name,
                               e->request.program->items[placed->item].node, node->inputs[i]);
        }
    }
    for (int i = 0; i < node->output_count; ++i) {
        /* State is written in the first run alone. */
        bool state = graph->tensors[node->outputs[i]].writes;
        outputs[i] = state && placed->again ? NULL : ull__executable_at(e, node->outputs[i], place);
    }
    int workspace = e->workspace_stay[place];
    struct ull__launch what = {.inputs = operands,
                               .outputs = outputs,
                               .workspace =
                                   workspace != ULL_NONE ? ull__executable_stay(e, workspace) : NULL,
                               .skip = (const bool *)ull__executable_at(e, node->predicate, place),
                               .took = &e->took[placed->item]};
    if (status == ULL_OK && (node->op->flags & ULL_OP_COLLECTIVE) != 0) {
        collective(r, node, operands);
    } else if (status == ULL_OK) {
        r->ops->enqueue(r->backend, node->queue, e->kernels[placed->item], &what);
    }
    free(operands);
    return status;
}

static ull_status record(struct recording *r, int begin, int end, struct ull__segment **segment,
                         struct ull_error *err)
{
    ull_status status = r->ops->segment_begin(r->backend, err);
    if (status != ULL_OK) {
        return status;
    }
    for (int place = begin; place < end && status == ULL_OK; ++place) {
        before(r, place);
        bool staged = state_in(r, place);
        wait_for_inputs(r, place);
        status = launch(r, place, err);
        after(r, place);
        if (staged) {
            state_out(r, place);
        }
    }
    /* What follows may use all memory again. */
    bool micro = begin < end && end == r->e->request.layout->micro_count;
    for (int i = 0; i < r->e->request.program->buffer_count; ++i) {
        if (is_sent(r->e, i) && micro) {
            r->ops->event_wait(r->backend, ULL_QUEUE_COMPUTE, left(i));
        }
    }
    for (int slot = 0; slot < SLOTS && r->turn > 0; ++slot) {
        r->ops->event_wait(r->backend, ULL_QUEUE_COMPUTE, state_left(slot));
    }
    struct ull__segment *made = NULL;
    ull_status ended = r->ops->segment_end(r->backend, &made, status == ULL_OK ? err : NULL);
    if (status != ULL_OK || ended != ULL_OK) {
        if (ended == ULL_OK) {
            r->ops->segment_release(r->backend, made);
        }
        return status != ULL_OK ? status : ended;
    }
    *segment = made;
    return ULL_OK;
}

ull_status ull__executable_record(struct ull__executable *e, struct ull_error *err)
{
    const struct ull__program *program = e->request.program;
    const struct ull__plan_layout *layout = e->request.layout;
    struct recording recording = {
        .e = e, .backend = e->request.backend, .ops = e->request.backend->ops};
    for (int place = 0; place < layout->count; ++place) {
        const struct ull__program_item *item = &program->items[layout->order[place].item];
        for (int i = 0; i < item->input_count + item->output_count && item->forward &&
                        !layout->order[place].again;
             ++i) {
            e->last_forward[program->refs[item->inputs + i]] = place;
        }
    }
    ull_status status =
        recording.ops->events(recording.backend, STATE_EVENTS + 2 * program->buffer_count, err);
    if (status == ULL_OK && layout->prologue_count > 0) {
        status = record(&recording, 0, layout->prologue_count, &e->prologue, err);
    }
    if (status == ULL_OK) {
        status = record(&recording, layout->prologue_count, layout->micro_count, &e->micro, err);
    }
    if (status == ULL_OK && layout->micro_count < layout->count) {
        status = record(&recording, layout->micro_count, layout->count, &e->update, err);
    }
    return status;
}
