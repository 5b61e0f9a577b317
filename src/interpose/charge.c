/*
 * charge.c: a reservation before a driver call, and what becomes of it.
 *
 * Nobody checks and then acts: the reservation itself is the check. When it does not fit, everything
 * that may stand in the books without being held any more is looked at first, from cheap to dear:
 * this process's own reserves, dead processes, this process's reserves after a trim, the reserves of
 * the job's other processes. Only then is the request refused.
 */
#include <string.h>

#include "interpose.h"

enum { OTHERS_SETTLE_NS = 2000000 }; /* longest wait for other processes before a refusal */

static struct ull__member *member(void)
{
    return atomic_load_explicit(&ull__state.member, memory_order_acquire);
}

static void refuse(const struct ull__charge *charge, uint64_t wanted, bool by_max_request)
{
    struct ull__refusal refusal;
    uint64_t suppressed = 0;
    memset(&refusal, 0, sizeof refusal);
    refusal.wanted_bytes = wanted;
    refusal.device = charge->gpu->device;
    refusal.class = charge->class;
    refusal.by_max_request = by_max_request;
    strncpy(refusal.call, charge->call, sizeof refusal.call - 1);
    refusal.holder_count = ull__block_largest((int)(charge->gpu - ull__state.gpus), refusal.holders,
                                              ULL_MAX_HOLDERS);
    for (int c = 0; c < ULL_CLASSES; c++)
        refusal.own_bytes += ull__member_held(member(), charge->gpu->device, (enum ull__class)c);
    if (ull__member_refused(member(), &refusal, &suppressed))
        ull__say_refusal(&refusal, suppressed);
}

static bool try_reserve(const struct ull__charge *charge)
{
    return ull__member_reserve(member(), charge->gpu->device, charge->class, charge->bytes) == ULL_OK;
}

static bool reserve_after_settling(const struct ull__charge *charge)
{
    ull__reserves_refresh(charge->gpu, false);
    ull__member_sweep(member(), ull__measure_listed, NULL);
    if (try_reserve(charge))
        return true;
    ull__reserves_refresh(charge->gpu, true);
    if (try_reserve(charge))
        return true;
    ull__member_ask_settle(member(), OTHERS_SETTLE_NS);
    return try_reserve(charge);
}

/* What a program asks for by size. Contexts, code and replayed graphs are not requests of that kind. */
static bool is_request(enum ull__class class)
{
    return class == ULL_CLASS_DATA || class == ULL_CLASS_POOL || class == ULL_CLASS_ARRAY;
}

bool ull__reserve(struct ull__charge *charge, uint64_t asked)
{
    if (!charge->gpu || charge->gpu->device < 0) {
        ull__say("memory on a device that was not there when the job started is refused to it; start "
                 "the job again");
        return false;
    }
    uint64_t max_request = ull__ledger_spec(ull__member_ledger(member()))->max_request;
    if (unlikely(max_request && asked > max_request && is_request(charge->class))) {
        refuse(charge, asked, true);
        return false;
    }
    if (unlikely(!try_reserve(charge) && !reserve_after_settling(charge))) {
        refuse(charge, charge->bytes > asked ? charge->bytes : asked, false);
        return false;
    }
    ull__turn(1);
    return true;
}

void ull__settle(struct ull__charge *charge, uint64_t taken)
{
    int device = charge->gpu->device;
    if (taken < charge->bytes)
        ull__member_release(member(), device, charge->class, charge->bytes - taken);
    else if (taken > charge->bytes)
        ull__member_charge(member(), device, charge->class, taken - charge->bytes);
    ull__member_granted(member(), device, taken);
    ull__turn(0);
}

void ull__cancel(struct ull__charge *charge)
{
    ull__member_release(member(), charge->gpu->device, charge->class, charge->bytes);
    ull__turn(0);
}

void ull__give_back(const struct ull__gpu *gpu, enum ull__class class, uint64_t bytes)
{
    if (gpu && gpu->device >= 0 && bytes)
        ull__member_release(member(), gpu->device, class, bytes);
}

bool ull__may_grow(const struct ull__gpu *gpu, enum ull__class class, const char *call)
{
    if (!gpu || gpu->device < 0)
        return true; /* no current context: the driver will say so */
    uint64_t budget = 0, held = 0;
    ull__member_room(member(), gpu->device, &budget, &held);
    if (held <= budget)
        return true;
    struct ull__charge charge = {.gpu = gpu, .class = class, .call = call};
    if (reserve_after_settling(&charge))
        return true;
    refuse(&charge, 0, false);
    return false;
}
