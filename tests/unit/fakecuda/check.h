/*
 * check.h: a word on what went wrong and where, and an exit status at the end.
 */
#ifndef ULLAGE_FAKECUDA_CHECK_H
#define ULLAGE_FAKECUDA_CHECK_H

#include <stdio.h>

static int check_failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            check_failures++;                                                                      \
        }                                                                                          \
    } while (0)

#define CHECK_IS(value, wanted)                                                                    \
    do {                                                                                           \
        long long value_ = (long long)(value), wanted_ = (long long)(wanted);                      \
        if (value_ != wanted_) {                                                                   \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #value, value_,   \
                    wanted_);                                                                      \
            check_failures++;                                                                      \
        }                                                                                          \
    } while (0)

#endif
