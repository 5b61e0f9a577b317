/*
 * conf.h: what is configured, and who said so.
 *
 * Values come from /etc/ullage/ullage.conf, then $XDG_CONFIG_HOME/ullage/ullage.conf, then the
 * environment, then the command line; the later wins. Each value remembers its source in words
 * ("-m on the command line", "/etc/ullage/ullage.conf line 3"), since every report must tell. Values are
 * kept as text: what a size or a path must look like is checked by whoever uses it.
 *
 * A file has lines `key = value`; what follows a # at the start of a line or after a blank is a comment.
 */
#ifndef ULLAGE_CONF_H
#define ULLAGE_CONF_H

#include <stdbool.h>
#include <stddef.h>

#include "ullage/status.h"

/* name, key in files, variable in the environment ("" for none) */
#define ULL_CONF_MAP(X)                                                                            \
    X(MEMORY, "memory", "ULLAGE_MEMORY")                                                           \
    X(GROWTH, "growth", "ULLAGE_GROWTH")                                                           \
    X(REPORT, "report", "ULLAGE_REPORT")                                                           \
    X(LOG, "log", "ULLAGE_LOG")                                                                    \
    X(MAX_REQUEST, "max_request", "")                                                              \
    X(SOCKET, "socket", "ULLAGE_SOCKET")                                                           \
    /* Of the daemon: */                                                                           \
    X(WATERMARK, "watermark", "")                                                                  \
    X(SLICE, "slice", "")                                                                          \
    X(PATIENCE, "patience", "")                                                                    \
    X(ALLOCATION_WAIT, "allocation_wait", "")                                                      \
    X(HOST_MEMORY, "host_memory", "")                                                              \
    X(SUSPEND, "suspend", "")                                                                      \
    X(OPERATORS, "operators", "")                                                                  \
    X(MAX_PRIORITY, "max_priority", "")                                                            \
    X(LISTEN, "listen", "")                                                                        \
    X(TOKEN_FILE, "token_file", "")                                                                \
    X(HISTORY, "history", "")

enum ull__conf_key {
#define X(name, key, variable) ULL_CONF_##name,
    ULL_CONF_MAP(X)
#undef X
        ULL_CONF_KEYS
};

enum { ULL_CONF_VALUE = 1024, ULL_CONF_SOURCE = 320 };

struct ull__conf {
    struct ull__conf_item {
        bool set;
        char value[ULL_CONF_VALUE];
        char set_by[ULL_CONF_SOURCE];
    } item[ULL_CONF_KEYS];
};

const char *ull__conf_name(enum ull__conf_key key);

/* Sets a value, overriding an earlier one. ULL_E_INVALID if it is too long. */
ull_status ull__conf_set(struct ull__conf *conf, enum ull__conf_key key, const char *value,
                         const char *set_by, struct ull_error *err);

/* Reads the text of a file. ULL_E_FORMAT names `source` and the line. */
ull_status ull__conf_read(struct ull__conf *conf, const char *text, const char *source,
                          struct ull_error *err);

/* Both files, then the environment, into an empty conf. A file that is not there is no error. */
ull_status ull__conf_load(struct ull__conf *conf, struct ull_error *err);

/* The value as a truth: true, yes, on, 1 or false, no, off, 0. False when it is not set. */
ull_status ull__conf_bool(const struct ull__conf *conf, enum ull__conf_key key, bool *value,
                          struct ull_error *err);

#endif
