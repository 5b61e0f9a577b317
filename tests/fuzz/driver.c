/*
 * driver.c: runs a target on its corpus and on mutations of it, the same ones each time.
 *
 *   fuzz_TARGET [--seed S] [--runs N] [--only RUN] FILE...
 *
 * Each line of a FILE that ends in .lines is an input, any other FILE is one as a whole. Run i takes its random
 * numbers from S and i only, so that what went wrong can be repeated alone: the message says with which
 * arguments. It is said at a crash too, with sanitizers or without, and the input is shown.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

enum { INPUTS = 4096, MOST = 1 << 14, SHOWN = 600 };

struct input {
    uint8_t *data;
    size_t size;
};

static const char *program;
static uint64_t seed = 1, run, state;
static bool running;
static struct input corpus[INPUTS], now;
static size_t corpus_count;

/* --- telling ---------------------------------------------------------------------------------------------- */

static void show(void)
{
    if (!running)
        return;
    running = false;
    fprintf(stderr,
            "%s: seed %" PRIu64 ", run %" PRIu64 ", repeat it with --seed %" PRIu64
            " --only %" PRIu64 "; the input has %zu bytes:\n",
            program, seed, run, seed, run, now.size);
    for (size_t i = 0; i < now.size && i < SHOWN; i++) {
        if (isprint(now.data[i]) || now.data[i] == '\n')
            fputc(now.data[i], stderr);
        else
            fprintf(stderr, "\\x%02x", now.data[i]);
    }
    fputc('\n', stderr);
}

void fuzz_fail(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s: %s:%d: expected %s\n", program, file, line, what);
    exit(1);
}

static void on_signal(int number)
{
    show(); /* not safe here; the program is broken anyway */
    signal(number, SIG_DFL);
    raise(number);
}

/* Of the sanitizers, if they are there. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

__attribute__((noreturn)) static void die(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", program, what, strerror(errno));
    exit(2);
}

/* --- the corpus ------------------------------------------------------------------------------------------- */

static void add(const uint8_t *data, size_t size)
{
    if (corpus_count == INPUTS || size > MOST)
        return;
    uint8_t *copy = malloc(size + 1);
    if (!copy)
        die("an input");
    memcpy(copy, data, size);
    corpus[corpus_count++] = (struct input){.data = copy, .size = size};
}

static void load(const char *path)
{
    static uint8_t text[INPUTS * 16];
    FILE *file = fopen(path, "rb");
    if (!file)
        die(path);
    size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    size_t length = strlen(path);
    if (length < 6 || strcmp(path + length - 6, ".lines") != 0) {
        add(text, size);
        return;
    }
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(text + at, '\n', size - at);
        size_t line = end ? (size_t)(end - text) - at : size - at;
        add(text + at, line);
        at += line + 1;
    }
}

/* --- mutations -------------------------------------------------------------------------------------------- */

static uint64_t random_below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % n;
}

/* Replaces `gone` bytes at a place by others. */
static void replace(size_t at, size_t gone, const void *data, size_t size)
{
    if (now.size - gone + size > MOST)
        return;
    memmove(now.data + at + size, now.data + at + gone, now.size - at - gone);
    if (size > 0)
        memcpy(now.data + at, data, size);
    now.size += size - gone;
}

static void put_token(void)
{
    static const char *const numbers[] = {"0",
                                          "1",
                                          "-1",
                                          "255",
                                          "4294967296",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "99999999999999999999999999",
                                          "0.000000000000000001",
                                          "1e9",
                                          " ",
                                          "%s%n"};
    size_t tokens = 0, count = sizeof numbers / sizeof *numbers;
    while (fuzz_tokens[tokens])
        tokens++;
    size_t i = random_below(tokens + count);
    const char *token = i < tokens ? fuzz_tokens[i] : numbers[i - tokens];
    size_t at = random_below(now.size + 1), most = now.size - at;
    size_t gone = random_below(2) ? 0 : random_below((most < 8 ? most : 8) + 1);
    replace(at, gone, token, strlen(token));
}

/* A piece of this input or of another one. */
static void put_piece(void)
{
    const struct input *from = random_below(2) ? &now : &corpus[random_below(corpus_count)];
    uint8_t piece[256];
    if (from->size == 0)
        return;
    size_t start = random_below(from->size), size = 1 + random_below(sizeof piece);
    size = size < from->size - start ? size : from->size - start;
    memcpy(piece, from->data + start, size);
    replace(random_below(now.size + 1), 0, piece, size);
}

static void mutate(void)
{
    size_t at = now.size ? random_below(now.size) : 0;
    uint8_t byte = (uint8_t)random_below(256);
    switch (random_below(7)) {
    case 0:
        if (now.size)
            now.data[at] ^= (uint8_t)(1u << random_below(8));
        break;
    case 1:
        if (now.size)
            now.data[at] = byte;
        break;
    case 2:
        replace(at, 0, &byte, 1);
        break;
    case 3: /* a piece goes */
        if (now.size)
            replace(at, 1 + random_below(now.size - at < 32 ? now.size - at : 32), NULL, 0);
        break;
    case 4:
        put_token();
        break;
    case 5:
        put_piece();
        break;
    default:
        if (random_below(8) == 0)
            now.size = at;
        break;
    }
}

/* A copy of its own size, so that a look behind the end is noticed. */
static void execute(void)
{
    uint8_t *copy = malloc(now.size ? now.size : 1);
    if (!copy)
        die("an input");
    memcpy(copy, now.data, now.size);
    running = true;
    LLVMFuzzerTestOneInput(copy, now.size);
    running = false;
    free(copy);
}

/* Runs from 0 on are the corpus as it is, then mutations. */
static void execute_run(void)
{
    const struct input *from = &corpus[run < corpus_count ? run : 0];
    state = (seed * 0x9e3779b97f4a7c15u + run) * 0xbf58476d1ce4e5b9u + 1;
    for (int i = 0; i < 8; i++)
        random_below(2);
    if (run >= corpus_count)
        from = &corpus[random_below(corpus_count)];
    memcpy(now.data, from->data, from->size);
    now.size = from->size;
    for (uint64_t i = run < corpus_count ? 0 : 1 + random_below(6); i > 0; i--)
        mutate();
    execute();
}

int main(int argc, char **argv)
{
    static uint8_t buffer[MOST];
    uint64_t runs = 10000, only = UINT64_MAX;
    program = argv[0];
    now.data = buffer;
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[++i], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--runs") == 0)
            runs = strtoull(argv[++i], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--only") == 0)
            only = strtoull(argv[++i], NULL, 10);
        else
            load(argv[i]);
    }
    if (corpus_count == 0)
        add((const uint8_t *)"", 0);
    atexit(show);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(show);
    else
        for (int i = 0; i < 4; i++)
            signal((int[]){SIGSEGV, SIGABRT, SIGFPE, SIGBUS}[i], on_signal);
    for (run = only == UINT64_MAX ? 0 : only; run < runs || run == only; run++) {
        execute_run();
        if (run == only)
            break;
    }
    printf("%s: seed %" PRIu64 ", %zu inputs, %" PRIu64 " runs\n", program, seed, corpus_count, runs);
    for (size_t i = 0; i < corpus_count; i++)
        free(corpus[i].data);
    return 0;
}
