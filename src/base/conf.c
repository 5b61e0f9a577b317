/* conf.c: see conf.h. */
#include "conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "error.h"
#include "file.h"

enum { CONF_LIMIT = 1 << 20 };

static const struct {
    const char *key;
    const char *variable;
} keys[ULL_CONF_KEYS] = {
#define X(name, key, variable) {key, variable},
    ULL_CONF_MAP(X)
#undef X
};

const char *ull__conf_name(enum ull__conf_key key)
{
    return keys[key].key;
}

ull_status ull__conf_set(struct ull__conf *conf, enum ull__conf_key key, const char *value,
                         const char *set_by, struct ull_error *err)
{
    struct ull__conf_item *item = &conf->item[key];
    if (strlen(value) >= sizeof item->value)
        return ull__fail(err, ULL_E_INVALID, "%s (%.200s) is longer than %zu characters",
                         keys[key].key, set_by, sizeof item->value - 1);
    snprintf(item->value, sizeof item->value, "%s", value);
    snprintf(item->set_by, sizeof item->set_by, "%s", set_by);
    item->set = true;
    return ULL_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts the comment and the blanks around what is left. */
static char *trim(char *text)
{
    for (char *at = text; *at; at++) {
        if (*at == '#' && (at == text || is_blank(at[-1]))) {
            *at = 0;
            break;
        }
    }
    while (is_blank(*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && is_blank(text[length - 1]))
        text[--length] = 0;
    return text;
}

static ull_status read_line(struct ull__conf *conf, char *line, const char *source, int number,
                            struct ull_error *err)
{
    char *text = trim(line);
    if (*text == 0)
        return ULL_OK;
    char *equals = strchr(text, '=');
    if (!equals)
        return ull__fail(err, ULL_E_FORMAT,
                         "%.200s line %d: '%.80s' has no '=': expected key = value", source, number,
                         text);
    *equals = 0;
    char *name = trim(text), *value = trim(equals + 1);
    for (int key = 0; key < ULL_CONF_KEYS; key++) {
        if (strcmp(name, keys[key].key) != 0)
            continue;
        if (*value == 0)
            return ull__fail(err, ULL_E_FORMAT, "%.200s line %d: '%s' has no value", source, number,
                             name);
        char set_by[ULL_CONF_SOURCE];
        snprintf(set_by, sizeof set_by, "%.280s line %d", source, number);
        return ull__conf_set(conf, (enum ull__conf_key)key, value, set_by, err);
    }
    return ull__fail(err, ULL_E_FORMAT,
                     "%.200s line %d: unknown key '%.80s': expected memory, growth, report, log or "
                     "max_request",
                     source, number, name);
}

ull_status ull__conf_read(struct ull__conf *conf, const char *text, const char *source,
                          struct ull_error *err)
{
    int number = 0;
    while (*text) {
        char line[ULL_CONF_VALUE + 128];
        size_t length = strcspn(text, "\n");
        number++;
        if (length >= sizeof line)
            return ull__fail(err, ULL_E_FORMAT, "%.200s line %d is longer than %zu characters",
                             source, number, sizeof line - 1);
        memcpy(line, text, length);
        line[length] = 0;
        ull_status status = read_line(conf, line, source, number, err);
        if (status != ULL_OK)
            return status;
        text += length;
        if (*text == '\n')
            text++;
    }
    return ULL_OK;
}

static ull_status load_file(struct ull__conf *conf, const char *path, struct ull_error *err)
{
    char *text;
    size_t size;
    ull_status status = ull__file_read(path, CONF_LIMIT, &text, &size, err);
    if (status == ULL_E_NOT_FOUND)
        return ULL_OK;
    if (status != ULL_OK)
        return status;
    if (strlen(text) != size)
        status = ull__fail(err, ULL_E_FORMAT, "%.300s holds a zero byte: expected text", path);
    else
        status = ull__conf_read(conf, text, path, err);
    free(text);
    return status;
}

ull_status ull__conf_load(struct ull__conf *conf, struct ull_error *err)
{
    char folder[ULL_FILE_PATH], path[ULL_FILE_PATH + 16];
    memset(conf, 0, sizeof *conf);
    ull_status status = load_file(conf, "/etc/ullage/ullage.conf", err);
    if (status == ULL_OK && ull__config_folder(folder)) {
        snprintf(path, sizeof path, "%s/ullage.conf", folder);
        status = load_file(conf, path, err);
    }
    for (int key = 0; key < ULL_CONF_KEYS && status == ULL_OK; key++) {
        const char *value = keys[key].variable[0] ? getenv(keys[key].variable) : NULL;
        if (!value || !*value)
            continue;
        char set_by[ULL_CONF_SOURCE];
        snprintf(set_by, sizeof set_by, "%s in the environment", keys[key].variable);
        status = ull__conf_set(conf, (enum ull__conf_key)key, value, set_by, err);
    }
    return status;
}

ull_status ull__conf_bool(const struct ull__conf *conf, enum ull__conf_key key, bool *value,
                          struct ull_error *err)
{
    static const char *const words[2][4] = {{"false", "no", "off", "0"}, {"true", "yes", "on", "1"}};
    const struct ull__conf_item *item = &conf->item[key];
    if (!item->set) {
        *value = false;
        return ULL_OK;
    }
    for (int truth = 0; truth < 2; truth++) {
        for (int i = 0; i < 4; i++) {
            if (strcasecmp(item->value, words[truth][i]) == 0) {
                *value = truth == 1;
                return ULL_OK;
            }
        }
    }
    return ull__fail(err, ULL_E_INVALID, "%s is '%.80s' (%.200s): expected true or false",
                     keys[key].key, item->value, item->set_by);
}
