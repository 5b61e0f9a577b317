/*
 * writer.h: appends blocks to a record.
 *
 * A writer is one process's, and one thread's at a time. It takes what memory it needs when it is opened and
 * none later, and it opens no file later unless the program that it lives in has closed its descriptor: then
 * the file is opened again by its path, and only if it is the same one still. A failed write (a full disk, a limit on
 * file sizes, a file that is gone) ends the recording for good: later calls do nothing, ull__writer_error
 * says why. The descriptor is never inherited by a program that is executed.
 *
 * SIGXFSZ must be blocked in the calling thread, or a limit on file sizes ends the program.
 */
#ifndef ULLAGE_WRITER_H
#define ULLAGE_WRITER_H

#include "format.h"
#include "ullage/status.h"

enum { ULL_RECORD_PATH = 4096, ULL_RECORD_ID = 48 };

/*
 * Makes a new record at `path` and puts it there in one step, in the place of an older record or an empty file;
 * what is anything else is left alone. ULL_E_INVALID says what is there; ULL_E_NOT_FOUND, ULL_E_PERMISSION,
 * ULL_E_SYSTEM. `id` names the file itself, for writers in other processes.
 */
ull_status ull__record_create(const char *path, char id[ULL_RECORD_ID], struct ull_error *err);

struct ull__writer;

/* For a process to write to a record that is there. `id` NULL: whichever record is at `path`. */
ull_status ull__writer_open(const char *path, const char *id, struct ull__writer **out,
                            struct ull_error *err);
/*
 * For the one who made the record: until he closes it or dies, ull__record_create refuses its path, so that a second
 * run does not take the file away from the first.
 */
void ull__writer_claim(struct ull__writer *writer);
/* Flushes and frees. NULL is fine. */
void ull__writer_close(struct ull__writer *writer);

/* Adds to the block that is being filled; a full one is written first. */
void ull__writer_event(struct ull__writer *writer, const struct ull__event *event);
/* The number of a text, which is defined when it is new. At most ULL_TEXT_MOST bytes are kept. */
uint32_t ull__writer_text(struct ull__writer *writer, const char *text);

struct ull__record_frame {
    uint32_t function, file, line; /* texts of this writer */
};
/* The number of a new stack. Innermost frame first, at most ULL_STACK_MOST of them. */
uint32_t ull__writer_stack(struct ull__writer *writer, const struct ull__record_frame *frames,
                           uint32_t count);

struct ull__record_device {
    const char *uuid, *name;
    int logical, physical;
    uint64_t total_bytes, budget_bytes;
};
/* Devices are numbered as they are defined, from 0. */
void ull__writer_device(struct ull__writer *writer, const struct ull__record_device *device);

struct ull__record_process {
    uint32_t pid, parent;
    uint64_t start_ticks, begin_ns;
    const char *name;
};
/* Number 0 is the writer itself. A number may be defined again. */
void ull__writer_process(struct ull__writer *writer, uint32_t number,
                         const struct ull__record_process *process);
void ull__writer_job(struct ull__writer *writer, const char *name, const char *command,
                     const char *version);
void ull__writer_over(struct ull__writer *writer, uint64_t time_ns, int exit_code);

/* Writes what there is. `dropped`: events lost so far. False once the recording has ended. */
bool ull__writer_flush(struct ull__writer *writer, uint64_t dropped);
/* errno of the write that ended the recording, ESTALE: the file at the path is another one; 0: all is well. */
int ull__writer_error(const struct ull__writer *writer);
/* In a forked child: frees the parent's writer and closes the child's copy of its descriptor. Nothing is written. */
void ull__writer_forget(struct ull__writer *writer);

uint64_t ull__record_now(void); /* CLOCK_MONOTONIC */

#endif
