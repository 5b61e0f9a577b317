/*
 * text_raw.h: the bytes of text files in one row, and walking over them by characters, with marks between documents.
 */
#ifndef ULLAGE_DATA_TEXT_RAW_H
#define ULLAGE_DATA_TEXT_RAW_H

#include "data_private.h"

enum { ULL_CODE_POINTS = 0x110000, ULL_CODE_MARK = ULL_CODE_POINTS };

struct ull__raw_file {
    char *path;
    size_t end; /* in the row */
};

/* All text of one row, while it is opened. */
struct ull__raw {
    char *bytes;
    size_t size;
    size_t cut; /* where evaluation begins; 0: nowhere yet */
    struct ull__raw_file *files;
    size_t file_count, file_room;
    size_t empty; /* files without a byte */
};

/*
 * A file, or the .txt files of a folder; if a train.txt and one to evaluate are there, these two. ULL_E_FORMAT: one of these two is
 * empty, or there is none.
 */
ull_status ull__raw_read(const char *path, struct ull__raw *raw, struct ull_error *err);
void ull__raw_finish(struct ull__raw *raw);
/* The file that a byte is in, for messages; *at becomes its place there. */
const char *ull__raw_place(const struct ull__raw *raw, size_t *at);

/* The code point at text[at] and its length; 0: that is none. */
size_t ull__raw_code_point(const struct ull__raw *raw, size_t at, uint32_t *code);

struct ull__raw_walk {
    const struct ull__raw *raw;
    bool bytes;                        /* each is a character */
    const struct ull__data_spec *spec; /* what is between documents */
    size_t at, file;
    bool marked; /* the last one was a mark */
};

/* The next character, or ULL_CODE_MARK between documents. False: the end. *begin: the byte that it is at. */
bool ull__raw_next(struct ull__raw_walk *walk, uint32_t *code, size_t *begin);

#endif
