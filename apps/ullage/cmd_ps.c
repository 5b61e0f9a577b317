/*
 * cmd_ps.c: `ullage ps` shows jobs, their processes and what they hold, or checks a condition. Reads the ledgers and
 * asks NVML; works without a GPU and without any job.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cli.h"
#include "devices.h"
#include "jobs.h"
#include "ps_table.h"

static void print_help(void)
{
    printf(
        "Usage: ullage ps [-o table|json|csv] [--tree] [--check CONDITION]\n"
        "\n"
        "Shows jobs, their processes, budgets, and what is held and was held at most.\n"
        "\n"
        "  -o, --output FORMAT  table (default), json (as the report of run), or csv\n"
        "      --tree           processes below the ones that started them\n"
        "      --check CONDITION\n"
        "                       exits 1 if it is true for any job on any card, and says which; "
        "the\n"
        "                       list only with -o. 'held>90%%', 'free<1GiB and refusals>0': "
        "fields\n"
        "                       held, peak, average, free, budget (size, or share of the budget),\n"
        "                       refusals, processes, outside (number); operators < <= > >= = !=\n"
        "  -h, --help           this text\n"
        "\n"
        "A process marked 'outside' uses a GPU and belongs to a job but is not held by it,\n"
        "because the preload library did not get into it (static, setuid, empty environment).\n");
}

/* --- CSV and JSON --------------------------------------------------------------------------------- */

static void csv_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void csv_row(const struct ull__job_spec *spec, const char *id, int account, const char *kind,
                    uint32_t pid, const char *command, int d, const uint64_t *budget,
                    const struct ull__usage *usage)
{
    const struct ull__device_spec *device = &spec->devices[d];
    csv_text(spec->name);
    printf(",%s,%d,%s,%u,", id, account, kind, pid);
    csv_text(command);
    if (device->logical >= 0)
        printf(",%d", device->logical);
    else
        printf(",");
    printf(",%d,%s,", device->physical, device->uuid);
    csv_text(device->name);
    if (budget)
        printf(",%" PRIu64, *budget);
    else
        printf(",");
    printf(",%" PRIu64 ",%" PRIu64, usage->held_bytes, usage->peak_bytes);
    for (int c = 0; c < ULL_CLASSES; c++)
        printf(",%" PRIu64, usage->by_class[c]);
    putchar('\n');
}

static void csv_job(const struct live_job *job)
{
    struct ull__ledger *ledger = job->report.ledger;
    const struct ull__job_spec *spec = ull__ledger_spec(ledger);
    struct ull__job_view view;
    struct ull__account_view account;
    ull__ledger_job(ledger, &view);
    for (int d = 0; d < spec->device_count; d++) {
        if (!job_shows_device(ledger, d))
            continue;
        for (int a = 0; a < ULL_MAX_ACCOUNTS && (a == 0 || spec->each); a++) {
            if (ull__ledger_account(ledger, a, &account))
                csv_row(spec, view.id, a, "job", a ? account.root_pid : view.supervisor_pid,
                        spec->command, d, &view.budget_bytes[d], &account.usage[d]);
        }
        for (int p = 0; p < job->history.process_count; p++) {
            const struct ull__process_view *process = &job->history.processes[p].view;
            if (process->usage[d].peak_bytes > 0)
                csv_row(spec, view.id, (int)process->account, "process", process->pid,
                        process->command, d, NULL, &process->usage[d]);
        }
        for (int o = 0; o < job->report.outside_count; o++) {
            const struct outside_process *outside = &job->outside[o];
            struct ull__usage usage = {.held_bytes = outside->used_bytes};
            if (strcmp(outside->uuid, spec->devices[d].uuid) == 0 && outside->used_bytes != UINT64_MAX)
                csv_row(spec, view.id, 0, "outside", outside->pid, outside->command, d, NULL, &usage);
        }
    }
}

static void print_csv(const struct job_list *list)
{
    printf("job,id,account,kind,pid,command,logical,physical,uuid,name,budget_bytes,held_bytes,"
           "peak_bytes");
    for (int c = 0; c < ULL_CLASSES; c++)
        printf(",%s_bytes", ull__class_name((enum ull__class)c));
    putchar('\n');
    for (int j = 0; j < list->count; j++)
        csv_job(&list->jobs[j]);
}

static bool print_json(const struct job_list *list)
{
    struct ull_json json;
    ull__json_init(&json, stdout);
    job_json_begin(&json);
    for (int j = 0; j < list->count; j++) {
        static const struct outside_process none;
        if (!list->jobs[j].report.outside)
            list->jobs[j].report.outside = &none;
        job_json_add(&json, &list->jobs[j].report);
    }
    return job_json_end(&json);
}

/* --- check ---------------------------------------------------------------------------------------- */

static void count_processes(const struct live_job *job, uint32_t account, int device,
                            struct check_facts *facts)
{
    const char *uuid = ull__ledger_spec(job->report.ledger)->devices[device].uuid;
    for (int p = 0; p < job->history.process_count; p++) {
        const struct seen_process *seen = &job->history.processes[p];
        facts->processes += seen->present && !seen->view.draining &&
                            seen->view.account == account && seen->view.usage[device].held_bytes > 0;
    }
    for (int o = 0; o < job->report.outside_count && account == 0; o++)
        facts->outside += strcmp(job->outside[o].uuid, uuid) == 0;
}

static bool check_account(const struct live_job *job, const struct check *check, const char *text,
                          const struct ull__job_view *view, const struct ull__account_view *account)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->report.ledger);
    bool found = false;
    for (int d = 0; d < spec->device_count; d++) {
        struct check_facts facts = {.held = account->usage[d].held_bytes,
                                    .peak = account->usage[d].peak_bytes,
                                    .average = account->average_bytes[d],
                                    .budget = view->budget_bytes[d],
                                    .total = spec->devices[d].total_bytes,
                                    .refusals = view->refusals};
        char name[ULL_NAME_TEXT + 16], map[DEVICE_MAP_TEXT], told[CHECK_TEXT];
        if (!job_shows_device(job->report.ledger, d))
            continue;
        count_processes(job, account->number, d, &facts);
        if (!check_holds(check, &facts))
            continue;
        found = true;
        snprintf(name, sizeof name, account->number ? "%s.%u" : "%s", spec->name, account->number);
        check_tell(check, &facts, told);
        cli_say("'%.100s' is true for job %s, %s: %s", text, name,
                device_map_text(&spec->devices[d], map), told);
    }
    return found;
}

/* Says for which jobs the condition is true; false if for none. */
static bool check_jobs(const struct job_list *list, const struct check *check, const char *text)
{
    bool found = false;
    for (int j = 0; j < list->count; j++) {
        const struct live_job *job = &list->jobs[j];
        struct ull__job_view view;
        struct ull__account_view account;
        ull__ledger_job(job->report.ledger, &view);
        for (int a = 0; a < ULL_MAX_ACCOUNTS; a++) {
            if ((a == 0 || ull__ledger_spec(job->report.ledger)->each) &&
                ull__ledger_account(job->report.ledger, a, &account))
                found |= check_account(job, check, text, &view, &account);
        }
    }
    return found;
}

int cmd_ps(int argc, char **argv)
{
    enum { TREE = 256, CHECK };
    static const struct option longs[] = {{"output", required_argument, NULL, 'o'},
                                          {"tree", no_argument, NULL, TREE},
                                          {"check", required_argument, NULL, CHECK},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    enum output_format format = OUTPUT_TABLE;
    struct job_list list;
    struct check check = {.count = 0};
    struct ull_error err;
    const char *condition = NULL;
    bool tree = false, listed = false, good = true, found = false;
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, ":o:h", longs, NULL)) != -1) {
        switch (option) {
        case 'o':
            if (!cli_parse_format(optarg, true, &format))
                return cli_usage_error("ps", "-o is '%.40s': expected table, json or csv", optarg);
            listed = true;
            break;
        case CHECK:
            if (check_parse(optarg, &check, &err) != ULL_OK)
                return cli_usage_error("ps", "%s", err.message);
            condition = optarg;
            break;
        case TREE:
            tree = true;
            break;
        case 'h':
            print_help();
            return EXIT_OK;
        default:
            return cli_bad_option("ps", option, argv);
        }
    }
    if (optind < argc)
        return cli_usage_error("ps", "'%.80s' is too much: expected options only", argv[optind]);
    if (!jobs_gather(&list)) {
        cli_say("no memory for the list of jobs");
        return EXIT_FAILED;
    }
    if (condition && !listed)
        ; /* a script asks: nothing to see */
    else if (format == OUTPUT_JSON)
        good = print_json(&list);
    else if (format == OUTPUT_CSV)
        print_csv(&list);
    else
        ps_table(&list, tree);
    if (condition)
        found = check_jobs(&list, &check, condition);
    else if (list.count == 0)
        cli_say("no jobs: start one with ullage run -m 4GiB -- COMMAND");
    jobs_free(&list);
    return good && fflush(stdout) == 0 && !found ? EXIT_OK : EXIT_FAILED;
}
