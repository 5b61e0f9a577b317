/*
 * pickle_write.h: writes plain data as a Python pickle of protocol 4, to a stream, as it goes.
 *
 * The caller opens and closes lists and dicts in order, as with json.h. Inside them everything is an item; in a
 * dict a key comes before each value. Items are handed over a thousand at a time, since PyTorch's viewer passes
 * them on as arguments of one call. What is kept may be referred to again by its number.
 *
 * Only opcodes that PyTorch's viewer knows are written. Text that is not UTF-8 is written with U+FFFD in place of
 * what is not. Errors of the stream are its owner's to check at the end.
 */
#ifndef ULLAGE_PICKLE_WRITE_H
#define ULLAGE_PICKLE_WRITE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { ULL_PICKLE_DEPTH = 16 };

struct ull__pickler {
    FILE *out;
    uint32_t kept;
    int depth;
    struct {
        bool is_dict;
        unsigned int items; /* since the last mark */
    } levels[ULL_PICKLE_DEPTH];
    uint32_t *words; /* by number of a word: what it was kept as, + 1 */
};

/* `words` has a place, 0 at first, for each word that is given to ull__pickler_word. */
void ull__pickler_init(struct ull__pickler *pickler, FILE *out, uint32_t *words);
/* All that was opened is closed. */
void ull__pickler_finish(struct ull__pickler *pickler);

void ull__pickler_list(struct ull__pickler *pickler);
void ull__pickler_dict(struct ull__pickler *pickler);
void ull__pickler_close(struct ull__pickler *pickler);
void ull__pickler_int(struct ull__pickler *pickler, int64_t number);
void ull__pickler_bool(struct ull__pickler *pickler, bool value);
void ull__pickler_pair(struct ull__pickler *pickler, unsigned char a, unsigned char b);
void ull__pickler_text(struct ull__pickler *pickler, const char *text);
/* A text that comes often: written once. */
void ull__pickler_word(struct ull__pickler *pickler, uint32_t number, const char *text);
/* Keeps what was written last (a list or dict: once closed), and says as which number. */
uint32_t ull__pickler_keep(struct ull__pickler *pickler);
void ull__pickler_again(struct ull__pickler *pickler, uint32_t kept);

#endif
