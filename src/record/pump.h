/*
 * pump.h: a ring, and a thread that writes down what is put into it. For programs that record themselves.
 *
 * The thread takes events out every 50 ms, or when the ring is half full, brings them into the order of their
 * times and appends them to the record. It has all signals blocked, also the one of a limit on file sizes. When a
 * write fails it says so once and ends; what is put into the ring from then on goes nowhere.
 */
#ifndef ULLAGE_PUMP_H
#define ULLAGE_PUMP_H

#include "ring.h"
#include "stacks.h"
#include "writer.h"

struct ull__pump;

struct ull__pump_options {
    const char *path, *id; /* as of ull__writer_open */
    bool stacks;
    bool alone;              /* the record is this program's: it is over when the program says so */
    bool second;             /* another writer tells of this process, and of its end */
    const char *thread_name; /* at most 15 characters */
    /* Called by the thread; NULL: nothing to do. */
    void (*event)(void *data, struct ull__writer *writer, struct ull__event *event);
    void (*tick)(void *data, struct ull__writer *writer); /* before each write */
    void (*failed)(void *data, const char *why);
    void *data;
};

/* Opens the record; nothing runs yet. */
ull_status ull__pump_create(const struct ull__pump_options *options, struct ull__pump **out,
                            struct ull_error *err);
/* Before the start: for the definitions at the beginning. */
struct ull__writer *ull__pump_writer(struct ull__pump *pump);
bool ull__pump_start(struct ull__pump *pump);

/*
 * By any thread, without waiting: fills in the time, the latency since `began_ns`, and this thread's number, and with
 * stacks also the caller's, if `began_ns` is not 0. A free gets the time at which it began.
 */
void ull__pump_put(struct ull__pump *pump, struct ull__event *event, uint64_t began_ns);

/* Everything put so far is written, then that this process ended. Waits for at most so long. True: done. */
bool ull__pump_finish(struct ull__pump *pump, unsigned int wait_ms);
/* Ends the thread, after writing what there is, and frees all. Nobody may put any more. */
void ull__pump_destroy(struct ull__pump *pump);
/* In a forked child, where the thread is not: frees without writing. NULL is fine. */
void ull__pump_forget(struct ull__pump *pump);

#endif
