/* shuffle.c: see shuffle.h. */
#include "shuffle.h"

#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum { QUEUES = 4, MOST = 1 << 16, EVENTS = 1 << 12 };

struct command {
    enum { KERNEL, COPY, RECORD, WAIT } kind;
    enum ull__queue queue;
    const struct ull__kernel *kernel;
    void *operands[64];
    void *workspace;
    const bool *skip;
    void *to;
    const void *from;
    size_t bytes;
    int event;
    unsigned long turn;
};

struct ull__segment {
    struct command *commands;
    size_t count;
};

struct shuffle {
    struct ull__backend backend;
    struct ull__backend *inner;
    unsigned int seed;
    struct command *pending[QUEUES];
    size_t put[QUEUES], done[QUEUES];
    unsigned long recorded[EVENTS], passed[EVENTS];
    struct ull__segment *open;
    char *watched, *before;
    size_t watched_bytes, strays, choices;
};

static struct shuffle *of(struct ull__backend *backend)
{
    return (struct shuffle *)backend;
}

static void put(struct shuffle *s, const struct command *command)
{
    if (s->open != NULL) {
        s->open->commands =
            realloc(s->open->commands, (s->open->count + 1) * sizeof(*s->open->commands));
        s->open->commands[s->open->count++] = *command;
        return;
    }
    struct command made = *command;
    if (made.kind == RECORD) {
        made.turn = ++s->recorded[made.event];
    } else if (made.kind == WAIT) {
        made.turn = s->recorded[made.event];
    }
    if (s->put[made.queue] == MOST) {
        abort();
    }
    s->pending[made.queue][s->put[made.queue]++] = made;
}

static bool written(const struct command *command, const char *at)
{
    const struct ull__kernel *kernel = command->kernel;
    void *const *outputs = command->operands + kernel->input_count;
    for (int i = 0; i < kernel->output_count; ++i) {
        const char *begin = outputs[i];
        if (begin != NULL && at >= begin && at < begin + kernel->outputs[i].bytes) {
            return true;
        }
    }
    const char *workspace = command->workspace;
    return workspace != NULL && at >= workspace && at < workspace + kernel->workspace;
}

static void run_kernel(struct shuffle *s, const struct command *command)
{
    struct ull__launch launch = {.inputs = command->operands,
                                 .outputs = command->operands + command->kernel->input_count,
                                 .workspace = command->workspace,
                                 .skip = command->skip};
    if (s->watched != NULL) {
        memcpy(s->before, s->watched, s->watched_bytes);
    }
    s->inner->ops->enqueue(s->inner, command->queue, command->kernel, &launch);
    s->inner->ops->synchronize(s->inner, NULL);
    for (size_t i = 0; i < s->watched_bytes; ++i) {
        s->strays += s->watched[i] != s->before[i] && !written(command, s->watched + i);
    }
}

static bool can_run(const struct shuffle *s, int queue)
{
    if (s->done[queue] == s->put[queue]) {
        return false;
    }
    const struct command *next = &s->pending[queue][s->done[queue]];
    return next->kind != WAIT || s->passed[next->event] >= next->turn;
}

static void run_next(struct shuffle *s, int queue)
{
    const struct command *next = &s->pending[queue][s->done[queue]++];
    if (next->kind == KERNEL) {
        run_kernel(s, next);
    } else if (next->kind == COPY) {
        memcpy(next->to, next->from, next->bytes);
    } else if (next->kind == RECORD) {
        s->passed[next->event] = next->turn;
    }
}

static ull_status synchronize(struct ull__backend *backend, struct ull_error *err)
{
    struct shuffle *s = of(backend);
    (void)err;
    for (;;) {
        int able[QUEUES], count = 0;
        for (int i = 0; i < QUEUES; ++i) {
            able[count] = i;
            count += can_run(s, i);
        }
        if (count == 0) {
            break;
        }
        int chosen = rand_r(&s->seed) % count;
        s->choices += chosen > 0;
        run_next(s, able[chosen]);
    }
    for (int i = 0; i < QUEUES; ++i) {
        if (s->done[i] != s->put[i]) {
            abort(); /* queues that wait for each other */
        }
        s->done[i] = s->put[i] = 0;
    }
    return ULL_OK;
}

static void enqueue(struct ull__backend *backend, enum ull__queue queue,
                    const struct ull__kernel *kernel, const struct ull__launch *launch)
{
    struct command command = {.kind = KERNEL,
                              .queue = queue,
                              .kernel = kernel,
                              .workspace = launch->workspace,
                              .skip = launch->skip};
    if (kernel->input_count + kernel->output_count > 64) {
        abort();
    }
    memcpy(command.operands, launch->inputs, sizeof(void *) * (size_t)kernel->input_count);
    memcpy(command.operands + kernel->input_count, launch->outputs,
           sizeof(void *) * (size_t)kernel->output_count);
    put(of(backend), &command);
}

static void copy(struct ull__backend *backend, enum ull__queue queue, void *to, const void *from,
                 size_t bytes)
{
    struct shuffle *s = of(backend);
    bool control = queue == ULL_QUEUE_COMPUTE && bytes <= 64 && s->open == NULL;
    if (control) { /* its source may not last */
        synchronize(backend, NULL);
        memcpy(to, from, bytes);
        return;
    }
    put(s, &(struct command){.kind = COPY, .queue = queue, .to = to, .from = from, .bytes = bytes});
}

static ull_status events(struct ull__backend *backend, int count, struct ull_error *err)
{
    (void)backend;
    (void)err;
    if (count > EVENTS) {
        abort();
    }
    return ULL_OK;
}

static void event_record(struct ull__backend *backend, enum ull__queue queue, int event)
{
    put(of(backend), &(struct command){.kind = RECORD, .queue = queue, .event = event});
}

static void event_wait(struct ull__backend *backend, enum ull__queue queue, int event)
{
    put(of(backend), &(struct command){.kind = WAIT, .queue = queue, .event = event});
}

static ull_status segment_begin(struct ull__backend *backend, struct ull_error *err)
{
    (void)err;
    of(backend)->open = calloc(1, sizeof(struct ull__segment));
    return ULL_OK;
}

static ull_status segment_end(struct ull__backend *backend, struct ull__segment **segment,
                              struct ull_error *err)
{
    (void)err;
    *segment = of(backend)->open;
    of(backend)->open = NULL;
    return ULL_OK;
}

static void replay(struct ull__backend *backend, const struct ull__segment *segment)
{
    for (size_t i = 0; i < segment->count; ++i) {
        put(of(backend), &segment->commands[i]);
    }
}

static void segment_release(struct ull__backend *backend, struct ull__segment *segment)
{
    (void)backend;
    if (segment != NULL) {
        free(segment->commands);
        free(segment);
    }
}

static ull_status layouts(struct ull__backend *backend, const struct ull__graph *graph,
                          const int64_t *values, uint8_t *to, struct ull_error *err)
{
    return of(backend)->inner->ops->layouts(of(backend)->inner, graph, values, to, err);
}

static ull_status choose(struct ull__backend *backend, const struct ull__selecting *what,
                         struct ull__selection *selection, struct ull_error *err)
{
    return of(backend)->inner->ops->select(of(backend)->inner, what, selection, err);
}

static ull_status compile(struct ull__backend *backend, const struct ull__selecting *what,
                          struct ull__kernel **kernel, struct ull_error *err)
{
    return of(backend)->inner->ops->compile(of(backend)->inner, what, kernel, err);
}

static void release(struct ull__backend *backend, struct ull__kernel *kernel)
{
    of(backend)->inner->ops->release(of(backend)->inner, kernel);
}

static uintptr_t reached(struct ull__backend *backend, const void *begin, const void *end)
{
    return of(backend)->inner->ops->reached(of(backend)->inner, begin, end);
}

static void destroy(struct ull__backend *backend)
{
    struct shuffle *s = of(backend);
    for (int i = 0; i < QUEUES; ++i) {
        free(s->pending[i]);
    }
    free(s->before);
    free(s);
}

struct ull__backend *shuffle_create(struct ull__backend *inner, unsigned int seed)
{
    static const struct ull__backend_ops ops = {.name = "shuffle",
                                                .destroy = destroy,
                                                .layouts = layouts,
                                                .select = choose,
                                                .compile = compile,
                                                .release = release,
                                                .enqueue = enqueue,
                                                .copy = copy,
                                                .events = events,
                                                .event_record = event_record,
                                                .event_wait = event_wait,
                                                .segment_begin = segment_begin,
                                                .segment_end = segment_end,
                                                .replay = replay,
                                                .segment_release = segment_release,
                                                .synchronize = synchronize,
                                                .reached = reached};
    struct shuffle *made = calloc(1, sizeof(*made));
    made->backend.ops = &ops;
    made->inner = inner;
    made->seed = seed;
    for (int i = 0; i < QUEUES; ++i) {
        made->pending[i] = calloc(MOST, sizeof(struct command));
    }
    return &made->backend;
}

void shuffle_watch(struct ull__backend *backend, void *begin, size_t bytes)
{
    struct shuffle *s = of(backend);
    free(s->before);
    s->before = begin != NULL ? malloc(bytes) : NULL;
    s->watched = begin;
    s->watched_bytes = begin != NULL ? bytes : 0;
}

size_t shuffle_strays(const struct ull__backend *backend)
{
    return ((const struct shuffle *)backend)->strays;
}

size_t shuffle_choices(const struct ull__backend *backend)
{
    return ((const struct shuffle *)backend)->choices;
}
