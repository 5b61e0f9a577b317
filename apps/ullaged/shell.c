/*
 * shell.c: the arbiter's events and actions.
 *
 * Before any event but USE it is told what jobs hold by now, if that changed. What an action leads to at once is
 * told after the event that led to it. Budgets are in shared memory and hold at once; moves are left to workers
 * (moves.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon.h"
#include "error.h"
#include "say.h"
#include "size.h"

enum { QUEUE = 4 * JOBS };
#define SECOND 1000000000ull

static struct {
    struct ull__arbiter_event events[QUEUE];
    int head, count;
    bool busy;
} queue;

/* --- events ----------------------------------------------------------------------------------------------- */

static void obey(struct daemon *d, const struct ull__arbiter_action *action);

static ull_status step(struct daemon *d, const struct ull__arbiter_event *event, struct ull_error *err)
{
    const struct ull__arbiter_action *actions;
    size_t count = 0;
    d->steps++;
    ull_status status = ull__arbiter_step(d->arbiter, event, now_ns(), &actions, &count, err);
    /* It counts what came back; the job may have taken more since. */
    if (event->kind == ULL_ARB_RESUMED) {
        struct job *back = book_of_number(d, event->job);
        if (back)
            back->changed = true;
    }
    if (count == 0)
        return status;
    struct ull__arbiter_action *copy = malloc(count * sizeof *copy); /* the next step reuses them */
    if (!copy)
        return ull__fail(err, ULL_E_SYSTEM, "no memory for %zu actions", count);
    memcpy(copy, actions, count * sizeof *copy);
    for (int budgets = 1; budgets >= 0; budgets--)
        for (size_t i = 0; i < count; i++)
            if ((copy[i].kind == ULL_DO_BUDGET) == (budgets == 1))
                obey(d, &copy[i]);
    free(copy);
    return status;
}

static void tell_use(struct daemon *d)
{
    for (int j = 0; j < d->job_count; j++) {
        struct job *job = d->jobs[j];
        struct ull__arbiter_event use = {.kind = ULL_ARB_USE, .job = job->number};
        if (!job->joined || !job->changed || (job->moving && job->task != WORKER_SWEEP) ||
            job->wants_worker)
            continue;
        memcpy(use.bytes, job->held, sizeof use.bytes);
        memcpy(use.stays, job->stays, sizeof use.stays);
        memcpy(use.trimmable, job->idle, sizeof use.trimmable);
        for (int i = 0; i < ULL_MAX_DEVICES; i++)
            use.spilled += job->view.spilled_bytes[i];
        job->changed = step(d, &use, NULL) != ULL_OK; /* not before it has joined */
    }
}

static void enqueue(const struct ull__arbiter_event *event)
{
    if (queue.count < QUEUE)
        queue.events[(queue.head + queue.count++) % QUEUE] = *event;
    else
        say(LOG_ERROR, "too many events at once: one was lost");
}

static void drain(struct daemon *d)
{
    queue.busy = true;
    while (queue.count > 0) {
        struct ull__arbiter_event event = queue.events[queue.head];
        queue.head = (queue.head + 1) % QUEUE;
        queue.count--;
        tell_use(d);
        struct ull_error err = {""};
        if (step(d, &event, &err) == ULL_E_SYSTEM)
            say(LOG_ERROR, "%s", err.message);
    }
    queue.busy = false;
}

ull_status shell_tell(struct daemon *d, const struct ull__arbiter_event *event, struct ull_error *err)
{
    if (queue.busy) {
        enqueue(event);
        return ULL_OK;
    }
    queue.busy = true;
    tell_use(d);
    ull_status status = step(d, event, err);
    drain(d);
    return status;
}

/* --- joining ---------------------------------------------------------------------------------------------- */

static void describe(struct daemon *d, struct job *job, struct ull__arbiter_spec *to)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    int most = d->settings.max_priority;
    bool waits = job->view.state == ULL_JOB_WAITING, integrated = false;
    *to =
        (struct ull__arbiter_spec){.priority = job->view.priority < most ? job->view.priority : most,
                                   .group = book_group(job),
                                   .spill_bytes = spec->spill_bytes,
                                   .started = !waits,
                                   .may_queue = spec->may_queue,
                                   .automatic = (job->view.flags & ULL_FLAG_AUTOMATIC) != 0};
    for (int i = 0; i < spec->device_count; i++) {
        const struct ull__device_spec *device = &spec->devices[i];
        int c = job->card_of[i];
        if (c < 0)
            continue;
        uint64_t capacity = d->cards.card[c].capacity, budget = job->view.budget_bytes[i];
        integrated |= device->integrated && device->logical >= 0;
        to->budget[c] = job->budget[c] = budget;
        to->request[c] = device->request_bytes < budget ? device->request_bytes : budget;
        to->room[c] = waits ? device->room_bytes : 0;
        if (to->room[c] == device->total_bytes)
            to->room[c] = capacity; /* a whole card, as far as others leave it */
        to->stays[c] = spec->suspendable ? device->context_bytes : 0;
        if (device->logical < 0 && job->held[c] == 0)
            to->stays[c] = 0;
        ull__ledger_set_soft(job->ledger, i, budget);
    }
    to->suspendable =
        !integrated && (spec->suspendable || (d->settings.suspend_all && d->cards.can_checkpoint));
    job->automatic = to->automatic;
    ull__ledger_set_flag(job->ledger, ULL_FLAG_SPILL, false); /* an earlier daemon may have told it to */
    memset(job->trimming, 0, sizeof job->trimming);
}

/* What is not of jobs is not the arbiter's: who may wait waits until there could be room at all. */
static bool others_leave_room(const struct daemon *d, const struct ull__arbiter_spec *spec)
{
    for (int c = 0; c < d->cards.count; c++) {
        const struct card *card = &d->cards.card[c];
        uint64_t need = spec->room[c] > spec->request[c] ? spec->room[c] : spec->request[c];
        if (need > card->capacity && need <= card->total_bytes)
            return false;
    }
    return true;
}

void shell_join(struct daemon *d, struct job *job)
{
    struct ull__arbiter_spec spec;
    struct ull_error err = {""};
    bool out = job->view.state == ULL_JOB_SUSPENDED;
    describe(d, job, &spec);
    if (spec.may_queue && job->run.client && !others_leave_room(d, &spec))
        return; /* it is tried again */
    struct ull__arbiter_event event = {.kind = ULL_ARB_JOIN, .job = job->number, .spec = &spec};
    memcpy(event.bytes, job->held, sizeof event.bytes);
    job->refused = false;
    job->joined = job->changed = true; /* until it says REFUSE, or fails */
    ull_status status = shell_tell(d, &event, &err);
    if (status != ULL_OK && job->joined) {
        job->joined = false;
        client_fail(d, &job->run, status, err.message);
        say(LOG_WARN, "job %s is not served: %s", job->view.id, err.message);
    }
    if (!job->joined)
        return;
    ull__ledger_serve(job->ledger, (uint32_t)getpid());
    if (!out)
        return;
    /* It is in host memory already: whose doing that was, its ledger says. */
    event = (struct ull__arbiter_event){.kind = ULL_ARB_USER_SUSPEND, .job = job->number};
    shell_tell(d, &event, NULL);
    job->comes_back = !(job->view.flags & ULL_FLAG_BY_USER);
}

void shell_leave(struct daemon *d, struct job *job)
{
    struct ull__arbiter_event event = {.kind = ULL_ARB_LEAVE, .job = job->number};
    bool joined = job->joined;
    job->joined = false;
    client_fail(d, &job->run, ULL_E_NOT_FOUND, "the job is gone");
    client_fail(d, &job->suspend, ULL_E_NOT_FOUND, "the job ended");
    client_fail(d, &job->resume, ULL_E_NOT_FOUND, "the job ended");
    if (job->moving && job->dead) { /* what is left of the worker ends by itself */
        close(job->from);
        job->moving = false;
        job->from = -1;
        d->workers--;
    }
    job->wants_worker = false;
    if (joined)
        shell_tell(d, &event, NULL);
}

/* --- what stands in the way ------------------------------------------------------------------------------------------ */

static size_t list_holders(struct daemon *d, int card, const struct job *but, char *text, size_t size)
{
    size_t used = 0;
    int count = 0;
    for (int j = 0; j < d->job_count && used + 120 < size; j++) {
        const struct job *job = d->jobs[j];
        const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
        char held[ULL_SIZE_TEXT], request[ULL_SIZE_TEXT];
        uint64_t promised = 0;
        for (int i = 0; i < spec->device_count; i++)
            promised += job->card_of[i] == card ? spec->devices[i].request_bytes : 0;
        if (job == but || !job->joined || (job->held[card] == 0 && promised == 0))
            continue;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%.40s (%s) holds %s", count++ ? ", " : "",
                             spec->name, job->view.id, ull__size_text(job->held[card], held));
        if (promised && used < size)
            used += (size_t)snprintf(text + used, size - used, " of %s promised",
                                     ull__size_text(promised, request));
    }
    return used;
}

void shell_explain(struct daemon *d, const struct job *job, char *text, size_t size)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < spec->device_count && used + 300 < size; i++) {
        const struct ull__device_spec *device = &spec->devices[i];
        int c = job->card_of[i];
        uint64_t need =
            device->room_bytes > device->request_bytes ? device->room_bytes : device->request_bytes;
        char asked[ULL_SIZE_TEXT], all[ULL_SIZE_TEXT], left[ULL_SIZE_TEXT];
        if (c < 0 || need == 0)
            continue;
        uint64_t capacity = d->cards.card[c].capacity, taken = ull__arbiter_occupied(d->arbiter, c);
        used += (size_t)snprintf(text + used, size - used,
                                 "%sdevice %d has %s of %s left, %s are asked for; ",
                                 used ? ". " : "", device->logical,
                                 ull__size_text(taken < capacity ? capacity - taken : 0, left),
                                 ull__size_text(capacity, all), ull__size_text(need, asked));
        size_t names = list_holders(d, c, job, text + used, size - used - 1);
        if (names == 0)
            names = (size_t)snprintf(text + used, size - used, "no job holds any");
        used += names;
    }
}

/* --- actions ---------------------------------------------------------------------------------------------- */

static void answer_wants(struct job *job, bool granted)
{
    struct ull__process_view process;
    for (int slot = 0; slot < job->view.slots_used; slot++) {
        bool wants = false;
        if (!ull__ledger_process(job->ledger, slot, &process))
            continue;
        for (int i = 0; i < ULL_MAX_DEVICES; i++)
            wants |= process.want_bytes[i] > 0;
        if (wants)
            ull__ledger_answer(job->ledger, slot, granted);
    }
    if (!granted)
        job->wants = false;
}

static void set_soft(struct daemon *d, struct job *job, int card, uint64_t bytes)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    (void)d;
    for (int i = 0; i < spec->device_count; i++)
        if (job->card_of[i] == card)
            ull__ledger_set_soft(job->ledger, i, bytes);
}

/* Asks the processes that have something idle there, in the order of their places. */
static void ask_to_trim(struct daemon *d, struct job *job, int card, uint64_t bytes)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    struct ull__process_view process;
    for (int i = 0; i < spec->device_count; i++) {
        for (int slot = 0; slot < job->view.slots_used && job->card_of[i] == card; slot++) {
            if (bytes == 0 || !ull__ledger_process(job->ledger, slot, &process))
                continue;
            uint64_t part = process.idle_bytes[i] < bytes ? process.idle_bytes[i] : bytes;
            if (part == 0 || !ull__ledger_trim(job->ledger, slot, i, part))
                continue;
            bytes -= part;
            job->trimming[card] = true;
        }
    }
    d->trims++;
    if (!job->trimming[card]) /* there is nobody any more who has any */
        shell_tell(d,
                   &(struct ull__arbiter_event){
                       .kind = ULL_ARB_TRIMMED, .job = job->number, .amount = (uint64_t)card},
                   NULL);
}

/* A process that ended has answered. */
static bool all_have_trimmed(struct job *job, int card)
{
    const struct ull__job_spec *spec = ull__ledger_spec(job->ledger);
    struct ull__process_view process;
    for (int slot = 0; slot < job->view.slots_used; slot++) {
        if (!ull__ledger_process(job->ledger, slot, &process) || process.draining)
            continue;
        for (int i = 0; i < spec->device_count; i++)
            if (job->card_of[i] == card && process.trimming[i])
                return false;
    }
    return true;
}

void shell_trimmed(struct daemon *d, struct job *job)
{
    for (int c = 0; c < d->cards.count; c++) {
        if (!job->trimming[c] || !all_have_trimmed(job, c))
            continue;
        job->trimming[c] = false;
        book_read(d, job); /* what it holds since its answer */
        shell_tell(d,
                   &(struct ull__arbiter_event){
                       .kind = ULL_ARB_TRIMMED, .job = job->number, .amount = (uint64_t)c},
                   NULL);
    }
}

static void refuse(struct daemon *d, struct job *job)
{
    char text[ULL_IPC_TEXT], why[ULL_IPC_TEXT - 100];
    shell_explain(d, job, why, sizeof why);
    snprintf(text, sizeof text, "the request cannot be promised: %s", why);
    job->joined = false;
    job->refused = job->view.state != ULL_JOB_WAITING;
    client_fail(d, &job->run, ULL_E_NO_MEMORY, text);
}

static void obey(struct daemon *d, const struct ull__arbiter_action *action)
{
    struct job *job = book_of_number(d, action->job);
    if (!job || !job->joined)
        return;
    switch (action->kind) {
    case ULL_DO_START:
        client_answer(d, &job->run, &(struct ull__ipc_message){.kind = ULL_IPC_STARTS}, true);
        break;
    case ULL_DO_REFUSE:
        refuse(d, job);
        break;
    case ULL_DO_TRIM:
        ask_to_trim(d, job, action->device, action->bytes);
        break;
    case ULL_DO_BUDGET:
        set_soft(d, job, action->device, action->bytes);
        break;
    case ULL_DO_SPILL:
        ull__ledger_set_flag(job->ledger, ULL_FLAG_SPILL, action->bytes != 0);
        break;
    case ULL_DO_SUSPEND:
        moves_begin(d, job, true);
        break;
    case ULL_DO_RESUME:
        moves_begin(d, job, false);
        break;
    case ULL_DO_GRANT:
    case ULL_DO_DENY:
        answer_wants(job, action->kind == ULL_DO_GRANT);
        break;
    }
}
