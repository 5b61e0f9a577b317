/*
 * cmd_budget.c: `ullage budget JOB SIZE` changes what a running job may hold.
 *
 * Works through the ledger; a daemon sees it there. Nothing is taken away: a budget below what is held is a target,
 * and growth is refused until the job is under it. A budget that follows use by itself needs the daemon.
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "control.h"
#include "devices.h"
#include "error.h"
#include "jobs.h"

static void print_help(void)
{
    printf(
        "Usage: ullage budget JOB SIZE|auto\n"
        "\n"
        "Changes the budget of a running job.\n"
        "\n"
        "  JOB         its name or id, as ullage ps shows them (-o json)\n"
        "  SIZE        4GiB, 40%% (of the card), or by device: 0=4GiB,1=40%%; at most the card\n"
        "  auto        follows use from now on: a quarter above it and a share of what is free, "
        "at\n"
        "              least the request and a tenth of the card; needs the daemon ullaged\n"
        "  -h, --help  this text\n"
        "\n"
        "A budget below what the job holds takes nothing away: its growth is refused until it is\n"
        "under it.\n");
}

/* What the rules make of a device; false if none speaks of it. */
static bool rule_for(const struct budget *budget, const struct ull__device_spec *device,
                     struct ull_size *size, bool used[])
{
    char index[16];
    bool found = false, named = false;
    snprintf(index, sizeof index, "%d", device->logical);
    for (int i = 0; i < budget->count; i++) {
        const struct budget_rule *rule = &budget->rules[i];
        bool names =
            rule->device[0] && (strcmp(rule->device, index) == 0 ||
                                strncmp(rule->device, device->uuid, strlen(rule->device)) == 0);
        if (!names && (rule->device[0] || named))
            continue;
        used[i] = true;
        *size = rule->size;
        named |= names;
        found = true;
    }
    return found;
}

static ull_status set_device(struct ull__ledger *ledger, int d, const struct ull_size *size,
                             struct ull_error *err)
{
    const struct ull__device_spec *device = &ull__ledger_spec(ledger)->devices[d];
    char text[ULL_SIZE_TEXT], total[ULL_SIZE_TEXT], held[ULL_SIZE_TEXT];
    uint64_t bytes = size->percent > 0
                         ? (uint64_t)((double)device->total_bytes * size->percent / 100)
                         : size->bytes;
    if (device->total_bytes > 0 && bytes > device->total_bytes)
        return ull__fail(err, ULL_E_INVALID, "a budget of %s on device %d, which has %s",
                         ull__size_text(bytes, text), device->logical,
                         ull__size_text(device->total_bytes, total));
    struct ull__account_view account;
    if (!ull__ledger_set_budget(ledger, d, bytes))
        return ull__fail(err, ULL_E_PERMISSION, "the job's ledger %s cannot be written",
                         ull__ledger_path(ledger));
    if (ull__ledger_account(ledger, 0, &account) && account.usage[d].held_bytes > bytes)
        cli_say("job %s holds %s on device %d: it gets no more until it is under %s",
                ull__ledger_spec(ledger)->name, ull__size_text(account.usage[d].held_bytes, held),
                device->logical, ull__size_text(bytes, text));
    return ULL_OK;
}

/* Checks everything first, so that nothing is half done. */
static ull_status set_budget(struct ull__ledger *ledger, const struct budget *budget,
                             struct ull_error *err)
{
    const struct ull__job_spec *spec = ull__ledger_spec(ledger);
    struct ull_size sizes[ULL_MAX_DEVICES];
    bool chosen[ULL_MAX_DEVICES] = {false}, used[MACHINE_DEVICES] = {false};
    for (int d = 0; d < spec->device_count; d++) {
        chosen[d] =
            spec->devices[d].logical >= 0 && rule_for(budget, &spec->devices[d], &sizes[d], used);
        uint64_t total = spec->devices[d].total_bytes;
        if (chosen[d] && sizes[d].percent == 0 && total > 0 && sizes[d].bytes > total)
            return set_device(ledger, d, &sizes[d], err); /* which refuses it */
    }
    for (int i = 0; i < budget->count; i++)
        if (!used[i])
            return ull__fail(err, ULL_E_NO_DEVICE, "job %s sees no device '%.60s'", spec->name,
                             budget->rules[i].device);
    ull__ledger_set_flag(ledger, ULL_FLAG_AUTOMATIC, false);
    for (int d = 0; d < spec->device_count; d++) {
        ull_status status = chosen[d] ? set_device(ledger, d, &sizes[d], err) : ULL_OK;
        if (status != ULL_OK)
            return status;
    }
    return ULL_OK;
}

/* The daemon sees it in the ledger, and sets the budget from then on. */
static ull_status set_automatic(struct ull__ledger *ledger, struct ull_error *err)
{
    if (ull__ledger_served(ledger) == 0)
        return ull__fail(
            err, ULL_E_SYSTEM,
            "a budget that follows use needs the daemon ullaged, and none serves job %s",
            ull__ledger_spec(ledger)->name);
    if (!ull__ledger_set_flag(ledger, ULL_FLAG_AUTOMATIC, true))
        return ull__fail(err, ULL_E_PERMISSION, "the job's ledger %s cannot be written",
                         ull__ledger_path(ledger));
    return ULL_OK;
}

/* NULL: it follows use. */
static int change(const char *text, const struct budget *budget)
{
    struct job_list list;
    struct live_job *job;
    struct ull_error err = {""};
    if (!jobs_gather(&list)) {
        cli_say("no memory for the list of jobs");
        return EXIT_FAILED;
    }
    ull_status status = jobs_find(&list, text, &job, &err);
    if (status == ULL_OK)
        status = budget ? set_budget(job->report.ledger, budget, &err)
                        : set_automatic(job->report.ledger, &err);
    jobs_free(&list);
    if (status != ULL_OK)
        cli_say("%s", err.message);
    return status == ULL_OK                    ? EXIT_OK
           : status == ULL_E_NO_DEVICE         ? EXIT_NO_DEVICE
           : status == ULL_E_PERMISSION        ? EXIT_PERMISSION
           : !budget && status == ULL_E_SYSTEM ? EXIT_NO_DAEMON
                                               : EXIT_FAILED;
}

int cmd_budget(int argc, char **argv)
{
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {0}};
    struct budget budget;
    struct ull_error err = {""};
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
        if (option != 'h')
            return cli_bad_option("budget", option, argv);
        print_help();
        return EXIT_OK;
    }
    if (argc - optind != 2)
        return cli_usage_error("budget", "expected a job and a size, got %d words", argc - optind);
    if (strcmp(argv[optind + 1], "auto") == 0)
        return change(argv[optind], NULL);
    if (budget_parse(argv[optind + 1], &budget, &err) != ULL_OK)
        return cli_usage_error("budget", "%s", err.message);
    return change(argv[optind], &budget);
}
