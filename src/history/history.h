/*
 * history.h: all that is known of a run, in memory: what every report is made from.
 *
 * A history is filled once, from a record of ours (load.c) or from a snapshot of PyTorch's (torch.c), or by a
 * test; then it is finished and only read. Texts and stacks are kept once each and named by numbers; number 0
 * is the empty text and no stack.
 *
 * Filling is for one thread; a finished history may be read by several.
 */
#ifndef ULLAGE_HISTORY_H
#define ULLAGE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "event.h"
#include "ullage/status.h"

enum ull__origin { ULL_ORIGIN_RECORD, ULL_ORIGIN_TORCH };

struct ull__frame {
    uint32_t function, file; /* texts; a file may be a library */
    uint32_t line;           /* 0: not known */
};

struct ull__stack {
    uint32_t first, count; /* in frames; innermost first */
};

struct ull__history_process {
    uint32_t pid;
    uint32_t parent; /* pid, 0: not known */
    uint32_t name;   /* text: the command */
    uint64_t begin_ns, end_ns;
    int32_t exit_code; /* -1: not known, or still running */
    bool ended;
    uint64_t dropped; /* events that found the ring full */
};

struct ull__history_device {
    uint32_t uuid, name;   /* texts */
    int logical, physical; /* as the program and as nvidia-smi count; -1: not known */
    uint64_t total_bytes;  /* 0: not known */
    uint64_t budget_bytes; /* at the beginning; 0: none */
};

struct ull__history {
    enum ull__origin origin;
    uint32_t job, command, version; /* texts: the job's name, its command line, who wrote the file */
    uint64_t unix_ns;               /* wall clock at time 0; 0: not known */
    uint64_t end_ns;                /* of the last event, or of the run if that is known */
    bool over;                      /* the run ended; else it is still growing, or was killed */

    struct ull__event *events; /* by time; equal times in the order in which they were added */
    size_t event_count, event_capacity;
    struct ull__history_process *processes;
    uint32_t process_count, process_capacity;
    struct ull__history_device *devices;
    uint32_t device_count, device_capacity;
    char **texts;
    uint32_t text_count, text_capacity;
    struct ull__stack *stacks;
    uint32_t stack_count, stack_capacity;
    struct ull__frame *frames;
    size_t frame_count, frame_capacity;

    bool truncated;         /* the file ends in the middle of a block */
    uint64_t broken_offset; /* where, when truncated */
    uint64_t torn_blocks;   /* writers that were killed while they wrote */
    uint64_t dropped;       /* events lost because a ring was full, or the recorder's own buffer */

    struct ull__history_index *index; /* of texts and stacks, while it is filled */
};

/* An empty history; NULL without memory. */
struct ull__history *ull__history_create(void);
void ull__history_destroy(struct ull__history *history);

/*
 * Adding. Each returns false (or UINT32_MAX) without memory, or when a number does not fit; what was there stays.
 * Texts may hold any bytes but 0. Times of events are absolute and unordered until finish.
 */
bool ull__history_add(struct ull__history *history, const struct ull__event *event);
uint32_t ull__history_text(struct ull__history *history, const char *text, size_t size);
uint32_t ull__history_stack(struct ull__history *history, const struct ull__frame *frames,
                            uint32_t count);
/* At most 65,535 processes. */
uint32_t ull__history_process(struct ull__history *history,
                              const struct ull__history_process *process);
/* At most 255 devices. */
uint32_t ull__history_device(struct ull__history *history, const struct ull__history_device *device);
/*
 * Sorts by time and makes `origin_ns` time 0 (events before it get 0). Checks that every number an event or a
 * stack holds is in its table. ULL_E_FORMAT with *err, or ULL_E_SYSTEM without memory.
 */
ull_status ull__history_finish(struct ull__history *history, uint64_t origin_ns,
                               struct ull_error *err);

const char *ull__history_string(const struct ull__history *history, uint32_t text);

#endif
