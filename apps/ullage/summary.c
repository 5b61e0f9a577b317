/* summary.c: the one line at the end of `ullage run`; see job_json.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "job_json.h"
#include "size.h"
#include "suggest.h"

uint64_t job_needed(const struct shown_job *job, const struct ull__account_view *account, int device)
{
    uint64_t needed = account->usage[device].peak_bytes;
    for (int i = 0; i < job->history->refusal_count; i++) {
        const struct ull__refusal *refusal = &job->history->refusals[i];
        uint64_t sum = refusal->held_bytes + refusal->wanted_bytes;
        if (refusal->device == device && refusal->account == account->number && !refusal->survived &&
            !refusal->by_max_request && sum > needed && sum >= refusal->wanted_bytes)
            needed = sum;
    }
    return needed;
}

/* One device over all accounts: with --each, the account that came closest to its budget. */
struct device_use {
    int device;
    uint64_t peak;
    uint64_t average;
    uint64_t needed; /* as job_needed */
    uint64_t budget;
    uint64_t total;
    bool preallocated;
};

static int collect_use(const struct shown_job *job, struct device_use *used)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    struct ull__job_view view;
    int count = 0;
    ull__ledger_job(job->ledger, &view);
    for (int d = 0; d < spec->device_count; d++) {
        struct device_use use = {.device = d,
                                 .budget = view.budget_bytes[d],
                                 .total = spec->devices[d].total_bytes,
                                 .preallocated = view.preallocated[d]};
        struct ull__account_view account;
        for (int a = 0; a < ULL_MAX_ACCOUNTS; a++) {
            if (!ull__ledger_account(job->ledger, a, &account))
                continue;
            uint64_t needed = job_needed(job, &account, d);
            use.needed = needed > use.needed ? needed : use.needed;
            if (account.usage[d].peak_bytes > use.peak) {
                use.peak = account.usage[d].peak_bytes;
                use.average =
                    account.average_bytes[d] < use.peak ? account.average_bytes[d] : use.peak;
            }
        }
        if (use.peak > 0)
            used[count++] = use;
    }
    return count;
}

static void append(char text[SUMMARY_TEXT], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void append(char text[SUMMARY_TEXT], const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, SUMMARY_TEXT - used, format, args);
    va_end(args);
}

static void append_use(char text[SUMMARY_TEXT], const struct ull__job_spec *spec,
                       const struct device_use *use, bool several)
{
    char peak[ULL_SIZE_TEXT], budget[ULL_SIZE_TEXT], average[ULL_SIZE_TEXT];
    unsigned int percent =
        use->budget ? (unsigned int)((double)use->peak * 100 / (double)use->budget + 0.5) : 0;
    append(text, " · ");
    if (several && spec->devices[use->device].logical >= 0)
        append(text, "device %d: ", spec->devices[use->device].logical);
    else if (several)
        append(text, "%s: ", spec->devices[use->device].uuid);
    append(text, "peak %s of %s (%u%%)", ull__size_text(use->peak, peak),
           ull__size_text(use->budget, budget), percent);
    if (use->average > 0) /* none for a job shorter than the time between two samples */
        append(text, "%s average %s", several ? "," : " ·", ull__size_text(use->average, average));
}

static void append_advice(char text[SUMMARY_TEXT], const struct ull__job_spec *spec,
                          const struct device_use *used, int count, bool growth)
{
    bool any = false;
    for (int i = 0; i < count; i++) {
        char size[ULL_SUGGEST_TEXT];
        int logical = spec->devices[used[i].device].logical;
        if (used[i].preallocated || (count > 1 && logical < 0))
            continue;
        uint64_t bytes = ull__suggest(used[i].needed, used[i].total, ULL_ROLE_TRAINING);
        append(text, "%s", any ? "," : " · next time -m ");
        if (count > 1)
            append(text, "%d=", logical);
        append(text, "%s", ull__suggest_text(bytes, size));
        /* A program that was stopped short did not show how much it would have taken. */
        if (used[i].needed > used[i].peak && bytes < used[i].total)
            append(text, " or more");
        any = true;
    }
    for (int i = 0; i < count; i++) {
        if (!used[i].preallocated)
            continue;
        append(text, growth ? " · preallocated in spite of --growth"
                            : " · preallocated; repeat with --growth");
        break;
    }
}

void job_summary(const struct shown_job *job, const char *report_path, bool growth,
                 char text[SUMMARY_TEXT])
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    struct device_use used[ULL_MAX_DEVICES];
    struct ull__job_view view;
    int count = collect_use(job, used);
    ull__ledger_job(job->ledger, &view);
    text[0] = 0;
    append(text, "exit %d", job->exit_code);
    if (job->signal)
        append(text, " (%s)", strsignal(job->signal));
    if (count == 0)
        append(text, " · no GPU memory was used");
    for (int i = 0; i < count; i++)
        append_use(text, spec, &used[i], count > 1);
    if (view.spilled_peak_bytes > 0) {
        char spilled[ULL_SIZE_TEXT];
        append(text, " · up to %s spilled to host memory, which is slow",
               ull__size_text(view.spilled_peak_bytes, spilled));
    }
    append_advice(text, spec, used, count, growth);
    if (view.refusals > 0) {
        append(text, " · %llu request%s refused", (unsigned long long)view.refusals,
               view.refusals == 1 ? "" : "s");
        if (view.refusals_survived > 0)
            append(text, " (%llu survived)", (unsigned long long)view.refusals_survived);
        if (report_path)
            append(text, " · report: %s", report_path);
    }
}
