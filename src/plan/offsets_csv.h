/*
 * offsets_csv.h: buffers with lifetimes as text, in the form of MiniMalloc's instances.
 *
 * The first line names the columns, in any order: id, lower, upper and size must be there; alignment and offset may be
 * (a buffer with an offset is pinned to it; an empty field is none). Then a buffer a line. Numbers are decimal; spaces
 * around a field, empty lines and carriage returns do not matter. Each id is there once.
 */
#ifndef ULLAGE_PLAN_OFFSETS_CSV_H
#define ULLAGE_PLAN_OFFSETS_CSV_H

#include "offsets.h"

struct ull__offsets_csv {
    struct ull__buffer *buffers; /* all three owned, freed by ull__offsets_csv_finish */
    const char **ids;            /* into text */
    char *text;
    size_t count;
    bool has_alignment; /* the column was there */
};

/* Parses `size` bytes. ULL_E_FORMAT with the line in err; ULL_E_SYSTEM: no memory. */
ull_status ull__offsets_csv_parse(const char *text, size_t size, struct ull_error *err,
                                  struct ull__offsets_csv *csv);
void ull__offsets_csv_finish(struct ull__offsets_csv *csv);

#endif
