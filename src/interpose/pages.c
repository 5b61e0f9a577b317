/*
 * pages.c: what the driver takes for linear memory.
 *
 * The driver takes device memory by pages of its mapping granularity (2 MiB on an H200) and cuts small
 * allocations out of shared ones. Which pages it holds can be read off the addresses that it hands
 * out: a page is taken while any live allocation touches it. On an H200 that was exact for 8,000
 * random allocations and frees of mixed sizes (tests/gpu/driver_facts.c, linear.model.*).
 *
 * Pages in the middle of an allocation have one user; only its first and last page can be shared, so
 * only those are counted by users. There is no lock here: blocks.c has one.
 *
 * Users are counted down after the driver has freed, never before: of two threads that free in one page
 * the second would otherwise give the page back in the books while the driver still holds it for the first.
 */
#include "interpose.h"
#include "table.h"

static struct ull__table users; /* page number + 1 -> allocations that begin or end in it */
static struct ull__table names; /* page number + 1 -> struct name *, of those that are gone, for the last user */

struct name {
    uint64_t key;
    struct name *next;
};

/* True if this is the page's first user. Without host memory for the table: as if it were. */
static bool use(uint64_t page)
{
    struct ull__table_entry *entry = ull__table_find(&users, page + 1);
    if (entry) {
        entry->value++;
        return false;
    }
    ull__table_add(&users, page + 1, 1);
    return true;
}

static bool drop(uint64_t page)
{
    struct ull__table_entry *entry = ull__table_find(&users, page + 1);
    if (entry && --entry->value > 0)
        return false;
    if (entry)
        ull__table_remove(&users, entry);
    return true;
}

static uint64_t span(const struct ull__gpu *gpu, uint64_t address, uint64_t bytes,
                     bool (*edge)(uint64_t))
{
    uint64_t first = address / gpu->page;
    uint64_t last = (address + (bytes ? bytes - 1 : 0)) / gpu->page;
    uint64_t count = last - first + 1;
    if (!edge(first))
        count--;
    if (last != first && !edge(last))
        count--;
    return count * gpu->page;
}

uint64_t ull__pages_take(const struct ull__gpu *gpu, uint64_t address, uint64_t bytes)
{
    return span(gpu, address, bytes, use);
}

uint64_t ull__pages_drop(const struct ull__gpu *gpu, uint64_t address, uint64_t bytes)
{
    return span(gpu, address, bytes, drop);
}

/* Without host memory it is lost: who has it open holds the page in nobody's books then. */
void ull__pages_leave_name(const struct ull__gpu *gpu, uint64_t address, uint64_t name)
{
    uint64_t page = address / gpu->page + 1;
    struct ull__table_entry *entry = ull__table_find(&names, page);
    struct name *first = entry ? (struct name *)(uintptr_t)entry->value : NULL;
    for (const struct name *old = first; old; old = old->next)
        if (old->key == name) /* an address that was given out again has its old name */
            return;
    struct name *one = malloc(sizeof *one);
    if (!one)
        return;
    *one = (struct name){name, first};
    if (entry)
        entry->value = (uint64_t)(uintptr_t)one;
    else if (!ull__table_add(&names, page, (uint64_t)(uintptr_t)one))
        free(one);
}

uint64_t ull__pages_take_name(const struct ull__gpu *gpu, uint64_t address)
{
    struct ull__table_entry *entry = ull__table_find(&names, address / gpu->page + 1);
    if (!entry)
        return 0;
    struct name *one = (struct name *)(uintptr_t)entry->value;
    uint64_t key = one->key;
    if (one->next)
        entry->value = (uint64_t)(uintptr_t)one->next;
    else
        ull__table_remove(&names, entry);
    free(one);
    return key;
}

void ull__pages_forget(void)
{
    users = (struct ull__table){0};
    names = (struct ull__table){0};
}
