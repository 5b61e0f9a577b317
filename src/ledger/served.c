/*
 * served.c: a job and the daemon that serves it: see control.h and member.h.
 *
 * The daemon's sign of life is one word with its time, so that what it set needs no undoing when it dies: soft
 * budgets end, and allocations that wait give up. A want is a sum a process and device; several threads of a process
 * may wait at once. Their answers are one counter, on which they sleep, and the number of the last one that said no.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"
#include "member_private.h"

/*
 * What was set holds for ULL_SERVED_MS. Who waits for room waits for longer than that for a sign of life: the daemon may be
 * on its way back, or, being there, not get to run on a machine that is too busy.
 */
enum { PID_BITS = 24, ONE_ANSWER = 2, COMES_BACK_MS = 15000, TOO_BUSY_MS = 60000 };
#define MS 1000000ull
#define LONGEST_WAIT_NS (3600 * 1000 * MS) /* should a daemon live and never answer */

/* --- by the daemon ---------------------------------------------------------------------------------------- */

bool ull__ledger_set_flag(struct ull__ledger *ledger, enum ull__ledger_flag flag, bool on)
{
    struct ull__ledger_file *file = ledger->file;
    uint32_t before =
        on ? atomic_fetch_or(&file->flags, flag) : atomic_fetch_and(&file->flags, ~(uint32_t)flag);
    uint32_t flags = on ? before | flag : before & ~(uint32_t)flag;
    return !ledger->copy ||
           ull__write_word(ledger, offsetof(struct ull__ledger_file, flags), &flags, sizeof flags);
}

bool ull__ledger_serve(struct ull__ledger *ledger, uint32_t daemon_pid)
{
    uint64_t word = ull__monotonic_ns() / MS << PID_BITS | (daemon_pid & ((1u << PID_BITS) - 1));
    atomic_store(&ledger->file->served, word);
    return !ledger->copy ||
           ull__write_word(ledger, offsetof(struct ull__ledger_file, served), &word, sizeof word);
}

uint32_t ull__ledger_served(struct ull__ledger *ledger)
{
    return ull__file_is_served(ledger->file)
               ? (uint32_t)(atomic_load(&ledger->file->served) & ((1u << PID_BITS) - 1))
               : 0;
}

static bool served_lately(const struct ull__ledger_file *file, uint64_t ms)
{
    uint64_t word = atomic_load_explicit(&file->served, memory_order_relaxed);
    return word != 0 && (word >> PID_BITS) + ms > ull__monotonic_ns() / MS;
}

bool ull__file_is_served(const struct ull__ledger_file *file)
{
    return served_lately(file, ULL_SERVED_MS);
}

/* Will there be an answer? In another pid namespace the number may be a stranger's, for whom it waits a minute at most. */
static bool answers_soon(const struct ull__ledger_file *file)
{
    uint64_t word = atomic_load_explicit(&file->served, memory_order_relaxed);
    pid_t daemon = (pid_t)(word & ((1u << PID_BITS) - 1));
    return served_lately(file, COMES_BACK_MS) || (served_lately(file, TOO_BUSY_MS) && daemon > 0 &&
                                                  (kill(daemon, 0) == 0 || errno == EPERM));
}

bool ull__ledger_set_soft(struct ull__ledger *ledger, int device, uint64_t bytes)
{
    if (device < 0 || device >= ULL_MAX_DEVICES)
        return false;
    atomic_store(&ledger->file->soft_bytes[device], bytes);
    return !ledger->copy || ull__write_word(ledger,
                                            offsetof(struct ull__ledger_file, soft_bytes) +
                                                (size_t)device * sizeof bytes,
                                            &bytes, sizeof bytes);
}

/* In a copy the sleeper is not woken: it looks by itself once in a while. */
bool ull__ledger_answer(struct ull__ledger *ledger, int number, bool granted)
{
    if (number < 0 || number >= ULL_MAX_SLOTS)
        return false;
    struct ull__slot *slot = &ledger->file->slots[number];
    size_t at = offsetof(struct ull__ledger_file, slots) + (size_t)number * sizeof *slot;
    uint32_t answer = atomic_load(&slot->answers) + ONE_ANSWER;
    if (!granted)
        atomic_store(&slot->denials, answer);
    atomic_store(&slot->answers, answer);
    if (!ledger->copy) {
        syscall(SYS_futex, &slot->answers, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        return true;
    }
    return (granted || ull__write_word(ledger, at + offsetof(struct ull__slot, denials), &answer,
                                       sizeof answer)) &&
           ull__write_word(ledger, at + offsetof(struct ull__slot, answers), &answer, sizeof answer);
}

/* --- by a process of the job ------------------------------------------------------------------------------ */

/* Jobs inside others are nothing to the daemon: it serves the outermost. */
static struct ull__link *outermost(struct ull__member *member)
{
    return &member->links[member->link_count - 1];
}

bool ull__member_spills_now(struct ull__member *member, int device, uint64_t bytes)
{
    struct ull__ledger_file *file = outermost(member)->ledger->file;
    return !ull__file_is_served(file) || (atomic_load(&file->flags) & ULL_FLAG_SPILL) != 0 ||
           !ull__budgets_allow(member, 0, device, bytes);
}

static void post(const struct ull__link *link, struct ull__want *want, int device, uint64_t bytes)
{
    struct ull__slot *slot = &link->ledger->file->slots[link->slot];
    want->posted = true;
    want->device = link->device_of[device];
    want->bytes = bytes;
    want->answers = want->began = atomic_load(&slot->answers);
    atomic_fetch_add(&slot->devices[want->device].want, bytes);
}

bool ull__member_want(struct ull__member *member, int device, uint64_t bytes, struct ull__want *want)
{
    const struct ull__link *link = outermost(member);
    struct ull__ledger_file *file = link->ledger->file;
    struct ull__slot *slot = &file->slots[link->slot];
    const struct timespec moment = {.tv_nsec = 100 * (long)MS};
    if (!answers_soon(file) || want->waited_ns > LONGEST_WAIT_NS ||
        !ull__budgets_allow(member, 0, device, bytes))
        return false;
    if (!want->posted)
        post(link, want, device, bytes);
    for (int tenth = 0; tenth < 10; tenth++) {
        enum ull__wanted wanted;
        uint64_t began = ull__monotonic_ns();
        syscall(SYS_futex, &slot->answers, FUTEX_WAIT, want->answers, &moment, NULL, 0);
        /* On its way to the host, or there: the next attempt comes when it is back. */
        ull__ledger_commanded(link->ledger, &wanted);
        if (wanted == ULL_WANT_MOVED_OUT && answers_soon(file)) {
            tenth = 0;
            continue;
        }
        want->waited_ns += ull__monotonic_ns() - began;
        uint32_t answers = atomic_load(&slot->answers), denials = atomic_load(&slot->denials);
        if (answers == want->answers)
            continue;
        want->answers = answers;
        return denials == 0 || (int32_t)(denials - want->began) <= 0;
    }
    return answers_soon(file);
}

void ull__member_want_over(struct ull__member *member, struct ull__want *want)
{
    const struct ull__link *link = outermost(member);
    if (want->posted && ull__link_owns(link))
        atomic_fetch_sub(&link->ledger->file->slots[link->slot].devices[want->device].want,
                         want->bytes);
    want->posted = false;
}
