/*
 * reader.c: batches by position, and threads that read ahead.
 *
 * The samples of the reader's share are numbered in the order of their positions. Slots of one sample each
 * form a ring; number n goes into slot n mod slots. Threads take the next number that nobody has, as long
 * as its slot is free, and make it without the lock. The caller takes samples in order; one that nobody
 * has begun, or that is not in the share, it makes itself, straight into its batch, so it waits only for
 * what is being made. A sample depends on its position alone, so who makes it, and when, changes nothing.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "data_private.h"
#include "images.h"
#include "picture.h"
#include "size.h"

enum { MOST_THREADS = 256 };

/* How a sample came out. */
struct outcome {
    ull_status status;
    uint64_t skipped; /* broken pictures in front of the one that was taken */
};

struct slot {
    bool ready;
    struct outcome outcome;
};

struct worker {
    struct ull__reader *reader;
    pthread_t thread;
    struct ull__scratch scratch;
};

struct ull__reader {
    const struct ull__data *data;
    struct ull__reader_options options;
    uint64_t samples;              /* of an epoch */
    struct ull__group_order order; /* batch 0: samples come in no order of their lengths */
    struct ull__scratch scratch;   /* of the calling thread */
    unsigned char *told;           /* broken pictures that were told of; NULL: none can be */

    struct slot *slots;
    uint64_t slot_count; /* 0: nothing is read ahead */
    size_t slot_size;
    unsigned char *memory;
    void *owned; /* the memory, if the reader's own */
    struct worker *workers;
    int worker_count;

    pthread_mutex_t lock;
    pthread_cond_t work, made;
    bool stop, moving; /* moving: nobody begins anything */
    int busy;          /* threads that make a sample */
    uint64_t base;     /* the number that the caller needs next */
    uint64_t next;     /* the first one that nobody has */
    uint64_t end;      /* the position from which on nothing is begun */
};

void ull__scratch_finish(struct ull__scratch *scratch)
{
    ull__picture_reader_destroy(scratch->pictures);
    free(scratch->resize.memory);
    free(scratch->line);
    ull__group_pool_finish(&scratch->pool);
}

/* ---- one sample -------------------------------------------------------------------------------- */

static struct ull__turn turn_of(const struct ull__reader *reader, uint64_t epoch)
{
    return (struct ull__turn){.part = reader->options.part,
                              .seed = reader->options.seed,
                              .epoch = epoch,
                              .shuffle = reader->options.shuffle,
                              .augment = reader->options.augment};
}

static uint64_t index_of(const struct ull__reader *reader, struct ull__scratch *scratch,
                         uint64_t position)
{
    if (reader->order.batch)
        return ull__group_index(&reader->order, &scratch->pool, position);
    uint64_t epoch = position / reader->samples, index = position % reader->samples;
    if (!reader->options.shuffle)
        return index;
    return ull__order(reader->samples, ull__mix(reader->options.seed, epoch), index);
}

static struct outcome make(const struct ull__reader *reader, struct ull__scratch *scratch,
                           uint64_t position, void *x, int32_t *targets)
{
    const struct ull__data *data = reader->data;
    const struct ull__turn turn = turn_of(reader, position / reader->samples);
    const uint64_t first = index_of(reader, scratch, position);
    struct outcome outcome = {.status = ULL_E_FORMAT};
    for (; outcome.skipped < reader->samples; outcome.skipped++) {
        uint64_t index = (first + outcome.skipped) % reader->samples;
        outcome.status = data->source->sample(data, index, &turn, scratch, x, targets);
        if (outcome.status != ULL_E_FORMAT)
            break;
        if (turn.part == ULL_DATA_EVAL) {
            memset(x, 0, data->info.sample_bytes);
            targets[0] = ULL_DATA_IGNORED;
            return (struct outcome){ULL_OK, 1};
        }
    }
    return outcome;
}

/* Tells of broken pictures, each once, and says what ends the batch. */
static ull_status conclude(struct ull__reader *reader, uint64_t position, struct outcome outcome,
                           const struct ull_error *why, struct ull_error *err)
{
    const struct ull__data *data = reader->data;
    uint64_t first = outcome.skipped ? index_of(reader, &reader->scratch, position) : 0;
    for (uint64_t i = 0; reader->told && i < outcome.skipped; i++) {
        uint64_t index = (first + i) % reader->samples;
        char text[512];
        if (reader->told[index])
            continue;
        reader->told[index] = 1;
        if (!reader->options.warn)
            continue;
        ull__images_why(data, reader->options.part, index, &reader->scratch, text, sizeof text);
        reader->options.warn(reader->options.context, text);
    }
    if (outcome.status == ULL_E_FORMAT)
        return ull__fail(err, ULL_E_FORMAT, "none of the %llu pictures in '%.300s' can be read",
                         (unsigned long long)reader->samples, data->spec.path);
    if (outcome.status != ULL_OK)
        return ull__fail(err, outcome.status, "%.500s", why->message);
    return ULL_OK;
}

/* ---- reading ahead ----------------------------------------------------------------------------- */

static void *slot_x(const struct ull__reader *reader, uint64_t slot)
{
    return reader->memory + slot * reader->slot_size;
}

static int32_t *slot_targets(const struct ull__reader *reader, uint64_t slot)
{
    return (int32_t *)(void *)(reader->memory + slot * reader->slot_size +
                               reader->data->info.sample_bytes);
}

static bool is_shared(const struct ull__reader *reader, uint64_t position)
{
    const struct ull__data_share *share = &reader->options.share;
    uint64_t place = position % share->of;
    return place >= share->first && place - share->first < share->count;
}

static uint64_t number_of(const struct ull__data_share *share, uint64_t position)
{
    return position / share->of * share->count + position % share->of - share->first;
}

static uint64_t position_of(const struct ull__data_share *share, uint64_t number)
{
    return number / share->count * share->of + share->first + number % share->count;
}

static bool may_begin(const struct ull__reader *reader)
{
    return !reader->moving && reader->next < reader->base + reader->slot_count &&
           position_of(&reader->options.share, reader->next) < reader->end;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct ull__reader *reader = worker->reader;
    pthread_mutex_lock(&reader->lock);
    for (;;) {
        while (!reader->stop && !may_begin(reader))
            pthread_cond_wait(&reader->work, &reader->lock);
        if (reader->stop)
            break;
        uint64_t number = reader->next++, slot = number % reader->slot_count;
        uint64_t position = position_of(&reader->options.share, number);
        reader->slots[slot].ready = false;
        reader->busy++;
        pthread_mutex_unlock(&reader->lock);
        struct outcome outcome = make(reader, &worker->scratch, position, slot_x(reader, slot),
                                      slot_targets(reader, slot));
        pthread_mutex_lock(&reader->lock);
        reader->slots[slot].outcome = outcome;
        reader->slots[slot].ready = true;
        reader->busy--;
        pthread_cond_signal(&reader->made);
    }
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* Goes to another number: what is being made is waited for, all else is forgotten. */
static void move_to(struct ull__reader *reader, uint64_t number)
{
    if (reader->base == number)
        return;
    reader->moving = true;
    while (reader->busy)
        pthread_cond_wait(&reader->made, &reader->lock);
    reader->base = reader->next = number;
    reader->moving = false;
    pthread_cond_broadcast(&reader->work);
}

/* The sample that is due, with the lock held on entry and return. */
static struct outcome take(struct ull__reader *reader, uint64_t position, void *x, int32_t *targets)
{
    const struct ull__data_info *info = &reader->data->info;
    uint64_t number = reader->base;
    struct outcome outcome;
    if (reader->next == number) {
        reader->next = reader->base = number + 1;
        pthread_cond_signal(&reader->work);
        pthread_mutex_unlock(&reader->lock);
        outcome = make(reader, &reader->scratch, position, x, targets);
        pthread_mutex_lock(&reader->lock);
        return outcome;
    }
    uint64_t slot = number % reader->slot_count;
    while (!reader->slots[slot].ready)
        pthread_cond_wait(&reader->made, &reader->lock);
    outcome = reader->slots[slot].outcome;
    pthread_mutex_unlock(&reader->lock);
    memcpy(x, slot_x(reader, slot), info->sample_bytes);
    memcpy(targets, slot_targets(reader, slot), (size_t)info->sample_targets * sizeof *targets);
    if (outcome.status != ULL_OK) /* why is in the scratch of another thread: once more here */
        outcome = make(reader, &reader->scratch, position, x, targets);
    pthread_mutex_lock(&reader->lock);
    reader->base = number + 1;
    pthread_cond_signal(&reader->work);
    return outcome;
}

static struct outcome sample_at(struct ull__reader *reader, uint64_t position, void *x,
                                int32_t *targets)
{
    if (!reader->worker_count || !is_shared(reader, position))
        return make(reader, &reader->scratch, position, x, targets);
    pthread_mutex_lock(&reader->lock);
    if (reader->options.part == ULL_DATA_EVAL) /* an evaluation ends with its epoch */
        reader->end = (position / reader->samples + 1) * reader->samples;
    move_to(reader, number_of(&reader->options.share, position));
    struct outcome outcome = take(reader, position, x, targets);
    pthread_mutex_unlock(&reader->lock);
    return outcome;
}

ull_status ull__data_batch(struct ull__reader *reader, uint64_t position, size_t count, void *x,
                           int32_t *targets, struct ull_error *err)
{
    const struct ull__data_info *info = &reader->data->info;
    ull_status status = ULL_OK;
    for (size_t i = 0; i < count && status == ULL_OK; i++) {
        struct outcome outcome =
            sample_at(reader, position + i, (unsigned char *)x + i * info->sample_bytes,
                      targets + i * (size_t)info->sample_targets);
        if (outcome.status != ULL_OK || outcome.skipped)
            status = conclude(reader, position + i, outcome, &reader->scratch.error, err);
    }
    return status;
}

uint64_t ull__data_valid(struct ull__reader *reader, uint64_t position, size_t count)
{
    const struct ull__data *data = reader->data;
    const enum ull__data_part part = reader->options.part;
    if (!data->source->valid && (part == ULL_DATA_TRAIN || !data->known[part]))
        return count * (uint64_t)data->info.sample_targets;
    uint64_t valid = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ull__turn turn = turn_of(reader, (position + i) / reader->samples);
        uint64_t index = index_of(reader, &reader->scratch, position + i);
        if (data->source->valid)
            valid += data->source->valid(data, index, &turn);
        else
            valid += ull__images_is_good(data, part, index, &reader->scratch);
    }
    return valid;
}

int64_t ull__data_longest(struct ull__reader *reader, uint64_t position, size_t count)
{
    const struct ull__data *data = reader->data;
    int64_t longest = 0;
    for (size_t i = 0; data->info.documents && i < count; i++) {
        uint64_t index = index_of(reader, &reader->scratch, position + i);
        int64_t length = data->source->length(data, reader->options.part, index);
        longest = length > longest ? length : longest;
    }
    return data->info.documents ? longest : data->info.window;
}

/* ---- life -------------------------------------------------------------------------------------- */

/* The ring in the memory that was given; without room for one sample nothing is read ahead. */
static ull_status make_ring(struct ull__reader *reader, struct ull_error *err)
{
    const struct ull__data_info *info = &reader->data->info;
    size_t size = info->sample_bytes + 4 * (size_t)info->sample_targets;
    reader->slot_size = (size + 63) & ~(size_t)63;
    void *given = reader->options.buffer;
    size_t bytes = reader->options.buffer_bytes, lost = given ? -(uintptr_t)given & 63 : 0;
    if (reader->options.threads < 1 || !reader->options.share.count ||
        bytes < lost + reader->slot_size)
        return ULL_OK;
    uint64_t count = (bytes - lost) / reader->slot_size;
    reader->slots = calloc(count, sizeof *reader->slots);
    if (!given)
        given = reader->owned = aligned_alloc(64, count * reader->slot_size);
    if (!reader->slots || !given)
        return ull__data_no_memory(err, count * reader->slot_size, "reading ahead");
    reader->memory = (unsigned char *)given + lost;
    reader->slot_count = count;
    return ULL_OK;
}

static ull_status start_threads(struct ull__reader *reader, struct ull_error *err)
{
    int count = reader->options.threads < MOST_THREADS ? reader->options.threads : MOST_THREADS;
    if (!reader->slot_count)
        return ULL_OK;
    reader->workers = calloc((size_t)count, sizeof *reader->workers);
    if (!reader->workers)
        return ull__data_no_memory(err, sizeof *reader->workers, "threads");
    sigset_t all, before; /* signals are the caller's business */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    while (reader->worker_count < count && !error) {
        struct worker *worker = &reader->workers[reader->worker_count];
        worker->reader = reader;
        if (reader->order.batch &&
            ull__group_pool_create(&reader->order, &worker->scratch.pool, err) != ULL_OK)
            error = ENOMEM;
        else
            error = pthread_create(&worker->thread, NULL, work, worker);
        reader->worker_count += !error;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) /* of one that was not started */
        ull__scratch_finish(&reader->workers[reader->worker_count].scratch);
    if (error && !reader->worker_count)
        return ull__fail(err, ULL_E_SYSTEM, "no thread to read ahead: %s", strerror(error));
    return ULL_OK;
}

ull_status ull__reader_create(const struct ull__data *data, const struct ull__reader_options *options,
                              struct ull__reader **out, struct ull_error *err)
{
    uint64_t samples = data->info.samples[options->part];
    if (options->most && options->most < samples)
        samples = options->most;
    if (!samples)
        return ull__fail(err, ULL_E_INVALID, "'%.300s' has no part for %s", data->spec.path,
                         options->part ? "evaluation" : "training");
    const struct ull__data_share *share = &options->share;
    if (share->first > share->of || share->count > share->of - share->first)
        return ull__fail(err, ULL_E_INVALID, "a share of %llu samples from %llu on: there are %llu",
                         (unsigned long long)share->count, (unsigned long long)share->first,
                         (unsigned long long)share->of);
    struct ull__reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return ull__data_no_memory(err, sizeof *reader, "a reader");
    reader->data = data;
    reader->options = *options;
    if (!share->of)
        reader->options.share = (struct ull__data_share){.count = 1, .of = 1};
    reader->samples = samples;
    reader->moving = true; /* until the first batch says where */
    reader->base = UINT64_MAX;
    reader->end = options->until ? options->until : UINT64_MAX;
    pthread_mutex_init(&reader->lock, NULL);
    pthread_cond_init(&reader->work, NULL);
    pthread_cond_init(&reader->made, NULL);
    ull_status status = ULL_OK;
    if (data->known[options->part] && !(reader->told = calloc(samples, 1)))
        status = ull__data_no_memory(err, samples, "a list of broken pictures");
    if (data->info.documents && options->batch) {
        reader->order = (struct ull__group_order){.samples = samples,
                                                  .batch = options->batch,
                                                  .seed = options->seed,
                                                  .shuffle = options->shuffle,
                                                  .length = data->source->length,
                                                  .data = data,
                                                  .part = options->part};
        status = ull__group_pool_create(&reader->order, &reader->scratch.pool, err);
    }
    if (status == ULL_OK && (status = make_ring(reader, err)) == ULL_OK)
        status = start_threads(reader, err);
    if (status == ULL_OK)
        *out = reader;
    else
        ull__reader_destroy(reader);
    return status;
}

void ull__reader_destroy(struct ull__reader *reader)
{
    if (!reader)
        return;
    pthread_mutex_lock(&reader->lock);
    reader->stop = true;
    pthread_cond_broadcast(&reader->work);
    pthread_mutex_unlock(&reader->lock);
    for (int i = 0; i < reader->worker_count; i++) {
        pthread_join(reader->workers[i].thread, NULL);
        ull__scratch_finish(&reader->workers[i].scratch);
    }
    pthread_mutex_destroy(&reader->lock);
    pthread_cond_destroy(&reader->work);
    pthread_cond_destroy(&reader->made);
    ull__scratch_finish(&reader->scratch);
    free(reader->workers);
    free(reader->slots);
    free(reader->owned);
    free(reader->told);
    free(reader);
}
