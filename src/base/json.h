/*
 * json.h: writes JSON as it goes, to a stream or into memory.
 *
 * The caller opens and closes objects and arrays in order; the writer places commas, newlines and
 * two-space indents (in a compact document, commas alone). Any bytes may be given as a string: what is
 * not UTF-8 becomes U+FFFD, so that the output is always valid. Numbers do not depend on the locale. A
 * failure (no memory, a full disk) is kept and told by ull__json_finish, so that callers need not check
 * each call. Nesting over ULL_JSON_DEPTH counts as a failure. One thread at a time.
 */
#ifndef ULLAGE_JSON_H
#define ULLAGE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { ULL_JSON_DEPTH = 32 };

struct ull_json {
    FILE *file;  /* NULL: into text */
    char *text;  /* ends with a 0 byte once something was written; owned by the writer */
    size_t size; /* bytes in text without the 0 */
    size_t capacity;
    int depth;
    bool has_items[ULL_JSON_DEPTH];
    bool after_key;
    bool compact; /* set after init: the whole document in one line */
    bool failed;
};

/* Begins a document. With file NULL it is collected in json->text until ull__json_free. */
void ull__json_init(struct ull_json *json, FILE *file);
/* Ends the document with a newline. False if anything went wrong on the way. */
bool ull__json_finish(struct ull_json *json);
void ull__json_free(struct ull_json *json);

void ull__json_object(struct ull_json *json);
void ull__json_object_end(struct ull_json *json);
void ull__json_array(struct ull_json *json);
void ull__json_array_end(struct ull_json *json);
void ull__json_key(struct ull_json *json, const char *key);

void ull__json_string(struct ull_json *json, const char *text); /* NULL writes null */
void ull__json_bytes(struct ull_json *json, const char *text, size_t size);
void ull__json_u64(struct ull_json *json, uint64_t value);
void ull__json_i64(struct ull_json *json, int64_t value);
void ull__json_number(struct ull_json *json, double value); /* 15 digits; NaN and infinity write null */
void ull__json_bool(struct ull_json *json, bool value);
void ull__json_null(struct ull_json *json);

/* Bytes of the UTF-8 sequence at text, or 0 if there is none (RFC 3629: no overlong, no surrogate). */
size_t ull__utf8_length(const unsigned char *text, size_t size);

#endif
