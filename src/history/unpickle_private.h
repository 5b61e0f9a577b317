/* unpickle_private.h: the tree of unpickle.h as its builder sees it. */
#ifndef ULLAGE_UNPICKLE_PRIVATE_H
#define ULLAGE_UNPICKLE_PRIVATE_H

#include "unpickle.h"

/* The low three bits of a value say what it is; the rest is a pointer into the tree or, of INT, 61 bits. */
enum {
    TAG_CONSTANT,
    TAG_INT,
    TAG_WIDE,
    TAG_FLOAT,
    TAG_TEXT,
    TAG_LIST,
    TAG_DICT,
    TAG_TUPLE,
    TAG_MASK = 7
};
enum { VALUE_NONE = 1 << 3, VALUE_FALSE = 2 << 3, VALUE_TRUE = 3 << 3 };

struct text {
    uint32_t hash, size;
    char bytes[];
};

struct wide {
    uint64_t bits;
    bool is_unsigned; /* else two's complement */
};

/* The keys of a dict, which equal dicts share. */
struct shape {
    uint64_t hash, count;
    ull__pickled keys[];
};

/*
 * Items that were added together. Runs form a ring; a list or dict points to its last one. Lists whose first
 * items are the same share that run, as most call stacks do: the pointer's lowest bit says so.
 */
struct run {
    struct run *next;
    union {
        uint64_t count;            /* list */
        const struct shape *shape; /* dict */
    };
    ull__pickled items[];
};

struct container {
    uintptr_t last; /* 0: empty */
};
enum { LAST_IS_SHARED = 1 };

struct tuple {
    uint64_t count;
    ull__pickled items[];
};

/* Open addressing; a power of two of slots, at most half of them in use. */
struct set {
    void **slots;
    size_t capacity, count;
};

struct block {
    struct block *next;
    size_t size;
};

struct ull__pickle {
    ull__pickled root;
    struct block *blocks;
    char *at, *end; /* what is free in the newest small block */
    struct set texts, shapes, runs, tuples;
    const struct shape *recent; /* most dicts are shaped like the one before */
    size_t bytes;               /* taken, with what the builder holds */
    size_t most;                /* that may be */
    bool refused;               /* `most` was in the way, not the system */
};

static inline struct run *ull__pickled_last(const struct container *container)
{
    return (struct run *)(container->last & ~(uintptr_t)LAST_IS_SHARED);
}

static inline void *ull__pickled_pointer(ull__pickled value)
{
    return (void *)(uintptr_t)(value & ~(ull__pickled)TAG_MASK);
}

static inline ull__pickled ull__pickled_tag(const void *pointer, unsigned int tag)
{
    return (ull__pickled)(uintptr_t)pointer | tag;
}

/* Each returns NULL or ULL_PICKLED_MISSING without memory or above `most`. */
void *ull__pickle_take(struct ull__pickle *pickle, size_t size);
/* An array of items of `size` bytes, for one more; *capacity and *array change only on success. */
bool ull__pickle_room(struct ull__pickle *pickle, void *array, size_t size, size_t wanted,
                      size_t *capacity);
void ull__pickle_drop(struct ull__pickle *pickle, void *array, size_t size, size_t capacity);
ull__pickled ull__pickle_int(struct ull__pickle *pickle, int64_t number);
ull__pickled ull__pickle_unsigned(struct ull__pickle *pickle, uint64_t number);
ull__pickled ull__pickle_float(struct ull__pickle *pickle, double number);
ull__pickled ull__pickle_add_text(struct ull__pickle *pickle, const char *bytes, size_t size);
/* Not yet known to be unlike the others; for texts longer than are compared. */
struct text *ull__pickle_long_text(struct ull__pickle *pickle, size_t size);
enum { ULL_PICKLE_SHARED_TEXT = 512 }; /* bytes; longer ones are not looked for */
ull__pickled ull__pickle_container(struct ull__pickle *pickle, unsigned int tag);
ull__pickled ull__pickle_tuple(struct ull__pickle *pickle, const ull__pickled *items, size_t count);
bool ull__pickle_append(struct ull__pickle *pickle, ull__pickled list, const ull__pickled *items,
                        size_t count);
/* `pairs` of key and value, one after the other; scratch has room for the keys. */
bool ull__pickle_set(struct ull__pickle *pickle, ull__pickled dict, const ull__pickled *items,
                     size_t pairs, ull__pickled *scratch);

#endif
