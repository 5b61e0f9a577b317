/*
 * scenes.c: see scenes.h. Each scene draws its sizes, lengths and habits from the seed over wide ranges, so that a
 * seed is a program of its own.
 */
#include "scenes.h"

#include <math.h>

#include "sim.h"

#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* --- a training step ---------------------------------------------------------------------------------- */

enum { LAYERS_MOST = 48 };

struct net {
    struct sim *sim;
    uint32_t process;
    unsigned int layers, per_layer;
    uint64_t weights[LAYERS_MOST], activations[LAYERS_MOST];
    double step_seconds, jitter;
    double batch; /* of the usual one; activations are as large */
    double extra; /* chance a layer of a block that is not always needed */
    bool alike;   /* all layers have the same sizes */
};

static struct net make_net(struct sim *sim, uint32_t process)
{
    struct net net = {.sim = sim, .process = process, .batch = 1};
    net.layers = (unsigned int)sim_between(sim, 3, LAYERS_MOST / 2);
    net.per_layer = (unsigned int)sim_between(sim, 1, 4);
    net.alike = sim_chance(sim, 0.4);
    net.step_seconds = (double)sim_about(sim, 5, 2000) / 1e3;
    net.jitter = sim_unit(sim) * 0.3;
    uint64_t weights = sim_about(sim, 64 * KIB, 64 * MIB);
    uint64_t activations = sim_about(sim, 256 * KIB, 128 * MIB);
    for (unsigned int i = 0; i < net.layers; i++) {
        double w = net.alike ? 1 : 0.3 + 2 * sim_unit(sim),
               a = net.alike ? 1 : 0.2 + 2 * sim_unit(sim);
        net.weights[i] = (uint64_t)((double)weights * w);
        net.activations[i] = (uint64_t)((double)activations * a);
    }
    for (unsigned int i = 0; i < net.layers; i++)
        sim_alloc(sim, process, net.weights[i], "weights");
    return net;
}

static uint64_t of_batch(const struct net *net, uint64_t bytes)
{
    return (uint64_t)((double)bytes * net->batch) + 1;
}

static void pause_for(const struct net *net, double share)
{
    double factor = 1 + net->jitter * sim_normal(net->sim);
    sim_wait(net->sim, net->step_seconds * share * (factor > 0.1 ? factor : 0.1));
}

static void forward(struct net *net, struct sim_list *kept)
{
    for (unsigned int i = 0; i < net->layers; i++) {
        for (unsigned int k = 0; k < net->per_layer; k++) {
            struct sim_block *work = sim_alloc(net->sim, net->process,
                                               of_batch(net, net->activations[i] / 3), "workspace");
            sim_keep(kept, sim_alloc(net->sim, net->process,
                                     of_batch(net, net->activations[i] / (k + 1)), "activation"));
            sim_free(net->sim, work);
        }
        if (sim_chance(net->sim, net->extra))
            sim_keep(kept, sim_alloc(net->sim, net->process, sim_about(net->sim, KIB, MIB), "mask"));
        pause_for(net, 0.4 / net->layers);
    }
}

static void train_step(struct net *net)
{
    struct sim_list kept = {0}, grads = {0};
    struct sim_block *input = sim_alloc(net->sim, net->process, of_batch(net, 4 * MIB), "input");
    forward(net, &kept);
    struct sim_block *loss = sim_alloc(net->sim, net->process, 512, "loss");
    for (unsigned int i = net->layers; i-- > 0;) {
        sim_keep(&grads, sim_alloc(net->sim, net->process, net->weights[i], "gradient"));
        for (unsigned int k = 0; k < net->per_layer && kept.count > 0; k++)
            sim_free(net->sim, kept.blocks[--kept.count]);
        pause_for(net, 0.4 / net->layers);
    }
    sim_free_list(net->sim, &kept);
    sim_free_list(net->sim, &grads);
    sim_free(net->sim, loss);
    sim_free(net->sim, input);
    pause_for(net, 0.2);
}

static void evaluate(struct net *net, unsigned int batches)
{
    for (unsigned int i = 0; i < batches; i++) {
        struct sim_list kept = {0};
        forward(net, &kept);
        sim_free_list(net->sim, &kept);
    }
}

static uint64_t steps_of(struct sim *sim)
{
    return sim_about(sim, 30, 600);
}

/* A program may free all it has before it ends, end without that, or still run when it is looked at. */
static struct ull__history *finish(struct sim *sim, uint32_t processes)
{
    uint64_t how = sim_random(sim) % 3;
    sim_drop(sim, 0);
    for (uint32_t p = 0; p < processes; p++) {
        if (how == 0)
            sim_tear_down(sim, p);
        if (how < 2)
            sim_end(sim, p, 0);
    }
    return sim_finish(sim);
}

static enum sim_layer visible_layer(uint64_t seed)
{
    return seed % 3 == 0 ? SIM_DRIVER : SIM_CACHED;
}

static struct sim *begin(uint64_t seed)
{
    return sim_create(seed, visible_layer(seed));
}

/* --- steady ------------------------------------------------------------------------------------------- */

static struct ull__history *steady_loop(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = steps_of(sim); i < n; i++)
        train_step(&net);
    return finish(sim, 1);
}

/* Optimizer state comes with the first steps; that is no growth. */
static struct ull__history *optimizer_state(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = steps_of(sim) + 30; i < n; i++) {
        train_step(&net);
        for (unsigned int l = 0; i < 2 && l < net.layers; l++)
            sim_alloc(sim, 0, net.weights[l], "moment");
    }
    return finish(sim, 1);
}

static struct ull__history *variable_batch(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = steps_of(sim); i < n; i++) {
        net.batch = 0.2 + 1.6 * sim_unit(sim);
        train_step(&net);
    }
    return finish(sim, 1);
}

static struct ull__history *jittered_steps(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    net.extra = 0.1 + 0.5 * sim_unit(sim);
    net.jitter = 0.5;
    for (uint64_t i = 0, n = steps_of(sim); i < n; i++)
        train_step(&net);
    return finish(sim, 1);
}

static struct ull__history *evaluation(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    uint64_t every = sim_between(sim, 5, 40);
    for (uint64_t i = 0, n = every * sim_between(sim, 4, 15); i < n; i++) {
        train_step(&net);
        if (i % every == every - 1) {
            net.batch = 0.5 + 2 * sim_unit(sim);
            evaluate(&net, (unsigned int)sim_between(sim, 2, 20));
            net.batch = 1;
        }
    }
    return finish(sim, 1);
}

/* Every step makes new weights before it drops the old ones. */
static struct ull__history *replaced_weights(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    struct sim_list old = {0}, fresh = {0};
    for (uint64_t i = 0, n = steps_of(sim); i < n; i++) {
        train_step(&net);
        for (unsigned int l = 0; l < net.layers; l++)
            sim_keep(&fresh, sim_alloc(sim, 0, net.weights[l], "weights"));
        sim_free_list(sim, &old);
        old = fresh;
        fresh = (struct sim_list){0};
    }
    sim_forget_list(&old);
    return finish(sim, 1);
}

/* One request after another, each with a key/value cache that grows with its length. */
static struct ull__history *requests(uint64_t seed, uint64_t count, uint64_t leak)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    uint64_t page = sim_about(sim, 64 * KIB, 4 * MIB), longest = sim_between(sim, 10, 200);
    for (uint64_t i = 0; i < count; i++) {
        struct sim_list cache = {0};
        for (uint64_t t = 0, n = sim_between(sim, longest / 4 + 1, longest); t < n; t++) {
            struct sim_block *work = sim_alloc(sim, 0, net.activations[0], "workspace");
            if (t % 4 == 0)
                sim_keep(&cache, sim_alloc(sim, 0, page, "cache"));
            sim_free(sim, work);
            sim_wait(sim, 0.02);
        }
        if (leak)
            sim_alloc(sim, 0, leak, "session");
        sim_free_list(sim, &cache);
        sim_wait(sim, sim_unit(sim) * 0.5);
    }
    return finish(sim, 1);
}

static struct ull__history *request_caches(uint64_t seed)
{
    return requests(seed, 10 + seed * 7919 % 90, 0);
}

/* Users come and go; each holds something while it is there. */
static struct ull__history *sessions(uint64_t seed, uint64_t leak)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    struct sim_list here = {0};
    uint64_t usual = sim_between(sim, 4, 40), rounds = sim_between(sim, 40, 100) * usual;
    for (uint64_t i = 0; i < rounds; i++) {
        if (sim_unit(sim) * 2 * (double)usual > (double)here.count) {
            sim_keep(&here, sim_alloc(sim, 0, sim_about(sim, 256 * KIB, 32 * MIB), "session"));
            if (leak && sim_chance(sim, 0.3))
                sim_alloc(sim, 0, leak, "log");
        } else {
            size_t who = (size_t)(sim_random(sim) % here.count);
            struct sim_block *first = here.blocks[0];
            here.blocks[0] = here.blocks[who];
            here.blocks[who] = first;
            sim_free_first(sim, &here);
        }
        struct sim_block *work = sim_alloc(sim, 0, net.activations[0], "workspace");
        sim_wait(sim, 0.05);
        sim_free(sim, work);
    }
    sim_forget_list(&here);
    return finish(sim, 1);
}

static struct ull__history *sessions_come_and_go(uint64_t seed)
{
    return sessions(seed, 0);
}

/* Sizes and lifetimes at random, without any period. */
static struct ull__history *noise_with(uint64_t seed, uint64_t leak)
{
    struct sim *sim = begin(seed);
    struct sim_block *live[64] = {0};
    make_net(sim, 0);
    uint64_t operations = sim_about(sim, 3000, 20000);
    for (uint64_t i = 0; i < operations; i++) {
        struct sim_block **place = &live[sim_random(sim) % (sizeof live / sizeof *live)];
        sim_free(sim, *place);
        *place = sim_chance(sim, 0.7) ? sim_alloc(sim, 0, sim_about(sim, KIB, 16 * MIB), NULL) : NULL;
        if (leak && i % 10 == 0)
            sim_alloc(sim, 0, leak, NULL);
        sim_wait(sim, 0.001 * sim_unit(sim));
    }
    return finish(sim, 1);
}

static struct ull__history *noise(uint64_t seed)
{
    return noise_with(seed, 0);
}

static struct ull__history *clean_notebook(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    struct sim_block *result = NULL;
    for (uint64_t cell = 0, n = sim_between(sim, 40, 120); cell < n; cell++) {
        net.batch = 0.2 + 2 * sim_unit(sim);
        for (uint64_t i = 0, k = sim_between(sim, 1, 4); i < k; i++)
            evaluate(&net, 1);
        sim_free(sim, result);
        result = sim_alloc(sim, 0, 8 * MIB, "result");
        sim_wait(sim, 60 * sim_unit(sim));
    }
    return finish(sim, 1);
}

static struct ull__history *marked_steps(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = steps_of(sim); i < n; i++) {
        net.batch = 0.2 + 1.6 * sim_unit(sim);
        sim_mark(sim, 0, "step");
        train_step(&net);
    }
    return finish(sim, 1);
}

static struct ull__history *several_steady(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net nets[4];
    uint32_t count = (uint32_t)sim_between(sim, 2, 4);
    nets[0] = make_net(sim, 0);
    for (uint32_t p = 1; p < count; p++)
        nets[p] = make_net(sim, sim_process(sim));
    for (uint64_t i = 0, n = steps_of(sim) / 2 + 20; i < n; i++) {
        for (uint32_t p = 0; p < count; p++)
            train_step(&nets[p]);
    }
    return finish(sim, count);
}

/* --- caches ------------------------------------------------------------------------------------------- */

static struct ull__history *plateau(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    uint64_t steps = steps_of(sim) + 30;
    double until = 0.25 + 0.35 * sim_unit(sim);
    uint64_t piece = sim_about(sim, 256 * KIB, 4 * MIB);
    for (uint64_t i = 0; i < steps; i++) {
        train_step(&net);
        if ((double)i < until * (double)steps)
            sim_alloc(sim, 0, piece, "entry");
    }
    return finish(sim, 1);
}

/* At steps 1, 2, 4, 8, ... as tables that double. */
static struct ull__history *doubling_steps(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    double next = 1 + sim_unit(sim), factor = 1.6 + 0.6 * sim_unit(sim);
    uint64_t piece = sim_about(sim, 4 * MIB, 64 * MIB);
    for (uint64_t i = 0, n = steps_of(sim) + 60; i < n; i++) {
        train_step(&net);
        if ((double)i >= next) {
            next *= factor;
            sim_alloc(sim, 0, piece, "table");
        }
    }
    return finish(sim, 1);
}

/* Something is kept for each shape that comes; after a while all have come. */
static struct ull__history *shapes(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    bool seen[64] = {false};
    uint64_t steps = 60 + steps_of(sim), kinds = sim_between(sim, 8, 24);
    uint64_t piece = sim_about(sim, 2 * MIB, 32 * MIB);
    if (kinds > steps / 10)
        kinds = steps / 10;
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t shape = sim_random(sim) % kinds;
        net.batch = 0.5 + (double)shape / (double)kinds;
        train_step(&net);
        if (!seen[shape])
            sim_alloc(sim, 0, piece + shape * 4096, "plan");
        seen[shape] = true;
    }
    return finish(sim, 1);
}

/* The last k batches are kept; once there are k, the oldest goes. */
static struct ull__history *replay_buffer(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    struct sim_list buffer = {0};
    uint64_t steps = steps_of(sim) + 60, most = steps * sim_between(sim, 25, 50) / 100;
    uint64_t piece = sim_about(sim, 256 * KIB, 8 * MIB);
    for (uint64_t i = 0; i < steps; i++) {
        train_step(&net);
        sim_keep(&buffer, sim_alloc(sim, 0, piece, "replay"));
        if (buffer.count > most)
            sim_free_first(sim, &buffer);
    }
    sim_forget_list(&buffer);
    return finish(sim, 1);
}

/* Live bytes stay, but sizes drift, so that the allocator's free blocks fit ever less. */
static struct ull__history *growing_reserve(uint64_t seed)
{
    struct sim *sim = sim_create(seed, SIM_CACHED);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = steps_of(sim) + 30; i < n; i++) {
        train_step(&net);
        struct sim_block *odd = sim_alloc(sim, 0, 24 * MIB + i * 2 * MIB, "odd");
        sim_wait(sim, 0.01);
        sim_free(sim, odd);
    }
    return finish(sim, 1);
}

/* --- leaks -------------------------------------------------------------------------------------------- */

static struct ull__history *slow_leak(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = steps_of(sim); i < n; i++) {
        train_step(&net);
        sim_alloc(sim, 0, KIB, "history");
    }
    return finish(sim, 1);
}

static struct ull__history *fast_leak(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    uint64_t piece = sim_about(sim, KIB, 16 * MIB);
    for (uint64_t i = 0, n = steps_of(sim); i < n; i++) {
        train_step(&net);
        sim_alloc(sim, 0, piece, "graph");
    }
    return finish(sim, 1);
}

/* Losses in a list keep the graph of each step, and with it all activations. */
static struct ull__history *kept_graphs(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = sim_between(sim, 220, 500); i < n; i++) {
        struct sim_list kept = {0};
        struct sim_block *input = sim_alloc(sim, 0, 4 * MIB, "input");
        forward(&net, &kept);
        sim_forget_list(&kept);
        sim_free(sim, input);
    }
    return finish(sim, 1);
}

static struct ull__history *warm_up_then_leak(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = steps_of(sim) + 30; i < n; i++) {
        train_step(&net);
        for (unsigned int l = 0; i < 3 && l < net.layers; l++)
            sim_alloc(sim, 0, net.weights[l], "moment");
        sim_alloc(sim, 0, 4 * KIB, "loss");
    }
    return finish(sim, 1);
}

/* Buffers pile up over many steps and then all go, but for a little. */
static struct ull__history *leak_under_sawtooth(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    struct sim_list pile = {0};
    uint64_t tooth = sim_between(sim, 5, 30), teeth = sim_between(sim, 12, 40);
    uint64_t piece = sim_about(sim, 4 * MIB, 64 * MIB), leak = sim_about(sim, KIB, MIB);
    for (uint64_t i = 0; i < tooth * teeth; i++) {
        train_step(&net);
        sim_keep(&pile, sim_alloc(sim, 0, piece, "pile"));
        sim_alloc(sim, 0, leak, "lost");
        if (i % tooth == tooth - 1)
            sim_free_list(sim, &pile);
    }
    sim_forget_list(&pile);
    return finish(sim, 1);
}

/* Not in every step. */
static struct ull__history *leak_now_and_then(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    uint64_t every = sim_between(sim, 5, 30), piece = sim_about(sim, 64 * KIB, 32 * MIB);
    bool random = sim_chance(sim, 0.5);
    for (uint64_t i = 0, n = every * sim_between(sim, 14, 40); i < n; i++) {
        train_step(&net);
        if (random ? sim_chance(sim, 1.0 / (double)every) : i % every == 0)
            sim_alloc(sim, 0, piece, "checkpoint");
    }
    return finish(sim, 1);
}

static struct ull__history *leak_with_variable_batch(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    uint64_t piece = sim_about(sim, KIB, MIB);
    for (uint64_t i = 0, n = steps_of(sim); i < n; i++) {
        net.batch = 0.2 + 1.6 * sim_unit(sim);
        train_step(&net);
        sim_alloc(sim, 0, piece, "lost");
    }
    return finish(sim, 1);
}

static struct ull__history *leak_with_jitter(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    net.extra = 0.4;
    net.jitter = 0.5;
    for (uint64_t i = 0, n = steps_of(sim); i < n; i++) {
        train_step(&net);
        if (sim_chance(sim, 0.7))
            sim_alloc(sim, 0, sim_about(sim, KIB, 64 * KIB), "lost");
    }
    return finish(sim, 1);
}

static struct ull__history *leak_with_evaluation(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    uint64_t every = sim_between(sim, 5, 20), piece = sim_about(sim, KIB, MIB);
    for (uint64_t i = 0, n = every * sim_between(sim, 12, 25); i < n; i++) {
        train_step(&net);
        if (i % every == every - 1) {
            evaluate(&net, (unsigned int)sim_between(sim, 2, 20));
            sim_alloc(sim, 0, piece, "metric");
        }
    }
    return finish(sim, 1);
}

static struct ull__history *leaking_requests(uint64_t seed)
{
    return requests(seed, 30 + seed * 7919 % 70, KIB << seed % 8);
}

static struct ull__history *leaking_sessions(uint64_t seed)
{
    return sessions(seed, MIB << seed % 3);
}

static struct ull__history *leak_in_noise(uint64_t seed)
{
    return noise_with(seed, 256 * KIB << seed % 3);
}

/* Cells of a notebook that are run again and again, and old results that something still names. */
static struct ull__history *notebook(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    for (uint64_t cell = 0, n = sim_between(sim, 40, 120); cell < n; cell++) {
        net.batch = 0.2 + 2 * sim_unit(sim);
        for (uint64_t i = 0, k = sim_between(sim, 1, 4); i < k; i++)
            evaluate(&net, 1);
        if (sim_chance(sim, 0.6))
            sim_alloc(sim, 0, sim_about(sim, MIB, 64 * MIB), "result");
        sim_wait(sim, 60 * sim_unit(sim));
    }
    return finish(sim, 1);
}

static struct ull__history *one_of_several(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net nets[4];
    uint32_t count = (uint32_t)sim_between(sim, 2, 4);
    uint64_t piece = sim_about(sim, KIB, MIB);
    nets[0] = make_net(sim, 0);
    for (uint32_t p = 1; p < count; p++)
        nets[p] = make_net(sim, sim_process(sim));
    for (uint64_t i = 0, n = steps_of(sim) / 2 + 20; i < n; i++) {
        for (uint32_t p = 0; p < count; p++)
            train_step(&nets[p]);
        sim_alloc(sim, 1, piece, "lost");
    }
    return finish(sim, count);
}

/* --- too short ---------------------------------------------------------------------------------------- */

static struct ull__history *few_steps(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = sim_between(sim, 1, 5); i < n; i++)
        train_step(&net);
    return finish(sim, 1);
}

static struct ull__history *few_steps_that_leak(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = sim_between(sim, 1, 5); i < n; i++) {
        train_step(&net);
        sim_alloc(sim, 0, MIB, "lost");
    }
    return finish(sim, 1);
}

static struct ull__history *few_requests(uint64_t seed)
{
    return requests(seed, 2 + seed % 3, 0);
}

/* A deep network's first pass, which ends out of memory: all that it makes it keeps, layer by layer. */
static struct ull__history *one_pass(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    struct sim_list kept = {0};
    net.layers = (unsigned int)sim_between(sim, 12, LAYERS_MOST);
    net.per_layer = (unsigned int)sim_between(sim, 1, 4);
    for (unsigned int i = 0; i < net.layers; i++)
        net.activations[i] = net.activations[net.alike ? 0 : i % 3] + 1;
    forward(&net, &kept);
    sim_forget_list(&kept);
    return finish(sim, 1);
}

static struct ull__history *only_weights(uint64_t seed)
{
    struct sim *sim = sim_create(seed, SIM_CACHED);
    make_net(sim, 0);
    sim_wait(sim, 1);
    return finish(sim, 1);
}

/* --- hidden by an allocator --------------------------------------------------------------------------- */

static struct ull__history *hidden_steady(uint64_t seed)
{
    struct sim *sim = sim_create(seed, SIM_HIDDEN);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = steps_of(sim) + 60; i < n; i++)
        train_step(&net);
    return finish(sim, 1);
}

static struct ull__history *hidden_leak(uint64_t seed)
{
    struct sim *sim = sim_create(seed, SIM_HIDDEN);
    struct net net = make_net(sim, 0);
    for (uint64_t i = 0, n = steps_of(sim) + 200; i < n; i++) {
        train_step(&net);
        sim_alloc(sim, 0, 3 * MIB, "lost");
    }
    return finish(sim, 1);
}

/* --- with lost events --------------------------------------------------------------------------------- */

static struct ull__history *lossy_steady(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    sim_drop(sim, 0.0002 + 0.01 * sim_unit(sim));
    for (uint64_t i = 0, n = steps_of(sim); i < n; i++)
        train_step(&net);
    return finish(sim, 1);
}

static struct ull__history *lossy_leak(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    uint64_t pieces = 3;
    sim_drop(sim, 0.0002 + 0.001 * sim_unit(sim));
    for (uint64_t i = 0, n = steps_of(sim) + 60; i < n; i++) {
        train_step(&net);
        for (uint64_t k = 0; k < pieces; k++)
            sim_alloc(sim, 0, 64 * KIB, "lost");
    }
    return finish(sim, 1);
}

/* The record begins in the middle: frees of what was there before. */
static struct ull__history *late_record(uint64_t seed)
{
    struct sim *sim = begin(seed);
    struct net net = make_net(sim, 0);
    struct sim_list early = {0};
    sim_drop(sim, 1);
    for (int i = 0; i < 40; i++)
        sim_keep(&early, sim_alloc(sim, 0, 4 * MIB, "early"));
    sim_drop(sim, 0);
    for (uint64_t i = 0, n = steps_of(sim); i < n; i++) {
        train_step(&net);
        if (i < 3)
            sim_free_first(sim, &early);
    }
    sim_forget_list(&early);
    struct ull__history *history = finish(sim, 1);
    history->dropped = 0;
    history->processes[0].dropped = 0;
    return history;
}

/* --- host memory -------------------------------------------------------------------------------------- */

/* Samples once a second: what grows by `growth` until `until`, with noise, spikes and slow waves. */
static struct ull__history *host(uint64_t seed, uint64_t samples, double growth, double until,
                                 bool steps)
{
    struct sim *sim = sim_create(seed, SIM_DRIVER);
    double base = (double)sim_about(sim, 200 * MIB, 8 * GIB);
    double noise = base * 0.002 * sim_unit(sim), wave = base * 0.01 * sim_unit(sim);
    double period = 3 + 10 * sim_unit(sim), grown = 0, last = 0;
    sim_alloc(sim, 0, GIB, "weights");
    for (uint64_t i = 0; i < samples; i++) {
        double at = (double)i / (double)samples;
        double start = at < 0.04 ? at / 0.04 : 1; /* libraries are loaded */
        if (at < until)
            grown += growth * (steps ? 1 : 2 * sim_unit(sim));
        if (!steps || i % 16 == 0)
            last = grown;
        double spike = sim_chance(sim, 0.05) ? base * 0.2 * sim_unit(sim) : 0;
        double value = base * (0.3 + 0.7 * start) + last + noise * fabs(sim_normal(sim)) +
                       wave * (1 + sin(6.2832 * (double)i / period)) + spike;
        sim_host(sim, 0, (uint64_t)value);
        sim_wait(sim, 1);
    }
    return finish(sim, 1);
}

static double host_growth(uint64_t seed)
{
    return (double)(512 * KIB << seed % 6);
}

static struct ull__history *host_steady(uint64_t seed)
{
    return host(seed, 60 + seed * 7919 % 900, 0, 0, false);
}

static struct ull__history *host_leak(uint64_t seed)
{
    return host(seed, 150 + seed * 7919 % 900, 8 * host_growth(seed), 1, seed % 2);
}

static struct ull__history *host_plateau(uint64_t seed)
{
    return host(seed, 150 + seed * 7919 % 900, 32 * host_growth(seed),
                0.3 + 0.03 * (double)(seed % 8), seed % 2);
}

static struct ull__history *host_short(uint64_t seed)
{
    return host(seed, 2 + seed % 15, 8 * MIB, 1, false);
}

const struct scene scenes[] = {
    {"steady loop", steady_loop, IS(STEADY), 0, 0, false},
    {"optimizer state in the first steps", optimizer_state, IS(STEADY), 0, 0, false},
    {"variable batch size", variable_batch, IS(STEADY), 0, 0, true},
    {"jittered steps", jittered_steps, IS(STEADY), 0, 0, true},
    {"evaluation every k steps", evaluation, IS(STEADY), 0, 0, true},
    {"weights replaced in every step", replaced_weights, IS(STEADY), 0, 0, false},
    {"key/value cache freed at each request's end", request_caches, IS(STEADY), 0, 0, true},
    {"sessions that come and go", sessions_come_and_go, IS(STEADY), 0, 0, true},
    {"noise", noise, IS(STEADY), 0, 0, true},
    {"notebook that drops old tensors", clean_notebook, IS(STEADY), 0, 0, true},
    {"steps marked by the program", marked_steps, IS(STEADY), 0, 0, true},
    {"several steady processes", several_steady, IS(STEADY), 0, 0, false},
    {"record that begins in the middle", late_record, IS(STEADY), 0, 0, false},
    {"warm-up, then a plateau", plateau, IS(CACHE), 0, 0, false},
    {"step-wise growth that doubles", doubling_steps, IS(CACHE), 0, 0, false},
    {"a plan kept for each shape", shapes, IS(CACHE) | IS(STEADY), 0, 0, false},
    {"replay buffer that fills", replay_buffer, IS(CACHE), 0, 0, false},
    {"reserve grows, live bytes do not", growing_reserve, IS(CACHE), 0, 0, false},
    {"slow leak of 1 KiB a step", slow_leak, IS(LEAK), 0, 0, false},
    {"leak of any size in every step", fast_leak, IS(LEAK), 0, 0, false},
    {"leak of each step's whole graph", kept_graphs, IS(LEAK), 0, 0, false},
    {"warm-up, then a leak", warm_up_then_leak, IS(LEAK), 0, 0, false},
    {"leak under a large sawtooth", leak_under_sawtooth, IS(LEAK), 0, 0, false},
    {"leak now and then", leak_now_and_then, IS(LEAK), 0, 0, false},
    {"leak with variable batch size", leak_with_variable_batch, IS(LEAK), 0, 0, false},
    {"leak with jittered steps", leak_with_jitter, IS(LEAK), 0, 0, false},
    {"leak in each evaluation", leak_with_evaluation, IS(LEAK), 0, 0, false},
    {"leak in each request", leaking_requests, IS(LEAK), 0, 0, false},
    {"leak among sessions", leaking_sessions, IS(LEAK), 0, 0, false},
    {"leak in noise", leak_in_noise, IS(LEAK), 0, 0, false},
    {"notebook cells that keep old tensors", notebook, IS(LEAK), 0, 0, false},
    {"leak in one of several processes", one_of_several, IS(LEAK), 0, 1, false},
    {"too short: few steps", few_steps, IS(UNKNOWN), 0, 0, false},
    {"too short: few steps that leak", few_steps_that_leak, IS(UNKNOWN), 0, 0, false},
    {"too short: few requests", few_requests, IS(UNKNOWN), 0, 0, false},
    {"too short: one pass through a deep network", one_pass, IS(UNKNOWN), 0, 0, false},
    {"too short: only weights", only_weights, IS(UNKNOWN), 0, 0, false},
    {"driver's calls of a caching allocator", hidden_steady, IS(UNKNOWN), 0, 0, false},
    {"driver's calls of a caching allocator that grows", hidden_leak, IS(LEAK), 0, 0, false},
    {"steady, with lost events", lossy_steady, IS(STEADY) | IS(UNKNOWN), 0, 0, false},
    {"leak, with lost events", lossy_leak, IS(LEAK), 0, 0, false},
    {"host memory steady", host_steady, 0, IS(STEADY), 0, false},
    {"host memory leak", host_leak, 0, IS(LEAK), 0, false},
    {"host memory plateau", host_plateau, 0, IS(CACHE), 0, false},
    {"host memory, too short", host_short, 0, IS(UNKNOWN), 0, false},
};
const int scene_count = sizeof scenes / sizeof *scenes;
