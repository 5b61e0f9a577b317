/*
 * record.h: writes down what allocators hand out, for `ullage report`.
 *
 * A record is a file of events, as `ullage run --record` makes it. Here a program records itself: an adaptor
 * (as those of policy.h) in front of an allocator puts every request and free into a ring, and a thread
 * of the record's writes them down every 50 ms. Nobody waits for it: what finds the ring full is dropped and
 * counted. A write that fails ends the recording, and ull_record_error says why.
 *
 *     ull_record_create("train.record", &options, &record, &err);
 *     ull_recorder_create(alloc, record, "GPU 0", &recorded, &err);
 *     ... ull_alloc_request(recorded, ...), with tags ...
 *     ull_alloc_destroy(recorded); ull_record_destroy(record);
 *
 * Under `ullage run --record` the path may be NULL: then the same file gets both, what the driver handed out
 * and what was made of it.
 *
 * Thread safe, apart from create and destroy. A forked child of the program records nothing.
 */
#ifndef ULLAGE_RECORD_H
#define ULLAGE_RECORD_H

#include "ullage/policy.h"

struct ull_record;

struct ull_record_options {
    const char *name; /* of the job; NULL: the program's */
    bool stacks;      /* native call stacks too; some microseconds a call */
};

/*
 * Makes a record at `path`, in the place of an older record or an empty file; nothing else is overwritten
 * (ULL_E_INVALID). path NULL: the record of the `ullage run` around this program; ULL_E_NOT_FOUND if there
 * is none. options NULL: all 0. ULL_E_PERMISSION, ULL_E_SYSTEM.
 */
ull_status ull_record_create(const char *path, const struct ull_record_options *options,
                             struct ull_record **record, struct ull_error *err);
/* Writes what is left, and ends. After its adaptors. NULL is fine. */
void ull_record_destroy(struct ull_record *record);
/* ULL_OK, or ULL_E_SYSTEM once a write failed; *err says why. */
ull_status ull_record_error(struct ull_record *record, struct ull_error *err);
/* Notes a moment, as "epoch 3". At most 200 bytes of it are kept. */
void ull_record_mark(struct ull_record *record, const char *text);

/*
 * An adaptor that records what goes through it. `device` names the memory: a UUID, or any text; the same text is
 * the same device. At most 64 adaptors a record in its life (ULL_E_FULL).
 */
ull_status ull_recorder_create(struct ull_alloc *upstream, struct ull_record *record,
                               const char *device, struct ull_alloc **recorder,
                               struct ull_error *err);

#endif
