/*
 * worker.h: what the files of the guest `worker` share.
 *
 * worker.c reads the words and has those of processes and files; worker_rounds.c computes on blocks;
 * worker_streams.c has captures, graphs, kernels that wait, callbacks and threads; worker_shared.c has what
 * needs two processes or two devices; worker_collective.c has kernels of several processes that wait for each other.
 */
#ifndef ULLAGE_TESTS_WORKER_H
#define ULLAGE_TESTS_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda.h"

enum { FAILED = 90 };

struct block {
    CUdeviceptr at;
    size_t bytes;   /* of whole 32-bit words */
    uint32_t value; /* of every word, at first */
};

struct worker {
    CUdevice device;
    CUcontext context;
    CUfunction fill, add, spin, wait;
    CUstream stream[2];
    CUevent event;
    struct block *blocks;
    size_t count, room;
    uint64_t random;
    uint64_t sum;               /* of all bytes that were looked at so far */
    _Atomic uint64_t *progress; /* kernels launched, in a file that the test reads; or NULL */
};
extern struct worker worker;

void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void fail(const char *what, long number);

/* A driver call that must succeed. */
#define CU(call)                                                                                   \
    do {                                                                                           \
        CUresult cu_ = (call);                                                                     \
        if (cu_ != CUDA_SUCCESS)                                                                   \
            fail(#call, cu_);                                                                      \
    } while (0)

uint64_t any(uint64_t below); /* deterministic */
void pause_ms(long ms);
void wait_for_file(const char *path);
size_t size_of(const char *text);

void launch_words(CUfunction function, CUstream stream, CUdeviceptr at, size_t words, uint32_t value);
void launch_wait(CUstream stream, CUdeviceptr word);
struct block *block_room(void); /* for one more, at worker.count */
void block_new(size_t bytes);
void block_end(size_t i); /* its bytes go into the sum */
void sum_bytes(CUdeviceptr at, size_t bytes);

/* Each returns false if the word is none of its own, and moves *at past the arguments of its own. */
bool rounds_word(const char *word, char ***at);
bool streams_word(const char *word, char ***at);
bool collective_word(const char *word, char ***at);
bool shared_word(const char *word, char ***at);
bool mapped_word(const char *word, char ***at);
bool ordered_word(const char *word, char ***at);

#endif
