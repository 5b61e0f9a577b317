/*
 * test_schedule.c: what a decision costs, against a plain simulation: every item in turn, every stay as a thing of its own.
 *
 * The scheduler (src/plan/schedule.c) goes only through what a decision can change. Here everything is gone through, and
 * bytes, order, stays and each bit of the times have to be the same: for random models and models of the zoo, over
 * devices too, with random buffers kept, dropped and sent, and random algorithms.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "random_model.h"
#include "schedule.h"
#include "zoo.h"

static const struct ull__profile device = {.name = "test",
                                           .bytes_per_second = 1e9,
                                           .matrix_per_second = 2e10,
                                           .matrix_half_per_second = 4e10,
                                           .flops_per_second = 1e10,
                                           .link_per_second = 3e8,
                                           .launch_seconds = 1e-6,
                                           .lean_convolution = 1.3,
                                           .bf16 = true,
                                           .alignment = 64};

/* --- The plain simulation --- */

struct plain {
    const struct ull__program *program;
    const struct ull__decision *decision;
    struct ull__placed *order;
    double *starts;
    int count;
    struct ull__stay *stays;
    int stay_count;
    int *now, *last; /* by buffer: its stay; its newest one, also when it is gone */
    double *left_at;
    int *sent;
    int sent_count;
    int64_t *bytes;
    struct ull__cost_of cost;
};

static bool passes(const struct plain *p, int buffer)
{
    return p->program->buffers[buffer].life == ULL_LIFE_PASSING;
}

static const struct ull__choice *choice_of(const struct plain *p, int item)
{
    return ull__item_choice(p->program, item, p->decision->algorithm[item]);
}

static void begin_stay(struct plain *p, int buffer, int at, int64_t bytes)
{
    p->stays[p->stay_count] = (struct ull__stay){buffer, bytes, at, at, ULL_NONE, ULL_NONE, false};
    if (buffer != ULL_NONE) {
        p->stays[p->stay_count].before = p->last[buffer];
        p->last[buffer] = p->now[buffer] = p->stay_count;
    }
    p->stay_count += 1;
}

static void place(struct plain *p, int at, bool again)
{
    const struct ull__program *program = p->program;
    const struct ull__program_item *item = &program->items[at];
    int here = p->count++;
    p->order[here] = (struct ull__placed){at, again};
    p->starts[here + 1] = p->starts[here] + choice_of(p, at)->seconds;
    for (int i = 0; i < item->output_count; ++i) {
        int buffer = program->refs[item->outputs + i];
        if (passes(p, buffer) && p->now[buffer] == ULL_NONE) {
            begin_stay(p, buffer, here, program->buffers[buffer].bytes);
        }
    }
    for (int i = 0; i < item->input_count + item->output_count; ++i) {
        int buffer = program->refs[item->inputs + i];
        if (passes(p, buffer)) {
            p->stays[p->now[buffer]].end = here;
        }
    }
    if (choice_of(p, at)->workspace > 0) {
        begin_stay(p, ULL_NONE, here, choice_of(p, at)->workspace);
    }
}

static void need(struct plain *p, int buffer)
{
    const struct ull__program *program = p->program;
    int item = program->buffers[buffer].item;
    if (!passes(p, buffer) || p->now[buffer] != ULL_NONE) {
        return;
    }
    if (item == ULL_NONE) {
        begin_stay(p, buffer, 0, program->buffers[buffer].bytes);
    } else if (p->decision->keep[buffer] == ULL_SEND) {
        begin_stay(p, buffer, p->count, program->buffers[buffer].bytes);
        p->stays[p->now[buffer]].returned = true;
        p->sent[p->sent_count++] = buffer;
    } else {
        for (int i = 0; i < program->items[item].input_count; ++i) {
            need(p, program->refs[program->items[item].inputs + i]);
        }
        place(p, item, true);
    }
}

static void run_all(struct plain *p)
{
    const struct ull__program *program = p->program;
    for (int i = 0; i < program->buffer_count; ++i) {
        p->now[i] = p->last[i] = ULL_NONE;
    }
    for (int i = 0; i < program->item_count; ++i) {
        const struct ull__program_item *item = &program->items[i];
        for (int j = 0; j < item->input_count; ++j) {
            need(p, program->refs[item->inputs + j]);
        }
        place(p, i, false);
        for (int b = 0; b < program->buffer_count && item->forward; ++b) {
            if (program->buffers[b].forward && program->buffers[b].last_forward == i &&
                p->decision->keep[b] != ULL_KEEP) {
                p->now[b] = ULL_NONE;
            }
        }
    }
}

static int first_at(const struct plain *p, double time)
{
    int place = 0;
    while (place < p->count && p->starts[place] < time) {
        place += 1;
    }
    return place;
}

/* Copies out, in the order in which things were made, then back, the last one first. Returns what the device waits. */
static double copy(struct plain *p)
{
    double free_at = 0, waits = 0, before = p->starts[p->count];
    for (int i = 0; i < p->stay_count; ++i) {
        struct ull__stay *stay = &p->stays[i];
        if (stay->buffer != ULL_NONE && !stay->returned && p->program->buffers[stay->buffer].forward &&
            p->decision->keep[stay->buffer] == ULL_SEND) {
            double ready = p->starts[stay->end + 1];
            free_at =
                (ready > free_at ? ready : free_at) + (double)stay->bytes / device.link_per_second;
            p->left_at[stay->buffer] = free_at;
            int last = first_at(p, free_at) - 1;
            last = last > stay->end ? last : stay->end;
            stay->end = last < p->count ? last : p->count - 1;
        }
    }
    for (int i = p->sent_count - 1; i >= 0; --i) {
        struct ull__stay *stay = &p->stays[p->now[p->sent[i]]];
        double needed = p->starts[stay->begin];
        before = (needed < before ? needed : before) - (double)stay->bytes / device.link_per_second;
        double late = p->left_at[p->sent[i]] - before;
        waits = late > waits ? late : waits;
        int first = first_at(p, before + 1e-12) - 1;
        first = first < 0 ? 0 : first;
        stay->begin = first < stay->begin ? first : stay->begin;
    }
    return waits;
}

static void join(struct plain *p)
{
    const struct ull__program *program = p->program;
    for (int i = 0; i < p->stay_count; ++i) {
        struct ull__stay *stay = &p->stays[i];
        if (stay->buffer == ULL_NONE || stay->returned ||
            program->buffers[stay->buffer].item == ULL_NONE) {
            continue;
        }
        const struct ull__program_item *item = &program->items[p->order[stay->begin].item];
        int input = item->first_input;
        if (item->inplace && input != ULL_NONE && passes(p, input) && input != stay->buffer &&
            program->buffers[input].item != ULL_NONE && program->refs[item->outputs] == stay->buffer &&
            program->buffers[input].bytes == stay->bytes) {
            int from = p->last[input];
            while (from != ULL_NONE && p->stays[from].begin >= stay->begin) {
                from = p->stays[from].before;
            }
            stay->joins = from != ULL_NONE && p->stays[from].end == stay->begin ? from : ULL_NONE;
        }
    }
}

static void add_up(struct plain *p)
{
    const struct ull__program *program = p->program;
    struct ull__cost_of *cost = &p->cost;
    for (int place = 0; place < p->count; ++place) {
        p->bytes[place] = program->step_bytes;
        for (int i = 0; i < p->stay_count; ++i) {
            const struct ull__stay *stay = &p->stays[i];
            int begin = stay->joins != ULL_NONE ? stay->begin + 1 : stay->begin;
            p->bytes[place] += begin <= place && place <= stay->end ? stay->bytes : 0;
        }
        if (p->bytes[place] > cost->peak_bytes) {
            cost->peak_bytes = p->bytes[place];
            cost->peak_at = place;
        }
        int at = p->order[place].item;
        const struct ull__program_item *item = &program->items[at];
        double seconds = choice_of(p, at)->seconds;
        bool once = item->update || (item->prologue && !p->order[place].again);
        *(once ? &cost->update_seconds : &cost->micro_seconds) += seconds;
        for (int j = 0; j < item->output_count && p->order[place].again; ++j) {
            int buffer = program->refs[item->outputs + j];
            cost->dropped_bytes +=
                p->decision->keep[buffer] == ULL_DROP ? program->buffers[buffer].bytes : 0;
        }
        cost->again_seconds += p->order[place].again ? seconds : 0;
    }
    for (int i = 0; i < p->sent_count; ++i) {
        int64_t bytes = program->buffers[p->sent[i]].bytes;
        cost->micro_seconds += 2 * (device.launch_seconds + (double)bytes / device.bytes_per_second);
        cost->sent_bytes += bytes;
    }
}

static void *room(size_t count, size_t size)
{
    void *made = calloc(count, size);
    assert_non_null(made);
    return made;
}

static struct plain simulate(const struct ull__program *program, const struct ull__decision *decision)
{
    size_t places = 2 * (size_t)program->item_count + 2, buffers = (size_t)program->buffer_count + 1;
    struct plain p = {.program = program,
                      .decision = decision,
                      .order = room(places, sizeof(*p.order)),
                      .starts = room(places, sizeof(*p.starts)),
                      .stays = room(2 * buffers + places, sizeof(*p.stays)),
                      .now = room(buffers, sizeof(*p.now)),
                      .last = room(buffers, sizeof(*p.last)),
                      .left_at = room(buffers, sizeof(*p.left_at)),
                      .sent = room(buffers, sizeof(*p.sent)),
                      .bytes = room(places, sizeof(*p.bytes))};
    run_all(&p);
    double waits = p.sent_count > 0 ? copy(&p) : 0;
    join(&p);
    add_up(&p);
    p.cost.micro_seconds += waits;
    return p;
}

static void finish(struct plain *p)
{
    free(p->order);
    free(p->starts);
    free(p->stays);
    free(p->now);
    free(p->last);
    free(p->left_at);
    free(p->sent);
    free(p->bytes);
}

/* --- Both, side by side --- */

struct met {
    /* How many there were of each kind; `both`: made again by the way, although it was sent. */
    long decisions, again, returned, joined, both;
};

static void compare_lists(struct ull__scheduler *scheduler, const struct plain *p, struct met *met)
{
    int count;
    const int64_t *bytes = ull__schedule_bytes(scheduler, &count);
    assert_int_equal(count, p->count);
    assert_memory_equal(bytes, p->bytes, sizeof(*bytes) * (size_t)count);
    const struct ull__placed *order = ull__schedule_order(scheduler, &count);
    for (int i = 0; i < count; ++i) {
        assert_int_equal(order[i].item, p->order[i].item);
        assert_int_equal(order[i].again, p->order[i].again);
        assert_int_equal(ull__schedule_item(scheduler, i), order[i].item);
        met->again += order[i].again;
    }
    const struct ull__stay *stays = ull__schedule_stays(scheduler, &count);
    assert_int_equal(count, p->stay_count);
    for (int i = 0; i < count; ++i) {
        const struct ull__stay *stay = &stays[i], *plain = &p->stays[i];
        assert_int_equal(stay->buffer, plain->buffer);
        assert_int_equal(stay->bytes, plain->bytes);
        assert_int_equal(stay->begin, plain->begin);
        assert_int_equal(stay->end, plain->end);
        assert_int_equal(stay->joins, plain->joins);
        assert_int_equal(stay->before, plain->before);
        assert_int_equal(stay->returned, plain->returned);
        met->returned += stay->returned;
        met->joined += stay->joins != ULL_NONE;
        met->both += !stay->returned && stay->before != ULL_NONE &&
                     p->decision->keep[stay->buffer] == ULL_SEND;
    }
}

static void compare(struct ull__scheduler *scheduler, const struct ull__program *program,
                    const struct ull__decision *decision, struct met *met)
{
    struct ull__cost_of cost, listed;
    struct plain p = simulate(program, decision);
    ull__schedule_cost(scheduler, decision, &cost);
    ull__schedule(scheduler, decision, &listed);
    assert_memory_equal(&cost, &listed, sizeof(cost));
    assert_int_equal(cost.peak_bytes, p.cost.peak_bytes);
    assert_int_equal(cost.peak_at, p.cost.peak_at);
    assert_int_equal(cost.dropped_bytes, p.cost.dropped_bytes);
    assert_int_equal(cost.sent_bytes, p.cost.sent_bytes);
    assert_memory_equal(&cost.micro_seconds, &p.cost.micro_seconds, sizeof(double));
    assert_memory_equal(&cost.update_seconds, &p.cost.update_seconds, sizeof(double));
    assert_memory_equal(&cost.again_seconds, &p.cost.again_seconds, sizeof(double));
    compare_lists(scheduler, &p, met);
    for (int i = 0; i < program->buffer_count; ++i) {
        const struct ull__program_buffer *buffer = &program->buffers[i];
        if (buffer->forward && buffer->life == ULL_LIFE_PASSING && decision->keep[i] == ULL_KEEP) {
            int begin, end;
            ull__schedule_kept(scheduler, i, &begin, &end);
            assert_int_equal(begin, p.stays[p.last[i]].begin);
            assert_int_equal(end, p.stays[p.last[i]].end);
        }
    }
    met->decisions += 1;
    finish(&p);
}

/* Some decisions for a program, from hardly anything dropped or sent to nearly all. */
static void try_program(const struct ull__program *program, uint64_t *seed, int decisions,
                        struct met *met)
{
    struct ull__scheduler *scheduler = ull__scheduler_create(program, &device);
    struct ull__decision decision;
    assert_non_null(scheduler);
    assert_true(ull__decision_create(program, &decision));
    for (int turn = 0; turn < decisions; ++turn) {
        compare(scheduler, program, &decision, met);
        uint64_t drops = random_below(seed, 9), sends = random_below(seed, 9);
        for (int i = 0; i < program->buffer_count; ++i) {
            const struct ull__program_buffer *buffer = &program->buffers[i];
            if (buffer->forward && !buffer->result && buffer->life == ULL_LIFE_PASSING) {
                decision.keep[i] = random_below(seed, 8) < drops   ? ULL_DROP
                                   : random_below(seed, 8) < sends ? ULL_SEND
                                                                   : ULL_KEEP;
            }
        }
        for (int i = 0; i < program->item_count && turn % 2 == 1; ++i) {
            decision.algorithm[i] =
                (uint8_t)random_below(seed, (uint64_t)program->items[i].choice_count);
        }
    }
    ull__decision_finish(&decision);
    ull__scheduler_destroy(scheduler);
}

/* The step of a model, maybe of one device of several. The model is used up. */
static void try_model(struct ull__graph *model, int devices, int stage, uint64_t *seed,
                      int decisions, struct met *met)
{
    struct ull__graph *graph = devices > 1 ? ull__data_parallel(model, devices, stage) : model;
    struct ull__step_options options = {.optimizer = ULL_OPTIMIZER_ADAM,
                                        .consume = random_below(seed, 2) == 0,
                                        .devices = devices,
                                        .zero_stage = stage};
    struct ull__program *program;
    int64_t values[ULL_SYMBOLS];
    assert_non_null(graph);
    assert_int_equal(ull__step_build(graph, &options, NULL), ULL_OK);
    ull__graph_values(graph, 8, values);
    assert_int_equal(ull__program_create(graph, values, &device, &program, NULL), ULL_OK);
    try_program(program, seed, decisions, met);
    ull__program_destroy(program);
    ull__graph_destroy(graph);
    if (graph != model) {
        ull__graph_destroy(model);
    }
}

static void random_models(void **state)
{
    struct met met = {0};
    uint64_t seed = 1;
    (void)state;
    for (int i = 1; i <= 200; ++i) {
        bool several = i % 4 == 0;
        try_model(random_model((uint64_t)i, 3 + i % 20), several ? 4 : 1, several ? i / 4 % 4 : 0,
                  &seed, 12, &met);
    }
    assert_true(met.decisions == 2400 && met.again > 1000 && met.returned > 1000 && met.joined > 1000);
}

/* Operators with several outputs, algorithms, convolutions, attention; what is counted once over all devices. */
static void models_of_the_zoo(void **state)
{
    static const char *const models[] = {"resnet20:width=4,image=8", "unet:image=64", "gpt-char"};
    struct met met = {0};
    uint64_t seed = 2;
    (void)state;
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); ++i) {
        for (int stage = -1; stage < 4; stage += 2) {
            struct ull__graph *model;
            assert_int_equal(ull__zoo_build(models[i], &model, NULL), ULL_OK);
            try_model(model, stage < 0 ? 1 : 2, stage < 0 ? 0 : stage, &seed, 10, &met);
        }
    }
    assert_true(met.again > 1000 && met.returned > 1000 && met.joined > 1000 && met.both > 100);
}

/* Parts of a tensor that lie in it one behind the other: the node that cuts them makes nothing, and is none of the items. */
static void parts_that_are_views(void **state)
{
    struct met met = {0};
    uint64_t seed = 3;
    (void)state;
    for (int axis = 0; axis < 2; ++axis) {
        struct ull__graph *g = ull__graph_create();
        int x = ull__graph_input(g, "x", ULL_TYPE_F32, 2, (ull__dim[]){g->batch, 64});
        int w = ull__graph_parameter(g, "w", 2, (ull__dim[]){64, 64}, ULL_INIT_UNIFORM, 0);
        int part = ull__split(g, ull__linear(g, x, w, ULL_NONE), axis, 2, NULL);
        int node = g->tensors[part].node;
        int y =
            ull__binary(g, ULL_BINARY_MUL, ull__unary(g, ULL_UNARY_GELU, g->nodes[node].outputs[0]),
                        g->nodes[node].outputs[1]);
        int target = ull__graph_input(g, "target", ULL_TYPE_F32, 2, g->tensors[y].dims);
        ull__graph_loss(g, ull__mse(g, y, target, ULL_NONE), 1);
        struct ull__program *program;
        int64_t values[ULL_SYMBOLS];
        ull__graph_values(g, 8, values);
        assert_int_equal(ull__step_build(g, &(struct ull__step_options){.consume = true}, NULL),
                         ULL_OK);
        assert_int_equal(ull__program_create(g, values, &device, &program, NULL), ULL_OK);
        int cuts = 0;
        for (int i = 0; i < program->item_count; ++i) {
            cuts += program->items[i].node == node;
            for (int j = 0; j < program->items[i].output_count; ++j) {
                assert_int_equal(program->buffers[program->refs[program->items[i].outputs + j]].item,
                                 i);
            }
        }
        assert_int_equal(cuts, axis);
        try_program(program, &seed, 20, &met);
        ull__program_destroy(program);
        ull__graph_destroy(g);
    }
    assert_true(met.again > 20 && met.returned > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_models),
        cmocka_unit_test(models_of_the_zoo),
        cmocka_unit_test(parts_that_are_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
