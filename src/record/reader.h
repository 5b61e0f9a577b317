/*
 * reader.h: the blocks of a record, one after another, and the items of a block.
 *
 * Nothing in the file is trusted: every length is held against what is there. The file may grow while it is
 * read; what was appended after the end was reached is not seen.
 */
#ifndef ULLAGE_READER_H
#define ULLAGE_READER_H

#include "format.h"
#include "ullage/status.h"

struct ull__reader;

struct ull__block_view {
    uint64_t offset; /* in the file */
    struct ull__block_head head;
    const uint8_t *payload; /* head.payload bytes, until the next call */
};

/*
 * ULL_E_NOT_FOUND, ULL_E_PERMISSION, ULL_E_SYSTEM; ULL_E_FORMAT: another kind of file, an empty one, or a newer
 * format.
 */
ull_status ull__reader_open(const char *path, struct ull__reader **out, struct ull_error *err);
void ull__reader_close(struct ull__reader *reader);

/*
 * The next good block; ULL_E_NOT_FOUND at the end. Blocks of writers that were killed in the middle are
 * passed over and counted. ULL_E_FORMAT: a damaged block, with its offset in the message.
 */
ull_status ull__reader_next(struct ull__reader *reader, struct ull__block_view *block,
                            struct ull_error *err);

uint64_t ull__reader_torn(const struct ull__reader *reader);
/* After the end: the file ends in the middle of a block, which began at *offset. */
bool ull__reader_truncated(const struct ull__reader *reader, uint64_t *offset);

struct ull__item {
    enum ull__item_kind kind;
    struct ull__cursor body;
};

/* What is at the cursor of a payload: 'e' an event, 'i' another item (to be skipped if not known), 0: the end, '!':
 * malformed. Events are read against *last. */
int ull__next_item(struct ull__cursor *payload, struct ull__deltas *last, struct ull__event *event,
                   struct ull__item *item);

#endif
