/*
 * moves.c: what the arbiter wants moved, by workers (worker.c), and what became of it.
 *
 * While a job is being moved, what it holds is what it held before: room counts only once all of it is there.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon.h"
#include "error.h"
#include "say.h"

#define SECOND 1000000000ull
#define LONGEST_BACKOFF_NS (600 * SECOND)

/* Said of a move that is over; also where there was nothing to move. */
static void tell_moved(struct daemon *d, struct job *job, bool out, const struct worker_report *report)
{
    struct ull__arbiter_event event = {.job = job->number,
                                       .kind = out ? ULL_ARB_SUSPENDED : ULL_ARB_RESUMED,
                                       .amount = report->nanoseconds};
    struct ull__ipc_message answer = {.kind = ULL_IPC_DONE,
                                      .moved_bytes = report->moved_bytes,
                                      .nanoseconds = report->nanoseconds};
    memcpy(event.bytes, job->evicted, sizeof event.bytes);
    memcpy(event.stays, job->held, sizeof event.stays);
    job->changed = false; /* once that is told, what it holds by then is */
    job->failures = 0;
    d->swap_bytes[!out] += report->moved_bytes;
    d->swap_ns[!out] += report->nanoseconds;
    shell_tell(d, &event, NULL);
    client_answer(d, out ? &job->suspend : &job->resume, &answer, true);
}

static void move_failed(struct daemon *d, struct job *job, bool out,
                        const struct worker_report *report)
{
    struct ull__arbiter_event event = {.kind = ULL_ARB_FAILED, .job = job->number};
    uint64_t backoff = SECOND << (job->failures < 10 ? job->failures : 10);
    event.amount = backoff < LONGEST_BACKOFF_NS ? backoff : LONGEST_BACKOFF_NS;
    job->failures++;
    job->changed = true;
    say(LOG_WARN, "job %s (%s) could not be %s: %.300s", job->view.id,
        ull__ledger_spec(job->ledger)->name, out ? "suspended" : "resumed", report->text);
    if (out)
        ull__ledger_set_flag(job->ledger, ULL_FLAG_BY_USER, false);
    shell_tell(d, &event, NULL);
    client_fail(d, out ? &job->suspend : &job->resume, (ull_status)report->status, report->text);
}

static void start_worker(struct daemon *d, struct job *job)
{
    struct ull_error err = {""};
    bool out = job->wants_out;
    job->wants_worker = d->workers >= WORKERS || job->moving; /* a sweep may be at it still */
    if (job->wants_worker)
        return;
    job->task = out ? WORKER_OUT : WORKER_BACK;
    uint64_t slice_ns = d->settings.arbiter.slice_ns ? d->settings.arbiter.slice_ns : 30 * SECOND;
    /* What the arbiter moves out it brings back after a slice, if it can. */
    unsigned int expected_s =
        job->view.flags & ULL_FLAG_BY_USER ? job->away_s : (unsigned int)(slice_ns / SECOND);
    if (worker_start(job->task, job->path, expected_s, &job->worker, &job->from, &err) != ULL_OK) {
        struct worker_report report = {.status = ULL_E_SYSTEM, .last = 1};
        snprintf(report.text, sizeof report.text, "%.399s", err.message);
        move_failed(d, job, out, &report);
        return;
    }
    job->moving = true;
    job->report = (struct worker_report){0};
    d->workers++;
    struct epoll_event watch = {.events = EPOLLIN, .data.fd = job->from};
    epoll_ctl(d->epoll, EPOLL_CTL_ADD, job->from, &watch);
}

void moves_begin(struct daemon *d, struct job *job, bool out)
{
    bool there = job->view.state == (out ? ULL_JOB_SUSPENDED : ULL_JOB_RUNNING);
    book_read(d, job);
    if (there && job->view.state == (out ? ULL_JOB_SUSPENDED : ULL_JOB_RUNNING)) {
        tell_moved(d, job, out, &(struct worker_report){0});
        return;
    }
    job->wants_out = out;
    start_worker(d, job);
}

void moves_stop(struct daemon *d, struct job *job)
{
    if (job->moving && job->task == WORKER_OUT) {
        kill(job->worker, SIGTERM);
    } else if (job->wants_worker && job->wants_out) {
        job->wants_worker = false;
        move_failed(d, job, true,
                    &(struct worker_report){.status = ULL_E_SYSTEM, .text = "it was stopped"});
    }
}

/*
 * Who moved it died half-way. Nobody may be left there, so it is as for a daemon that starts and finds it: a worker
 * brings it back, or out, before it joins again (book.c).
 */
static void left_half_way(struct daemon *d, struct job *job, bool out,
                          const struct worker_report *report)
{
    say(LOG_WARN, "job %s (%s) was left half-way: %.300s", job->view.id,
        ull__ledger_spec(job->ledger)->name, report->text);
    if (out)
        ull__ledger_set_flag(job->ledger, ULL_FLAG_BY_USER, false);
    client_fail(d, out ? &job->suspend : &job->resume, (ull_status)report->status, report->text);
    job->joined = false;
    job->retry_ns = 0;
    shell_tell(d, &(struct ull__arbiter_event){.kind = ULL_ARB_LEAVE, .job = job->number}, NULL);
}

/* By its own word, or without one. */
static void worker_ended(struct daemon *d, struct job *job, const struct worker_report *report)
{
    enum worker_task task = job->task;
    epoll_ctl(d->epoll, EPOLL_CTL_DEL, job->from, NULL);
    close(job->from);
    job->from = -1;
    job->moving = false;
    d->workers--;
    book_read(d, job);
    bool out = task == WORKER_OUT;
    bool there = job->view.state == (out ? ULL_JOB_SUSPENDED : ULL_JOB_RUNNING);
    if (task == WORKER_SWEEP || task == WORKER_SETTLE || !job->joined)
        job->retry_ns = task == WORKER_SETTLE ? 0 : job->retry_ns;
    else if (report->status == ULL_OK || there)
        tell_moved(d, job, out, report);
    else if (job->view.state == ULL_JOB_SUSPENDING || job->view.state == ULL_JOB_RESUMING)
        left_half_way(d, job, out, report);
    else
        move_failed(d, job, out, report);
    for (int j = 0; j < d->job_count && d->workers < WORKERS; j++)
        if (d->jobs[j]->wants_worker && !d->jobs[j]->moving)
            start_worker(d, d->jobs[j]);
}

void moves_worker(struct daemon *d, struct job *job)
{
    struct worker_report report;
    ssize_t got = read(job->from, &report, sizeof report);
    if (got < 0 && (errno == EAGAIN ||
                    errno == EINTR)) /* it was said of another one, whose number this has now */
        return;
    struct wish *wish = job->task == WORKER_OUT ? &job->suspend : &job->resume;
    if (got != (ssize_t)sizeof report) {
        report = (struct worker_report){.status = ULL_E_SYSTEM, .last = 1};
        snprintf(report.text, sizeof report.text, "the process that did it ended early");
    }
    report.text[sizeof report.text - 1] = 0;
    job->report = report;
    if (report.last) {
        worker_ended(d, job, &report);
        return;
    }
    client_answer(d, wish,
                  &(struct ull__ipc_message){.kind = ULL_IPC_PROGRESS,
                                             .moved_bytes = report.moved_bytes,
                                             .to_move_bytes = report.to_move_bytes},
                  false);
}
