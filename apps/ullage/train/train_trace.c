/*
 * train_trace.c: what ran when: kernels, copies and waits of each queue, as a trace for the Perfetto UI (trace-event JSON).
 *
 * Kept in memory, up to EVENTS of them, the first ones, and written at the end.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "file.h"
#include "train_cmd.h"

enum { EVENTS = 1 << 20 };

struct event {
    double begin, end;
    const char *what; /* static */
    enum ull__queue queue;
};

static struct {
    pthread_mutex_t mutex;
    struct event *events;
    size_t count, room;
} trace = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void train_trace_note(void *context, enum ull__queue queue, const char *what, double begin, double end)
{
    (void)context;
    pthread_mutex_lock(&trace.mutex);
    if (trace.count == trace.room && trace.room < EVENTS) {
        size_t room = 2 * trace.room + 4096;
        struct event *more = realloc(trace.events, room * sizeof(*more));
        trace.events = more != NULL ? more : trace.events;
        trace.room = more != NULL ? room : trace.room;
    }
    if (trace.count < trace.room) {
        trace.events[trace.count++] = (struct event){begin, end, what, queue};
    }
    pthread_mutex_unlock(&trace.mutex);
}

ull_status train_trace_write(const char *path, struct ull_error *err)
{
    static const char *const queues[] = {"compute", "to the host", "to the device", "collectives"};
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size); /* an earlier trace is replaced by a whole one */
    if (file == NULL) {
        return ull__fail(err, ULL_E_NO_MEMORY, "no memory for a trace");
    }
    fprintf(file, "{\"traceEvents\":[\n");
    for (int i = 0; i < 4; ++i) {
        fprintf(
            file, "{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}},\n",
            i + 1, queues[i]);
    }
    double zero = trace.count > 0 ? trace.events[0].begin : 0;
    for (size_t i = 0; i < trace.count; ++i) {
        const struct event *event = &trace.events[i];
        fprintf(file,
                "{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f},\n",
                (int)event->queue + 1, event->what, 1e6 * (event->begin - zero),
                1e6 * (event->end - event->begin));
    }
    fprintf(file, "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"ullage "
                  "train\"}}\n]}\n");
    bool fine = !ferror(file);
    fine = fclose(file) == 0 && fine;
    free(trace.events);
    trace.events = NULL;
    trace.count = trace.room = 0;
    ull_status status = fine ? ull__file_write(path, text, size, err)
                             : ull__fail(err, ULL_E_NO_MEMORY, "no memory for a trace");
    free(text);
    return status;
}
