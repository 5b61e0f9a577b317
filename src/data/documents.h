/*
 * documents.h: samples that are documents, each of its own length, out of one row of tokens with marks between.
 *
 * What is between two marks, or a mark and an end of the row, is a document; one without tokens is left out. It is read
 * with a mark in front and predicted with a mark behind, so every token of it is predicted once, the first one from
 * the mark alone, and so is its end: a document of n tokens is a sample of n + 1. One that is longer than the
 * window is cut into pieces that follow each other, each a sample; a piece begins with the token before its first.
 *
 * The table has 8 bytes a sample. Rows of more than 2^40 tokens are refused.
 */
#ifndef ULLAGE_DATA_DOCUMENTS_H
#define ULLAGE_DATA_DOCUMENTS_H

#include "windows.h"

struct ull__document; /* where a sample begins, and its length */

struct ull__documents_table {
    struct ull__document *samples;
    uint64_t count, room;
    uint64_t documents, cut, empty; /* found, longer than the window, left out */
    int64_t longest;                /* sample, in tokens */
};

/*
 * The parts of a row are moved apart so that no document is in both: to the next mark, or else the one before. A row of one
 * document is trained on as a whole.
 */
ull_status ull__documents_split(struct ull__sequence parts[ULL_DATA_PARTS], int64_t mark,
                                struct ull_error *err);
/*
 * Makes the tables of both parts and fills in the data's info; tells of documents that are cut, and of empty ones where
 * `tell_empty`. ULL_E_FORMAT: no document to train on. Tables are finished by the caller, also after an error.
 */
ull_status ull__documents_open(struct ull__data *data, const struct ull__data_want *want,
                               const struct ull__sequence parts[ULL_DATA_PARTS], int64_t mark,
                               bool tell_empty, struct ull__documents_table tables[ULL_DATA_PARTS],
                               struct ull_error *err);
void ull__documents_finish(struct ull__documents_table *table);

int64_t ull__documents_length(const struct ull__documents_table *table, uint64_t index);
/* x and targets have room for a window; what the document does not fill is 0 and ignored. */
ull_status ull__documents_sample(const struct ull__documents_table *table,
                                 const struct ull__sequence *sequence, int64_t window, int64_t mark,
                                 int64_t ignore, uint64_t index, int32_t *x, int32_t *targets,
                                 struct ull_error *err);
/* Targets that count. */
uint64_t ull__documents_valid(const struct ull__documents_table *table,
                              const struct ull__sequence *sequence, int64_t mark, int64_t ignore,
                              uint64_t index);

#endif
