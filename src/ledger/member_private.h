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
    uint32_t asked; /* settle requests seen when the parked thread woke up */
    int device_of[ULL_MAX_DEVICES]; /* innermost ledger's device -> this ledger's; -1: not there */
};

struct ull__member {
    pthread_mutex_t lock; /* changes to this process's own slots, one at a time */
    int link_count;
    struct ull__link links[ULL_MAX_CHAIN]; /* [0] is the innermost job */
};

/* ull__change_apply on one of the member's slots, under its lock. */
ull_status ull__member_change(struct ull__member *member, int link, const struct ull__change *change);

#endif
