/* json_keys.c: see json_keys.h. */
#include "json_keys.h"

#include "class.h"

void key_string(struct ull_json *json, const char *key, const char *value)
{
    ull__json_key(json, key);
    ull__json_string(json, value);
}

void key_u64(struct ull_json *json, const char *key, uint64_t value)
{
    ull__json_key(json, key);
    ull__json_u64(json, value);
}

void key_i64(struct ull_json *json, const char *key, int64_t value)
{
    ull__json_key(json, key);
    ull__json_i64(json, value);
}

void key_number(struct ull_json *json, const char *key, double value)
{
    ull__json_key(json, key);
    ull__json_number(json, value);
}

void key_bool(struct ull_json *json, const char *key, bool value)
{
    ull__json_key(json, key);
    ull__json_bool(json, value);
}

void key_maybe(struct ull_json *json, const char *key, bool known, uint64_t value)
{
    ull__json_key(json, key);
    if (known)
        ull__json_u64(json, value);
    else
        ull__json_null(json);
}

void key_index(struct ull_json *json, const char *key, int index)
{
    key_maybe(json, key, index >= 0, (uint64_t)index);
}

void key_classes(struct ull_json *json, const char *key, const uint64_t *by_class)
{
    ull__json_key(json, key);
    ull__json_object(json);
    for (int c = 0; c < ULL_CLASSES; c++)
        key_u64(json, ull__class_name((enum ull__class)c), by_class[c]);
    ull__json_object_end(json);
}
