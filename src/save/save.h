/*
 * save.h: the state of a training in a folder, from which it goes on as if it had never been stopped.
 *
 * FOLDER/step-NNNNNNNN/ has model.safetensors (what was trained), state.safetensors (what the optimizer
 * keeps, statistics) and state.json (everything else, with sizes and checksums of the other two and of
 * itself). It is written under another name, flushed, and renamed when it is whole; then older ones are
 * removed, all but the last two. So whatever ends a save (a full disk, SIGKILL, no power), those that
 * were there stay, and reading takes the newest that is whole. There must be room for three.
 *
 * One process writes a folder: it holds a lock on FOLDER/lock, which ends with it. Reading needs no
 * lock. The folder must be on a file system with rename and flock. State is what this header has: no
 * graph, no plan but its name.
 */
#ifndef ULLAGE_SAVE_SAVE_H
#define ULLAGE_SAVE_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "safetensors.h"
#include "ullage/status.h"

enum { ULL_SAVE_PLAN = 128, ULL_SAVE_KEPT = 2 };

/* From that step on, that plan. */
struct ull__save_switch {
    uint64_t step;
    uint64_t micro_batch;
    uint64_t budget_bytes;
    char plan[ULL_SAVE_PLAN]; /* its name, or what it is made of */
    char why[ULL_SAVE_PLAN];
};

/* Whole numbers up to 2^63 - 1 where they are no identities or seeds. Texts NULL: none. */
struct ull__save_state {
    uint64_t step; /* optimizer steps that were done */
    uint64_t epoch;
    uint64_t position;      /* of the next sample, as ull__data_batch counts */
    uint64_t seed;          /* of every generator: they count from it, so there is no other state */
    uint64_t schedule_step; /* steps that were not skipped */
    double learning_rate;   /* the last one; for people */

    double loss_scale;
    uint64_t scale_good_steps; /* since it last changed */
    uint64_t scale_hysteresis; /* overflows that are still let pass */
    uint64_t scale_low_steps;  /* at the floor */
    uint64_t skipped;          /* steps skipped so far */

    double loss, accuracy; /* of evaluation, or NaN; for people */
    double seconds;        /* of training so far */

    uint64_t model_identity, data_identity;
    const char *model; /* its name, for messages */
    const char *data; /* JSON: what ull__data_describe says; numbers may be spelled otherwise later */
    const char *options; /* JSON: whatever else the training keeps, an object */

    const struct ull__save_switch *switches;
    size_t switch_count;
};

struct ull__save;

/*
 * Makes the folder if it is not there, and locks it. Leftovers of saves that did not end are removed.
 * *newest is the step of the newest whole save, or UINT64_MAX. ULL_E_PERMISSION (read-only),
 * ULL_E_STARTED (another process saves there), ULL_E_SYSTEM. warn is told of damaged saves. Caller closes.
 */
ull_status ull__save_open(const char *folder, void (*warn)(void *context, const char *message),
                          void *context, struct ull__save **save, uint64_t *newest,
                          struct ull_error *err);
void ull__save_close(struct ull__save *save);

/*
 * One save. ULL_E_INVALID: the folder has a whole one of a later step, so this is another training;
 * ULL_E_SYSTEM: the disk is full, or whatever it was. Then everything that was there still is, and the
 * next one may be tried.
 */
ull_status ull__save_write(struct ull__save *save, const struct ull__save_state *state,
                           const struct ull__save_tensor *model, size_t model_count,
                           const struct ull__save_tensor *rest, size_t rest_count,
                           struct ull_error *err);

struct ull__saved {
    struct ull__save_state state; /* its texts and switches are owned by this */
    struct ull__safetensors *model, *rest;
    char folder[4096]; /* the one that was taken */
    void *own;
};

/*
 * The newest whole save of a folder, or the save that the path itself is (FOLDER/step-…). Sizes and
 * checksums are verified first; a damaged one is told to warn and the one before is taken.
 * ULL_E_NOT_FOUND: there is none. Caller closes.
 */
ull_status ull__save_load(const char *folder, void (*warn)(void *context, const char *message),
                          void *context, struct ull__saved *saved, struct ull_error *err);
void ull__saved_close(struct ull__saved *saved);

#endif
