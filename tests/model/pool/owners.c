/*
 * owners.c: each 256-byte unit of each page: who holds it, who alone may have it next, and which graphs
 * used it and were not released. Everything is looked at one by one.
 */
#include "model.h"

static struct unit {
    uint16_t holder; /* + 1 */
    part keeper;
    uint16_t users;
} units[HOST_PAGES + 1][UNITS];

static struct unit *unit_at(uint64_t address)
{
    return &units[page_at(address)][address % PAGE / UNIT];
}

static bool is_for(const struct unit *unit, part by)
{
    return unit->holder == 0 && unit->users == 0 && (unit->keeper == 0 || unit->keeper == by);
}

void units_take(uint64_t address, uint64_t bytes, int holder, part by)
{
    for (uint64_t at = 0; at < bytes; at += UNIT) {
        struct unit *unit = unit_at(address + at);
        if (unit->holder)
            fail("memory was handed out twice", (uint64_t)holder, unit->holder);
        if (!is_for(unit, by))
            fail("memory of a graph was handed out to another", unit->keeper, by);
        *unit = (struct unit){.holder = (uint16_t)(holder + 1)};
    }
}

void units_give(uint64_t address, uint64_t bytes, int holder, part keeper, unsigned int users)
{
    for (uint64_t at = 0; at < bytes; at += UNIT) {
        struct unit *unit = unit_at(address + at);
        if (unit->holder != holder + 1)
            fail("memory changed its place", (uint64_t)holder, unit->holder);
        *unit = (struct unit){.keeper = keeper, .users = (uint16_t)users};
    }
}

void units_release(int graph)
{
    for (int i = 0; i < (HOST_PAGES + 1) * UNITS; i++) {
        struct unit *unit = &units[i / UNITS][i % UNITS];
        unit->users &= (uint16_t) ~(1u << graph);
        if (unit->keeper >= part_of(graph, 0) && unit->keeper < part_of(graph + 1, 0))
            unit->keeper = 0;
    }
}

bool graph_keeps(int graph)
{
    for (int i = 0; i < (HOST_PAGES + 1) * UNITS; i++) {
        const struct unit *unit = &units[i / UNITS][i % UNITS];
        if (unit->users >> graph & 1 ||
            (unit->keeper >= part_of(graph, 0) && unit->keeper < part_of(graph + 1, 0)))
            return true;
    }
    return false;
}

unsigned int unit_for(uint64_t address, part by)
{
    const struct unit *unit = unit_at(address);
    return is_for(unit, by) ? unit->keeper + 1u : 0;
}

/* Half a page that only the part may have and half a page for anybody are no page: the pool does not say so. */
uint64_t pages_not_for(part by)
{
    uint64_t count = 0;
    for (int page = 1; page <= HOST_PAGES; page++) {
        bool used = false;
        for (int i = 0; i < UNITS && !used; i++)
            used = !is_for(&units[page][i], by) || units[page][i].keeper != units[page][0].keeper;
        count += used;
    }
    return count;
}

void page_returned(ull__page page)
{
    for (int i = 0; i < UNITS; i++) {
        if (!is_for(&units[page][i], 0))
            fail("a page went to the device while somebody's memory was in it", page, (uint64_t)i);
    }
}
