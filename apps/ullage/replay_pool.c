/*
 * replay_pool.c: see replay_pool.h.
 *
 * A line of the trace is one request or one free; nothing is copied or computed, so on the host the
 * pages are never touched and the times are the pool's own. Speed is taken over a whole repetition with
 * two looks at the clocks. The latencies are from repetitions of their own after it, in which each
 * operation is timed and the usual time of reading the clock taken off.
 *
 * A request that is refused is counted and left out, with its free; the rest goes on.
 */
#include "replay_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "error.h"
#include "ullage/record.h"

/* Streams of the trace share these if there are more; each takes memory of a card. */
enum { MAX_STREAMS = 64 };

/* Repetitions that are timed; of a trace that is longer than that, one. */
enum { LATENCY_ROUNDS = 5, LATENCY_MEDIANS = 4000000 };

struct pool_player {
    const struct replay_pool_request *request;
    const struct trace *trace;
    struct replay_pool_result *result;
    struct ull__device *device;
    struct ull_pool *pool;
    struct ull_record *record; /* NULL: not asked for; then these two as well */
    struct ull_alloc *over_pool, *recorded;
    void **addresses;       /* per slot of the trace; NULL where nothing is live */
    void **slot_streams;    /* per slot: where it was allocated */
    uint8_t *event_streams; /* per event: which of `streams` */
    void *streams[MAX_STREAMS];
    unsigned int stream_count;
    uint64_t *latencies; /* per event; NULL: not taken */
};

/* --- the device -------------------------------------------------------------------------------------- */

/* So large that never the device is what is too small, without a page of it being touched. */
static uint64_t host_bytes(const struct pool_player *player)
{
    uint64_t bytes = (uint64_t)96 << 30, peak = player->trace->peak_bytes;
    if (player->request->memory.bytes > bytes)
        bytes = player->request->memory.bytes;
    return peak < UINT64_MAX >> 4 && 2 * peak > bytes ? 2 * peak : bytes;
}

static ull_status open_device(struct pool_player *player, struct ull_error *err)
{
    int wanted = player->request->device;
    ull_status status = ULL_E_NO_DEVICE;
    if (wanted != REPLAY_DEVICE_HOST) {
        int ordinal = wanted == REPLAY_DEVICE_ANY ? 0 : wanted;
        status = ull__device_cuda_create(ordinal, &player->device, err);
        if (status != ULL_E_NO_DEVICE || wanted != REPLAY_DEVICE_ANY) {
            snprintf(player->result->device, sizeof player->result->device, "cuda:%d", ordinal);
            return status;
        }
    }
    snprintf(player->result->device, sizeof player->result->device, "host");
    return ull__device_host_create(host_bytes(player), 0, &player->device, err);
}

static ull_status open_pool(struct pool_player *player, struct ull_error *err)
{
    const struct ull_size *memory = &player->request->memory;
    struct ull_pool_options options;
    uint64_t free_bytes, total;
    ull_status status = player->device->ops->memory(player->device, &free_bytes, &total);
    if (status != ULL_OK)
        return ull__fail(err, status, "%s does not say how much memory it has",
                         player->result->device);
    ull_pool_options_init(&options);
    options.limit =
        memory->percent > 0 ? (uint64_t)((double)total / 100 * memory->percent) : memory->bytes;
    options.growth = !player->request->preallocate;
    /* What is not free cannot be taken at the start. */
    if (!options.growth && options.limit == 0)
        options.limit = free_bytes;
    status = ull_pool_create(player->device, &options, &player->pool, err);
    if (status != ULL_OK)
        return status;
    ull_pool_policy(player->pool, &options);
    player->result->limit_bytes = options.limit;
    player->result->growth = options.growth;
    return ULL_OK;
}

/* The streams of the trace, in the order in which they appear; 0 is the default stream. */
static ull_status open_streams(struct pool_player *player, struct ull_error *err)
{
    uint64_t names[MAX_STREAMS] = {0};
    player->stream_count = 1;
    for (size_t i = 0; i < player->trace->count; i++) {
        uint64_t name = player->trace->events[i].stream;
        unsigned int k = 0;
        while (k < player->stream_count && names[k] != name)
            k++;
        if (k == MAX_STREAMS)
            k = (unsigned int)(name % MAX_STREAMS);
        if (k == player->stream_count) {
            ull_status status =
                player->device->ops->stream_create(player->device, &player->streams[k]);
            if (status != ULL_OK)
                return ull__fail(err, status, "%s gives no stream for the trace's",
                                 player->result->device);
            names[k] = name;
            player->stream_count++;
        }
        player->event_streams[i] = (uint8_t)k;
    }
    return ULL_OK;
}

/* --- playing ----------------------------------------------------------------------------------------- */

static void note_failure(struct pool_player *player, size_t i, void *stream)
{
    struct replay_pool_result *result = player->result;
    struct ull_request request = {.bytes = player->trace->events[i].size, .stream = stream};
    struct ull_refusal refusal;
    void *address;
    result->failures++;
    if (result->line)
        return;
    result->line = i + 2;
    snprintf(result->refusal, sizeof result->refusal, "refused");
    /* Once more, to hear why. */
    if (ull_pool_request(player->pool, &request, &refusal, &address) == ULL_E_NO_MEMORY)
        ull_refusal_text(&refusal, result->refusal, sizeof result->refusal);
    else
        ull_pool_free(player->pool, address, stream);
}

static ull_status allocate(struct pool_player *player, uint64_t bytes, void *stream, void **address)
{
    if (player->recorded)
        return ull_alloc_allocate(player->recorded, bytes, stream, address);
    return ull_pool_allocate(player->pool, bytes, stream, address);
}

static void give_back(struct pool_player *player, void *address, void *stream)
{
    if (player->recorded)
        ull_alloc_free(player->recorded, address, stream);
    else
        ull_pool_free(player->pool, address, stream);
}

static inline void play_event(struct pool_player *player, size_t i)
{
    const struct trace_event *event = &player->trace->events[i];
    void **address = &player->addresses[event->slot];
    if (event->allocates) {
        void *stream = player->streams[player->event_streams[i]];
        player->slot_streams[event->slot] = stream;
        if (allocate(player, event->size ? event->size : 1, stream, address) != ULL_OK) {
            *address = NULL;
            note_failure(player, i, stream);
        }
    } else {
        give_back(player, *address, player->slot_streams[event->slot]);
        *address = NULL;
    }
}

static void play(struct pool_player *player)
{
    size_t count = player->trace->count;
    if (!player->latencies) {
        for (size_t i = 0; i < count; i++)
            play_event(player, i);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t before = cli_monotonic_ns();
        play_event(player, i);
        player->latencies[i] = cli_monotonic_ns() - before;
    }
}

static void free_leftovers(struct pool_player *player)
{
    for (uint32_t slot = 0; slot < player->trace->slots; slot++) {
        give_back(player, player->addresses[slot], player->slot_streams[slot]);
        player->addresses[slot] = NULL;
    }
}

/* --- latencies --------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* What two readings of the clock are apart, as a rule. */
static uint64_t clock_ns(void)
{
    uint64_t apart[1001];
    for (int i = 0; i < 1001; i++) {
        uint64_t before = cli_monotonic_ns();
        apart[i] = cli_monotonic_ns() - before;
    }
    qsort(apart, 1001, sizeof *apart, by_value);
    return apart[500];
}

static struct replay_latency percentiles(uint64_t *ns, size_t count)
{
    if (count == 0)
        return (struct replay_latency){0};
    qsort(ns, count, sizeof *ns, by_value);
    return (struct replay_latency){.p50 = ns[count / 2],
                                   .p99 = ns[count - 1 - count / 100],
                                   .p999 = ns[count - 1 - count / 1000],
                                   .max = ns[count - 1]};
}

static void fill_buckets(uint64_t *buckets, const uint64_t *ns, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned int bucket = 0;
        while (bucket + 1 < REPLAY_BUCKETS && ns[i] > (uint64_t)1 << bucket)
            bucket++;
        buckets[bucket]++;
    }
}

/* What the pool does comes again in each repetition, an interrupt or another program's turn does not. */
static void fill_medians(uint64_t *median, const uint64_t *all, size_t count, size_t rounds)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t of_one[LATENCY_ROUNDS];
        for (size_t round = 0; round < rounds; round++)
            of_one[round] = all[round * count + i];
        qsort(of_one, rounds, sizeof *of_one, by_value);
        median[i] = of_one[rounds / 2];
    }
}

static void play_timed(struct pool_player *player, uint64_t *all, size_t count, size_t rounds)
{
    uint64_t clock = clock_ns();
    for (size_t round = 0; round < rounds; round++) {
        player->latencies = all + round * count;
        play(player);
        free_leftovers(player);
    }
    player->latencies = NULL;
    for (size_t i = 0; i < rounds * count; i++)
        all[i] = all[i] > clock ? all[i] - clock : 0;
}

static ull_status take_latencies(struct pool_player *player, struct ull_error *err)
{
    struct replay_pool_result *result = player->result;
    size_t count = player->trace->count, rounds = count <= LATENCY_MEDIANS ? LATENCY_ROUNDS : 1;
    uint64_t failures = result->failures, line = result->line;
    uint64_t *all = calloc(count ? rounds * count : 1, sizeof *all);
    uint64_t *median = calloc(count ? count : 1, sizeof *median);
    if (all && median) {
        play_timed(player, all, count, rounds);
        fill_medians(median, all, count, rounds);
        fill_buckets(result->latency_buckets, median, count);
        result->latency_ns = percentiles(median, count);
        result->latency_once_ns = percentiles(all, rounds * count);
    }
    bool timed = all && median;
    free(all);
    free(median);
    result->failures = failures;
    result->line = line;
    return timed ? ULL_OK
                 : ull__fail(err, ULL_E_NO_MEMORY, "no memory to time %zu operations", count);
}

/* --- the record --------------------------------------------------------------------------------------- */

/* What is recorded is what --repeat asks for, without the repetitions in which latencies are taken. */
static ull_status start_record(struct pool_player *player, struct ull_error *err)
{
    const char *path = player->request->record;
    if (!path)
        return ULL_OK;
    ull_status status = ull_record_create(path, NULL, &player->record, err);
    if (status == ULL_OK && ull_alloc_over_pool(player->pool, &player->over_pool) != ULL_OK)
        status = ull__fail(err, ULL_E_SYSTEM, "no memory to record");
    if (status == ULL_OK)
        status = ull_recorder_create(player->over_pool, player->record, player->result->device,
                                     &player->recorded, err);
    return status;
}

static ull_status end_record(struct pool_player *player, struct ull_error *err)
{
    ull_status status = player->record ? ull_record_error(player->record, err) : ULL_OK;
    ull_alloc_destroy(player->recorded);
    ull_record_destroy(player->record);
    ull_alloc_destroy(player->over_pool);
    player->recorded = player->over_pool = NULL;
    player->record = NULL;
    return status;
}

/* --- all of it --------------------------------------------------------------------------------------- */

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static ull_status play_all(struct pool_player *player, struct ull_error *err)
{
    struct replay_pool_result *result = player->result;
    struct ull_stats stats = {.size = sizeof stats};
    uint64_t spent = 0, elapsed = 0;
    for (long round = 0; round < player->request->repeat; round++) {
        ull_pool_stats_reset(player->pool);
        result->failures = result->line = 0;
        uint64_t begin = cli_monotonic_ns(), begin_cpu = thread_ns();
        play(player);
        spent = thread_ns() - begin_cpu;
        elapsed = cli_monotonic_ns() - begin;
        ull_pool_stats(player->pool, &stats);
        if (round + 1 == player->request->repeat && player->request->hold_seconds)
            sleep(player->request->hold_seconds);
        free_leftovers(player);
    }
    result->operations = player->trace->count;
    result->peak_requested_bytes = player->trace->peak_bytes;
    result->peak_held_bytes = stats.peak_held;
    result->maps = stats.maps;
    result->unmaps = stats.unmaps;
    if (result->operations) {
        result->ns_per_operation = (double)spent / (double)result->operations;
        result->wall_ns_per_operation = (double)elapsed / (double)result->operations;
    }
    ull_status status = end_record(player, err);
    return status == ULL_OK ? take_latencies(player, err) : status;
}

static void finish(struct pool_player *player)
{
    end_record(player, NULL);
    ull_pool_destroy(player->pool);
    for (unsigned int i = 1; i < player->stream_count; i++)
        player->device->ops->stream_destroy(player->device, player->streams[i]);
    ull__device_destroy(player->device);
    free(player->addresses);
    free(player->slot_streams);
    free(player->event_streams);
}

ull_status replay_pool_play(const struct replay_pool_request *request, const struct trace *trace,
                            struct replay_pool_result *result, struct ull_error *err)
{
    struct pool_player player = {.request = request, .trace = trace, .result = result};
    size_t slots = trace->slots ? trace->slots : 1, count = trace->count ? trace->count : 1;
    memset(result, 0, sizeof *result);
    player.addresses = calloc(slots, sizeof *player.addresses);
    player.slot_streams = calloc(slots, sizeof *player.slot_streams);
    player.event_streams = calloc(count, sizeof *player.event_streams);
    ull_status status = ULL_OK;
    if (!player.addresses || !player.slot_streams || !player.event_streams)
        status = ull__fail(err, ULL_E_SYSTEM, "no memory to play the trace");
    if (status == ULL_OK)
        status = open_device(&player, err);
    if (status == ULL_OK)
        status = open_streams(&player, err);
    if (status == ULL_OK)
        status = open_pool(&player, err);
    if (status == ULL_OK)
        status = start_record(&player, err);
    if (status == ULL_OK)
        status = play_all(&player, err);
    finish(&player);
    return status;
}
