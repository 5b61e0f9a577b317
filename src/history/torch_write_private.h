/* torch_write_private.h: traces (torch_write.c) and segments (torch_write_segments.c) of a written snapshot. */
#ifndef ULLAGE_TORCH_WRITE_PRIVATE_H
#define ULLAGE_TORCH_WRITE_PRIVATE_H

#include "pickle_write.h"
#include "torch_layout.h"
#include "torch_write.h"

/* Texts that come often, once. */
#define TORCH_WORDS(X)                                                                             \
    X(action)                                                                                      \
    X(active_allocated)                                                                            \
    X(active_size)                                                                                 \
    X(addr)                                                                                        \
    X(address)                                                                                     \
    X(alloc)                                                                                       \
    X(allocated_size)                                                                              \
    X(blocks)                                                                                      \
    X(category)                                                                                    \
    X(compile_context)                                                                             \
    X(device)                                                                                      \
    X(device_free)                                                                                 \
    X(filename)                                                                                    \
    X(frames)                                                                                      \
    X(free_completed)                                                                              \
    X(free_requested)                                                                              \
    X(inactive)                                                                                    \
    X(is_expandable)                                                                               \
    X(large)                                                                                       \
    X(line)                                                                                        \
    X(name)                                                                                        \
    X(oom)                                                                                         \
    X(requested_size)                                                                              \
    X(segment_alloc)                                                                               \
    X(segment_free)                                                                                \
    X(segment_map)                                                                                 \
    X(segment_pool_id)                                                                             \
    X(segment_type)                                                                                \
    X(segment_unmap)                                                                               \
    X(size)                                                                                        \
    X(small)                                                                                       \
    X(snapshot)                                                                                    \
    X(stage)                                                                                       \
    X(state)                                                                                       \
    X(stream)                                                                                      \
    X(time_us)                                                                                     \
    X(total_size)                                                                                  \
    X(unknown)                                                                                     \
    X(user_metadata)

enum torch_word {
#define X(name) WORD_##name,
    TORCH_WORDS(X)
#undef X
        WORD_COUNT
};

struct torch_writer {
    const struct ull__history *history;
    struct ull__pickler pickle;
    uint32_t *kept_words;  /* ours, then the history's texts */
    uint32_t *kept_stacks; /* by number: as what it was kept, + 1 */
    struct ull__layout *layouts;
    int *index; /* by device: PyTorch's number */
    int index_count;
    bool categories;
};

/* Each is one item, or a key and its value. */
void ull__torch_write_word(struct torch_writer *w, enum torch_word number);
void ull__torch_write_history_text(struct torch_writer *w, uint32_t text);
void ull__torch_write_number(struct torch_writer *w, enum torch_word key, uint64_t value);
void ull__torch_write_choice(struct torch_writer *w, enum torch_word key, enum torch_word value);
void ull__torch_write_frames(struct torch_writer *w, const struct ull__event *event);

/* What all layouts have at the end; false without memory. */
bool ull__torch_write_segments(struct torch_writer *w);

#endif
