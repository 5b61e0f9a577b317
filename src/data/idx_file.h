/*
 * idx_file.h: one IDX file, gzipped or not: a head with type and dimensions, then the items.
 */
#ifndef ULLAGE_DATA_IDX_FILE_H
#define ULLAGE_DATA_IDX_FILE_H

#include <stdint.h>

#include <zlib.h>

#include "ullage/status.h"

/* Types of items as the third byte says. */
enum { ULL_IDX_U8 = 0x08, ULL_IDX_I32 = 0x0c, ULL_IDX_F32 = 0x0d };

struct ull__idx {
    const char *path; /* the caller's */
    gzFile stream;
    int type, dimensions;
    uint64_t size[4];
};

/* Reads the head. ULL_E_PERMISSION, ULL_E_SYSTEM, ULL_E_FORMAT. Closed by the caller if it was opened. */
ull_status ull__idx_open(const char *path, struct ull__idx *file, struct ull_error *err);
void ull__idx_close(struct ull__idx *file);

/*
 * Exactly the rest of the file: `items` of `item` bytes each, no more and no less; `names` is what they
 * are called in messages. Caller frees *out. ULL_E_FORMAT, ULL_E_NO_MEMORY.
 */
ull_status ull__idx_read(struct ull__idx *file, uint64_t items, uint64_t item, const char *names,
                         void **out, struct ull_error *err);

/* Words of 32 bits from the file's order of bytes to the machine's. */
void ull__idx_swap(void *bytes, uint64_t count);

#endif
