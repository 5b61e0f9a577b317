/*
 * support.h: what the ledger's tests share: a folder of their own, ledgers, members, child processes,
 * and what the books must say when nothing is left.
 */
#ifndef LEDGER_TEST_SUPPORT_H
#define LEDGER_TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "layout.h"
#include "member.h"

#define MIB (1024ull * 1024)

#if defined(__SANITIZE_THREAD__)
#define TEST_TSAN 1
#else
#define TEST_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TEST_ASAN 1
#else
#define TEST_ASAN 0
#endif
/* Processes and rounds are divided by this where a sanitizer makes each of them slow. */
#define TEST_SLOWNESS (TEST_TSAN || TEST_ASAN ? 4 : 1)

/* cmocka group setup and teardown: a folder in /dev/shm that ULLAGE_SHM_DIR names. */
int test_folder_setup(void **state);
int test_folder_teardown(void **state);
/* Path of that folder. */
const char *test_folder(void);

/* A job of `devices` devices GPU-0, GPU-1, ... with one budget each. */
struct ull__job_spec test_spec(int devices, uint64_t budget);
struct ull__ledger *test_create(const struct ull__job_spec *spec);
/* Creates it in a child that dies at once, so that nobody supervises it. */
struct ull__ledger *test_create_unsupervised(const struct ull__job_spec *spec);
/* Closes it and removes its file. */
void test_destroy(struct ull__ledger *ledger);

/* Joins from this thread. NULL if not possible. */
struct ull__member *test_join(const char *path);
struct ull__member *test_join_root(const char *path, uint32_t root, uint64_t root_ticks);
/* The slot of a member in its ledger number `link`. */
int test_slot(struct ull__member *member, int link);

/*
 * What the kernel does at the death of a member's thread: its slots are nobody's any more. The member
 * must not be used again, but still forgotten (freed, with its mappings).
 */
void test_die(struct ull__member *member);
void test_forget(struct ull__member *member);

/* Forks; the child runs `run` and ends with what it returns. */
pid_t test_fork(int (*run)(void *data), void *data);
/* Waits for the child: its exit code, or minus the signal. */
int test_wait(pid_t pid);
void test_kill(pid_t pid);
/* A child that joins `path`, reserves `bytes` of class data on device 0, and waits to be killed. */
struct test_holder {
    pid_t pid;
    int slot;
};
struct test_holder test_hold(const char *path, uint64_t bytes, uint32_t driver_pid);

/* ull__listed_fn: nobody is listed, everybody is, nobody can say. */
int test_not_listed(void *data, const char *uuid, uint32_t driver_pid, uint64_t *used);
int test_listed(void *data, const char *uuid, uint32_t driver_pid, uint64_t *used);
int test_cannot_say(void *data, const char *uuid, uint32_t driver_pid, uint64_t *used);

uint64_t test_total(struct ull__ledger *ledger, int account, int device);
/* Bytes of all processes of all accounts, as they are shown. */
uint64_t test_sum(struct ull__ledger *ledger, int device);
int test_slots_in_use(struct ull__ledger *ledger);
int test_shares_in_use(struct ull__ledger *ledger);
/* Totals equal the sums over the processes; no lock is held by anybody. */
void test_assert_consistent(struct ull__ledger *ledger);

/* Memory shared with children. */
void *test_shared(size_t size);
void test_sleep_us(long us);
uint64_t test_random(uint64_t *seed);

#endif
