/*
 * change.c: the one way in which a total changes.
 *
 * A process may be killed at any instruction, and what it was doing must still be decidable:
 *
 *   1. It writes what it is about to do into its slot (the intent), sequence number last.
 *   2. It replaces {total, tag} by {total + delta, its own tag} in one 16-byte compare-and-swap.
 *      Before that it records the tag that it is about to overwrite in the slot which the tag names
 *      (`applied`): that change did take place, and after the swap the cell no longer shows it.
 *   3. It writes what it now holds and clears the intent.
 *
 * A cut-off change took place if the cell still shows its tag or `applied` has reached its sequence
 * number. The intent holds what the slot's books said before, so completing it twice does no harm.
 *
 * Recording a tag is never wrong, however late: it was seen in the cell, so it was applied; and
 * sequence numbers go on when a slot changes hands, so an old number means nothing to a new owner.
 */
#include "layout.h"

#define TAG(slot, sequence) (((uint64_t)(slot) + 1) << 48 | (sequence))
#define TAG_SLOT(tag) ((int)((tag) >> 48) - 1)
#define TAG_SEQUENCE(tag) ((tag)&0xffffffffffffull)

/*
 * Written in assembler, since a compiler may make it a call that takes a lock of this process, as the
 * thread sanitizer's does: other processes would not know of that lock.
 */
static bool swap16(ull__word16 *at, ull__word16 expected, ull__word16 desired)
{
#if defined(__aarch64__)
    uint64_t low, high, failed;
    __asm__ volatile("1: ldaxp %0, %1, [%3]\n"
                     "   cmp %0, %4\n"
                     "   ccmp %1, %5, #0, eq\n"
                     "   b.ne 2f\n"
                     "   stlxp %w2, %6, %7, [%3]\n"
                     "   cbnz %w2, 1b\n"
                     "   b 3f\n"
                     "2: clrex\n"
                     "   mov %2, #1\n"
                     "3:\n"
                     : "=&r"(low), "=&r"(high), "=&r"(failed)
                     : "r"(at), "r"((uint64_t)expected), "r"((uint64_t)(expected >> 64)),
                       "r"((uint64_t)desired), "r"((uint64_t)(desired >> 64))
                     : "cc", "memory");
    return !failed;
#elif defined(__x86_64__)
    uint64_t low = (uint64_t)expected, high = (uint64_t)(expected >> 64);
    bool swapped;
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(swapped), "+m"(*at), "+a"(low), "+d"(high)
                     : "b"((uint64_t)desired), "c"((uint64_t)(desired >> 64))
                     : "memory");
    return swapped;
#else
#error "a 16-byte compare-and-swap is needed for this processor"
#endif
}

static void raise_to(_Atomic uint64_t *what, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(what, memory_order_relaxed);
    while (seen < value && !atomic_compare_exchange_weak(what, &seen, value))
        ;
}

/* Step 2 for the change that the cell shows now. */
static void record_tag(struct ull__ledger_file *file, int device, uint64_t tag)
{
    int slot = TAG_SLOT(tag);
    if (slot >= 0 && slot < ULL_MAX_SLOTS)
        raise_to(&file->slots[slot].devices[device].applied, TAG_SEQUENCE(tag));
}

static void write_books(struct ull__slot_device *books, const struct ull__intent *intent, bool applied)
{
    uint64_t held = intent->held_before + (applied ? (uint64_t)intent->held_delta : 0);
    atomic_store_explicit(&books->held[intent->class], held, memory_order_relaxed);
}

/* Sums over processes are left to the supervisor's samples: they cost a look at every slot. */
void ull__change_peaks(struct ull__ledger_file *file, int slot, int device, enum ull__class class)
{
    struct ull__slot_device *books = &file->slots[slot].devices[device];
    struct ull__account_device *account =
        &file->accounts[atomic_load_explicit(&file->slots[slot].account, memory_order_relaxed)]
             .devices[device];
    raise_to(&account->peak, atomic_load_explicit(&account->cell.total, memory_order_relaxed));
    uint64_t held = 0;
    for (int c = 0; c < ULL_CLASSES; c++)
        held += atomic_load_explicit(&books->held[c], memory_order_relaxed);
    uint64_t of_class = atomic_load_explicit(&books->held[class], memory_order_relaxed);
    raise_to(&books->peak, held);
    raise_to(&books->peak_by_class[class], of_class);
    raise_to(&account->peak_by_class[class], of_class);
}

static bool passes(_Atomic uint64_t *budget, uint64_t total, uint64_t more)
{
    uint64_t bytes = atomic_load_explicit(budget, memory_order_relaxed);
    return total > bytes || more > bytes - total;
}

/* A soft budget holds only while somebody is there who would raise it again. */
static bool passes_budget(struct ull__ledger_file *file, int device, uint64_t total, uint64_t more)
{
    return passes(&file->budget_bytes[device], total, more) ||
           (passes(&file->soft_bytes[device], total, more) && ull__file_is_served(file));
}

ull_status ull__change_apply(struct ull__ledger_file *file, const struct ull__change *change)
{
    struct ull__slot *slot = &file->slots[change->slot];
    struct ull__slot_device *books = &slot->devices[change->device];
    struct ull__account_device *account = &file->accounts[change->account].devices[change->device];
    struct ull__intent *intent = &books->intent;
    uint64_t sequence = atomic_load_explicit(&books->sequence, memory_order_relaxed) + 1;

    atomic_store_explicit(&books->sequence, sequence, memory_order_relaxed);
    intent->held_before = atomic_load_explicit(&books->held[change->class], memory_order_relaxed);
    intent->total_delta = change->total_delta;
    intent->held_delta = change->held_delta;
    intent->class = change->class;
    intent->account = change->account;
    intent->share = change->share;
    atomic_store_explicit(&intent->sequence, sequence, memory_order_release);

    union ull__cell seen, next;
    do {
        /* A torn pair makes the swap fail; either half alone is a value that the cell really had. */
        seen.tag = atomic_load_explicit(&account->cell.tag, memory_order_acquire);
        seen.total = atomic_load_explicit(&account->cell.total, memory_order_acquire);
        if (change->check && change->total_delta > 0 &&
            passes_budget(file, change->device, seen.total, (uint64_t)change->total_delta)) {
            atomic_store_explicit(&intent->sequence, 0, memory_order_release);
            return ULL_E_NO_MEMORY;
        }
        record_tag(file, change->device, seen.tag);
        next.total = seen.total + (uint64_t)change->total_delta;
        next.tag = TAG(change->slot, sequence);
    } while (!swap16(&account->cell.word, seen.word, next.word));

    write_books(books, intent, true);
    if (intent->share)
        ull__share_free(file, change->slot, intent->share - 1);
    atomic_store_explicit(&intent->sequence, 0, memory_order_release);
    /* A checked change is a reservation for the worst case: what becomes of it is not known yet. */
    if (change->total_delta > 0 && !change->check)
        ull__change_peaks(file, change->slot, change->device, change->class);
    return ULL_OK;
}

void ull__change_recover(struct ull__ledger_file *file, int slot_number, int device)
{
    struct ull__slot *slot = &file->slots[slot_number];
    struct ull__slot_device *books = &slot->devices[device];
    struct ull__intent *intent = &books->intent;
    uint64_t sequence = atomic_load_explicit(&intent->sequence, memory_order_acquire);
    if (sequence == 0)
        return;
    struct ull__account_device *account = &file->accounts[intent->account].devices[device];
    /* The cell first: once a tag is gone from it, `applied` has already been raised. */
    uint64_t tag = atomic_load(&account->cell.tag);
    bool applied = tag == TAG(slot_number, sequence) || atomic_load(&books->applied) >= sequence;
    write_books(books, intent, applied);
    if (applied && intent->share)
        ull__share_free(file, slot_number, intent->share - 1);
    atomic_store_explicit(&intent->sequence, 0, memory_order_release);
}
