/*
 * kills.h: what the files of the test of kills share.
 *
 *   main.c    the worlds side by side, and what they found
 *   world.c   one world: its folders, its card, its daemon, its processes
 *   jobs.c    jobs: their starts, their ledgers, their ends
 *   strike.c  a round: a moment, a victim
 *   left.c    what must not be left when all is over
 *
 * A world has a card, a folder of ledgers, a daemon and a state folder of its own. It is one process with one thread, and
 * the reaper of everything that it started, so that nothing gets lost and the number of no child is another's before it was
 * waited for. Everything that may go wrong ends by fail(), which does not return.
 */
#ifndef KILLS_H
#define KILLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "control.h"
#include "ledger.h"
#include "shared.h"

enum { JOBS = 64, CLIENTS = 64, PATH = 300, WHY = 16384 };
/*
 * The card, what a context takes, and what the daemon may keep in the host's memory: enough for everybody, since where it is full, too,
 * those that wait for each other's room wait long; or as much as one job needs.
 */
#define CARD "28MiB"
#define CONTEXT "2MiB"
#define MUCH "1GiB"
#define ENOUGH "8MiB"
#define MS 1000000ull
#define SECOND 1000000000ull

/* Whom a round kills. */
#define VICTIM_MAP(X)                                                                              \
    X(RUN, "ullage run")                                                                           \
    X(COMMAND, "a command")                                                                        \
    X(BOTH, "both at once")                                                                        \
    X(DAEMON, "the daemon")                                                                        \
    X(WORKER, "its workers")                                                                       \
    X(CLIENT, "a client")                                                                          \
    X(ALL, "everything")
#define VICTIM_ID(id, text) V_##id,
enum victim { VICTIM_MAP(VICTIM_ID) VICTIMS };

/* Where the job that a round is about was at that moment. */
#define MOMENT_MAP(X)                                                                              \
    X(START, "starting")                                                                           \
    X(QUEUE, "queued")                                                                             \
    X(RUNNING, "running")                                                                          \
    X(WANTING, "waiting for room")                                                                 \
    X(SUSPENDING, "suspending")                                                                    \
    X(SUSPENDED, "suspended")                                                                      \
    X(RESUMING, "resuming")                                                                        \
    X(ENDING, "ending")
#define MOMENT_ID(id, text) M_##id,
enum moment { MOMENT_MAP(MOMENT_ID) MOMENTS };

/* What all worlds write into together. */
struct tally {
    atomic_int rounds_left;
    atomic_bool failed;
    char why[WHY]; /* by whoever set `failed` */
    atomic_uint struck[VICTIMS][MOMENTS], missed[VICTIMS];
    atomic_uint jobs, right, refused, daemons, clients, checks;
    _Atomic uint64_t slowest_ns; /* that it took until nothing was left */
    char slowest[WHY];           /* what was left until then */
    _Atomic uint64_t grown; /* bytes of its own that a daemon had more than at its first check */
};

struct job {
    char name[24];
    pid_t run; /* `ullage run`; 0: it was waited for */
    int status;
    bool run_killed, command_killed;
    bool must_be_right; /* its command had begun, and is not to be killed */
    bool not_asked;     /* it was about to ask a daemon for a place in the queue when that died */
    bool unserved;      /* no daemon was there for a while: it may be refused what it wants */
    struct ull__ledger *ledger; /* NULL: not seen yet */
    uint64_t resume_ns;         /* when somebody was last asked to bring it back */
};

struct client {
    pid_t pid;
    const struct job *job;
};

struct world {
    int number;
    struct tally *tally;
    uint64_t random;
    char folder[PATH], config[PATH], ledgers[PATH], state[PATH], cards[PATH], socket[PATH],
        out[PATH], log[PATH];
    struct fake_shared *card;
    struct job jobs[JOBS]; /* of this batch */
    int job_count, named;
    struct client clients[CLIENTS];
    int client_count;
    pid_t daemon;              /* 0: none */
    long log_size;             /* of what those before it said */
    bool ready;                /* it serves */
    uint64_t daemon_starts_ns; /* when the next one shall */
    int daemon_files;          /* descriptors of one that has nothing to do */
    uint64_t daemon_bytes;     /* of its own, at its first check */
};

/* --- main.c */
void fail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
extern const char *const victim_names[], *const moment_names[];

/* --- world.c */
/* Also of the daemon that runs, if one does. */
void configure(struct world *w, const char *host_memory);
void world_open(struct world *w, struct tally *tally, const char *folder, int number, uint64_t seed);
uint64_t now_ns(void);
unsigned int any(struct world *w, unsigned int below);
void nap(uint64_t ns);
/* Waits for whoever is over, starts the daemon when it is time, looks at the ledgers. */
void look(struct world *w);
/* Looks again and again for so long. */
void go_on(struct world *w, uint64_t ns);
/* Its output goes to the end of the file. */
pid_t spawn(struct world *w, const char *output, const char *const argv[]);
pid_t start_client(struct world *w, const struct job *job, const char *verb, const char *argument);
void kill_daemon(struct world *w);
void need_daemon(struct world *w);
/* The children of a process, at most `most` of them. */
int children_of(pid_t pid, pid_t *pids, int most);
/* Kills a child of `parent`, or of this process if that is dead already, and nobody else. */
bool kill_child(pid_t pid, pid_t parent);
bool is_called(pid_t pid, const char *name);

/* --- jobs.c */
/* Any, one that has to wait in the queue for most of the card, or one that ends soon. */
enum kind { K_ANY, K_QUEUED, K_SHORT };
struct job *start_job(struct world *w, enum kind kind);
pid_t command_of(const struct job *job);
void find_ledgers(struct world *w);
enum moment moment_of(const struct job *job);
/* Until all are over, those too that a client suspended; then what they said is judged. */
void end_jobs(struct world *w);

/* --- strike.c */
void play_round(struct world *w);

/* --- left.c */
void check_left(struct world *w);
/* Two jobs that need all of the card, and all of the host memory that the daemon may use. */
void check_room(struct world *w);
/* The daemon ends when it is told to, and leaves nothing. */
void check_end(struct world *w);

#endif
