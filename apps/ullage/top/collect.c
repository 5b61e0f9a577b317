/*
 * collect.c: see collect.h. What a round adds to the last one (the course of what is held) is kept in tracks,
 * found by job and process; all else is read anew.
 */
#include "collect.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "collect_private.h"

struct collector *collector_create(void)
{
    return calloc(1, sizeof(struct collector));
}

void collector_destroy(struct collector *collector)
{
    if (!collector)
        return;
    if (collector->has_gpus)
        gpus_close(&collector->gpus);
    jobs_free(&collector->jobs);
    who_finish(&collector->who);
    free(collector->tracks);
    free(collector);
}

void collect__put(char *to, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(to, size, format, args);
    va_end(args);
}

/* --- courses ----------------------------------------------------------------------------------------- */

static bool is_track(const struct track *track, const char *id, uint32_t account, uint32_t pid,
                     uint64_t ticks)
{
    return track->pid == pid && track->start_ticks == ticks && track->account == account &&
           strcmp(track->id, id) == 0;
}

/* Rows come in the same order each round, so that the next one is mostly where the last one was. */
static struct track *find_track(struct collector *collector, const char *id, uint32_t account,
                                uint32_t pid, uint64_t ticks)
{
    for (int i = 0; i < collector->track_count; i++) {
        int at = (collector->track_hint + i) % collector->track_count;
        if (is_track(&collector->tracks[at], id, account, pid, ticks)) {
            collector->track_hint = at + 1;
            return &collector->tracks[at];
        }
    }
    if (collector->track_count == collector->track_capacity) {
        int capacity = collector->track_capacity ? 2 * collector->track_capacity : 64;
        struct track *grown = realloc(collector->tracks, (size_t)capacity * sizeof *grown);
        if (!grown)
            return NULL;
        collector->tracks = grown;
        collector->track_capacity = capacity;
    }
    struct track *track = &collector->tracks[collector->track_count++];
    memset(track, 0, sizeof *track);
    collect__put(track->id, sizeof track->id, "%s", id);
    track->account = account;
    track->pid = pid;
    track->start_ticks = ticks;
    return track;
}

void collect__follow(struct round *round, const char *id, uint32_t account, uint32_t pid,
                     uint64_t ticks, uint64_t held, struct trend *trend)
{
    if (held == SAMPLE_UNKNOWN)
        return;
    struct track *track = find_track(round->collector, id, account, pid, ticks);
    if (!track)
        return;
    if (track->round != round->collector->round)
        trend_add(&track->trend, held);
    track->round = round->collector->round;
    *trend = track->trend;
}

static void forget_tracks(struct collector *collector)
{
    int kept = 0;
    for (int i = 0; i < collector->track_count; i++)
        if (collector->tracks[i].round == collector->round)
            collector->tracks[kept++] = collector->tracks[i];
    collector->track_count = kept;
    collector->track_hint = 0;
}

/* --- a round ------------------------------------------------------------------------------------------ */

struct sample *collector_round(struct collector *collector)
{
    uint64_t began = cli_monotonic_ns();
    struct round round = {.collector = collector, .sample = sample_create()};
    struct timespec now;
    if (!round.sample)
        return NULL;
    collector->round++;
    who_begin_round(&collector->who);
    collect__ask_driver(collector);
    collect__put(round.sample->no_cards, sizeof round.sample->no_cards, "%s", collector->no_cards);
    round.failed = !jobs_open(&collector->jobs, collector->has_gpus ? &collector->gpus.nvml : NULL);
    if (!round.failed) {
        collect__cards(&round);
        collect__members(&round);
        collect__listed(&round);
        collect__jobs(&round);
        collect__sum_up_devices(round.sample);
    }
    free(round.members);
    free(round.listed);
    who_end_round(&collector->who);
    forget_tracks(collector);
    clock_gettime(CLOCK_REALTIME, &now);
    round.sample->unix_ns = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
    round.sample->time_ns = cli_monotonic_ns();
    round.sample->collect_ns = round.sample->time_ns - began;
    round.sample->number = collector->round;
    if (round.failed) {
        sample_destroy(round.sample);
        return NULL;
    }
    return round.sample;
}
