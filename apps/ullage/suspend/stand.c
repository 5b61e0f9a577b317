/* stand.c: see stand.h. */
#include "stand.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cli.h"
#include "error.h"

#define MS 1000000ull
enum {
    LOOK_US = 300,
    NOTHING_MS = 300, /* after which it is anybody's turn, */
    AGAIN_MS = 20,    /* and then every so often, */
    BESIDE_MOST = 16, /* times that helpers come in a row before others may, too; */
    SETTLE_MS =
        20 /* and from then on who comes to rest waits for the others, who may be about to, too */
};

struct stand {
    struct ull__ledger *const *ledgers;
    int count;
    const struct stand_options *options;
    uint64_t *numbers;
    uint64_t changed_ns; /* when somebody last came in, or came to rest, or not any more */
    uint64_t let_in_ns;  /* 0: what it led to is known */
    int still_before;
    bool anybody;       /* nothing changed: it is anybody's turn */
    bool helped;        /* it was before: what they wait for is not only the others' launches */
    uint64_t beside_ns; /* when helpers were last let in, */
    int beside;         /* and how often since somebody was at rest */
    char way[ULL_TROUBLE_TEXT + 120]; /* what was in the way, at the last look */
};

/* What all of them together are at. */
struct sight {
    int processes, still, at_it;
    bool took;
};

static bool next(struct ull__ledger *ledger, int *slot, struct ull__process_view *process)
{
    for (; *slot < ULL_MAX_SLOTS; ++*slot)
        if (ull__ledger_process(ledger, *slot, process) && !process->draining && process->gated)
            return true;
    return false;
}

int stand_count(struct ull__ledger *const *ledgers, int count)
{
    struct ull__process_view process;
    int sum = 0;
    for (int l = 0; l < count; l++)
        for (int slot = 0; next(ledgers[l], &slot, &process); slot++)
            sum++;
    return sum;
}

/* Who answered already is out, or cannot be moved. */
static ull_status look_at(struct stand *s, struct sight *sight, struct ull_error *err)
{
    struct ull__process_view process;
    *sight = (struct sight){0};
    for (int l = 0; l < s->count; l++) {
        for (int slot = 0; next(s->ledgers[l], &slot, &process); slot++) {
            uint32_t says = ull__ledger_stands(s->ledgers[l], slot, s->numbers[l]);
            bool answered = process.done >= s->numbers[l];
            if (answered && process.trouble[0])
                return ull__fail(err, ULL_E_DRIVER, "process %u (%s) could not be moved out: %s",
                                 process.pid, process.command, process.trouble);
            bool still = answered || (says & ULL_STANDS_STILL) != 0;
            sight->processes++;
            sight->at_it += !answered && (!(says & ULL_STANDS_HERE) || (says & ULL_STANDS_AT_IT));
            sight->still += still && !(says & ULL_STANDS_AT_IT);
            sight->took |= (says & ULL_STANDS_TOOK) != 0;
            if (!answered && !(says & ULL_STANDS_HERE))
                snprintf(s->way, sizeof s->way, "process %u (%s) does not answer", process.pid,
                         process.command);
            else if (!still && process.trouble[0])
                snprintf(s->way, sizeof s->way, "process %u (%s): %s", process.pid, process.command,
                         process.trouble);
        }
    }
    return ULL_OK;
}

/* Those that are at rest, those that are not, or all. */
enum whom { AT_REST = 1, NOT_AT_REST = 2 };

/*
 * Where nobody came in the last time, the next time is once all have answered: else those whose devices are at rest and whose
 * threads do something else would be let in by turns, so that there never is a moment in which all of them are seen to be.
 */
static void let_in(const struct stand *s, const struct sight *sight, int whom,
                   enum ull__let_in threads)
{
    struct ull__process_view process;
    for (int l = 0; l < s->count; l++) {
        for (int slot = 0; next(s->ledgers[l], &slot, &process); slot++) {
            uint32_t says = ull__ledger_stands(s->ledgers[l], slot, s->numbers[l]);
            bool ready = (says & ULL_STANDS_HERE) && !(says & ULL_STANDS_AT_IT) &&
                         ((says & ULL_STANDS_TOOK) || sight->at_it == 0);
            if (ready && (whom & (says & ULL_STANDS_STILL ? AT_REST : NOT_AT_REST)))
                ull__ledger_let_in(s->ledgers[l], slot, s->numbers[l], threads);
        }
    }
}

/*
 * Who is not at rest may wait for the call of a thread that helps, as one that copies for a collective does: such a thread
 * never launches anything, so letting it in takes nobody further ahead. All are let in where nobody gets further and no helper
 * came, or helpers never end.
 */
static void let_helpers_in(struct stand *s, const struct sight *sight, uint64_t now)
{
    bool came = sight->took && s->beside < BESIDE_MOST;
    bool all = s->anybody && s->beside > 0 && !came;
    if (now <= s->beside_ns + AGAIN_MS * MS || (s->anybody && sight->at_it > 0))
        return;
    let_in(s, sight, all ? AT_REST | NOT_AT_REST : NOT_AT_REST, all ? ULL_LET_ANY : ULL_LET_BESIDE);
    s->beside = all || sight->still > 0 ? 0 : s->beside + 1;
    s->let_in_ns = s->beside_ns = now;
}

static void command(struct stand *s, enum ull__wanted wanted)
{
    for (int l = 0; l < s->count; l++) {
        if (wanted == ULL_WANT_STAND_BY)
            ull__ledger_stand(s->ledgers[l]);
        s->numbers[l] = ull__ledger_command(s->ledgers[l], wanted);
    }
}

/* One look, and what follows from it. True: all are at rest. */
static ull_status turn(struct stand *s, bool *rest, struct ull_error *err)
{
    struct sight sight;
    uint64_t now = cli_monotonic_ns();
    ull_status status = look_at(s, &sight, err);
    *rest = status == ULL_OK && sight.at_it == 0 && sight.still == sight.processes;
    if (status != ULL_OK || *rest)
        return status;
    if (sight.still != s->still_before ||
        (s->let_in_ns && sight.at_it == 0 && sight.took && s->beside < BESIDE_MOST))
        s->changed_ns = now;
    s->anybody =
        sight.still > s->still_before ? false : s->anybody || now > s->changed_ns + NOTHING_MS * MS;
    s->still_before = sight.still;
    s->helped |= s->anybody;
    bool settled = !s->helped || now > s->changed_ns + SETTLE_MS * MS;
    if (!s->anybody && sight.still > 0 && settled) {
        let_in(s, &sight, AT_REST, ULL_LET_ANY);
        s->let_in_ns = now;
    }
    let_helpers_in(s, &sight, now);
    return ULL_OK;
}

static ull_status wait_for_rest(struct stand *s, struct ull_error *err)
{
    uint64_t until = cli_monotonic_ns() + s->options->timeout_s * 1000 * MS;
    s->changed_ns = cli_monotonic_ns();
    for (;;) {
        bool rest;
        ull_status status = turn(s, &rest, err);
        if (status != ULL_OK || rest)
            return status;
        if (s->options->stopped && s->options->stopped(s->options->data))
            return ull__fail(err, ULL_E_SYSTEM, "it was stopped");
        if (cli_monotonic_ns() > until)
            return ull__fail(err, ULL_E_SYSTEM,
                             "its processes did not come to rest together in %u s%s%s",
                             s->options->timeout_s, s->way[0] ? ": " : "", s->way);
        for (int l = 0; l < s->count; l++)
            ull__ledger_stand(s->ledgers[l]);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_US * 1000}, NULL);
    }
}

ull_status stand_by(struct ull__ledger *const *ledgers, int count,
                    const struct stand_options *options, struct ull_error *err)
{
    struct stand s = {.ledgers = ledgers, .count = count, .options = options};
    s.numbers = calloc((size_t)count, sizeof *s.numbers);
    if (!s.numbers)
        return ull__fail(err, ULL_E_SYSTEM, "no memory");
    command(&s, ULL_WANT_STAND_BY);
    ull_status status = wait_for_rest(&s, err);
    if (status != ULL_OK)
        command(&s, ULL_WANT_RESIDENT);
    free(s.numbers);
    return status;
}
