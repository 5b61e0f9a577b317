/* torch_private.h: reading a snapshot, in three files: the whole (torch.c), one device (torch_trace.c), texts and
 * stacks (torch_text.c). */
#ifndef ULLAGE_TORCH_PRIVATE_H
#define ULLAGE_TORCH_PRIVATE_H

#include "extents.h"
#include "map.h"
#include "torch.h"
#include "unpickle.h"

/* Every key that is looked at, once. */
#define TORCH_KEYS(X)                                                                              \
    X(action)                                                                                      \
    X(addr)                                                                                        \
    X(address)                                                                                     \
    X(allocator_settings)                                                                          \
    X(blocks)                                                                                      \
    X(category)                                                                                    \
    X(compile_context)                                                                             \
    X(device)                                                                                      \
    X(device_traces)                                                                               \
    X(external_annotations)                                                                        \
    X(filename)                                                                                    \
    X(frames)                                                                                      \
    X(history)                                                                                     \
    X(host_segments)                                                                               \
    X(host_traces)                                                                                 \
    X(line)                                                                                        \
    X(name)                                                                                        \
    X(real_size)                                                                                   \
    X(requested_size)                                                                              \
    X(segments)                                                                                    \
    X(size)                                                                                        \
    X(stage)                                                                                       \
    X(state)                                                                                       \
    X(stream)                                                                                      \
    X(time_us)                                                                                     \
    X(total_size)                                                                                  \
    X(trace_alloc_overflowed)                                                                      \
    X(user_metadata)

/* What an entry of a trace says that happened. */
#define TORCH_ACTIONS(X)                                                                           \
    X(alloc)                                                                                       \
    X(free_requested)                                                                              \
    X(free_completed)                                                                              \
    X(segment_alloc)                                                                               \
    X(segment_free)                                                                                \
    X(segment_map)                                                                                 \
    X(segment_unmap)                                                                               \
    X(oom)                                                                                         \
    X(snapshot)

enum torch_action {
    TORCH_other,
#define X(name) TORCH_##name,
    TORCH_ACTIONS(X)
#undef X
        TORCH_ACTION_COUNT
};

/*
 * Absolute times while a history is filled, so that at its beginning segments come before what is in them. Between
 * two microseconds there is room for what has to be just before.
 */
enum { TORCH_SEGMENTS_BEFORE_NS, TORCH_CHUNKS_BEFORE_NS, TORCH_FIRST_NS = 8 };

struct torch_device {
    int index;      /* PyTorch's number */
    uint8_t number; /* the history's */
    ull__pickled trace;
    bool has_segments;     /* segments are known here, so blocks are chunks */
    bool has_final;        /* `segments` has some of this device */
    bool frees_at_request; /* the trace leaves free_completed out */
    bool seen_time;
    uint64_t last_us;
    size_t entry;                 /* that is being read, for messages */
    struct ull__extents segments; /* that are mapped; value: the event that did it */
    struct ull__map chunks;       /* by address: the event that allocated it */
};

struct torch {
    const char *file;
    const struct ull__pickle *pickle;
    struct ull__history *history;
    struct ull_error *err;
    ull_status status;
    struct {
#define X(name) ull__pickled name;
        TORCH_KEYS(X)
#undef X
    } keys;
    ull__pickled actions[TORCH_ACTION_COUNT];
    ull__pickled segments; /* MISSING: none in the file */
    struct torch_device *devices;
    uint32_t device_count;
    struct ull__map names, stacks; /* by value */
    bool has_time;
    uint64_t first_us, end_us;
    uint64_t allocated; /* bytes of all events, to keep sums in range */
};

/* False, with a message that begins with the file's name. */
bool ull__torch_broken(struct torch *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool ull__torch_no_memory(struct torch *t);

static inline ull__pickled ull__torch_at(ull__pickled dict, ull__pickled key)
{
    return ull__pickled_get(dict, key);
}

enum torch_action ull__torch_action(const struct torch *t, ull__pickled entry);
/* Microseconds since 1970, false if there is no time or one that is none. */
bool ull__torch_time(const struct torch *t, ull__pickled entry, uint64_t *time_us);
bool ull__torch_is_text(ull__pickled value, const char *text);
/* Adds; false without memory or if the sum of all sizes gets out of hand. */
bool ull__torch_add(struct torch *t, const struct ull__event *event);

/* Texts and stacks; UINT32_MAX without memory. */
uint32_t ull__torch_text(struct torch *t, ull__pickled value);
uint32_t ull__torch_stack(struct torch *t, ull__pickled frames);
uint32_t ull__torch_tag(struct torch *t, ull__pickled entry);

/* Everything that is known of one device becomes events. */
bool ull__torch_device(struct torch *t, struct torch_device *device);
void ull__torch_device_finish(struct torch_device *device);

#endif
