/*
 * blocks.c: what is live in this process, by address: to know at a free what the allocation was, at
 * the end of a context what ends with it, and at a refusal what the largest holders are.
 *
 * Blocks are kept in an array with a free list and found through a hash table. In a forked child the
 * parent's tables are forgotten, not freed: another thread may have been in the middle of them.
 */
#include <string.h>
#include <time.h>

#include "interpose.h"
#include "table.h"

static struct {
    pthread_mutex_t lock;
    struct ull__table by_address; /* -> index into blocks */
    struct ull__block *blocks;
    uint32_t *free_list;
    uint32_t capacity, free_count;
} books = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool grow(void)
{
    uint32_t capacity = books.capacity ? books.capacity * 2 : 256;
    struct ull__block *blocks = realloc(books.blocks, capacity * sizeof *blocks);
    if (blocks)
        books.blocks = blocks;
    uint32_t *free_list = realloc(books.free_list, capacity * sizeof *free_list);
    if (free_list)
        books.free_list = free_list;
    if (!blocks || !free_list)
        return false;
    memset(blocks + books.capacity, 0, (capacity - books.capacity) * sizeof *blocks);
    for (uint32_t i = capacity; i-- > books.capacity;)
        free_list[books.free_count++] = i;
    books.capacity = capacity;
    return true;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static bool by_pages(const struct ull__block *block)
{
    return block->kind == BLOCK_LINEAR || block->kind == BLOCK_MANAGED ||
           block->kind == BLOCK_SPILLED;
}

/* The lock is held. */
static void remove_entry(struct ull__table_entry *entry, struct ull__block *block)
{
    uint32_t index = (uint32_t)entry->value;
    *block = books.blocks[index];
    books.blocks[index].address = 0;
    books.free_list[books.free_count++] = index;
    ull__table_remove(&books.by_address, entry);
}

/* The lock is held. What was there before was freed behind our back, and its address given out again. */
static bool add(struct ull__block *block, bool is_new, struct ull__block *stale, bool *replaces)
{
    struct ull__table_entry *old = ull__table_find(&books.by_address, block->address);
    *replaces = old != NULL;
    if (old)
        remove_entry(old, stale);
    bool added = books.free_count > 0 || grow();
    uint32_t index = added ? books.free_list[books.free_count - 1] : 0;
    added = added && ull__table_add(&books.by_address, block->address, index);
    if (!added)
        return false;
    books.free_count--;
    if (is_new)
        block->born_ns = now_ns();
    if (is_new && by_pages(block))
        block->charged = ull__pages_take(ull__gpu_of(block->ordinal), block->address, block->bytes);
    books.blocks[index] = *block;
    return true;
}

static bool lock_and_add(struct ull__block *block, bool is_new)
{
    struct ull__block stale;
    bool replaces;
    pthread_mutex_lock(&books.lock);
    bool added = add(block, is_new, &stale, &replaces);
    pthread_mutex_unlock(&books.lock);
    if (replaces)
        ull__block_ended(&stale, NULL);
    return added;
}

bool ull__block_add(struct ull__block *block)
{
    return lock_and_add(block, true);
}

/* Without host memory for it: it stays in the books, since nobody will know when it goes. */
void ull__block_put_back(struct ull__block *block)
{
    lock_and_add(block, false);
}

/* Of those that named the last page of a block, the one by which somebody has it open; the others end. The lock is held. */
static void choose_name(struct ull__block *block, const struct ull__gpu *gpu)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    uint64_t other;
    while ((other = ull__pages_take_name(gpu, block->address)) != 0) {
        uint64_t ends = other;
        if (other == block->key)
            continue;
        if (!block->key || !ull__member_is_open(member, gpu->device, block->key)) {
            ends = block->key;
            block->key = other;
        }
        if (ends)
            ull__member_release_exported(member, gpu->device, (enum ull__class)block->class, ends, 0);
    }
}

void ull__block_leave_pages(struct ull__block *block)
{
    const struct ull__gpu *gpu = ull__gpu_of(block->ordinal);
    if (!by_pages(block))
        return;
    pthread_mutex_lock(&books.lock);
    block->charged = ull__pages_drop(gpu, block->address, block->bytes);
    if (block->charged == 0 && block->key) { /* who has it open holds all of the page */
        ull__pages_leave_name(gpu, block->address, block->key);
        block->key = 0;
    } else if (block->charged && gpu->device >= 0) {
        choose_name(block, gpu);
    }
    pthread_mutex_unlock(&books.lock);
}

bool ull__block_take(uint64_t address, struct ull__block *block)
{
    pthread_mutex_lock(&books.lock);
    struct ull__table_entry *entry = address ? ull__table_find(&books.by_address, address) : NULL;
    if (entry)
        remove_entry(entry, block);
    pthread_mutex_unlock(&books.lock);
    return entry != NULL;
}

/* The lock is held. An address may be another import's by now, which the name tells. */
static struct ull__table_entry *find_import(uint64_t address, uint64_t key)
{
    struct ull__table_entry *entry = address ? ull__table_find(&books.by_address, address) : NULL;
    const struct ull__block *block = entry ? &books.blocks[entry->value] : NULL;
    return block && block->kind == BLOCK_IMPORT && block->key == key ? entry : NULL;
}

bool ull__block_opened(struct ull__block *block)
{
    struct ull__block stale;
    pthread_mutex_lock(&books.lock);
    struct ull__table_entry *open = find_import(block->address, block->key);
    if (open)
        books.blocks[open->value].charged++;
    bool replaces = false, added = !open && add(block, true, &stale, &replaces);
    pthread_mutex_unlock(&books.lock);
    if (replaces)
        ull__block_ended(&stale, NULL);
    return added;
}

bool ull__block_closed(uint64_t address, uint64_t key, struct ull__block *block)
{
    pthread_mutex_lock(&books.lock);
    struct ull__table_entry *open = find_import(address, key);
    bool last = open && --books.blocks[open->value].charged == 0;
    if (last)
        remove_entry(open, block);
    pthread_mutex_unlock(&books.lock);
    return last;
}

bool ull__block_find(uint64_t address, struct ull__block *block)
{
    pthread_mutex_lock(&books.lock);
    struct ull__table_entry *entry = address ? ull__table_find(&books.by_address, address) : NULL;
    if (entry)
        *block = books.blocks[entry->value];
    pthread_mutex_unlock(&books.lock);
    return entry != NULL;
}

bool ull__block_set_key(uint64_t address, uint64_t key, struct ull__block *block)
{
    pthread_mutex_lock(&books.lock);
    struct ull__table_entry *entry = address ? ull__table_find(&books.by_address, address) : NULL;
    if (entry) {
        books.blocks[entry->value].key = key;
        *block = books.blocks[entry->value];
    }
    pthread_mutex_unlock(&books.lock);
    return entry != NULL;
}

bool ull__block_take_of_context(CUcontext context, struct ull__block *block)
{
    bool found = false;
    pthread_mutex_lock(&books.lock);
    for (uint32_t i = 0; context && i < books.capacity && !found; i++) {
        if (books.blocks[i].address == 0 || books.blocks[i].context != context)
            continue;
        remove_entry(ull__table_find(&books.by_address, books.blocks[i].address), block);
        found = true;
    }
    pthread_mutex_unlock(&books.lock);
    return found;
}

int ull__block_largest(int ordinal, struct ull__holder *holders, int max)
{
    int count = 0;
    uint64_t now = now_ns();
    pthread_mutex_lock(&books.lock);
    for (uint32_t i = 0; i < books.capacity; i++) {
        const struct ull__block *block = &books.blocks[i];
        if (block->address == 0 || block->ordinal != ordinal || block->kind == BLOCK_IMPORT ||
            block->kind == BLOCK_SPILLED)
            continue;
        int at = count < max ? count++ : max;
        while (at > 0 && holders[at - 1].bytes < block->bytes) {
            if (at < max)
                holders[at] = holders[at - 1];
            at--;
        }
        if (at < max)
            holders[at] =
                (struct ull__holder){.bytes = block->bytes,
                                     .age_ns = now > block->born_ns ? now - block->born_ns : 0,
                                     .class = (enum ull__class)block->class};
    }
    pthread_mutex_unlock(&books.lock);
    return count;
}

uint64_t ull__block_sum(int ordinal, enum ull__block_kind kind)
{
    uint64_t sum = 0;
    pthread_mutex_lock(&books.lock);
    for (uint32_t i = 0; i < books.capacity; i++)
        if (books.blocks[i].address && books.blocks[i].ordinal == ordinal &&
            books.blocks[i].kind == kind)
            sum += books.blocks[i].charged;
    pthread_mutex_unlock(&books.lock);
    return sum;
}

uint64_t ull__block_hidden_sum(int ordinal)
{
    uint64_t sum = 0;
    pthread_mutex_lock(&books.lock);
    for (uint32_t i = 0; i < books.capacity; i++)
        if (books.blocks[i].address && books.blocks[i].ordinal == ordinal &&
            books.blocks[i].kind == BLOCK_CONTEXT)
            sum += books.blocks[i].hidden;
    pthread_mutex_unlock(&books.lock);
    return sum;
}

bool ull__block_lower(uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&books.lock);
    struct ull__table_entry *entry = ull__table_find(&books.by_address, address);
    bool lowered = entry && books.blocks[entry->value].charged >= bytes;
    if (lowered)
        books.blocks[entry->value].charged -= bytes;
    pthread_mutex_unlock(&books.lock);
    return lowered;
}

uint64_t ull__block_lower_hidden(int ordinal, uint64_t most)
{
    uint64_t sum = 0;
    pthread_mutex_lock(&books.lock);
    for (uint32_t i = 0; i < books.capacity; i++) {
        struct ull__block *one = &books.blocks[i];
        if (one->address == 0 || one->ordinal != ordinal || one->kind != BLOCK_CONTEXT ||
            one->hidden <= most)
            continue;
        sum += one->hidden - most;
        one->charged -= one->hidden - most;
        one->hidden = most;
    }
    pthread_mutex_unlock(&books.lock);
    return sum;
}

int ull__block_contexts(CUcontext *contexts, int max)
{
    int count = 0;
    pthread_mutex_lock(&books.lock);
    for (uint32_t i = 0; i < books.capacity && count < max; i++)
        if (books.blocks[i].address && books.blocks[i].kind == BLOCK_CONTEXT)
            contexts[count++] = (CUcontext)(uintptr_t)books.blocks[i].address;
    pthread_mutex_unlock(&books.lock);
    return count;
}

bool ull__block_only(int ordinal, enum ull__block_kind kind, struct ull__block *block)
{
    int found = 0;
    pthread_mutex_lock(&books.lock);
    for (uint32_t i = 0; i < books.capacity; i++) {
        if (books.blocks[i].address == 0 || books.blocks[i].ordinal != ordinal ||
            books.blocks[i].kind != kind)
            continue;
        *block = books.blocks[i];
        found++;
    }
    pthread_mutex_unlock(&books.lock);
    return found == 1;
}

void ull__blocks_forget(void)
{
    memset(&books, 0, sizeof books);
    pthread_mutex_init(&books.lock, NULL);
}
