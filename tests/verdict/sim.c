/* sim.c: see sim.h. Memory that runs out ends the test program. */
#include "sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024ull
#define MIB (1024 * KIB)

struct sim_block {
    struct sim_block *next, *previous; /* of all live blocks, or of a free list */
    uint64_t address, size, room;
    uint32_t process;
};

enum { BINS = 512 };

struct sim_process {
    struct sim_block *free[BINS]; /* by rounded size; others with the same bin are looked through */
    struct sim_block live;        /* ring */
    uint64_t next_address;
    uint64_t segment_left, segment_at; /* of the segment that small blocks are cut from */
};

struct sim {
    struct ull__history *history;
    enum sim_layer layer;
    uint64_t state, now_ns;
    struct sim_process *processes;
    uint32_t process_count;
    double drop;
};

static void must(bool good)
{
    if (!good) {
        fprintf(stderr, "sim: out of memory\n");
        abort();
    }
}

/* --- chance ------------------------------------------------------------------------------------------- */

uint64_t sim_random(struct sim *sim)
{
    uint64_t z = sim->state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high)
{
    return low + sim_random(sim) % (high - low + 1);
}

double sim_unit(struct sim *sim)
{
    return (double)(sim_random(sim) >> 11) / 9007199254740992.0;
}

uint64_t sim_about(struct sim *sim, uint64_t low, uint64_t high)
{
    return (uint64_t)((double)low * pow((double)high / (double)low, sim_unit(sim)));
}

double sim_normal(struct sim *sim)
{
    double radius = sqrt(-2 * log(1 - sim_unit(sim)));
    return radius * cos(2 * 3.14159265358979323846 * sim_unit(sim));
}

bool sim_chance(struct sim *sim, double chance)
{
    return sim_unit(sim) < chance;
}

/* --- events ------------------------------------------------------------------------------------------- */

static void add(struct sim *sim, struct ull__event event)
{
    event.time_ns = sim->now_ns;
    sim->now_ns += 1000;
    if (sim->drop > 0 && event.kind != ULL_EVENT_END && sim_chance(sim, sim->drop)) {
        sim->history->dropped++;
        sim->history->processes[event.process].dropped++;
        return;
    }
    must(ull__history_add(sim->history, &event));
}

void sim_wait(struct sim *sim, double seconds)
{
    sim->now_ns += (uint64_t)(seconds * 1e9);
}

void sim_drop(struct sim *sim, double chance)
{
    sim->drop = chance;
}

void sim_mark(struct sim *sim, uint32_t process, const char *tag)
{
    uint32_t text = ull__history_text(sim->history, tag, strlen(tag));
    add(sim, (struct ull__event){.kind = ULL_EVENT_MARK,
                                 .process = (uint16_t)process,
                                 .device = ULL_EVENT_NO_DEVICE,
                                 .tag = text});
}

void sim_host(struct sim *sim, uint32_t process, uint64_t bytes)
{
    add(sim, (struct ull__event){.kind = ULL_EVENT_HOST,
                                 .process = (uint16_t)process,
                                 .device = ULL_EVENT_NO_DEVICE,
                                 .size = bytes / 4096 * 4096});
}

uint32_t sim_process(struct sim *sim)
{
    uint32_t number = sim->process_count;
    struct ull__history_process about = {
        .pid = 1000 + number, .begin_ns = sim->now_ns, .exit_code = -1};
    about.name = ull__history_text(sim->history, "program", 7);
    must(ull__history_process(sim->history, &about) == number);
    sim->processes = realloc(sim->processes, (number + 1) * sizeof *sim->processes);
    must(sim->processes != NULL);
    memset(&sim->processes[number], 0, sizeof *sim->processes);
    sim->processes[number].next_address = 0x7f0000000000ull;
    sim->process_count++;
    add(sim, (struct ull__event){.kind = ULL_EVENT_START,
                                 .process = (uint16_t)number,
                                 .device = ULL_EVENT_NO_DEVICE});
    return number;
}

struct sim *sim_create(uint64_t seed, enum sim_layer layer)
{
    struct sim *sim = calloc(1, sizeof *sim);
    must(sim != NULL);
    sim->history = ull__history_create();
    must(sim->history != NULL);
    sim->layer = layer;
    sim->state = seed * 0x2545f4914f6cdd1dull + 1;
    sim->now_ns = 1000000;
    struct ull__history_device card = {.logical = 0, .physical = 0, .total_bytes = 16384 * MIB};
    must(ull__history_device(sim->history, &card) == 0);
    sim_process(sim);
    return sim;
}

/* --- memory ------------------------------------------------------------------------------------------- */

static uint64_t rounded(const struct sim *sim, uint64_t size)
{
    uint64_t unit = sim->layer == SIM_DRIVER ? 512 : size < MIB ? 512 : 2 * MIB;
    return (size + unit - 1) / unit * unit;
}

static unsigned int bin_of(uint64_t room)
{
    return (unsigned int)((room / 512 * 0x9e3779b97f4a7c15ull) >> 55) % BINS;
}

static void driver_event(struct sim *sim, uint32_t process, enum ull__event_kind kind,
                         uint64_t address, uint64_t size)
{
    add(sim, (struct ull__event){.kind = (uint8_t)kind,
                                 .process = (uint16_t)process,
                                 .class = ULL_CLASS_DATA,
                                 .address = address,
                                 .size = size,
                                 .charged = (int64_t)size,
                                 .latency_ns = 20000});
}

/* From a segment, which may have to be made. */
static uint64_t cut(struct sim *sim, uint32_t number, uint64_t room)
{
    struct sim_process *process = &sim->processes[number];
    if (room > process->segment_left) {
        uint64_t segment = room < MIB ? 2 * MIB : room < 10 * MIB ? 20 * MIB : room;
        uint64_t address = process->next_address;
        process->next_address += segment;
        driver_event(sim, number, ULL_EVENT_ALLOC, address, segment);
        if (segment == room)
            return address;
        process->segment_at = address;
        process->segment_left = segment;
    }
    uint64_t address = process->segment_at;
    process->segment_at += room;
    process->segment_left -= room;
    return address;
}

struct sim_block *sim_alloc(struct sim *sim, uint32_t number, uint64_t size, const char *tag)
{
    struct sim_process *process = &sim->processes[number];
    uint64_t room = rounded(sim, size);
    struct sim_block **bin = &process->free[bin_of(room)];
    while (*bin && (*bin)->room != room)
        bin = &(*bin)->next;
    struct sim_block *block = *bin;
    if (block) {
        *bin = block->next;
    } else {
        block = calloc(1, sizeof *block);
        must(block != NULL);
        if (sim->layer == SIM_DRIVER) {
            block->address = process->next_address;
            process->next_address += room;
        } else {
            block->address = cut(sim, number, room);
        }
        block->room = room;
        block->process = number;
    }
    block->size = size;
    block->next = process->live.next;
    block->previous = NULL;
    if (block->next)
        block->next->previous = block;
    process->live.next = block;
    uint32_t text = tag ? ull__history_text(sim->history, tag, strlen(tag)) : 0;
    if (sim->layer != SIM_HIDDEN)
        add(sim, (struct ull__event){.kind = sim->layer == SIM_DRIVER ? ULL_EVENT_ALLOC
                                                                      : ULL_EVENT_CHUNK_ALLOC,
                                     .process = (uint16_t)number,
                                     .class = ULL_CLASS_DATA,
                                     .address = block->address,
                                     .size = size,
                                     .charged = (int64_t)room,
                                     .tag = text});
    return block;
}

void sim_free(struct sim *sim, struct sim_block *block)
{
    if (!block)
        return;
    struct sim_process *process = &sim->processes[block->process];
    if (block->previous)
        block->previous->next = block->next;
    else
        process->live.next = block->next;
    if (block->next)
        block->next->previous = block->previous;
    struct sim_block **bin = &process->free[bin_of(block->room)];
    block->next = *bin;
    *bin = block;
    if (sim->layer != SIM_HIDDEN)
        add(sim, (struct ull__event){.kind = sim->layer == SIM_DRIVER ? ULL_EVENT_FREE
                                                                      : ULL_EVENT_CHUNK_FREE,
                                     .process = (uint16_t)block->process,
                                     .class = ULL_CLASS_DATA,
                                     .address = block->address,
                                     .charged = (int64_t)block->room});
}

void sim_tear_down(struct sim *sim, uint32_t process)
{
    while (sim->processes[process].live.next)
        sim_free(sim, sim->processes[process].live.next);
}

void sim_end(struct sim *sim, uint32_t process, int code)
{
    struct ull__history_process *about = &sim->history->processes[process];
    about->ended = true;
    about->exit_code = code;
    about->end_ns = sim->now_ns;
    add(sim, (struct ull__event){.kind = ULL_EVENT_END,
                                 .process = (uint16_t)process,
                                 .device = ULL_EVENT_NO_DEVICE,
                                 .result = (int16_t)code});
}

static void free_chain(struct sim_block *block)
{
    while (block) {
        struct sim_block *next = block->next;
        free(block);
        block = next;
    }
}

struct ull__history *sim_finish(struct sim *sim)
{
    struct ull__history *history = sim->history;
    struct ull_error err = {""};
    history->end_ns = sim->now_ns;
    history->over = true;
    if (ull__history_finish(history, 1000000, &err) != ULL_OK) {
        fprintf(stderr, "sim: %s\n", err.message);
        abort();
    }
    for (uint32_t p = 0; p < sim->process_count; p++) {
        free_chain(sim->processes[p].live.next);
        for (int b = 0; b < BINS; b++)
            free_chain(sim->processes[p].free[b]);
    }
    free(sim->processes);
    free(sim);
    return history;
}

/* --- lists -------------------------------------------------------------------------------------------- */

void sim_keep(struct sim_list *list, struct sim_block *block)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 16;
        list->blocks = realloc(list->blocks, list->capacity * sizeof(struct sim_block *));
        must(list->blocks != NULL);
    }
    list->blocks[list->count++] = block;
}

void sim_free_list(struct sim *sim, struct sim_list *list)
{
    while (list->count > 0)
        sim_free(sim, list->blocks[--list->count]);
    sim_forget_list(list);
}

void sim_free_first(struct sim *sim, struct sim_list *list)
{
    if (list->count == 0)
        return;
    sim_free(sim, list->blocks[0]);
    list->count--;
    memmove(list->blocks, list->blocks + 1, list->count * sizeof(struct sim_block *));
}

void sim_forget_list(struct sim_list *list)
{
    free(list->blocks);
    memset(list, 0, sizeof *list);
}
