/*
 * fuzz.h: what a target is to the driver, and to libFuzzer, whose entry point has this shape too (build it
 * with clang -fsanitize=fuzzer and without driver.c).
 */
#ifndef ULLAGE_FUZZ_H
#define ULLAGE_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Pieces of text that a target's inputs are made of, ending with NULL. */
extern const char *const fuzz_tokens[];

/* Ends the program if the condition does not hold. */
#define FUZZ_EXPECT(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fuzz_fail(#condition, __FILE__, __LINE__);                                             \
    } while (0)
__attribute__((noreturn)) void fuzz_fail(const char *what, const char *file, int line);

#endif
