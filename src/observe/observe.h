/* observe.h: what record.c and recorder.c share. */
#ifndef ULLAGE_OBSERVE_H
#define ULLAGE_OBSERVE_H

#include <pthread.h>
#include <stdatomic.h>

#include "policy_private.h"
#include "pump.h"
#include "ullage/record.h"

enum { MAX_RECORDERS = 64, DEVICE_TEXT = 128, MARK_TEXT = 200 };

struct recorder {
    struct ull_alloc alloc;
    struct ull_alloc *upstream;
    struct ull_record *record;
    uint8_t device;
    uint32_t number;         /* in the record's list */
    _Atomic uint64_t in_use; /* bytes of chunks */
    pthread_mutex_t lock;    /* over sizes */
    struct ull__sizes sizes;
};

struct ull_record {
    struct ull__pump *pump;
    pid_t owner;    /* a forked child has no thread, and may touch nothing */
    bool under_run; /* `ullage run` tells what the driver handed out, and when this process ends */
    char *failed;   /* why a write failed; NULL: it did not */
    pthread_mutex_t lock;

    /* Texts that events name by numbers from 1; copies, since the thread comes later. */
    char **texts;
    uint32_t text_count, text_capacity;
    uint32_t *text_slots; /* by hash; 0: empty */
    uint32_t slot_count;

    struct recorder *recorders[MAX_RECORDERS]; /* NULL: ended */
    uint8_t recorder_device[MAX_RECORDERS];
    _Atomic uint64_t held_told[MAX_RECORDERS];
    uint32_t recorder_count;
    char devices[MAX_RECORDERS][DEVICE_TEXT];
    uint32_t device_count;
    uint32_t devices_written; /* the thread's own */
};

/* 0 for no text, or without memory. */
uint32_t ull__record_text(struct ull_record *record, const char *text);
void ull__record_put(struct ull_record *record, struct ull__event *event, uint64_t began_ns);
/* More is in use than was told to be held: so more is held. */
void ull__record_held(struct recorder *recorder);

#endif
