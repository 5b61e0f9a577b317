/*
 * group.h: the jobs of a group (`ullage run --group`): those of one user, with one name, inside the same job or none.
 */
#ifndef ULLAGE_GROUP_H
#define ULLAGE_GROUP_H

#include "ledger.h"

struct job_group {
    struct ull__ledger **ledgers; /* the one that was asked about first, which stays its caller's */
    int count;
};

/* Of the job's group; of itself alone where it is in none. ULL_E_SYSTEM: no memory. */
ull_status group_open(struct ull__ledger *ledger, struct job_group *group, struct ull_error *err);
void group_close(struct job_group *group);

#endif
