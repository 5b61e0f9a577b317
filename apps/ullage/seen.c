/* seen.c: see seen.h. */
#include "seen.h"

#include <stdlib.h>
#include <string.h>

static struct seen_process *find_process(struct seen *history, const struct ull__process_view *view)
{
    /* From the end: those that live now came last. */
    for (int i = history->process_count - 1; i >= 0; i--) {
        const struct ull__process_view *seen = &history->processes[i].view;
        if (seen->pid == view->pid && seen->start_ticks == view->start_ticks)
            return &history->processes[i];
    }
    if (history->process_count == SEEN_PROCESSES) {
        history->processes_dropped++;
        return NULL;
    }
    if (history->process_count == history->process_capacity) {
        int capacity = history->process_capacity ? history->process_capacity * 2 : 16;
        struct seen_process *grown = realloc(history->processes, (size_t)capacity * sizeof *grown);
        if (!grown)
            return NULL;
        history->processes = grown;
        history->process_capacity = capacity;
    }
    struct seen_process *seen = &history->processes[history->process_count++];
    memset(seen, 0, sizeof *seen);
    return seen;
}

static void keep_process(struct seen_process *seen, const struct ull__process_view *view)
{
    struct ull__process_view before = seen->view;
    seen->view = *view;
    seen->present = true;
    /* Once measured it stays so, and a name that exec changed is the better one. */
    for (int d = 0; d < ULL_MAX_DEVICES; d++) {
        if (before.context_source[d] > seen->view.context_source[d])
            seen->view.context_source[d] = before.context_source[d];
        if (before.usage[d].peak_bytes > seen->view.usage[d].peak_bytes)
            seen->view.usage[d].peak_bytes = before.usage[d].peak_bytes;
        for (int c = 0; c < ULL_CLASSES; c++) {
            if (before.usage[d].peak_by_class[c] > seen->view.usage[d].peak_by_class[c])
                seen->view.usage[d].peak_by_class[c] = before.usage[d].peak_by_class[c];
        }
    }
}

/* New refusals, and what became of the processes of those that are kept. */
static void update_refusals(struct seen *history, struct ull__ledger *ledger, uint64_t total)
{
    if (total == 0)
        return;
    if (!history->refusals)
        history->refusals = calloc(SEEN_REFUSALS, sizeof *history->refusals);
    if (!history->refusals)
        return;
    struct ull__refusal refusal;
    for (int i = 0; i < history->refusal_count; i++) {
        struct ull__refusal *kept = &history->refusals[i];
        if (!kept->survived && ull__ledger_refusal(ledger, kept->number, &refusal))
            kept->survived = refusal.survived;
    }
    uint64_t next =
        history->refusal_count ? history->refusals[history->refusal_count - 1].number + 1 : 1;
    for (; next <= total && history->refusal_count < SEEN_REFUSALS; next++) {
        if (ull__ledger_refusal(ledger, next, &refusal))
            history->refusals[history->refusal_count++] = refusal;
    }
}

void seen_update(struct seen *history, struct ull__ledger *ledger)
{
    struct ull__job_view job;
    ull__ledger_job(ledger, &job);
    for (int i = 0; i < history->process_count; i++)
        history->processes[i].present = false;
    for (int slot = 0, left = job.process_count; slot < ULL_MAX_SLOTS && left > 0; slot++) {
        struct ull__process_view view;
        if (!ull__ledger_process(ledger, slot, &view))
            continue;
        left--;
        struct seen_process *seen = find_process(history, &view);
        if (seen)
            keep_process(seen, &view);
    }
    for (int i = 0; i < history->process_count; i++) {
        struct seen_process *seen = &history->processes[i];
        for (int d = 0; !seen->present && d < ULL_MAX_DEVICES; d++) {
            seen->view.usage[d].held_bytes = 0;
            memset(seen->view.usage[d].by_class, 0, sizeof seen->view.usage[d].by_class);
        }
    }
    update_refusals(history, ledger, job.refusals);
}

void seen_free(struct seen *history)
{
    free(history->processes);
    free(history->refusals);
    memset(history, 0, sizeof *history);
}
