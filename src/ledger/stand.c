/*
 * stand.c: standing by: see control.h.
 *
 * A word each way: the command's number, how many calls were to be let in since it, and of whom, or what is said. A word
 * of an earlier command says nothing. A process inside several jobs answers each of them for itself.
 */
#include "layout.h"
#include "member_private.h"

enum { NUMBER_SHIFT = 32, TIMES_SHIFT = 8, SAYS = 0xff };

static uint64_t base(uint64_t number)
{
    return number << NUMBER_SHIFT;
}

/* Of this command, or from before it. */
static bool is_of(uint64_t word, uint64_t number)
{
    return word >> NUMBER_SHIFT == (uint32_t)number;
}

void ull__ledger_stand(struct ull__ledger *ledger)
{
    atomic_store(&ledger->file->stand_until_ms, ull__monotonic_ns() / 1000000 + ULL_STAND_MS);
}

void ull__ledger_let_in(struct ull__ledger *ledger, int number, uint64_t command,
                        enum ull__let_in whom)
{
    struct ull__slot *slot = &ledger->file->slots[number];
    uint64_t word = atomic_load(&slot->stand_asked);
    word = is_of(word, command) ? word & ~(uint64_t)SAYS : base(command);
    atomic_store(&slot->stand_asked, (word + (1u << TIMES_SHIFT)) | whom);
}

uint32_t ull__ledger_stands(struct ull__ledger *ledger, int number, uint64_t command)
{
    struct ull__slot *slot = &ledger->file->slots[number];
    uint64_t said = atomic_load(&slot->stand_said), asked = atomic_load(&slot->stand_asked);
    if (!is_of(said, command))
        return 0;
    uint64_t wanted = is_of(asked, command) ? asked : base(command);
    return (uint32_t)(said & SAYS) |
           (said >> TIMES_SHIFT != wanted >> TIMES_SHIFT ? ULL_STANDS_AT_IT : 0);
}

/* --- by the process --------------------------------------------------------------------------------------- */

static bool stands(const struct ull__link *link, uint64_t *number)
{
    enum ull__wanted wanted;
    *number = ull__file_commanded(link->ledger->file, &wanted);
    return wanted == ULL_WANT_STAND_BY;
}

enum ull__let_in ull__member_lets_in(struct ull__member *member)
{
    enum ull__let_in whom = ULL_LET_NOBODY;
    for (int k = 0; k < member->link_count; k++) {
        struct ull__link *link = &member->links[k];
        uint64_t number, word = atomic_load(&link->ledger->file->slots[link->slot].stand_asked);
        if (!stands(link, &number))
            continue;
        if (!is_of(link->let_in, number))
            link->let_in = base(number);
        if (is_of(word, number) && word >> TIMES_SHIFT != link->let_in >> TIMES_SHIFT) {
            link->let_in = word & ~(uint64_t)SAYS;
            whom = (enum ull__let_in)(word & SAYS);
        }
    }
    return whom;
}

void ull__member_stands(struct ull__member *member, uint32_t says)
{
    for (int k = 0; k < member->link_count; k++) {
        struct ull__link *link = &member->links[k];
        uint64_t number;
        if (stands(link, &number) && is_of(link->let_in, number) && ull__link_owns(link))
            atomic_store(&link->ledger->file->slots[link->slot].stand_said, link->let_in | says);
    }
}
