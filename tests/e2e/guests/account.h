/*
 * account.h: what the guests of tests/e2e/account share: driver calls that must succeed, what ullage
 * says is held, and what the card says, which knows nothing of ullage.
 */
#ifndef ULLAGE_TESTS_ACCOUNT_H
#define ULLAGE_TESTS_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda.h"

#define MIB ((uint64_t)1 << 20)
#define PAGE (2 * MIB)

/* Prints "FILE:LINE: what" and ends the process with 1. */
void fail_at(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
#define fail(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)

/* The call must return this code. */
#define GIVES(code, call)                                                                          \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != (code))                                                                     \
            fail("%s gave %d instead of %d", #call, result_, (int)(code));                         \
    } while (0)
#define OK(call) GIVES(CUDA_SUCCESS, call)
#define SAME(a, b)                                                                                  \
    do {                                                                                            \
        uint64_t a_ = (uint64_t)(a), b_ = (uint64_t)(b);                                            \
        if (a_ != b_)                                                                               \
            fail("%s is %llu, %s is %llu", #a, (unsigned long long)a_, #b, (unsigned long long)b_); \
    } while (0)

/* --- random numbers that a seed repeats ----------------------------------------------------------- */

void seed_with(uint64_t seed);
uint64_t any(uint64_t below);

/* --- what is held ---------------------------------------------------------------------------------- */

/* By ullage: total less free, as cuMemGetInfo says (a context must be current), or NVML. */
uint64_t held(void);
uint64_t held_by_nvml(int card);
/* By the card: this process, and all with this process's ULLAGE_FAKE_TAG, managed memory left out. */
uint64_t card_own(int card);
uint64_t card_job(int card);
uint64_t card_job_peak(int card);
bool card_has_dead(void); /* processes whose memory it has not freed yet */
/* Waits up to 3 s for both to agree, since what only NVML shows is charged a little later. */
bool agrees_soon(uint64_t (*ours)(void), uint64_t (*cards)(int), uint64_t extra);

/* cuInit, the primary context of device 0, made current. */
CUcontext start(void);

/* A pipe's end as text: tells another process, or waits for it. */
void say(int fd, const void *data, size_t size);
void hear(int fd, void *data, size_t size);

#endif
