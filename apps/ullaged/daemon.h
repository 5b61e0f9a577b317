/*
 * daemon.h: what the files of the daemon share. One thread owns all of it; the others (cards.c, web.c) have
 * locks or atomics of their own.
 *
 *   main.c      sockets, signals and timers: the loop
 *   settings.c  what it was told
 *   cards.c     the cards, and what others use of them
 *   book.c      the jobs, as their ledgers show them
 *   shell.c     the arbiter's events and actions
 *   moves.c     what it wants moved, and what became of it
 *   wishes.c    what people want
 *   worker.c    processes that move memory
 *   clients.c   who is connected
 *   others.c    other daemons
 *   web.c       page and metrics; state.c, metrics.c what they show; history.c the past
 */
#ifndef ULLAGED_DAEMON_H
#define ULLAGED_DAEMON_H

#include "arbiter.h"
#include "cards.h"
#include "control.h"
#include "settings.h"
#include "worker.h"

enum { JOBS = ULL_ARBITER_JOBS, JOBS_OF_USER = 512, WORKERS = 16 };

struct client;

/* A person's wish that is not carried out yet; `number` is the client's. */
struct wish {
    struct client *client; /* NULL: nobody waits for an answer */
    uint32_t number;
    unsigned int expected_s; /* how long the job will be away; 0: it did not say */
};

struct job {
    uint64_t number; /* the arbiter's name for it */
    uint32_t uid;
    char path[ULL_PATH_TEXT];
    struct ull__ledger *ledger;
    struct ull__job_view view;
    int card_of[ULL_MAX_DEVICES]; /* by the ledger's devices; -1: not a card of ours */
    bool present;                 /* its file was there at the last look */
    bool nested;                  /* inside another job, where it counts */
    bool joined;                  /* the arbiter knows it */
    bool comes_back;              /* once all are known that were there before */
    bool foreign;                 /* another daemon serves it */
    bool refused;                 /* runs, but cannot be promised anything: one of the others */
    bool changed;                 /* to be told by USE */
    bool wants;                   /* the arbiter was told that it waits for room */
    bool dead;                    /* its `ullage run` is gone and so are its processes */
    bool automatic;
    uint64_t retry_ns;  /* not to be joined, or tidied up after, before */
    uint64_t missed_ns; /* since when its file is not there; 0: it is */
    uint64_t odd_ns;    /* since when its ledger and the arbiter do not agree; 0: they do */
    /* By card; held is what is in its memory. */
    uint64_t held[CARDS], evicted[CARDS], stays[CARDS], want[CARDS], budget[CARDS], told_want[CARDS];
    uint64_t peak[CARDS], spilled[CARDS];
    uint64_t idle[CARDS]; /* of held: it could give back at once */
    bool trimming[CARDS]; /* was told to, and has not answered */
    uint64_t want_told_ns;
    struct wish run, suspend, resume;
    unsigned int away_s; /* what the person who suspended it said of that */
    /* Its worker, or that it shall have one as soon as there is a place, to move it out or back. */
    bool moving, wants_worker, wants_out;
    enum worker_task task;
    pid_t worker;
    int from;
    struct worker_report report;
    unsigned int failures; /* to move, one after the other */
};

struct daemon {
    struct settings settings;
    struct cards cards;
    struct ull__arbiter *arbiter;
    struct job *jobs[JOBS];
    int job_count;
    uint64_t next_number;
    bool told_cards;
    bool blind; /* the last look at the folders of ledgers failed for want of a descriptor */
    uint64_t told_blind_ns;
    int workers;
    int epoll;
    uint64_t swap_bytes[2], swap_ns[2]; /* out, in */
    uint64_t steps, clients_ever, malformed, trims;
};

uint64_t now_ns(void);

/* --- book.c -------------------------------------------------------------------------------------------- */

/* Looks at all ledgers: new jobs, ended ones, what each holds and wants. Tells the arbiter. */
void book_look(struct daemon *d);
/* Only what they hold, before a decision. */
void book_look_again(struct daemon *d);
/* Reads one job's ledger; false if that is gone. */
bool book_read(struct daemon *d, struct job *job);
struct job *book_find(struct daemon *d, const char *id);
struct job *book_of_number(struct daemon *d, uint64_t number);
/* The same for jobs that go together (`run --group`); 0: it is in none. */
uint64_t book_group(const struct job *job);
/* All that is open goes; the jobs go on. */
void book_close(struct daemon *d);

/* --- shell.c ------------------------------------------------------------------------------------------- */

/* Tells the arbiter, after what jobs hold by now, and does what it says. */
ull_status shell_tell(struct daemon *d, const struct ull__arbiter_event *event,
                      struct ull_error *err);
/* The job joins, its command started or not. */
void shell_join(struct daemon *d, struct job *job);
void shell_leave(struct daemon *d, struct job *job);
/* Tells what became of trims, once all processes that were asked have answered. */
void shell_trimmed(struct daemon *d, struct job *job);
/* What stands in a job's way: who holds what, in words. */
void shell_explain(struct daemon *d, const struct job *job, char *text, size_t size);

/* --- moves.c ------------------------------------------------------------------------------------------- */

/* The arbiter wants it out, or back; what becomes of that is told the arbiter, and who asked. */
void moves_begin(struct daemon *d, struct job *job, bool out);
/* Whoever wanted it out does not any more: what was moved comes back, and what was not begun is not. */
void moves_stop(struct daemon *d, struct job *job);
/* A worker of the job's said something, or ended. */
void moves_worker(struct daemon *d, struct job *job);

/* --- wishes.c ------------------------------------------------------------------------------------------ */

/* A person's wish; its answer comes later, unless there is an error. */
ull_status wish_suspend(struct daemon *d, struct job *job, struct wish wish, struct ull_error *err);
ull_status wish_resume(struct daemon *d, struct job *job, struct wish wish, struct ull_error *err);
/* The client is gone: what it waited for and may be taken back is. */
void wishes_forget(struct daemon *d, const struct client *client);

/* --- clients.c ----------------------------------------------------------------------------------------- */

/* Answers a wish; `last`: and it is over. */
void client_answer(struct daemon *d, struct wish *wish, const struct ull__ipc_message *answer,
                   bool last);
void client_fail(struct daemon *d, struct wish *wish, ull_status status, const char *text);
bool client_may(const struct daemon *d, const struct client *client, const struct job *job);

#endif
