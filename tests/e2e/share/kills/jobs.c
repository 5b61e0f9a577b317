/* jobs.c: jobs of the test of kills: see kills.h. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kills.h"

enum { END_S = 120, RESUME_AGAIN_MS = 500, TEXT = 1024 };

/* --- starting --------------------------------------------------------------------------------------------- */

/* One of five blocks and a context is all that it may have; a card has room for two and a half of the largest. */
struct job *start_job(struct world *w, enum kind kind)
{
    static char ullage[PATH], guest[PATH], output[2 * PATH], blocks[8], rounds[8], rest[8];
    const char *argv[24] = {ullage, "run", "-q", "-m", (kind == K_QUEUED ? "24MiB" : "12MiB")};
    int count = 5;
    if (w->job_count == JOBS)
        fail(w, "%d jobs were started in one batch", JOBS);
    struct job *job = &w->jobs[w->job_count++];
    *job = (struct job){.unserved = !w->ready};
    snprintf(job->name, sizeof job->name, "w%dj%d", w->number, w->named++);
    snprintf(ullage, sizeof ullage, "%s/ullage", getenv("BUILD_DIR"));
    snprintf(guest, sizeof guest, "%s/tests/e2e/guests/share", getenv("BUILD_DIR"));
    snprintf(output, sizeof output, "%s/%s", w->out, job->name);
    snprintf(blocks, sizeof blocks, "%u", kind == K_SHORT ? 1 : 1 + any(w, 5));
    snprintf(rounds, sizeof rounds, "%u", kind == K_SHORT ? 0 : any(w, 3));
    snprintf(rest, sizeof rest, "%u", kind == K_SHORT ? 20 : 30 + any(w, 150));
    bool gated = any(w, 2);
    if (kind == K_QUEUED || any(w, 3) == 0)
        argv[count++] = "--wait";
    if (gated)
        argv[count++] = "--suspendable";
    if (gated && any(w, 4) == 0) {
        argv[count++] = "--spill";
        argv[count++] = "4MiB";
    }
    const char *const more[] = {"--priority", (any(w, 2) ? "1" : "0"),
                                "--name",     job->name,
                                "--",         guest,
                                blocks,       "2MiB",
                                rounds,       "",
                                rest};
    memcpy(&argv[count], more, sizeof more);
    job->run = spawn(w, output, argv);
    atomic_fetch_add(&w->tally->jobs, 1);
    return job;
}

/* `ullage run` has another child for a moment, which asks the driver for it. */
pid_t command_of(const struct job *job)
{
    pid_t pids[8];
    int count = job->run > 0 ? children_of(job->run, pids, 8) : 0;
    for (int i = 0; i < count; i++)
        if (is_called(pids[i], "share"))
            return pids[i];
    return 0;
}

/* --- finding ---------------------------------------------------------------------------------------------- */

static bool is_known(const struct world *w, const char *path)
{
    for (int j = 0; j < w->job_count; j++)
        if (w->jobs[j].ledger && strcmp(ull__ledger_path(w->jobs[j].ledger), path) == 0)
            return true;
    return false;
}

static void find_one(struct world *w, const char *path)
{
    struct ull__ledger *ledger;
    if (is_known(w, path) || ull__ledger_open(path, &ledger, NULL) != ULL_OK)
        return;
    for (int j = 0; j < w->job_count; j++)
        if (!w->jobs[j].ledger && strcmp(w->jobs[j].name, ull__ledger_spec(ledger)->name) == 0) {
            w->jobs[j].ledger = ledger;
            return;
        }
    ull__ledger_close(ledger);
}

void find_ledgers(struct world *w)
{
    char folder[ULL_PATH_TEXT], path[2 * ULL_PATH_TEXT];
    bool missing = false;
    for (int j = 0; j < w->job_count; j++)
        missing |= !w->jobs[j].ledger && w->jobs[j].run > 0;
    if (!missing || ull__ledger_folder(false, folder, NULL) != ULL_OK)
        return;
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' &&
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path)
            find_one(w, path);
    if (dir)
        closedir(dir);
}

static bool wants_room(const struct job *job)
{
    struct ull__process_view process;
    for (int slot = 0; slot < ULL_MAX_SLOTS; slot++)
        if (ull__ledger_process(job->ledger, slot, &process) && process.want_bytes[0] > 0)
            return true;
    return false;
}

enum moment moment_of(const struct job *job)
{
    struct ull__job_view view;
    if (!job->ledger)
        return job->run > 0 ? M_START : M_ENDING;
    ull__ledger_job(job->ledger, &view);
    switch (view.state) {
    case ULL_JOB_WAITING:
        return M_QUEUE;
    case ULL_JOB_SUSPENDING:
        return M_SUSPENDING;
    case ULL_JOB_SUSPENDED:
        return M_SUSPENDED;
    case ULL_JOB_RESUMING:
        return M_RESUMING;
    default:
        if (view.process_count > 0)
            return wants_room(job) ? M_WANTING : M_RUNNING;
        return view.slots_used == 0 ? M_START : M_ENDING;
    }
}

/* --- ending ----------------------------------------------------------------------------------------------- */

/* What a person suspended stays so until a person resumes it. */
static void resume_those_out(struct world *w)
{
    struct ull__job_view view;
    uint64_t now = now_ns();
    for (int j = 0; j < w->job_count; j++) {
        struct job *job = &w->jobs[j];
        if (!job->ledger || now < job->resume_ns + RESUME_AGAIN_MS * MS)
            continue;
        ull__ledger_job(job->ledger, &view);
        if (view.state != ULL_JOB_SUSPENDED || !(view.flags & ULL_FLAG_BY_USER))
            continue;
        job->resume_ns = now;
        start_client(w, job, "resume", NULL);
    }
}

static void read_output(const struct world *w, const struct job *job, char text[TEXT])
{
    char path[2 * PATH];
    snprintf(path, sizeof path, "%s/%s", w->out, job->name);
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(text, 1, TEXT - 1, file) : 0;
    text[got] = 0;
    if (file)
        fclose(file);
}

/* Every byte was right, or it could not come so far. */
static void judge(struct world *w, const struct job *job)
{
    char text[TEXT];
    read_output(w, job, text);
    bool killed = job->run_killed || job->command_killed;
    bool ended = WIFEXITED(job->status);
    if (strcmp(text, "right\n") == 0 &&
        (job->run_killed || (ended && WEXITSTATUS(job->status) == 0) ||
         (job->command_killed && ended && WEXITSTATUS(job->status) == 128 + SIGKILL))) {
        atomic_fetch_add(&w->tally->right, 1);
        return;
    }
    bool refused = strcmp(text, "alloc 2\n") == 0 || strcmp(text, "context 2\n") == 0;
    bool nobody = strstr(text, "no daemon answers at ") && strchr(text, '\n') == strrchr(text, '\n');
    if ((refused && job->unserved) || (nobody && (job->unserved || job->not_asked))) {
        atomic_fetch_add(&w->tally->refused, 1);
        return;
    }
    if (text[0] || !killed || (job->must_be_right && !job->command_killed))
        fail(w, "%s did not end well: '%s'", job->name, text);
}

void end_jobs(struct world *w)
{
    pid_t pids[16];
    char path[2 * PATH];
    need_daemon(w);
    for (uint64_t until = now_ns() + END_S * SECOND;; nap(5 * MS)) {
        look(w);
        int count = children_of(getpid(), pids, 16);
        if (count == 1 && pids[0] == w->daemon)
            break;
        if (now_ns() > until)
            fail(w, "after %d s somebody lives still: %d processes, the last is %d", END_S, count,
                 (int)pids[count - 1]);
        resume_those_out(w);
    }
    for (int j = 0; j < w->job_count; j++)
        judge(w, &w->jobs[j]);
    for (int j = 0; j < w->job_count; j++) {
        snprintf(path, sizeof path, "%s/%s", w->out, w->jobs[j].name);
        unlink(path);
        ull__ledger_close(w->jobs[j].ledger);
    }
    w->job_count = 0;
}
