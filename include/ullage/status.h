/*
 * status.h: what a call of ullage answers.
 *
 * Functions return an ull_status: 0 or a negative number. Results go to the last out-parameter and
 * are untouched on failure. Calls that are not on a hot path also take an optional struct ull_error
 * and put there what went wrong, with which value, and what to do. Thread safe.
 */
#ifndef ULLAGE_STATUS_H
#define ULLAGE_STATUS_H

#define ULL_STATUS_MAP(X)                                                                          \
    X(OK, 0, "success")                                                                            \
    X(E_INVALID, -1, "invalid argument")                                                           \
    X(E_NO_MEMORY, -2, "out of memory within the budget")                                          \
    X(E_NO_DEVICE, -3, "no such device")                                                           \
    X(E_PERMISSION, -4, "not permitted")                                                           \
    X(E_NOT_FOUND, -5, "not found")                                                                \
    X(E_SYSTEM, -6, "the operating system refused")                                                \
    X(E_FORMAT, -7, "not in the expected format")                                                  \
    X(E_FULL, -8, "a table of fixed size is full")                                                 \
    X(E_DRIVER, -9, "the device driver reported an error")                                         \
    X(E_STARTED, -10, "too late: already started")

typedef enum {
#define X(name, value, text) ULL_##name = value,
    ULL_STATUS_MAP(X)
#undef X
} ull_status;

/* A message for a person, complete in itself: the value, what was expected, what to do. */
struct ull_error {
    char message[512];
};

/* The name ("ULL_E_FORMAT") and the short text of a status; never NULL. */
const char *ull_status_name(ull_status status);
const char *ull_status_text(ull_status status);

#endif
