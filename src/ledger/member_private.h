/* member_private.h: what member.c, share.c and refusal.c share of a member. */
#ifndef ULLAGE_MEMBER_PRIVATE_H
#define ULLAGE_MEMBER_PRIVATE_H

#include <pthread.h>

#include "layout.h"
#include "member.h"

/* This process in one ledger. */
struct ull__link {
    struct ull__ledger *ledger;
    int slot;
    uint32_t generation;            /* of the slot when it was claimed */
    uint32_t asked;                 /* settle requests seen when the parked thread woke up */
    uint64_t commanded;             /* number of the command that was seen last */
    uint64_t let_in;                /* word that was seen last (stand.c) */
    int device_of[ULL_MAX_DEVICES]; /* innermost ledger's device -> this ledger's; -1: not there */
};

struct ull__member {
    int link_count;
    struct ull__link links[ULL_MAX_CHAIN]; /* [0] is the innermost job */
};

/* Is the slot still this process's? Not once others took it for dead, as for a moment it may be. */
bool ull__link_owns(const struct ull__link *link);

/* The right to change the slot: false if it is no longer this process's, and then nothing is held. */
bool ull__link_lock(const struct ull__link *link);
void ull__link_unlock(const struct ull__link *link);
/* ull__change_apply under it; takes no more from the books than they hold. */
ull_status ull__link_change(const struct ull__link *link, const struct ull__change *change);
/* All three. */
ull_status ull__member_change(const struct ull__link *link, const struct ull__change *change);

/* Would the budgets from the first-th ledger outwards allow so much more, soft ones left out? A look only. */
bool ull__budgets_allow(struct ull__member *member, int first, int device, uint64_t bytes);

#endif
