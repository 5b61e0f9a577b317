/*
 * who.h: what /proc says of processes, remembered from round to round.
 *
 * One small read a process and round tells whether it is still the same one and who its parent is. Command
 * line and user are read when it is first seen, when its name changes (exec) and now and then.
 */
#ifndef ULLAGE_TOP_WHO_H
#define ULLAGE_TOP_WHO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sample.h"

struct who {
    uint32_t pid, parent;
    uint64_t start_ticks;
    uint64_t round;  /* when it was last looked at */
    uint64_t detail; /* when its command and user were */
    bool alive;
    bool placed;               /* owner is known: */
    char owner[ULL_PATH_TEXT]; /* ledger of the job that a process outside of all ledgers belongs to; "" none */
    uint64_t owner_round;
    enum proc_place place;
    char name[32];
    char user[SAMPLE_USER];
    char command[SAMPLE_COMMAND];
};

struct who_table {
    struct who **slots; /* open addressing by pid */
    size_t capacity, count;
    uint64_t round;
    struct who_user *users; /* names by number, since asking for them can be slow */
    int user_count;
};

void who_begin_round(struct who_table *table);
/* The process, looked at once a round; NULL if there is none of this number, or no memory. Good for the round. */
struct who *who_look(struct who_table *table, uint32_t pid);
/* Forgets those that were not looked at this round. */
void who_end_round(struct who_table *table);
/* The name of a user, or the number in digits. */
const char *who_user_name(struct who_table *table, uint32_t uid);
void who_finish(struct who_table *table);

#endif
