/* group.c: see group.h. */
#include "group.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

struct search {
    struct job_group *group;
    bool failed;
};

/* The job itself is open already. */
static bool is_another(const char *path, void *data)
{
    const struct search *search = data;
    return strcmp(path, ull__ledger_path(search->group->ledgers[0])) != 0;
}

static bool belongs(const struct ull__ledger *ledger, const struct job_group *group)
{
    const struct ull__job_spec *one = ull__ledger_spec(ledger);
    const struct ull__job_spec *first = ull__ledger_spec(group->ledgers[0]);
    return !ull__ledger_is_copy(ledger) && strcmp(one->group, first->group) == 0 &&
           strcmp(one->parent, first->parent) == 0;
}

static void keep(struct ull__ledger *ledger, void *data)
{
    struct search *search = data;
    struct job_group *group = search->group;
    if (!belongs(ledger, group)) {
        ull__ledger_close(ledger);
        return;
    }
    struct ull__ledger **grown = realloc(group->ledgers, ((size_t)group->count + 1) * sizeof *grown);
    if (!grown) {
        search->failed = true;
        ull__ledger_close(ledger);
        return;
    }
    group->ledgers = grown;
    group->ledgers[group->count++] = ledger;
}

ull_status group_open(struct ull__ledger *ledger, struct job_group *group, struct ull_error *err)
{
    struct search search = {.group = group};
    *group = (struct job_group){.ledgers = malloc(sizeof ledger), .count = 1};
    if (group->ledgers)
        group->ledgers[0] = ledger;
    if (group->ledgers && ull__ledger_spec(ledger)->group[0])
        ull__ledger_take(is_another, keep, &search);
    if (group->ledgers && !search.failed)
        return ULL_OK;
    group_close(group);
    return ull__fail(err, ULL_E_SYSTEM, "no memory for the jobs of a group");
}

void group_close(struct job_group *group)
{
    for (int i = 1; i < group->count && group->ledgers; i++)
        ull__ledger_close(group->ledgers[i]);
    free(group->ledgers);
    *group = (struct job_group){0};
}
