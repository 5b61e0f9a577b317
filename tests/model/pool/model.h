/*
 * model.h: the parts of the model test. See model.c.
 */
#ifndef ULLAGE_POOL_MODEL_H
#define ULLAGE_POOL_MODEL_H

#include "device.h"
#include "pool_private.h"

enum { PAGE = 4096, UNIT = 256, UNITS = PAGE / UNIT, PAGES = 512, STREAMS = 3, GRAPHS = 4 };
/* A region may take a page more than it has, and the host has room for that. */
enum { HOST_PAGES = 2 * PAGES };

__attribute__((noreturn, noinline)) void fail(const char *what, uint64_t a, uint64_t b);
uint64_t random_below(uint64_t n);

/* --- between.c: the device in between --------------------------------------------------------------------- */

struct ull__device *host(void);
struct ull__device *place_between(struct ull__device *below);
/* The same without mapping: regions at random places; with shifts they begin anywhere within a page. */
struct ull__device *place_plain_between(struct ull__device *below, bool shifts);
/* After the pool's end. */
void end_between(void);
/* What a device that cannot map gave out together. */
struct region {
    struct region *next;
    uint64_t address, pages;
    uint64_t first, below; /* pages of addresses that it takes */
};
const struct region *regions_held(void);
/* How often it refused though there was room. */
uint64_t regions_refused(void);
/* The page, 1 to HOST_PAGES, that the address shows now. */
ull__page page_at(uint64_t address);
uint64_t pages_held(void);

/* --- owners.c: which unit of which page belongs to whom ----------------------------------------------------- */

/* Who may reuse memory: nobody else than this part of this graph. 0: anybody. */
typedef uint16_t part;
static inline part part_of(int graph, int stream)
{
    return (part)(graph * STREAMS + stream + 1);
}

/* holder: any number, from 0 on. The memory must be free, for anybody or for `by`. */
void units_take(uint64_t address, uint64_t bytes, int holder, part by);
/*
 * Then only `keeper` may have it, and nobody before all graphs in `users`, a bit each, are released.
 */
void units_give(uint64_t address, uint64_t bytes, int holder, part keeper, unsigned int users);
/* Whatever was kept for the graph or by it is anybody's. */
void units_release(int graph);
/* Whose the next unit of a run would be, if the part may have it: a number from 1 on; 0: it may not. */
unsigned int unit_for(uint64_t address, part by);
/* Pages that a request of this part cannot have. */
uint64_t pages_not_for(part by);
/* The device was given a page back: it must be nobody's. */
void page_returned(ull__page page);
/* Is there anything that one of the graph's parts keeps? */
bool graph_keeps(int graph);

#endif
