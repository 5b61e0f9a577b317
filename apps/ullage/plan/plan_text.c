/*
 * plan_text.c: a plan for a person: components beside the plain plan's, what was chosen and why, what a tutorial would
 * have done, and the budgets at which the plan changes.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../table.h"
#include "op.h"
#include "plan_cmd.h"
#include "plan_words.h"
#include "size.h"

static void component_row(const char *name, int64_t plain, int64_t plain_all, int64_t chosen,
                          int64_t chosen_all)
{
    char a[ULL_SIZE_TEXT], b[ULL_SIZE_TEXT];
    printf("  %-20s %12s %5.1f %% %12s %5.1f %%\n", name, plan_bytes_text(plain, a),
           plain_all > 0 ? 100.0 * (double)plain / (double)plain_all : 0, plan_bytes_text(chosen, b),
           chosen_all > 0 ? 100.0 * (double)chosen / (double)chosen_all : 0);
}

static bool print_components(const struct plan_result *result, const struct ull__plan *plain,
                             const struct ull__plan *plan)
{
    int64_t before[ULL_ROLES], after[ULL_ROLES], gaps_before = plain->peak_bytes,
                                                 gaps_after = plan->peak_bytes;
    if (!plan_components(result->plain, 0, before) ||
        !plan_components(result->planner, result->chosen, after)) {
        return false;
    }
    printf("  %-20s %20s %20s\n", "at the peak", "plain", result->feasible ? "chosen" : "smallest");
    for (int i = 0; i < ULL_ROLES; ++i) {
        char name[32];
        gaps_before -= before[i];
        gaps_after -= after[i];
        if (before[i] >= 4096 || after[i] >= 4096) {
            component_row(plan_role_words((enum ull__role)i, name, sizeof(name)), before[i],
                          plain->peak_bytes, after[i], plan->peak_bytes);
        }
    }
    if (gaps_before >= 4096 || gaps_after >= 4096) {
        component_row("gaps", gaps_before, plain->peak_bytes, gaps_after, plan->peak_bytes);
    }
    component_row("peak", plain->peak_bytes, plain->peak_bytes, plan->peak_bytes, plan->peak_bytes);
    char a[ULL_SIZE_TEXT], b[32], c[32];
    int64_t outside = (int64_t)result->options->profile.outside_bytes;
    printf("  %-20s %12s %20s\n", "outside (*)", plan_bytes_text(outside, a), a);
    if (plan->host_bytes > 0) {
        printf("  %-20s %12s %20s\n", "in the host", "0 B", plan_bytes_text(plan->host_bytes, a));
    }
    printf("  %-20s %12s %20s\n", "time a step",
           plan_seconds_text(plain->step_seconds, false, b, sizeof(b)),
           plan_seconds_text(plan->step_seconds, false, c, sizeof(c)));
    double batch = (double)result->options->request.batch;
    printf("  %-20s %12.1f %20.1f\n", "samples a second", batch / plain->step_seconds,
           batch / plan->step_seconds);
    return true;
}

/* What each is comes behind it where there is room: the longest takes the columns below. */
enum { WIDE = 50 + 56 };

static void print_steps(const struct plan_result *result, int width)
{
    struct ull__plan_step steps[ULL_TECHNIQUES];
    int count;
    if (ull__plan_steps(result->planner, result->chosen, steps, &count, NULL) != ULL_OK || count < 2) {
        printf("\nNo technique is needed.\n");
        return;
    }
    printf("\n  %-20s %12s %12s\n", "technique", "saves", "time");
    for (int i = 1; i < count; ++i) {
        char bytes[ULL_SIZE_TEXT], seconds[32], more[ULL_SIZE_TEXT + 1];
        int64_t saved = steps[i - 1].bound_bytes - steps[i].bound_bytes;
        snprintf(more, sizeof(more), "%s%s", saved < 0 ? "-" : "",
                 plan_bytes_text(saved < 0 ? -saved : saved, bytes));
        printf("  %-20s %12s %12s%s%s\n", ull__technique_text(steps[i].technique), more,
               plan_seconds_text(steps[i].step_seconds - steps[i - 1].step_seconds, true, seconds,
                                 sizeof(seconds)),
               width >= WIDE ? "  " : "",
               width >= WIDE ? ull__technique_what(steps[i].technique) : "");
    }
}

/* Whether an item runs with the same slower algorithm as another, of the same operator. */
static bool same_algorithm(const struct ull__program *program, const struct ull__decision *decision,
                           int left, int right)
{
    const struct ull__node *nodes = program->graph->nodes;
    return decision->algorithm[left] != 0 && decision->algorithm[right] != 0 &&
           nodes[program->items[left].node].op == nodes[program->items[right].node].op &&
           strcmp(ull__item_choice(program, left, decision->algorithm[left])->name,
                  ull__item_choice(program, right, decision->algorithm[right])->name) == 0;
}

/* Operators that do not run with their fastest algorithm: how many, and with which. */
static void print_algorithms(const struct plan_result *result)
{
    int plans;
    const struct ull__plan *plan = &ull__planner_plans(result->planner, &plans)[result->chosen];
    const struct ull__program *program = ull__planner_program(result->planner, result->chosen);
    bool any = false;
    for (int i = 0; i < program->item_count; ++i) {
        int before = 0, count = 0;
        for (int j = 0; j < program->item_count; ++j) {
            bool same = same_algorithm(program, &plan->decision, i, j);
            before += same && j < i;
            count += same;
        }
        if (count == 0 || before > 0) {
            continue;
        }
        printf("%s  %-20s %4d x %s\n", any ? "" : "\n  algorithms with less workspace\n",
               program->graph->nodes[program->items[i].node].op->name, count,
               ull__item_choice(program, i, plan->decision.algorithm[i])->name);
        any = true;
    }
}

/* Text that grows and is then broken into lines. */
struct paragraph {
    char text[2048];
    size_t used;
};

static void say(struct paragraph *paragraph, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(struct paragraph *paragraph, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = vsnprintf(paragraph->text + paragraph->used,
                           sizeof(paragraph->text) - paragraph->used, format, list);
    va_end(list);
    if (length > 0) {
        paragraph->used += (size_t)length;
        if (paragraph->used >= sizeof(paragraph->text)) {
            paragraph->used = sizeof(paragraph->text) - 1;
        }
    }
}

static void print_paragraph(const struct paragraph *paragraph, int width)
{
    const char *at = paragraph->text;
    int column = 0;
    printf("\n");
    while (*at != '\0') {
        int length = (int)strcspn(at, " ");
        if (column > 0 && column + 1 + length > width) {
            printf("\n");
            column = 0;
        }
        printf("%s%.*s", column > 0 ? " " : "", length, at);
        column += length + (column > 0);
        at += length;
        at += *at == ' ';
    }
    printf("\n");
}

static double slower(double seconds, double than)
{
    return 100 * (seconds / than - 1);
}

/* The plans on either side: what a little more and a little less memory would change. */
static void say_neighbours(struct paragraph *paragraph, const struct plan_result *result)
{
    int count;
    char size[ULL_SIZE_TEXT], seconds[32];
    const struct ull__plan *plans = ull__planner_plans(result->planner, &count);
    int at = result->chosen;
    int64_t outside = (int64_t)result->options->profile.outside_bytes;
    if (at > 0) {
        int up = at - 1;
        while (up > 0 && plans[up].step_seconds > plans[at].step_seconds * 0.97) {
            up -= 1;
        }
        int64_t need = ull__planner_place(result->planner, up) + outside;
        say(paragraph, " With %s it would take %s.", ull__size_text_up((uint64_t)need, size),
            plan_seconds_text(plans[up].step_seconds, false, seconds, sizeof(seconds)));
    }
    if (at + 1 < count) {
        int down = at + 1;
        while (down + 1 < count && plans[down].bound_bytes > plans[at].bound_bytes * 9 / 10) {
            down += 1;
        }
        int64_t need = ull__planner_place(result->planner, down) + outside;
        say(paragraph, " With %s it would take %s.", ull__size_text_up((uint64_t)need, size),
            plan_seconds_text(plans[down].step_seconds, false, seconds, sizeof(seconds)));
    }
    say(paragraph, " The smallest budget that works is %s (%lld bytes).",
        ull__size_text_up((uint64_t)result->smallest_bytes, size), (long long)result->smallest_bytes);
}

static void print_reasons(const struct plan_result *result, const struct ull__plan *plain,
                          const struct ull__plan *plan, int width)
{
    struct paragraph paragraph = {.used = 0};
    char size[ULL_SIZE_TEXT], need[ULL_SIZE_TEXT];
    int64_t outside = (int64_t)result->options->profile.outside_bytes;
    double change = slower(plan->step_seconds, plain->step_seconds);
    say(&paragraph, "Without any technique this training needs %s",
        ull__size_text_up((uint64_t)(plain->peak_bytes + outside), need));
    say(&paragraph,
        plain->peak_bytes + outside <= result->options->budget ? ", which fits into %s."
                                                               : "; the budget is %s.",
        ull__size_text((uint64_t)result->options->budget, size));
    say(&paragraph, " %s takes %s and %.0f %% %s time a step",
        result->feasible ? "The fastest plan that fits" : "Nothing fits; the smallest plan",
        ull__size_text_up((uint64_t)(plan->peak_bytes + outside), need), fabs(change),
        change > 0 ? "more" : "less");
    if (plan->accumulation > 1) {
        say(&paragraph, ", in %lld micro-batches of %lld samples", (long long)plan->accumulation,
            (long long)plan->micro_batch);
    }
    if (plan->cost.dropped_bytes > 0) {
        say(&paragraph, ", making %s of activations a second time (%.1f %% of the step)",
            ull__size_text((uint64_t)plan->cost.dropped_bytes, size),
            100 * plan->cost.again_seconds * (double)plan->accumulation / plan->step_seconds);
    }
    say(&paragraph, ".");
    say_neighbours(&paragraph, result);
    print_paragraph(&paragraph, width);
}

static void print_thumb(const struct plan_result *result, const struct ull__plan *plan, int width)
{
    struct ull__thumb_plan thumb;
    struct paragraph paragraph = {.used = 0};
    char size[ULL_SIZE_TEXT], seconds[32];
    if (ull__plan_by_thumb(result->planner, result->options->budget, &thumb, NULL) != ULL_OK) {
        return;
    }
    say(&paragraph,
        "By rule of thumb (16 bits, accumulation up to 8, layers over 100 MB or 10 million weights "
        "recomputed): %s, accumulation %lld, %s and %s a step",
        ull__precision_text(thumb.precision), (long long)thumb.accumulation,
        ull__size_text_up((uint64_t)thumb.bound_bytes + result->options->profile.outside_bytes, size),
        plan_seconds_text(thumb.step_seconds, false, seconds, sizeof(seconds)));
    if (!thumb.fits) {
        say(&paragraph, ", which does not fit.");
    } else {
        say(&paragraph, "; this plan is %.0f %% faster.",
            slower(thumb.step_seconds, plan->step_seconds));
    }
    print_paragraph(&paragraph, width);
}

bool plan_print_text(const struct plan_result *result, int width)
{
    int count;
    const struct plan_options *options = result->options;
    const struct ull__plan *plan = &ull__planner_plans(result->planner, &count)[result->chosen];
    const struct ull__plan *plain = ull__planner_plans(result->plain, &count);
    static const char *const optimizers[] = {"SGD", "Adam", "AdamW"};
    char budget[ULL_SIZE_TEXT], parameters[32];
    printf("%s, %s parameters, batch %lld, %s, %s on %s, budget %s\n\n", options->model,
           plan_count_text(ull__graph_parameters(result->model), parameters, sizeof(parameters)),
           (long long)options->request.batch, optimizers[options->request.optimizer],
           ull__precision_text(plan->precision), options->profile.name,
           ull__size_text((uint64_t)options->budget, budget));
    if (!print_components(result, plain, plan)) {
        return false;
    }
    print_steps(result, width);
    print_algorithms(result);
    print_reasons(result, plain, plan, width);
    print_thumb(result, plan, width);
    int devices = options->request.devices;
    if (devices > 1 && devices <= PLAN_CARDS_MOST) {
        int64_t peaks[PLAN_CARDS_MOST];
        char budgets[32 * PLAN_CARDS_MOST];
        for (int i = 0; i < devices; ++i) {
            peaks[i] = plan->peak_bytes;
        }
        plan_budgets_text(options, peaks, devices, budgets, sizeof(budgets));
        printf("\nEach of the %d devices has the whole model and %lld samples of the batch:\n"
               "  ullage run %s -- COMMAND\n",
               devices, (long long)(options->request.batch / devices), budgets);
    }
    printf("\n(*) the context and handles of libraries, taken from the budget first\n");
    return true;
}

int plan_rungs(const struct plan_result *result, int *rungs, int most)
{
    int count, made = 0;
    const struct ull__plan *plans = ull__planner_plans(result->planner, &count);
    double ratio = pow((double)plans[count - 1].bound_bytes / (double)plans[0].bound_bytes,
                       1.0 / (most > 2 ? most - 2 : 1));
    double next = (double)plans[0].bound_bytes;
    for (int i = 0; i < count && made < most; ++i) {
        bool last = i + 1 == count;
        bool chosen = i == result->chosen;
        if ((double)plans[i].bound_bytes <= next || last || chosen) {
            if (ull__planner_place(result->planner, i) < 0) {
                return made;
            }
            /* With its gaps a plan may be larger than one that is slower. */
            if (!chosen && made > 0 && plans[i].peak_bytes >= plans[rungs[made - 1]].peak_bytes) {
                continue;
            }
            rungs[made++] = i;
            while (next >= (double)plans[i].bound_bytes && ratio < 1) {
                next *= ratio;
            }
        }
    }
    return made;
}

void plan_print_ladder(const struct plan_result *result)
{
    enum { MOST = 14 };
    int rungs[MOST], plans;
    int count = plan_rungs(result, rungs, MOST);
    const struct ull__plan *plan = ull__planner_plans(result->planner, &plans);
    printf("\n  %10s %10s %6s %6s %6s %11s %11s\n", "budget from", "a step", "", "in", "",
           "recomputed", "in the host");
    for (int i = 0; i < count; ++i) {
        const struct ull__plan *of = &plan[rungs[i]];
        char size[ULL_SIZE_TEXT], again[ULL_SIZE_TEXT], host[ULL_SIZE_TEXT], seconds[32];
        printf("%c %11s %10s %6s %2lld x %-5lld %8s %11s\n", rungs[i] == result->chosen ? '>' : ' ',
               ull__size_text_up((uint64_t)of->peak_bytes + result->options->profile.outside_bytes,
                                 size),
               plan_seconds_text(of->step_seconds, false, seconds, sizeof(seconds)),
               ull__precision_text(of->precision), (long long)of->accumulation,
               (long long)of->micro_batch, plan_bytes_text(of->cost.dropped_bytes, again),
               plan_bytes_text(of->host_bytes, host));
    }
}
