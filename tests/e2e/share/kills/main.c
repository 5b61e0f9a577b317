/*
 * main.c: kills ROUNDS WORLDS SEED FOLDER kills jobs, their `ullage run`, the daemon, its workers and clients, ROUNDS times in
 * all, in WORLDS worlds side by side below FOLDER. After every few rounds of a world everything that lives comes to its end,
 * and nothing may be left; see left.c. Moments and victims are the same for the same SEED and WORLDS, the instants are not.
 *
 * Prints whom it killed where, and ends with 0; or what was wrong, with 1.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kills.h"

enum { BATCH = 10, MOST_WORLDS = 64, MANY = 500, SHARE = 50 };

#define NAME(id, text) text,
const char *const victim_names[] = {VICTIM_MAP(NAME)};
const char *const moment_names[] = {MOMENT_MAP(NAME)};

/* --- what was wrong --------------------------------------------------------------------------------------- */

static void add_file(FILE *to, const char *title, const char *path, long most)
{
    char line[1024];
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fseek(file, 0, SEEK_END) == 0 && ftell(file) > most)
        fseek(file, -most, SEEK_END);
    else
        rewind(file);
    while (fgets(line, sizeof line, file))
        fprintf(to, "# %s: %s%s", title, line, strchr(line, '\n') ? "" : "\n");
    fclose(file);
}

static void add_ledger(FILE *to, const struct job *job)
{
    struct ull__job_view view;
    struct ull__process_view process;
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    ull__ledger_job(job->ledger, &view);
    fprintf(to, "#   %s%spriority %d, flags %x, budget %llu, soft %llu, room %llu, served by %u\n",
            spec->suspendable ? "gated, " : "", spec->may_queue ? "queues, " : "", view.priority,
            view.flags, (unsigned long long)view.budget_bytes[0],
            (unsigned long long)view.soft_bytes[0], (unsigned long long)spec->devices[0].room_bytes,
            ull__ledger_served(job->ledger));
    for (int slot = 0; slot < view.slots_used; slot++)
        if (ull__ledger_process(job->ledger, slot, &process))
            fprintf(
                to, "#   process %u%s: residency %d, held %llu, evicted %llu, spilled %llu, wants %llu %s\n",
                process.pid, process.draining ? ", dead" : "", (int)process.residency,
                (unsigned long long)process.usage[0].held_bytes,
                (unsigned long long)process.evicted_bytes[0],
                (unsigned long long)process.spilled_bytes[0],
                (unsigned long long)process.want_bytes[0], process.trouble);
}

/* With those below it. */
static void add_process(FILE *to, pid_t pid, int depth)
{
    char path[64], text[512], what[64] = "";
    pid_t children[16];
    snprintf(path, sizeof path, "/proc/%d/wchan", (int)pid);
    FILE *file = fopen(path, "re");
    if (file && !fgets(what, sizeof what, file))
        what[0] = 0;
    if (file)
        fclose(file);
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    file = fopen(path, "re");
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[got] = 0;
    for (size_t i = 0; i + 1 < got; i++)
        text[i] = text[i] ? text[i] : ' ';
    if (file)
        fclose(file);
    fprintf(to, "# %*s%d in %s: %s\n", 2 * depth, "", (int)pid, what, text);
    int count = depth < 4 ? children_of(pid, children, 16) : 0;
    for (int i = 0; i < count; i++)
        add_process(to, children[i], depth + 1);
}

static void add_job(FILE *to, const struct world *w, const struct job *job)
{
    char path[2 * PATH];
    fprintf(to, "# %s: run %d, status %x,%s%s%s %s\n", job->name, (int)job->run, job->status,
            job->run_killed ? " run killed," : "", job->command_killed ? " command killed," : "",
            job->unserved ? " unserved," : "", moment_names[moment_of(job)]);
    if (job->ledger && access(ull__ledger_path(job->ledger), F_OK) == 0)
        add_ledger(to, job);
    snprintf(path, sizeof path, "%s/%s", w->out, job->name);
    add_file(to, job->name, path, 800);
}

/* It may be long until it happens again: all that is known is said. */
void fail(struct world *w, const char *format, ...)
{
    va_list args;
    if (!atomic_exchange(&w->tally->failed, true)) {
        FILE *to = fmemopen(w->tally->why, WHY, "w");
        fprintf(to, "world %d: ", w->number);
        va_start(args, format);
        vfprintf(to, format, args);
        va_end(args);
        fprintf(to, "\n# daemon %d, %llu bytes of the card are taken\n", (int)w->daemon,
                w->card ? (unsigned long long)w->card->card[0].used : 0);
        add_process(to, getpid(), 0);
        for (int j = 0; j < w->job_count; j++)
            add_job(to, w, &w->jobs[j]);
        add_file(to, "daemon", w->log, 4000);
        fclose(to);
    }
    _exit(1);
}

/* --- the worlds ------------------------------------------------------------------------------------------- */

static int take_rounds(struct tally *tally)
{
    int left = atomic_load(&tally->rounds_left), some;
    do
        some = left < BATCH ? left : BATCH;
    while (some > 0 && !atomic_compare_exchange_weak(&tally->rounds_left, &left, left - some));
    return some > 0 ? some : 0;
}

static void play(struct tally *tally, const char *folder, int number, uint64_t seed)
{
    static struct world w;
    int rounds;
    world_open(&w, tally, folder, number, seed);
    check_left(&w);
    while (!atomic_load(&tally->failed) && (rounds = take_rounds(tally)) > 0) {
        for (int r = 0; r < rounds; r++)
            play_round(&w);
        end_jobs(&w);
        check_left(&w);
        check_room(&w);
    }
    check_end(&w);
}

/* A test that always kills the same one at the same moment shows little. */
static bool is_spread(const struct tally *tally, unsigned int rounds)
{
    bool spread = true;
    for (int v = 0; v < VICTIMS + MOMENTS; v++) {
        unsigned int sum = 0;
        for (int m = 0; m < (v < VICTIMS ? MOMENTS : VICTIMS); m++)
            sum += v < VICTIMS ? tally->struck[v][m] : tally->struck[m][v - VICTIMS];
        if (sum * SHARE >= rounds || rounds < MANY)
            continue;
        printf("only %u of %u: %s\n", sum, rounds,
               v < VICTIMS ? victim_names[v] : moment_names[v - VICTIMS]);
        spread = false;
    }
    return spread;
}

static void print(const struct tally *tally)
{
    printf("# %-14s", "");
    for (int m = 0; m < MOMENTS; m++)
        printf("%17s", moment_names[m]);
    for (int v = 0; v < VICTIMS; v++) {
        printf("\n# %-14s", victim_names[v]);
        for (int m = 0; m < MOMENTS; m++)
            printf("%17u", tally->struck[v][m]);
    }
    printf("\n# %u jobs, %u right in spite of all, %u refused while no daemon was there; %u "
           "daemons; %u clients\n",
           tally->jobs, tally->right, tally->refused, tally->daemons, tally->clients);
    printf("# %u times nothing was left, after %.2f s at most (%s); no daemon grew by more than "
           "%llu KiB\n",
           tally->checks, (double)tally->slowest_ns / 1e9, tally->slowest,
           (unsigned long long)tally->grown / 1024);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int rounds = atoi(argv[1]), worlds = atoi(argv[2]), bad = 0, status;
    uint64_t seed = strtoull(argv[3], NULL, 10);
    struct tally *tally =
        mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED || rounds < 1 || worlds < 1 || worlds > MOST_WORLDS)
        return 2;
    tally->rounds_left = rounds;
    for (int i = 0; i < worlds; i++) {
        pid_t parent = getpid(), child = fork();
        if (child < 0)
            return 2;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                return 1;
            play(tally, argv[4], i, seed);
            _exit(0);
        }
    }
    while (wait(&status) > 0)
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    print(tally);
    if (tally->failed)
        printf("%s", tally->why);
    else if (bad)
        printf("%d worlds ended badly\n", bad);
    return bad || tally->failed || !is_spread(tally, (unsigned int)rounds);
}
