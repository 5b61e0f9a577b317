/*
 * sim.h: programs that exist only as what they do to memory, for the labelled set of recordings.
 *
 * A sim has processes; each gives out and takes back blocks with addresses that are used again as an allocator
 * does, at times that advance. What it does becomes events of a history. Everything comes from a seed.
 */
#ifndef ULLAGE_SIM_H
#define ULLAGE_SIM_H

#include "history.h"

enum sim_layer {
    SIM_DRIVER, /* each block is a call of the driver */
    SIM_CACHED, /* an allocator over segments; both layers are recorded */
    SIM_HIDDEN, /* the same, and only the driver's calls are recorded */
};

struct sim;
struct sim_block; /* owned by the sim */

struct sim *sim_create(uint64_t seed, enum sim_layer layer);
/* Ends the run and gives the history away; the sim is gone. */
struct ull__history *sim_finish(struct sim *sim);

uint64_t sim_random(struct sim *sim);
/* From low to high, both included. */
uint64_t sim_between(struct sim *sim, uint64_t low, uint64_t high);
/* The same, evenly by order of magnitude. */
uint64_t sim_about(struct sim *sim, uint64_t low, uint64_t high);
double sim_unit(struct sim *sim);   /* 0 to below 1 */
double sim_normal(struct sim *sim); /* mean 0, deviation 1 */
bool sim_chance(struct sim *sim, double chance);

uint32_t sim_process(struct sim *sim); /* process 0 is there from the beginning */
void sim_wait(struct sim *sim, double seconds);
/* From now on events are lost with this chance, and counted. */
void sim_drop(struct sim *sim, double chance);

struct sim_block *sim_alloc(struct sim *sim, uint32_t process, uint64_t size, const char *tag);
void sim_free(struct sim *sim, struct sim_block *block); /* NULL is fine */
void sim_mark(struct sim *sim, uint32_t process, const char *tag);
void sim_host(struct sim *sim, uint32_t process, uint64_t bytes);
void sim_end(struct sim *sim, uint32_t process, int code);
/* Frees all of a process, one by one, newest first. */
void sim_tear_down(struct sim *sim, uint32_t process);

/* A growing list of blocks, as programs keep. */
struct sim_list {
    struct sim_block **blocks;
    size_t count, capacity;
};
void sim_keep(struct sim_list *list, struct sim_block *block);
void sim_free_list(struct sim *sim, struct sim_list *list); /* and empties it */
void sim_free_first(struct sim *sim, struct sim_list *list);
void sim_forget_list(struct sim_list *list);

#endif
