/* cpu.c: the processor as a backend. See cpu.h. */
#include "cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "kernels.h"
#include "queue.h"

struct ull__segment {
    struct ull__command *commands;
    void **operands; /* of all kernels, one behind the other */
    size_t count, room, operand_count, operand_room;
    bool failed; /* no memory for one */
};

struct cpu {
    struct ull__backend backend; /* first */
    struct ull__team *team;
    struct ull__queues *queues;
    struct ull__cpu_library library;
    const struct ull__cpu_op *const *ops;
    const char *isa;
    struct ull__segment *open; /* what is enqueued goes there */
    char text[160];
};

static struct cpu *cpu_of(struct ull__backend *backend)
{
    return (struct cpu *)backend;
}

static ull_status cpu_layouts(struct ull__backend *backend, const struct ull__graph *graph,
                              const int64_t *values, uint8_t *layouts, struct ull_error *err)
{
    return ull__cpu_layouts(cpu_of(backend)->ops, graph, values, layouts, err);
}

static ull_status cpu_compile(struct ull__backend *backend, const struct ull__selecting *what,
                              struct ull__kernel **kernel, struct ull_error *err)
{
    struct cpu *cpu = cpu_of(backend);
    return ull__kernel_create(what, cpu->ops, &cpu->library, ull__team_threads(cpu->team), kernel,
                              err);
}

static void cpu_release(struct ull__backend *backend, struct ull__kernel *kernel)
{
    (void)backend;
    ull__kernel_destroy(kernel);
}

static ull_status cpu_select(struct ull__backend *backend, const struct ull__selecting *what,
                             struct ull__selection *selection, struct ull_error *err)
{
    struct ull__kernel *kernel;
    ull_status status = cpu_compile(backend, what, &kernel, err);
    if (status == ULL_OK) {
        *selection = (struct ull__selection){
            .algorithm = kernel->algorithm, .workspace = kernel->workspace, .capturable = true};
        ull__kernel_destroy(kernel);
    }
    return status;
}

/* --- Enqueueing, now or into a segment --- */

static bool grow(void **array, size_t *room, size_t wanted, size_t size)
{
    if (wanted <= *room) {
        return true;
    }
    size_t more = *room * 2 > wanted ? *room * 2 : wanted + 64;
    void *larger = realloc(*array, more * size);
    if (larger == NULL) {
        return false;
    }
    *array = larger;
    *room = more;
    return true;
}

/* Operands are kept as a place, since their array may move while it grows. */
static void keep(struct ull__segment *segment, const struct ull__command *command, size_t operands)
{
    if (!grow((void **)&segment->commands, &segment->room, segment->count + 1,
              sizeof(*segment->commands)) ||
        !grow((void **)&segment->operands, &segment->operand_room,
              segment->operand_count + operands, sizeof(*segment->operands))) {
        segment->failed = true;
        return;
    }
    if (operands > 0) {
        memcpy(segment->operands + segment->operand_count, command->operands,
               operands * sizeof(*segment->operands));
    }
    segment->commands[segment->count] = *command;
    segment->commands[segment->count++].operands = NULL;
    segment->operand_count += operands;
}

static size_t operands_of(const struct ull__command *command)
{
    return command->kind == ULL_COMMAND_KERNEL
               ? (size_t)command->kernel->input_count + (size_t)command->kernel->output_count
               : 0;
}

static void put(struct cpu *cpu, const struct ull__command *command)
{
    if (cpu->open != NULL) {
        keep(cpu->open, command, operands_of(command));
    } else {
        ull__queues_put(cpu->queues, command);
    }
}

static void cpu_enqueue(struct ull__backend *backend, enum ull__queue queue,
                        const struct ull__kernel *kernel, const struct ull__launch *launch)
{
    /* Kernels all run on the compute queue; few have more operands than this, those of all gradients together. */
    void *few[64];
    size_t count = (size_t)kernel->input_count + (size_t)kernel->output_count;
    void **operands = count <= 64 ? few : calloc(count, sizeof(*operands));
    (void)queue;
    if (operands == NULL) {
        return;
    }
    memcpy(operands, launch->inputs, sizeof(*operands) * (size_t)kernel->input_count);
    memcpy(operands + kernel->input_count, launch->outputs,
           sizeof(*operands) * (size_t)kernel->output_count);
    put(cpu_of(backend), &(struct ull__command){.kind = ULL_COMMAND_KERNEL,
                                                .queue = ULL_QUEUE_COMPUTE,
                                                .kernel = kernel,
                                                .operands = operands,
                                                .workspace = launch->workspace,
                                                .skip = launch->skip,
                                                .took = launch->took});
    if (operands != few) {
        free(operands);
    }
}

static void cpu_copy(struct ull__backend *backend, enum ull__queue queue, void *to,
                     const void *from, size_t bytes)
{
    put(cpu_of(backend),
        &(struct ull__command){
            .kind = ULL_COMMAND_COPY, .queue = queue, .to = to, .from = from, .bytes = bytes});
}

static void cpu_collective(struct ull__backend *backend, enum ull__queue queue,
                           const struct ull__collective_run *what)
{
    put(cpu_of(backend),
        &(struct ull__command){.kind = ULL_COMMAND_COLLECTIVE, .queue = queue, .collective = *what});
}

static ull_status cpu_events(struct ull__backend *backend, int events, struct ull_error *err)
{
    return ull__queues_events(cpu_of(backend)->queues, events, err);
}

static void cpu_record(struct ull__backend *backend, enum ull__queue queue, int event)
{
    put(cpu_of(backend),
        &(struct ull__command){.kind = ULL_COMMAND_RECORD, .queue = queue, .event = event});
}

static void cpu_wait(struct ull__backend *backend, enum ull__queue queue, int event)
{
    put(cpu_of(backend),
        &(struct ull__command){.kind = ULL_COMMAND_WAIT, .queue = queue, .event = event});
}

/* --- Segments --- */

static void cpu_segment_release(struct ull__backend *backend, struct ull__segment *segment)
{
    (void)backend;
    if (segment != NULL) {
        free(segment->commands);
        free(segment->operands);
        free(segment);
    }
}

static ull_status cpu_segment_begin(struct ull__backend *backend, struct ull_error *err)
{
    struct cpu *cpu = cpu_of(backend);
    if (cpu->open != NULL) {
        return ull__fail(err, ULL_E_INVALID, "a segment is begun already");
    }
    cpu->open = calloc(1, sizeof(*cpu->open));
    return cpu->open != NULL ? ULL_OK : ull__fail(err, ULL_E_NO_MEMORY, "no memory for a segment");
}

static ull_status cpu_segment_end(struct ull__backend *backend, struct ull__segment **segment,
                                  struct ull_error *err)
{
    struct cpu *cpu = cpu_of(backend);
    struct ull__segment *made = cpu->open;
    cpu->open = NULL;
    if (made == NULL || made->failed) {
        cpu_segment_release(backend, made);
        return ull__fail(err, made == NULL ? ULL_E_INVALID : ULL_E_NO_MEMORY,
                         made == NULL ? "no segment was begun" : "no memory for a segment");
    }
    size_t at = 0;
    for (size_t i = 0; i < made->count; ++i) {
        made->commands[i].operands = made->operands + at;
        at += operands_of(&made->commands[i]);
    }
    *segment = made;
    return ULL_OK;
}

static void cpu_replay(struct ull__backend *backend, const struct ull__segment *segment)
{
    struct cpu *cpu = cpu_of(backend);
    for (size_t i = 0; i < segment->count; ++i) {
        ull__queues_put(cpu->queues, &segment->commands[i]);
    }
}

static ull_status cpu_synchronize(struct ull__backend *backend, struct ull_error *err)
{
    ull__queues_drain(cpu_of(backend)->queues);
    return ull__queues_failure(cpu_of(backend)->queues, err);
}

static uintptr_t cpu_reached(struct ull__backend *backend, const void *begin, const void *end)
{
    return ull__queues_reached(cpu_of(backend)->queues, begin, end);
}

static void cpu_timing(struct ull__backend *backend, struct ull__copied *copied)
{
    ull__queues_time(cpu_of(backend)->queues, copied);
}

static void cpu_destroy(struct ull__backend *backend)
{
    struct cpu *cpu = cpu_of(backend);
    ull__queues_destroy(cpu->queues);
    cpu_segment_release(backend, cpu->open);
    ull__libraries_unload(&cpu->library);
    ull__team_destroy(cpu->team);
    free(cpu);
}

static const struct ull__backend_ops cpu_ops = {
    .name = "cpu",
    .destroy = cpu_destroy,
    .layouts = cpu_layouts,
    .select = cpu_select,
    .compile = cpu_compile,
    .release = cpu_release,
    .enqueue = cpu_enqueue,
    .copy = cpu_copy,
    .collective = cpu_collective,
    .events = cpu_events,
    .event_record = cpu_record,
    .event_wait = cpu_wait,
    .segment_begin = cpu_segment_begin,
    .segment_end = cpu_segment_end,
    .replay = cpu_replay,
    .segment_release = cpu_segment_release,
    .synchronize = cpu_synchronize,
    .reached = cpu_reached,
    .timing = cpu_timing,
};

static int default_threads(void)
{
    cpu_set_t allowed;
    int count = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    return count < 1 ? 1 : count > 64 ? 64 : count;
}

static void describe(struct cpu *cpu)
{
    char dnnl[48] = "";
    if (cpu->library.dnnl != NULL) {
        const dnnl_version_t *version = cpu->library.version();
        snprintf(dnnl, sizeof(dnnl), "oneDNN %d.%d.%d, ", version->major, version->minor,
                 version->patch);
    }
    int threads = ull__team_threads(cpu->team);
    snprintf(cpu->text, sizeof(cpu->text), "%s%s%s%s, %d thread%s", dnnl, cpu->library.blas_name,
             cpu->library.blas_name[0] != '\0' ? ", " : "", cpu->isa, threads,
             threads == 1 ? "" : "s");
}

ull_status ull__cpu_create(const struct ull__cpu_options *options, struct ull__backend **backend,
                           struct ull_error *err)
{
    struct cpu *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a backend");
    }
    made->backend.ops = &cpu_ops;
    made->backend.rank = options->world != NULL ? ull__world_rank(options->world) : 0;
    made->backend.ranks = options->world != NULL ? ull__world_ranks(options->world) : 1;
    made->ops = ull__cpu_best(options->isa, &made->isa);
    int threads = options->threads > 0 ? options->threads : default_threads();
    ull_status status = ull__team_create(threads, &made->team, err);
    if (status == ULL_OK) {
        status = ull__queues_create(made->team, options, &made->queues, err);
    }
    if (status != ULL_OK) {
        ull__team_destroy(made->team);
        free(made);
        return status;
    }
    if (!options->no_libraries) {
        ull__libraries_load(&made->library, made->team);
    }
    describe(made);
    *backend = &made->backend;
    return ULL_OK;
}

int ull__cpu_threads(const struct ull__backend *backend)
{
    return ull__team_threads(((const struct cpu *)backend)->team);
}

const char *ull__cpu_describe(const struct ull__backend *backend)
{
    return ((const struct cpu *)backend)->text;
}
