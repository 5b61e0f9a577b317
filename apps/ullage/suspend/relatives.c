/* relatives.c: see relatives.h. */
#include "relatives.h"

#include <stdlib.h>
#include <string.h>

static bool wants_out(struct ull__ledger *ledger)
{
    enum ull__wanted wanted;
    ull__ledger_commanded(ledger, &wanted);
    return wanted == ULL_WANT_MOVED_OUT;
}

/* --- finding them ------------------------------------------------------------------------------------------ */

/* All ledgers of the user's, of which those that lead to the job by their parents are kept. */
struct search {
    struct ull__ledger **all;
    int count, capacity;
};

static bool any_path(const char *path, void *data)
{
    (void)path;
    (void)data;
    return true;
}

static void keep(struct ull__ledger *ledger, void *data)
{
    struct search *search = data;
    if (search->count == search->capacity && !ull__ledger_is_copy(ledger)) {
        int capacity = search->capacity ? search->capacity * 2 : 16;
        struct ull__ledger **grown = realloc(search->all, (size_t)capacity * sizeof *grown);
        if (grown) {
            search->all = grown;
            search->capacity = capacity;
        }
    }
    if (search->count == search->capacity || ull__ledger_is_copy(ledger) ||
        ull__ledger_spec(ledger)->parent[0] == '\0') {
        ull__ledger_close(ledger);
        return;
    }
    search->all[search->count++] = ledger;
}

static const struct ull__ledger *of_path(const struct search *search, const char *path)
{
    for (int i = 0; i < search->count; i++)
        if (strcmp(ull__ledger_path(search->all[i]), path) == 0)
            return search->all[i];
    return NULL;
}

static bool is_inside(const struct search *search, const struct ull__ledger *ledger, const char *path)
{
    for (int steps = 0; ledger && steps < RELATIVES_AROUND; steps++) {
        const char *parent = ull__ledger_spec(ledger)->parent;
        if (strcmp(parent, path) == 0)
            return true;
        ledger = of_path(search, parent);
    }
    return false;
}

static void open_inside(struct relatives *relatives, const struct ull__ledger *ledger)
{
    struct search search = {0};
    const char *path = ull__ledger_path(ledger);
    ull__ledger_take(any_path, keep, &search);
    bool *inside = calloc((size_t)search.count + 1, sizeof *inside);
    for (int i = 0; i < search.count && inside; i++)
        inside[i] = is_inside(&search, search.all[i], path);
    relatives->inside = search.all;
    for (int i = 0; i < search.count; i++) {
        if (inside && inside[i])
            relatives->inside[relatives->inside_count++] = search.all[i];
        else
            ull__ledger_close(search.all[i]);
    }
    free(inside);
}

void relatives_open(struct relatives *relatives, struct ull__ledger *ledger, bool inside)
{
    const char *parent = ull__ledger_spec(ledger)->parent;
    *relatives = (struct relatives){0};
    while (parent[0] && relatives->around_count < RELATIVES_AROUND) {
        struct ull__ledger *around;
        if (ull__ledger_open(parent, &around, NULL) != ULL_OK)
            break;
        relatives->around[relatives->around_count++] = around;
        parent = ull__ledger_spec(around)->parent;
    }
    if (inside)
        open_inside(relatives, ledger);
}

void relatives_close(struct relatives *relatives)
{
    for (int i = 0; i < relatives->around_count; i++)
        ull__ledger_close(relatives->around[i]);
    for (int i = 0; i < relatives->inside_count; i++)
        ull__ledger_close(relatives->inside[i]);
    free(relatives->inside);
    *relatives = (struct relatives){0};
}

/* --- asking and telling ------------------------------------------------------------------------------------ */

struct ull__ledger *relatives_out_around(const struct relatives *relatives)
{
    for (int i = 0; i < relatives->around_count; i++)
        if (wants_out(relatives->around[i]))
            return relatives->around[i];
    return NULL;
}

static int slot_of(struct ull__ledger *ledger, const struct ull__process_view *process,
                   struct ull__process_view *seen)
{
    for (int slot = 0; slot < ULL_MAX_SLOTS; slot++)
        if (ull__ledger_process(ledger, slot, seen) && !seen->draining &&
            seen->pid == process->pid && seen->start_ticks == process->start_ticks)
            return slot;
    return -1;
}

bool relatives_keep_out(const struct relatives *relatives, const struct ull__process_view *process)
{
    struct ull__process_view seen;
    for (int i = 0; i < relatives->inside_count; i++)
        if (wants_out(relatives->inside[i]) && slot_of(relatives->inside[i], process, &seen) >= 0)
            return true;
    return false;
}

static void report_to(struct ull__ledger *ledger, const struct ull__process_view *process,
                      enum ull__residency residency, enum ull__moved_by by)
{
    struct ull__process_view seen;
    bool away = residency == ULL_MOVED_OUT || residency == ULL_MOVING_IN;
    struct ull__residency_report report = {.residency = residency};
    int slot = slot_of(ledger, process, &seen);
    if (slot < 0)
        return;
    if (residency == ULL_MOVED_OUT && !wants_out(ledger))
        report.moved_by = by;
    for (int d = 0; d < ULL_MAX_DEVICES && away; d++)
        report.evicted_bytes[d] = seen.usage[d].held_bytes;
    ull__ledger_report(ledger, slot, process->pid, &report);
}

void relatives_report(const struct relatives *relatives, const struct ull__process_view *process,
                      enum ull__residency residency)
{
    for (int i = 0; i < relatives->around_count; i++)
        report_to(relatives->around[i], process, residency, ULL_BY_INNER);
    for (int i = 0; i < relatives->inside_count; i++)
        report_to(relatives->inside[i], process, residency, ULL_BY_OUTER);
}
