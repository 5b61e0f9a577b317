/*
 * figures.h: the numbers of a report, computed from a history in two walks.
 *
 * A figure that cannot be known is NaN (doubles) or said so by a flag; 0 is always a measured 0. "Peak" is of
 * what is held. A limit applies to each device by itself, so the figures of a whole job are those of the device
 * that came to hold most (`main`); `all` is over all devices and processes together.
 */
#ifndef ULLAGE_FIGURES_H
#define ULLAGE_FIGURES_H

#include "suggest.h"
#include "walk.h"

enum ull__alone { ULL_ALONE_UNKNOWN, ULL_ALONE_YES, ULL_ALONE_NO };

/* Of a device, a process, or all together. */
struct ull__course {
    uint64_t peak_bytes, peak_ns; /* of held, when first reached */
    size_t peak_event;            /* ULL_NO_EVENT: nothing was ever held */
    uint64_t live_peak_bytes, live_peak_ns;
    size_t live_peak_event;
    uint64_t average_bytes, live_average_bytes; /* over the time when anything was held */
    double peak_to_average;                     /* NaN: no time passed */
    uint64_t peak_by_class[ULL_CLASSES];        /* of what was held at the peak */
};

struct ull__device_figures {
    struct ull__course course;
    uint64_t total_bytes, budget_bytes; /* 0: not known, none; the largest budget there was */
    uint64_t needed_bytes; /* smallest that would have run: the peak, and what refusals would have made of it */
    bool stopped_short;       /* a refusal was not survived, so more may be needed */
    uint64_t suggested_bytes; /* 0: nothing was held */
    bool preallocated;        /* one block of most of the budget or card: the peak says nothing */
    enum ull__alone alone;    /* on the card, as far as CARD events tell */
    double fragmentation;     /* mean over the record of 1 - largest free / free; NaN: not known */
    double free_share;        /* mean of free / held by the allocator; NaN: not known */
};

struct ull__process_figures {
    struct ull__course course;
    uint64_t allocs, frees, refusals;
    uint64_t host_first, host_peak, host_last; /* 0: no samples */
    uint64_t host_samples;
};

struct ull__latency {
    uint64_t count;       /* of calls with a known latency */
    double p50, p99, max; /* seconds; NaN without any */
};

/* The slow-down that comes before out of memory. */
struct ull__pressure {
    uint64_t waited;       /* granted or refused requests that had to wait for something */
    double waited_seconds; /* in all: what they took beyond the median of the others */
    uint64_t by_wait[8];   /* requests by bit of enum ull__event_wait */
    uint64_t refusals, survived;
    uint64_t more_bytes; /* that much more budget would have granted the survived ones; 0: not known */
};

/* What was live at the peak, by who allocated it. */
struct ull__holder {
    uint64_t bytes, count, largest;
    uint64_t since_ns; /* the oldest */
    uint32_t tag, stack;
    uint16_t process;
    uint8_t device, class, layer;
};

enum { ULL_SIZE_BUCKETS = 48, ULL_AGE_BUCKETS = 16, ULL_HOLDERS = 32 };

struct ull__figures {
    enum ull__role role;
    struct ull__course all;
    struct ull__device_figures *devices; /* by number in the history */
    uint32_t device_count;
    struct ull__process_figures *processes;
    uint32_t process_count;
    int main; /* device whose peak is the highest; -1: nothing was held */
    struct ull__latency driver, chunks;
    struct ull__pressure pressure;

    /* Allocations of what is live (chunks where there are any): bucket i has sizes from 2^i bytes; ages i from
     * 4^i microseconds, bucket 0 all below 4 us; those that were never freed are counted apart. */
    uint64_t sizes[ULL_SIZE_BUCKETS], size_bytes[ULL_SIZE_BUCKETS];
    uint64_t ages[ULL_AGE_BUCKETS], age_bytes[ULL_AGE_BUCKETS];
    uint64_t never_freed, never_freed_bytes;

    /* At the main device's peak of live bytes, largest first. */
    struct ull__holder holders[ULL_HOLDERS];
    int holder_count;
    uint64_t holder_ns;     /* that moment */
    uint64_t rest_bytes;    /* of what is not among them */
    uint64_t charged_bytes; /* held at that moment without a block: contexts, code, reserves */
};

/* ULL_E_SYSTEM without memory. The caller destroys. */
ull_status ull__figures_create(const struct ull__facts *facts, enum ull__role role,
                               struct ull__figures **figures, struct ull_error *err);
void ull__figures_destroy(struct ull__figures *figures);

/* What is worth a warning in a report. */
#define ULL_FRAGMENTATION_FLAG 0.15
#define ULL_LATENCY_FLAG 0.050

#endif
