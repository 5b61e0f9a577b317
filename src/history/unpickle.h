/*
 * unpickle.h: reads Python's pickles of plain data, protocols 2 to 5, into a tree of values.
 *
 * Only what builds None, booleans, integers, floats, texts, lists, tuples and dicts is understood. Every other
 * opcode, above all those that name or call something in Python, is an error that says which opcode at which
 * offset; nothing is ever executed, imported or looked up. An object that the pickle refers to again is shared.
 *
 * The file is read in pieces. The tree takes about as much as the file, since equal texts are kept once,
 * dicts with the same keys share these, and lists with the same items these; a file that would need more than ULL_PICKLE_ROOM + 4 times what was read
 * of it is refused. Nothing here recurses, so nesting has no limit but that.
 *
 * Not understood: bytes, integers that fit neither int64_t nor uint64_t.
 */
#ifndef ULLAGE_UNPICKLE_H
#define ULLAGE_UNPICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ullage/status.h"

enum {
    ULL_PICKLE_ROOM = 64 << 20, /* bytes that any file may take */
    ULL_PICKLE_TEXT = 16 << 20, /* of the longest text */
};

/* A value of the tree; it lives as long as the tree. Equal short texts are equal values. */
typedef uint64_t ull__pickled;
enum { ULL_PICKLED_MISSING = 0 };

enum ull__pickled_kind {
    ULL_PICKLED_NOTHING, /* ULL_PICKLED_MISSING */
    ULL_PICKLED_NONE,
    ULL_PICKLED_BOOL,
    ULL_PICKLED_INT,
    ULL_PICKLED_FLOAT,
    ULL_PICKLED_TEXT,
    ULL_PICKLED_LIST,
    ULL_PICKLED_TUPLE,
    ULL_PICKLED_DICT,
};

struct ull__pickle;

/*
 * ULL_E_FORMAT: truncated, damaged, not plain data, or too large for its length; the message begins with the
 * offset. ULL_E_NOT_FOUND, ULL_E_PERMISSION, ULL_E_SYSTEM: the file cannot be read, or there is no memory.
 * What follows the pickle's end is ignored, as Python does.
 */
ull_status ull__unpickle(const char *path, struct ull__pickle **pickle, struct ull_error *err);
ull_status ull__unpickle_bytes(const void *data, size_t size, struct ull__pickle **pickle,
                               struct ull_error *err);
void ull__pickle_destroy(struct ull__pickle *pickle);

ull__pickled ull__pickle_root(const struct ull__pickle *pickle);
/* Bytes that the tree takes. */
size_t ull__pickle_bytes(const struct ull__pickle *pickle);
/* The text as a value, to look it up in dicts; ULL_PICKLED_MISSING if it is nowhere in the file. */
ull__pickled ull__pickle_text(const struct ull__pickle *pickle, const char *text);

enum ull__pickled_kind ull__pickled_kind(ull__pickled value);
/* False, and *out untouched, if it is not of that kind. A negative integer gives its two's complement. */
bool ull__pickled_u64(ull__pickled value, uint64_t *out);
/* False also above INT64_MAX. */
bool ull__pickled_i64(ull__pickled value, int64_t *out);
bool ull__pickled_bool(ull__pickled value, bool *out);
bool ull__pickled_float(ull__pickled value, double *out);
/* Any bytes, followed by a 0. */
bool ull__pickled_string(ull__pickled value, const char **text, size_t *size);

/* Of a dict; ULL_PICKLED_MISSING without the key, or if it is no dict. Of equal keys the last one counts. */
ull__pickled ull__pickled_get(ull__pickled dict, ull__pickled key);

/*
 * Equal for lists of the same values (not for all of them), and for what is the same: to know a call stack that
 * was seen before.
 */
uint64_t ull__pickled_content(ull__pickled value);

/* Goes through a list, tuple or dict in order; of anything else there is nothing to see. */
struct ull__pickled_walk {
    const void *run, *last;
    uint64_t index;
    ull__pickled of;
};
void ull__pickled_walk(struct ull__pickled_walk *walk, ull__pickled of);
bool ull__pickled_next(struct ull__pickled_walk *walk, ull__pickled *value);
/* For a dict. */
bool ull__pickled_next_pair(struct ull__pickled_walk *walk, ull__pickled *key, ull__pickled *value);

#endif
