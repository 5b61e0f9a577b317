/*
 * worker.c: a CUDA program that computes, word by word as its arguments say, and prints a sum of all bytes that
 * must not depend on whether, when and how often it was suspended.
 *
 *   init N              device N, its primary context and two streams
 *   alloc SIZE COUNT    blocks, filled by a kernel       free COUNT     the newest
 *   rounds N MS         kernels, memsets and copies over the blocks, two streams with events; MS between two
 *   churn N MS          blocks of any size come and go   small N MS     the same, 4 KiB and less
 *   async N MS          blocks ordered by a stream
 *   verify              blocks hold what they were filled with      launches N    what a launch takes
 *   pointers            what the driver says of the newest block's addresses
 *   capture FILE MODE   begins a capture, waits for FILE, ends it; the graph is kept
 *   replay N MS         launches it                      threads N FILE launch until FILE exists, then count
 *   flag FILE           a kernel waits for a word of the host, which is set when FILE exists
 *   callback FILE       a host function waits for FILE
 *   map SIZE COUNT      memory that it maps itself       remap N MS    rounds over it; handles come and go
 *   mapexport SIZE      the same, exported and imported  mapsum, unmap
 *   ordered, limited, pairs, keep, idle, about, reset   memory that streams order, see worker_ordered.c
 *   peer N MS           two devices work on each other's memory
 *   export FILE         a block for another process      import FILE N MS   works on it; the owner waits
 *   ring FILE RANK N MS two processes, each with kernels that wait for the other's
 *   collectives FILE RANK N MS AHEAD   the same without memory that both have open; RANK of more than two: 1/5; the last
 *                       20 once FILE.go is there
 *   helped FILE RANK N MS AHEAD        the same where a thread beside copies for each collective
 *   sum                 of all blocks and of what was freed; printed
 *   progress FILE       kernels launched are counted there as a 64-bit number
 *   spawn ... end       the words in a process of their own, beside this one;  join  waits for all
 *   fork ... end        a forked child, without CUDA before, waited for;  exec ...  this program again
 *   touch FILE, wait FILE, sleep MS, hold, seed N, pid, die (by SIGKILL)
 *
 * It ends with code 90 at the first call that fails. Linked with the driver; runs on a real card and on the fake.
 */
#include "worker.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct worker worker = {.random = 88172645463325252ull, .sum = 1469598103934665603ull};

static char *self;
static pid_t children[64];
static int child_count;

/* The kernels; on the fake card their names are enough. */
static const char *const ptx =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 n){.reg .u64 %r<5>;.reg .pred %p;"
    "ld.param.u64 %r1,[n];mov.u64 %r2,%globaltimer;"
    "L: mov.u64 %r3,%globaltimer;sub.u64 %r3,%r3,%r2;setp.lt.u64 %p,%r3,%r1;@%p bra L;ret;}\n"
    ".visible .entry wait(.param .u64 a){.reg .u64 %r<2>;.reg .u32 %v;.reg .pred %p;"
    "ld.param.u64 %r1,[a];L: ld.volatile.global.u32 %v,[%r1];setp.eq.u32 %p,%v,0;@%p bra L;ret;}\n"
#define EACH_WORD(name, does)                                                                      \
    ".visible .entry " name "(.param .u64 a,.param .u64 n,.param .u32 v){"                         \
    ".reg .u64 %r<8>;.reg .u32 %t<8>;.reg .pred %p;"                                               \
    "ld.param.u64 %r1,[a];ld.param.u64 %r2,[n];ld.param.u32 %t1,[v];"                              \
    "mov.u32 %t2,%ctaid.x;mov.u32 %t3,%ntid.x;mov.u32 %t4,%tid.x;mad.lo.u32 %t5,%t2,%t3,%t4;"      \
    "cvt.u64.u32 %r3,%t5;mov.u32 %t6,%nctaid.x;mul.lo.u32 %t6,%t6,%t3;cvt.u64.u32 %r4,%t6;"        \
    "L: setp.ge.u64 %p,%r3,%r2;@%p bra E;shl.b64 %r5,%r3,2;add.u64 %r5,%r1,%r5;" does              \
    "st.global.u32 [%r5],%t7;add.u64 %r3,%r3,%r4;bra L;E: ret;}\n"
    EACH_WORD("fill", "mov.u32 %t7,%t1;")
        EACH_WORD("add", "ld.global.u32 %t7,[%r5];add.u32 %t7,%t7,%t1;");

void tell(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    line[length++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(FAILED);
}

_Noreturn void fail(const char *what, long number)
{
    tell("failed %s: %ld", what, number);
    _exit(FAILED);
}

uint64_t any(uint64_t below)
{
    worker.random ^= worker.random << 13;
    worker.random ^= worker.random >> 7;
    worker.random ^= worker.random << 17;
    return worker.random % below;
}

void pause_ms(long ms)
{
    usleep((useconds_t)ms * 1000);
}

void wait_for_file(const char *path)
{
    while (access(path, F_OK) != 0)
        pause_ms(2);
}

size_t size_of(const char *text)
{
    char *unit;
    double value = strtod(text, &unit);
    return (size_t)(value * (*unit == 'G'   ? 1 << 30
                             : *unit == 'M' ? 1 << 20
                             : *unit == 'K' ? 1024
                                            : 1));
}

/* --- words ----------------------------------------------------------------------------------------------- */

static void start(CUdevice ordinal)
{
    CUmodule module;
    CU(cuInit(0));
    CU(cuDeviceGet(&worker.device, ordinal));
    CU(cuDevicePrimaryCtxRetain(&worker.context, worker.device));
    CU(cuCtxSetCurrent(worker.context));
    CU(cuModuleLoadData(&module, ptx));
    CU(cuModuleGetFunction(&worker.fill, module, "fill"));
    CU(cuModuleGetFunction(&worker.add, module, "add"));
    CU(cuModuleGetFunction(&worker.spin, module, "spin"));
    CU(cuModuleGetFunction(&worker.wait, module, "wait"));
    CU(cuStreamCreate(&worker.stream[0], CU_STREAM_NON_BLOCKING));
    CU(cuStreamCreate(&worker.stream[1], CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&worker.event, CU_EVENT_DISABLE_TIMING));
}

static void count_progress(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, 8) != 0)
        fail("progress", fd);
    worker.progress = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
}

static void print_sum(void)
{
    CU(cuCtxSynchronize());
    for (size_t i = 0; i < worker.count; i++)
        sum_bytes(worker.blocks[i].at, worker.blocks[i].bytes);
    tell("sum %016llx", (unsigned long long)worker.sum);
}

static char **cut_block(char **at)
{
    for (int depth = 1; *at; at++) {
        depth += (strcmp(*at, "spawn") == 0) + (strcmp(*at, "fork") == 0) - (strcmp(*at, "end") == 0);
        if (depth == 0) {
            *at = NULL;
            return at + 1;
        }
    }
    fail("a block without end", 0);
}

static char **own_arguments(char **words)
{
    static char *arguments[512];
    int count = 0;
    arguments[count++] = self;
    while (*words && count < 511)
        arguments[count++] = *words++;
    arguments[count] = NULL;
    return arguments;
}

static void interpret(char **at);

static void wait_child(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        fail("a child ended with", status);
}

static bool block_word(const char *word, char ***at)
{
    char **words = *at;
    if (strcmp(word, "spawn") == 0) {
        *at = cut_block(words);
        if (posix_spawn(&children[child_count++], "/proc/self/exe", NULL, NULL,
                        own_arguments(words), environ) != 0)
            fail("spawn", 0);
    } else if (strcmp(word, "fork") == 0) {
        *at = cut_block(words);
        pid_t child = fork();
        if (child == 0) {
            interpret(words);
            _exit(0);
        }
        wait_child(child);
    } else if (strcmp(word, "join") == 0) {
        while (child_count > 0)
            wait_child(children[--child_count]);
    } else if (strcmp(word, "exec") == 0) {
        execv("/proc/self/exe", own_arguments(words));
        fail("exec", 0);
    } else {
        return false;
    }
    return true;
}

static bool plain_word(const char *word, char ***at)
{
    if (strcmp(word, "init") == 0)
        start(atoi(*(*at)++));
    else if (strcmp(word, "sum") == 0)
        print_sum();
    else if (strcmp(word, "progress") == 0)
        count_progress(*(*at)++);
    else if (strcmp(word, "touch") == 0)
        close(open(*(*at)++, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    else if (strcmp(word, "wait") == 0)
        wait_for_file(*(*at)++);
    else if (strcmp(word, "sleep") == 0)
        pause_ms(atol(*(*at)++));
    else if (strcmp(word, "seed") == 0)
        worker.random = strtoull(*(*at)++, NULL, 10) * 2654435761u + 88172645463325252ull;
    else if (strcmp(word, "pid") == 0)
        tell("pid %d", (int)getpid());
    else if (strcmp(word, "die") == 0)
        kill(getpid(), SIGKILL);
    else if (strcmp(word, "hold") == 0)
        for (;;)
            pause();
    else
        return false;
    return true;
}

static void interpret(char **at)
{
    while (*at) {
        const char *word = *at++;
        if (!block_word(word, &at) && !plain_word(word, &at) && !rounds_word(word, &at) &&
            !streams_word(word, &at) && !collective_word(word, &at) && !shared_word(word, &at) &&
            !mapped_word(word, &at) && !ordered_word(word, &at))
            fail(word, 0);
    }
}

int main(int argc, char **argv)
{
    self = argv[0];
    (void)argc;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody waits for the half of a pair for ever */
    interpret(argv + 1);
    return 0;
}
