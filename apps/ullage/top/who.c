/* who.c: see who.h. */
#include "who.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DETAIL_ROUNDS = 30, MOST_USERS = 256 };

struct who_user {
    uint32_t uid;
    char name[SAMPLE_USER];
};

const char *who_user_name(struct who_table *table, uint32_t uid)
{
    for (int i = 0; i < table->user_count; i++)
        if (table->users[i].uid == uid)
            return table->users[i].name;
    if (!table->users)
        table->users = calloc(MOST_USERS, sizeof *table->users);
    if (!table->users)
        return "";
    struct who_user *user =
        &table->users[table->user_count < MOST_USERS ? table->user_count++ : MOST_USERS - 1];
    struct passwd *entry = getpwuid(uid);
    user->uid = uid;
    snprintf(user->name, sizeof user->name, "%u", uid);
    if (entry && entry->pw_name)
        snprintf(user->name, sizeof user->name, "%.*s", (int)sizeof user->name - 1, entry->pw_name);
    return user->name;
}

void who_begin_round(struct who_table *table)
{
    table->round++;
}

/* The slot of a pid, or the empty one where it would be. */
static struct who **slot_of(struct who **slots, size_t capacity, uint32_t pid)
{
    size_t at = (pid * 2654435761u) & (capacity - 1);
    while (slots[at] && slots[at]->pid != pid)
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

static bool resize(struct who_table *table, size_t capacity, bool only_this_round)
{
    struct who **slots = calloc(capacity, sizeof *slots);
    if (!slots)
        return false;
    size_t kept = 0;
    for (size_t i = 0; i < table->capacity; i++) {
        struct who *who = table->slots[i];
        if (!who)
            continue;
        if (only_this_round && (who->round != table->round || !who->alive)) {
            free(who);
            continue;
        }
        *slot_of(slots, capacity, who->pid) = who;
        kept++;
    }
    free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    table->count = kept;
    return true;
}

static void look_closely(struct who_table *table, struct who *who)
{
    uint32_t uid;
    if (!proc_command(who->pid, who->command, sizeof who->command))
        snprintf(who->command, sizeof who->command, "%s", who->name);
    who->place = proc_place(who->pid);
    who->user[0] = 0;
    if (proc_user(who->pid, &uid))
        snprintf(who->user, sizeof who->user, "%s", who_user_name(table, uid));
    who->detail = table->round;
}

static void look(struct who_table *table, struct who *who)
{
    struct proc_stat stat;
    who->round = table->round;
    who->alive = proc_stat(who->pid, &stat);
    if (!who->alive)
        return;
    bool same = who->start_ticks == stat.start_ticks;
    if (!same)
        who->placed = false;
    who->parent = stat.parent;
    who->start_ticks = stat.start_ticks;
    if (!same || strcmp(who->name, stat.name) != 0 ||
        who->detail + DETAIL_ROUNDS + who->pid % DETAIL_ROUNDS < table->round) {
        memcpy(who->name, stat.name, sizeof who->name);
        look_closely(table, who);
    }
}

struct who *who_look(struct who_table *table, uint32_t pid)
{
    if (pid == 0)
        return NULL;
    if (2 * (table->count + 1) > table->capacity &&
        !resize(table, table->capacity ? 2 * table->capacity : 64, false))
        return NULL;
    struct who **slot = slot_of(table->slots, table->capacity, pid);
    if (!*slot) {
        *slot = calloc(1, sizeof **slot);
        if (!*slot)
            return NULL;
        (*slot)->pid = pid;
        table->count++;
    }
    if ((*slot)->round != table->round)
        look(table, *slot);
    return (*slot)->alive ? *slot : NULL;
}

void who_end_round(struct who_table *table)
{
    if (table->capacity)
        resize(table, table->capacity, true);
}

void who_finish(struct who_table *table)
{
    for (size_t i = 0; i < table->capacity; i++)
        free(table->slots[i]);
    free(table->slots);
    free(table->users);
    memset(table, 0, sizeof *table);
}
