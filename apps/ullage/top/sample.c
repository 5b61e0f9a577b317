/* sample.c: see sample.h. Arrays double when they are full, which shows from their counts alone. */
#include "sample.h"

#include <stdlib.h>
#include <string.h>

struct sample *sample_create(void)
{
    return calloc(1, sizeof(struct sample));
}

void sample_destroy(struct sample *sample)
{
    if (!sample)
        return;
    free(sample->devices);
    free(sample->jobs);
    free(sample->processes);
    free(sample->shares);
    free(sample->refusals);
    free(sample);
}

/* Room for one more in an array of `count`; its capacity is the power of two from 8 on. */
static void *add(void **array, int *count, size_t size)
{
    bool full = *count == 0 || (*count >= 8 && (*count & (*count - 1)) == 0);
    if (full) {
        size_t capacity = *count == 0 ? 8 : 2 * (size_t)*count;
        void *grown = realloc(*array, capacity * size);
        if (!grown)
            return NULL;
        *array = grown;
    }
    void *entry = (char *)*array + (size_t)(*count)++ * size;
    memset(entry, 0, size);
    return entry;
}

struct sample_device *sample_add_device(struct sample *sample)
{
    void *array = sample->devices;
    struct sample_device *entry = add(&array, &sample->device_count, sizeof *entry);
    sample->devices = array;
    return entry;
}

struct sample_job *sample_add_job(struct sample *sample)
{
    void *array = sample->jobs;
    struct sample_job *entry = add(&array, &sample->job_count, sizeof *entry);
    sample->jobs = array;
    return entry;
}

struct sample_process *sample_add_process(struct sample *sample)
{
    void *array = sample->processes;
    struct sample_process *entry = add(&array, &sample->process_count, sizeof *entry);
    sample->processes = array;
    return entry;
}

struct sample_share *sample_add_share(struct sample *sample)
{
    void *array = sample->shares;
    struct sample_share *entry = add(&array, &sample->share_count, sizeof *entry);
    sample->shares = array;
    return entry;
}

struct ull__refusal *sample_add_refusal(struct sample *sample)
{
    void *array = sample->refusals;
    struct ull__refusal *entry = add(&array, &sample->refusal_count, sizeof *entry);
    sample->refusals = array;
    return entry;
}

const char *sample_kind_name(enum sample_kind kind)
{
    static const char *const names[] = {"held", "draining", "outside", "other"};
    return names[kind];
}

const char *sample_short_command(const struct sample_process *process)
{
    size_t word = strcspn(process->command, " ");
    const char *name = process->command;
    for (size_t i = 0; i + 1 < word; i++)
        if (process->command[i] == '/')
            name = process->command + i + 1;
    return name;
}
