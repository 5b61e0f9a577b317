/* json_keys.h: a key and its value in one call, as all of the JSON that the program prints needs them. */
#ifndef ULLAGE_JSON_KEYS_H
#define ULLAGE_JSON_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "json.h"

void key_string(struct ull_json *json, const char *key, const char *value); /* NULL writes null */
void key_u64(struct ull_json *json, const char *key, uint64_t value);
void key_i64(struct ull_json *json, const char *key, int64_t value);
void key_number(struct ull_json *json, const char *key, double value);
void key_bool(struct ull_json *json, const char *key, bool value);
/* null where known is false. */
void key_maybe(struct ull_json *json, const char *key, bool known, uint64_t value);
/* null where the index is negative. */
void key_index(struct ull_json *json, const char *key, int index);
/* An object with the bytes of each class. */
void key_classes(struct ull_json *json, const char *key, const uint64_t *by_class);

#endif
