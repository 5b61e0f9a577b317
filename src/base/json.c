/* json.c: see json.h. Old libc calls only, since guest programs may load this. */
#include "json.h"

#include <stdlib.h>
#include <string.h>

static void put(struct ull_json *json, const char *text, size_t size)
{
    if (json->failed)
        return;
    if (json->file) {
        if (fwrite(text, 1, size, json->file) != size)
            json->failed = true;
        return;
    }
    if (json->size + size + 1 > json->capacity) {
        size_t capacity = (json->size + size + 1) * 2;
        char *grown = realloc(json->text, capacity);
        if (!grown) {
            json->failed = true;
            return;
        }
        json->text = grown;
        json->capacity = capacity;
    }
    memcpy(json->text + json->size, text, size);
    json->size += size;
    json->text[json->size] = 0;
}

static void put_text(struct ull_json *json, const char *text)
{
    put(json, text, strlen(text));
}

static void new_line(struct ull_json *json)
{
    if (json->compact)
        return;
    put_text(json, "\n");
    for (int i = 0; i < json->depth; i++)
        put_text(json, "  ");
}

/* What goes in front of a value or key: a comma if it is not the first, and a line of its own. */
static void before_item(struct ull_json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->depth == 0)
        return;
    if (json->has_items[json->depth - 1])
        put_text(json, ",");
    json->has_items[json->depth - 1] = true;
    new_line(json);
}

static void open_level(struct ull_json *json, const char *bracket)
{
    before_item(json);
    put_text(json, bracket);
    if (json->depth == ULL_JSON_DEPTH) {
        json->failed = true;
        return;
    }
    json->has_items[json->depth++] = false;
}

static void close_level(struct ull_json *json, const char *bracket)
{
    if (json->depth == 0) {
        json->failed = true;
        return;
    }
    json->depth--;
    if (json->has_items[json->depth])
        new_line(json);
    put_text(json, bracket);
}

void ull__json_init(struct ull_json *json, FILE *file)
{
    *json = (struct ull_json){.file = file};
}

bool ull__json_finish(struct ull_json *json)
{
    if (json->depth != 0)
        json->failed = true;
    put_text(json, "\n");
    if (json->file && fflush(json->file) != 0)
        json->failed = true;
    return !json->failed;
}

void ull__json_free(struct ull_json *json)
{
    free(json->text);
    json->text = NULL;
    json->size = json->capacity = 0;
}

void ull__json_object(struct ull_json *json)
{
    open_level(json, "{");
}

void ull__json_object_end(struct ull_json *json)
{
    close_level(json, "}");
}

void ull__json_array(struct ull_json *json)
{
    open_level(json, "[");
}

void ull__json_array_end(struct ull_json *json)
{
    close_level(json, "]");
}

size_t ull__utf8_length(const unsigned char *text, size_t size)
{
    unsigned char lead = text[0], low = 0x80, high = 0xbf;
    size_t length;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        length = 2;
    else if (lead >= 0xe0 && lead <= 0xef)
        length = 3;
    else if (lead >= 0xf0 && lead <= 0xf4)
        length = 4;
    else
        return 0;
    if (lead == 0xe0)
        low = 0xa0;
    if (lead == 0xed)
        high = 0x9f;
    if (lead == 0xf0)
        low = 0x90;
    if (lead == 0xf4)
        high = 0x8f;
    if (length > size || text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (text[i] < 0x80 || text[i] > 0xbf)
            return 0;
    }
    return length;
}

/* How many bytes are written as they are. */
static size_t plain_length(const unsigned char *at, size_t size)
{
    size_t length = 0;
    while (length < size && at[length] >= 0x20 && at[length] < 0x7f && at[length] != '"' &&
           at[length] != '\\')
        length++;
    return length;
}

static void put_quoted(struct ull_json *json, const char *text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    put_text(json, "\"");
    for (size_t i = 0; i < size;) {
        size_t plain = plain_length(at + i, size - i);
        if (plain > 0) {
            put(json, text + i, plain);
            i += plain;
            continue;
        }
        size_t length = ull__utf8_length(at + i, size - i);
        if (length == 0) {
            put_text(json, "\xef\xbf\xbd");
            i++;
        } else if (at[i] < 0x20 || at[i] == '"' || at[i] == '\\' || at[i] == 0x7f) {
            char escape[8];
            if (at[i] == '"' || at[i] == '\\')
                snprintf(escape, sizeof escape, "\\%c", at[i]);
            else if (at[i] == '\n')
                snprintf(escape, sizeof escape, "\\n");
            else if (at[i] == '\t')
                snprintf(escape, sizeof escape, "\\t");
            else
                snprintf(escape, sizeof escape, "\\u%04x", at[i]);
            put_text(json, escape);
            i++;
        } else {
            put(json, text + i, length);
            i += length;
        }
    }
    put_text(json, "\"");
}

void ull__json_key(struct ull_json *json, const char *key)
{
    before_item(json);
    put_quoted(json, key, strlen(key));
    put_text(json, ": ");
    json->after_key = true;
}

void ull__json_string(struct ull_json *json, const char *text)
{
    if (text)
        ull__json_bytes(json, text, strlen(text));
    else
        ull__json_null(json);
}

void ull__json_bytes(struct ull_json *json, const char *text, size_t size)
{
    before_item(json);
    put_quoted(json, text, size);
}

void ull__json_u64(struct ull_json *json, uint64_t value)
{
    char text[24];
    before_item(json);
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    put_text(json, text);
}

void ull__json_i64(struct ull_json *json, int64_t value)
{
    char text[24];
    before_item(json);
    snprintf(text, sizeof text, "%lld", (long long)value);
    put_text(json, text);
}

void ull__json_number(struct ull_json *json, double value)
{
    char text[40];
    if (value != value || value - value != 0) {
        ull__json_null(json);
        return;
    }
    before_item(json);
    snprintf(text, sizeof text, "%.15g", value);
    char *comma = strchr(text, ','); /* the decimal point of some locales */
    if (comma)
        *comma = '.';
    put_text(json, text);
}

void ull__json_bool(struct ull_json *json, bool value)
{
    before_item(json);
    put_text(json, value ? "true" : "false");
}

void ull__json_null(struct ull_json *json)
{
    before_item(json);
    put_text(json, "null");
}
