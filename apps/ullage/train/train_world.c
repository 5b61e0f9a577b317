/*
 * train_world.c: a training over several ranks: this process, which is rank 0, and others that it forks before anything is open, each
 * with its share of the batch and a budget of its own. Rank 0 alone speaks, saves and has the job; see src/world/world.h for
 * how they meet, and what becomes of the others when one ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "error.h"
#include "train_cmd.h"

/* After a failure, tenths of a second until ranks that do not end by themselves are killed. */
enum { LAST_TENTHS = 100 };

static struct {
    pid_t pids[ULL_WORLD_RANKS]; /* of ranks 1 on, in rank 0 */
    int started;
} others;
static bool follows; /* this process is one of those */

bool train_speaks(const struct train_options *options)
{
    return options->world == NULL || ull__world_rank(options->world) == 0;
}

void train_warn(void *context, const char *message)
{
    (void)context;
    if (!follows) {
        cli_say("%s", message);
    }
}

/* Processors are divided. */
static int threads_each(int ranks)
{
    cpu_set_t allowed;
    int count = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
    return count / ranks > 1 ? count / ranks : 1;
}

static void become_rank(struct train_options *options)
{
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) {
        dup2(nowhere, STDOUT_FILENO);
        close(nowhere);
    }
    follows = true;
    options->output = TRAIN_QUIET;
    options->html = options->trace = options->save_plan = NULL;
}

int train_ranks_begin(struct train_options *options)
{
    int ranks = options->request.devices;
    struct ull_error err;
    if (ranks < 2) {
        return -1;
    }
    options->threads = options->threads > 0 ? options->threads : threads_each(ranks);
    if (ull__world_create(ranks, &options->world, &err) != ULL_OK) {
        cli_say("%s", err.message);
        return EXIT_FAILED;
    }
    fflush(NULL);
    int rank = 0;
    for (int i = 1; i < ranks && rank == 0; ++i) {
        pid_t pid = fork();
        if (pid == 0) {
            rank = i;
        } else if (pid > 0) {
            others.pids[i] = pid;
            others.started = i;
        } else {
            break;
        }
    }
    ull_status status = ull__world_join(options->world, rank, &err);
    if (rank > 0) {
        others.started = 0;
        become_rank(options);
    } else if (status == ULL_OK && others.started < ranks - 1) {
        cli_say("rank %d of %d cannot be started", others.started + 1, ranks);
        ull__world_fail(options->world, "not all ranks could be started");
        return train_ranks_end(options, EXIT_FAILED);
    }
    return status == ULL_OK ? -1 : EXIT_FAILED;
}

/* How a rank ended. -1: it has not. killed: by this process, which is nothing to tell. */
static int ending(int rank, bool waits, bool killed)
{
    int status = 0;
    pid_t got;
    do {
        got = waitpid(others.pids[rank], &status, waits ? 0 : WNOHANG);
    } while (got < 0 && errno == EINTR); /* a signal to stop is one for that rank as well */
    if (got == 0) {
        return -1;
    }
    if (got == others.pids[rank] && WIFSIGNALED(status) && !killed) {
        cli_say("rank %d was ended by signal %d (%s)", rank, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    }
    return got == others.pids[rank] && WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
}

/* Waits for a rank that is to end by itself, after a failure for so long; then it is killed. */
static int end_rank(int rank, bool failed)
{
    int ended = -1;
    for (int tenths = 0; ended < 0 && failed && tenths < LAST_TENTHS; ++tenths) {
        ended = ending(rank, false, false);
        if (ended < 0) {
            nanosleep(&(struct timespec){0, 100000000}, NULL);
        }
    }
    if (ended < 0 && failed) {
        cli_say("rank %d does not end: it is killed", rank);
        kill(others.pids[rank], SIGKILL);
    }
    return ended < 0 ? ending(rank, true, failed) : ended;
}

int train_ranks_end(const struct train_options *options, int code)
{
    for (int i = 1; i <= others.started; ++i) {
        int ended = end_rank(i, code != EXIT_OK);
        code = code == EXIT_OK ? ended : code;
    }
    others.started = 0;
    ull__world_destroy(options->world);
    return code;
}

void train_ranks_fail(const struct train_options *options, const struct ull_error *err)
{
    struct ull__world *world = options->world;
    if (world == NULL) {
        cli_say("%s", err->message);
        return;
    }
    ull__world_fail(world, err->message);
    /* Rank 0 says what happened, unless it is gone, whoever failed first. */
    if (ull__world_rank(world) == 0 || ull__world_gone(world, 0)) {
        cli_say("%s", err->message);
    }
}

#define EMPTY UINT64_C(0xcbf29ce484222325)

static uint64_t hash_of(uint64_t hash, const char *bytes, size_t size)
{
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        size_t left = size - at;
        memcpy(&word, bytes + at, left < sizeof(word) ? left : sizeof(word));
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    return hash;
}

/* All bits that a rank keeps. */
static uint64_t digest(struct ull__session *session)
{
    int count;
    uint64_t hash = EMPTY;
    const struct ull__session_tensor *tensors = ull__session_tensors(session, &count);
    for (int i = 0; i < count; ++i) {
        hash = hash_of(hash, tensors[i].data, tensors[i].bytes);
    }
    return hash;
}

/* --- Pictures that cannot be read --- */

/* Room for one more of a list; false without memory. */
static bool grow(void *list, size_t size, size_t count, size_t *room)
{
    void *old, *made;
    if (count < *room) {
        return true;
    }
    memcpy(&old, list, sizeof(old));
    made = realloc(old, (2 * count + 8) * size);
    if (made != NULL) {
        *room = 2 * count + 8;
        memcpy(list, &made, sizeof(made));
    }
    return made != NULL;
}

/* By rank 0: an order of pictures is drawn anew each epoch, so several ranks may meet the same one. */
static void tell(struct training *training, const struct train_broken *broken)
{
    uint64_t hash = hash_of(EMPTY, broken->text, strlen(broken->text));
    for (size_t i = 0; i < training->told_count; ++i) {
        if (training->told[i] == hash) {
            return;
        }
    }
    if (training->options->world != NULL &&
        grow(&training->told, sizeof(hash), training->told_count, &training->told_room)) {
        training->told[training->told_count++] = hash;
    }
    training->broken += broken->part == ULL_DATA_TRAIN;
    cli_say("%s", broken->text);
}

static void note(struct training *training, enum ull__data_part part, const char *message)
{
    struct train_broken broken = {.part = part};
    snprintf(broken.text, sizeof(broken.text), "%s", message);
    if (train_speaks(training->options)) {
        tell(training, &broken);
    } else if (grow(&training->untold, sizeof(broken), training->untold_count,
                    &training->untold_room)) {
        training->untold[training->untold_count++] = broken;
    }
}

void train_warn_train(void *context, const char *message)
{
    note(context, ULL_DATA_TRAIN, message);
}

void train_warn_eval(void *context, const char *message)
{
    note(context, ULL_DATA_EVAL, message);
}

/* Rank 0 tells of what the others have met: at most `most` each. */
static ull_status gather_broken(struct training *training, uint64_t most, struct ull_error *err)
{
    static const struct train_broken none;
    struct ull__world *world = training->options->world;
    ull_status status = ULL_OK;
    for (uint64_t i = 0; i < most && status == ULL_OK; ++i) {
        struct train_broken all[ULL_WORLD_RANKS];
        const struct train_broken *own = i < training->untold_count ? &training->untold[i] : &none;
        status = ull__world_gather(world, own, sizeof(*own), all, err);
        for (int j = 1; j < ull__world_ranks(world) && status == ULL_OK; ++j) {
            if (train_speaks(training->options) && all[j].text[0] != '\0') {
                tell(training, &all[j]);
            }
        }
    }
    training->untold_count = 0;
    return status;
}

/* --- */

ull_status train_ranks_compare(struct training *training, struct ull_error *err)
{
    struct ull__world *world = training->options->world;
    struct ull__session_info info;
    if (world == NULL) {
        return ULL_OK;
    }
    ull__session_info(training->session, &info);
    struct train_rank own = {digest(training->session), info.predicted_peak_bytes,
                             info.measured_peak_bytes, training->outside_bytes,
                             training->untold_count};
    uint64_t most = 0;
    ull_status status = ull__world_gather(world, &own, sizeof(own), training->ranks, err);
    for (int i = 1; i < ull__world_ranks(world) && status == ULL_OK; ++i) {
        most = training->ranks[i].untold > most ? training->ranks[i].untold : most;
        if (training->ranks[i].digest != training->ranks[0].digest) {
            status = ull__fail(err, ULL_E_INVALID,
                               "step %llu: the weights of rank %d are not those of rank 0",
                               (unsigned long long)training->seen, i);
        }
    }
    return status == ULL_OK ? gather_broken(training, most, err) : status;
}

ull_status train_ranks_agree(struct training *training, uint64_t *budget, struct ull_error *err)
{
    struct ull__world *world = training->options->world;
    struct {
        uint64_t budget, untold;
        int64_t stop;
    } own = {*budget, training->untold_count, train_stop}, all[ULL_WORLD_RANKS];
    if (world == NULL) {
        training->stops = train_stop != 0;
        return ULL_OK;
    }
    /* By what was told alone: a signal that comes meanwhile counts after the next step, on all ranks. */
    uint64_t most = 0;
    ull_status status = ull__world_gather(world, &own, sizeof(own), all, err);
    for (int i = 0; i < ull__world_ranks(world) && status == ULL_OK; ++i) {
        most = all[i].untold > most ? all[i].untold : most;
        training->stops = training->stops || all[i].stop != 0;
        train_stop = train_stop != 0 ? train_stop : (sig_atomic_t)all[i].stop;
    }
    *budget = status == ULL_OK ? all[0].budget : 0;
    return status == ULL_OK ? gather_broken(training, most, err) : status;
}
