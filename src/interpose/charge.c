/*
 * charge.c: a reservation before a driver call, and what becomes of it.
 *
 * Nobody checks and then acts: the reservation itself is the check. When it does not fit, everything
 * that may stand in the books without being held any more is looked at first, from cheap to dear:
 * this process's own reserves, dead processes, NVML's figure, this process's reserves after waiting
 * for the call's stream and a trim, the reserves of the job's other processes and what other threads
 * have reserved for a moment. Only then is the request refused.
 */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "interpose.h"
#include "size.h"
#include "suspend.h"

enum {
    /* For other processes before a refusal: over as soon as all have answered, longer for those that always did (member.h). */
    OTHERS_SETTLE_NS = 20000000,
    SETTLE_TRIES = 20,
    STREAM_TRIES = 10000, /* of a tenth of a millisecond: a second for a stream to run dry */
    SUSPENDED_LOOK_NS = 20000000,
};

/* What a program asks for by size. Contexts, code and replayed graphs are not requests of that kind. */
static bool is_request(enum ull__class class)
{
    return class == ULL_CLASS_DATA || class == ULL_CLASS_POOL || class == ULL_CLASS_ARRAY;
}

static struct ull__member *member(void)
{
    return atomic_load_explicit(&ull__state.member, memory_order_acquire);
}

static void refuse(const struct ull__charge *charge, uint64_t wanted, bool by_max_request)
{
    if (ull__recording())
        ull__tell_call(charge, 0, CUDA_ERROR_OUT_OF_MEMORY);
    struct ull__refusal refusal;
    uint64_t suppressed = 0;
    memset(&refusal, 0, sizeof refusal);
    refusal.wanted_bytes = wanted;
    refusal.device = charge->gpu->device;
    refusal.class = charge->class;
    refusal.by_max_request = by_max_request;
    strncpy(refusal.call, charge->call, sizeof refusal.call - 1);
    refusal.holder_count =
        ull__block_largest((int)(charge->gpu - ull__state.gpus), refusal.holders, ULL_MAX_HOLDERS);
    for (int c = 0; c < ULL_CLASSES; c++)
        refusal.own_bytes += ull__member_held(member(), charge->gpu->device, (enum ull__class)c);
    if (ull__member_refused(member(), &refusal, &suppressed))
        ull__say_refusal(&refusal, suppressed);
}

/* For nothing there is room while no more is held than the budget. */
static bool try_reserve(const struct ull__charge *charge)
{
    uint64_t budget = 0, held = 0;
    if (charge->bytes == 0) {
        ull__member_room(member(), charge->gpu->device, &budget, &held);
        return held <= budget;
    }
    return ull__member_reserve(member(), charge->gpu->device, charge->class, charge->bytes) == ULL_OK;
}

/* Is the stream's work over, or soon? It may be waiting for this very thread, so not for ever. */
static bool idle_soon(CUstream stream)
{
    const struct timespec moment = {.tv_nsec = 100000};
    CUresult result = CUDA_ERROR_NOT_READY;
    for (int i = 0; i < STREAM_TRIES && result == CUDA_ERROR_NOT_READY; i++) {
        if (i > 0)
            nanosleep(&moment, NULL);
        result = ull__driver->cuStreamQuery(stream);
    }
    return result == CUDA_SUCCESS;
}

/*
 * The driver itself waits for what was freed on a stream rather than fail. A pool gives memory back
 * at a synchronization only, which is over at once when the stream is idle.
 */
void ull__wait_for_stream(CUstream stream)
{
    const union ull__cuda *real = ull__driver;
    if (real->cuStreamSynchronize && real->cuStreamQuery && !ull__capturing(stream, false, true))
        ULL_RELAXED(real, {
            if (idle_soon(stream))
                real->cuStreamSynchronize(stream);
        });
}

/* Reservations of other threads are for the worst case and mostly shrink in a moment. */
static bool reserve_when_others_settled(const struct ull__charge *charge)
{
    const struct timespec moment = {.tv_nsec = 100000};
    ull__member_ask_settle(member(), OTHERS_SETTLE_NS);
    for (int i = 0; i < SETTLE_TRIES; i++) {
        if (try_reserve(charge))
            return true;
        if (i > 0 && ull__calls_under_way(atomic_load(&ull__state.turns)) == 0)
            break;
        nanosleep(&moment, NULL);
    }
    ull__measure_rest(true); /* which finds nothing out while calls are under way */
    return try_reserve(charge);
}

static bool reserve_after_settling(struct ull__charge *charge)
{
    charge->wait |= ULL_WAIT_BOOKS;
    ull__reserves_refresh(charge->gpu, false);
    ull__member_sweep(member(), ull__measure_listed, NULL);
    if (try_reserve(charge))
        return true;
    ull__measure_rest(true);
    if (try_reserve(charge))
        return true;
    charge->wait |= ULL_WAIT_TRIM | (charge->ordered ? ULL_WAIT_STREAM : 0);
    if (charge->ordered)
        ull__wait_for_stream(charge->stream);
    ull__reserves_refresh(charge->gpu, true);
    if (try_reserve(charge))
        return true;
    charge->wait |= ULL_WAIT_OTHERS;
    return reserve_when_others_settled(charge);
}

/* A shared account of host memory, which the job may use in place of its devices'. */
static bool spill(struct ull__charge *charge)
{
    charge->spilled = charge->may_spill && !charge->spilled && !charge->gpu->integrated &&
                      ull__ledger_spec(ull__member_ledger(member()))->spill_bytes > 0 &&
                      ull__member_spill(member(), charge->gpu->device, charge->bytes);
    return charge->spilled;
}

/* Unless the daemon is to be asked first. `further`: than is reserved by now. */
static bool spill_now(struct ull__charge *charge, uint64_t further)
{
    return charge->may_spill && ull__member_spills_now(member(), charge->gpu->device, further) &&
           spill(charge);
}

bool ull__spill_instead(struct ull__charge *charge, CUresult result)
{
    if (likely(result != CUDA_ERROR_OUT_OF_MEMORY) || charge->spilled || !charge->gpu ||
        !spill_now(charge, 0))
        return false;
    ull__member_release(member(), charge->gpu->device, charge->class, charge->bytes);
    return true;
}

/* Outside the gate meanwhile: a job that waits for room may be moved out. */
bool ull__wait_for_room(const struct ull__gpu *gpu, uint64_t bytes, struct ull__want *want)
{
    ull__gate_pause();
    bool again = ull__member_want(member(), gpu->device, bytes, want);
    ull__gate_go_on();
    return again;
}

/* The budget allows it, and only a soft one does not: the daemon is asked to make room (src/ledger/served.c). */
static bool reserve_when_there_is_room(struct ull__charge *charge)
{
    struct ull__want want = {0};
    bool done = false;
    while (!done && ull__wait_for_room(charge->gpu, charge->bytes, &want))
        done = try_reserve(charge) || spill_now(charge, charge->bytes);
    ull__member_want_over(member(), &want);
    return done;
}

bool ull__again(struct ull__charge *charge, CUresult result)
{
    if (likely(result != CUDA_ERROR_OUT_OF_MEMORY) || !charge->gpu || charge->bytes == 0 ||
        charge->spilled)
        return false;
    int device = charge->gpu->device;
    /* What waits holds nothing meanwhile: the daemon counts it as wanted, not as held. */
    ull__member_release(member(), device, charge->class, charge->bytes);
    ull__turn(ULL_TURN_END);
    bool again = false;
    while (!again && ull__wait_for_room(charge->gpu, charge->bytes, &charge->want))
        again = try_reserve(charge) || spill_now(charge, charge->bytes);
    again = again || spill(charge); /* nothing else is left */
    if (!again) {
        ull__member_want_over(member(), &charge->want);
        charge->bytes = 0; /* nothing is left for ull__cancel to give back */
    }
    ull__turn(ULL_TURN_BEGIN);
    return again;
}

/* Does this process hold nothing but what the charge has just reserved? */
static bool is_first(const struct ull__charge *charge)
{
    uint64_t held = 0;
    for (int d = 0; d < ULL_MAX_DEVICES; d++)
        for (int c = 0; c < ULL_CLASSES; c++)
            held += ull__member_held(member(), d, (enum ull__class)c);
    return held <= charge->bytes;
}

/*
 * The job is suspended, and this process has only just begun: there was nothing of it to move, so it waits here, with
 * nothing, until the job is resumed. Who suspends looks at what is held after he has given the command, and this looks
 * at the command after it has reserved, so one of them sees the other.
 */
static void wait_while_suspended(const struct ull__charge *charge)
{
    ull__member_release(member(), charge->gpu->device, charge->class, charge->bytes);
    ull__gate_pause();
    while (ull__member_asked(member()) == ULL_WANT_MOVED_OUT)
        nanosleep(&(struct timespec){.tv_nsec = SUSPENDED_LOOK_NS}, NULL);
    ull__gate_go_on();
}

static bool reserve_at_last(struct ull__charge *charge)
{
    for (;;) {
        if (unlikely(!try_reserve(charge) && !reserve_after_settling(charge) &&
                     !spill_now(charge, charge->bytes) && !reserve_when_there_is_room(charge) &&
                     !spill(charge)))
            return false;
        if (likely(ull__member_asked(member()) != ULL_WANT_MOVED_OUT) || charge->spilled ||
            !is_first(charge))
            return true;
        wait_while_suspended(charge);
    }
}

bool ull__reserve(struct ull__charge *charge, uint64_t asked)
{
    charge->asked = asked;
    if (!charge->gpu || charge->gpu->device < 0) {
        ull__say(
            "memory on a device that was not there when the job started is refused to it; start "
            "the job again");
        return false;
    }
    uint64_t max_request = ull__ledger_spec(ull__member_ledger(member()))->max_request;
    if (unlikely(max_request && asked > max_request && is_request(charge->class))) {
        refuse(charge, asked, true);
        return false;
    }
    if (unlikely(!reserve_at_last(charge))) {
        refuse(charge, charge->bytes > asked ? charge->bytes : asked, false);
        return false;
    }
    ull__turn(ULL_TURN_BEGIN);
    return true;
}

/* Once in a process: it will be slow, and nobody would know why. */
static void say_spilled(const struct ull__charge *charge)
{
    static _Atomic bool said;
    char size[ULL_SIZE_TEXT];
    if (atomic_exchange(&said, true) || ull__ledger_spec(ull__member_ledger(member()))->quiet)
        return;
    ull__say("process %d: %s (%s) and what follows beyond the limit goes to host memory (--spill), "
             "which its device reaches over the bus: that is slow",
             (int)getpid(), ull__size_text(charge->asked, size), charge->call);
}

static void settle_spilled(struct ull__charge *charge, uint64_t taken)
{
    if (taken < charge->bytes)
        ull__member_unspill(member(), charge->gpu->device, charge->bytes - taken);
    ull__member_granted(member(), charge->gpu->device, taken);
    if (ull__recording())
        ull__tell_call(charge, 0, CUDA_SUCCESS);
    ull__turn(ULL_TURN_END);
    say_spilled(charge);
}

void ull__settle(struct ull__charge *charge, uint64_t taken)
{
    int device = charge->gpu->device;
    if (unlikely(charge->want.posted))
        ull__member_want_over(member(), &charge->want);
    if (unlikely(charge->spilled)) {
        settle_spilled(charge, taken);
        return;
    }
    if (taken < charge->bytes)
        ull__member_release(member(), device, charge->class, charge->bytes - taken);
    else if (taken > charge->bytes)
        ull__member_charge(member(), device, charge->class, taken - charge->bytes);
    ull__member_settled_to(member(), device, charge->class);
    if (is_request(charge->class))
        ull__member_granted(member(), device, taken);
    if (ull__recording())
        ull__tell_call(charge, taken, CUDA_SUCCESS);
    ull__turn(ULL_TURN_END);
}

/* The budget had room, but the card has not: others hold it. Said at most once a second. */
static void say_card_is_full(const struct ull__charge *charge)
{
    static _Atomic uint64_t last;
    struct timespec now;
    char wanted[ULL_SIZE_TEXT], free_text[ULL_SIZE_TEXT];
    size_t free_bytes = 0, total = 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t then = atomic_exchange(&last, (uint64_t)now.tv_sec + 1);
    if (then == (uint64_t)now.tv_sec + 1 || ull__ledger_spec(ull__member_ledger(member()))->quiet)
        return;
    ull__driver->cuMemGetInfo_v2(&free_bytes, &total);
    ull__say(
        "process %d asked for %s (%s, %s), which its budget allows, but the card has only %s left: "
        "others hold the rest",
        (int)getpid(), ull__size_text(charge->asked, wanted), ull__class_name(charge->class),
        charge->call, ull__size_text(free_bytes, free_text));
}

static void cancel_spilled(struct ull__charge *charge, CUresult result)
{
    char size[ULL_SIZE_TEXT];
    ull__member_unspill(member(), charge->gpu->device, charge->bytes);
    ull__turn(ULL_TURN_END);
    if (result != CUDA_SUCCESS && ull__recording())
        ull__tell_call(charge, 0, result);
    if (result != CUDA_SUCCESS && !ull__ledger_spec(ull__member_ledger(member()))->quiet)
        ull__say(
            "process %d asked for %s (%s) beyond the limit, and the driver had no host memory for "
            "it either",
            (int)getpid(), ull__size_text(charge->asked, size), charge->call);
}

void ull__cancel(struct ull__charge *charge, CUresult result)
{
    if (unlikely(charge->want.posted))
        ull__member_want_over(member(), &charge->want);
    if (unlikely(charge->spilled)) {
        cancel_spilled(charge, result);
        return;
    }
    ull__member_release(member(), charge->gpu->device, charge->class, charge->bytes);
    ull__turn(ULL_TURN_END);
    if (result != CUDA_SUCCESS && ull__recording())
        ull__tell_call(charge, 0, result);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        say_card_is_full(charge);
}

void ull__give_back(const struct ull__gpu *gpu, enum ull__class class, uint64_t bytes)
{
    if (gpu && gpu->device >= 0 && bytes)
        ull__member_release(member(), gpu->device, class, bytes);
}

void ull__lower(const struct ull__gpu *gpu, enum ull__class class, uint64_t bytes)
{
    if (gpu && ull__recording())
        ull__tell_change(gpu, class, -(int64_t)bytes);
    ull__give_back(gpu, class, bytes);
}

bool ull__may_grow(const struct ull__gpu *gpu, enum ull__class class, const char *call)
{
    if (!gpu || gpu->device < 0)
        return true; /* no current context: the driver will say so */
    struct ull__charge charge = {
        .gpu = gpu, .class = class, .call = call, .began_ns = ull__moment_now()};
    if (try_reserve(&charge) || reserve_after_settling(&charge))
        return true;
    refuse(&charge, 0, false);
    return false;
}
