/*
 * fake.h: what the parts of the fake driver share within one process.
 *
 * One lock, taken by FAKE_ENTER and dropped when the function returns, guards all state of the
 * process; only the bytes themselves are moved without it (stream.c).
 */
#ifndef ULLAGE_FAKE_H
#define ULLAGE_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "cuda_functions.h"
#include "shared.h"

/* --- Entry points ------------------------------------------------------------------------- */

enum fake_id {
#define CU_HOOK(symbol, base, since, since_pt, params, args) FAKE_ID_##symbol,
#define CU_CALL(symbol, base, since, since_pt, exempt, params) FAKE_ID_##symbol,
#define CU_PASS(symbol, base, since, since_pt, exempt) FAKE_ID_##symbol,
#include "cuda_api.def"
    FAKE_ID_COUNT
};
extern const char *const fake_names[FAKE_ID_COUNT];

enum fake_needs {
    FAKE_ANY = 0,  /* may be called before cuInit */
    FAKE_INIT = 1, /* needs cuInit in this very process */
    FAKE_CONTEXT = 2 | FAKE_INIT,
    FAKE_ALLOC = 4,   /* counts for the rule "*" of ULLAGE_FAKE_FAIL */
    FAKE_UNSAFE = 8,  /* breaks a stream capture that is going on */
    FAKE_OTHERS = 16, /* acts on another process: does not wait when this one is frozen */
    FAKE_TAKES = FAKE_CONTEXT | FAKE_ALLOC | FAKE_UNSAFE,
};

struct fake_call {
    bool locked;
    bool inside;
};
CUresult fake_enter(struct fake_call *call, enum fake_id id, unsigned needs);
void fake_leave(struct fake_call *call);

/* Opens every exported function: applies failures and delays, checks the state, takes the lock. */
#define FAKE_ENTER(symbol, needs)                                                                  \
    __attribute__((cleanup(fake_leave))) struct fake_call call_ = {false, false};                  \
    CUresult entered_ = fake_enter(&call_, FAKE_ID_##symbol, needs);                               \
    if (entered_ != CUDA_SUCCESS)                                                                  \
    return entered_

extern pthread_mutex_t fake_mutex; /* the lock */
extern pthread_cond_t fake_moved;  /* broadcast whenever a stream got further */

/* --- Process and card ---------------------------------------------------------------------- */

bool fake_alive(void);    /* cuInit has succeeded in this process, not in a parent that forked it */
CUresult fake_open(void); /* finds the cards */
CUresult fake_attach(void); /* becomes one of their users */
struct fake_shared *fake_shared_state(void);
int fake_slot(void);
int fake_data_file(void); /* descriptor of the file behind this process's memory, or -1 */

/* Takes bytes of a card: out of memory when they do not fit. Hidden ones NVML does not name. */
CUresult fake_charge(int card, uint64_t bytes, uint64_t hidden);
void fake_uncharge(int card, uint64_t bytes, uint64_t hidden);
/* So much of what is hidden is managed memory (or, as a negative number, is no more). */
void fake_touched(int card, int64_t bytes);
void fake_count(int card, int change); /* live allocations */
void fake_card_figures(int card, uint64_t *used);

int fake_card_of(CUdevice dev); /* index in the configuration, or -1 */
CUdevice fake_device_of(int card);

void fake_freeze_wait(void); /* checkpoint.c: returns when this process may go on, and counts it in */
void fake_freeze_leave(void);

/* --- Bytes and addresses ------------------------------------------------------------------- */

/* A run of pages: bytes in the data file, seen by the fake at `host`, by programs at `dev`. */
struct fake_block {
    struct fake_window *window;
    uint64_t offset; /* in the data file */
    uint64_t size;   /* a multiple of FAKE_PAGE */
    unsigned char *host;
    CUdeviceptr dev;
};
bool fake_block_take(uint64_t size, struct fake_block *block);
void fake_block_drop(struct fake_block *block);
void fake_block_forget(struct fake_block *block); /* never use again: an importer still reads it */
void fake_block_own(const struct fake_block *block, void *owner); /* what its addresses lead to */

enum fake_kind {
    FAKE_LINEAR,
    FAKE_POOL,
    FAKE_VIRTUAL,
    FAKE_GRAPH,
    FAKE_IMPORT,
    FAKE_MANAGED,
    FAKE_HOST,
};

/* What an address leads to. */
struct fake_range {
    enum fake_kind kind;
    unsigned char *host; /* of the very byte asked for; NULL: no bytes of its own here */
    size_t length;       /* bytes from there on */
    CUdeviceptr base;    /* of the allocation */
    size_t size;
    int card;
    CUcontext ctx;
    CUmemoryPool pool;
    void *object;
};

struct fake_span;
typedef bool fake_resolver(const struct fake_span *span, CUdeviceptr at, struct fake_range *range);
struct fake_span {
    CUdeviceptr start;
    uint64_t size;
    enum fake_kind kind;
    void *object;
    fake_resolver *resolve;
};
bool fake_span_add(struct fake_span span);
void fake_span_remove(CUdeviceptr start);
const struct fake_span *fake_span_at(CUdeviceptr at);
CUdeviceptr fake_addresses_reserve(uint64_t size, uint64_t alignment);
void fake_addresses_free(CUdeviceptr start, uint64_t size);

bool fake_resolve(CUdeviceptr at, struct fake_range *range);
bool fake_device_range(CUdeviceptr at, size_t size);  /* is all of it memory of a device? */
void fake_touch_managed(CUdeviceptr at, size_t size); /* a device is about to touch it */
bool fake_linear_resolve(void *owner, CUdeviceptr at, struct fake_range *range);
struct fake_block *fake_linear_block(void *owner);
int fake_linear_export(void *owner);
void *fake_window_owner(CUdeviceptr at);
int fake_virtual_handle_types(CUdeviceptr at); /* what the memory mapped there can be exported as */
CUresult fake_pool_free_now(CUdeviceptr ptr);
CUresult fake_managed_free(CUdeviceptr ptr);

/* --- Contexts ------------------------------------------------------------------------------- */

struct fake_slab;
struct fake_large;
struct fake_slabs {
    struct fake_slab *first;
};

struct CUctx_st {
    struct CUctx_st *next; /* all that ever were; never freed, so that stale handles are harmless */
    bool live;
    bool primary;
    int card;
    unsigned int flags;
    unsigned long long id;
    size_t limit[16];
    uint64_t stack_bytes; /* charged for the stack limit */
    uint64_t stream_bytes;
    int stream_count;
    CUresult sticky; /* an error that the context never recovers from */
    CUstream null_stream;
    struct fake_slabs linear, arrays;
    struct fake_large *large;
};

CUcontext fake_current(void);
void fake_linear_release_all(CUcontext ctx);
void fake_module_release_all(CUcontext ctx);
bool fake_linear_take(CUcontext ctx, struct fake_slabs *slabs, size_t bytes, CUdeviceptr *out,
                      CUresult *result);
CUresult fake_linear_drop(CUdeviceptr ptr);

/* --- Streams --------------------------------------------------------------------------------- */

struct fake_op;
typedef void fake_op_run(struct fake_op *op);

/* One piece of work. Allocated with malloc by fake_op_new and freed once it ran. */
struct fake_op {
    struct fake_op *next;
    uint64_t number; /* in its stream */
    CUcontext ctx;
    fake_op_run *prepare; /* with the lock: addresses to bytes */
    fake_op_run *run;     /* without it */
    bool slow;            /* never run by the caller's thread */
    struct fake_wait {
        CUstream stream;
        uint64_t number;
    } * waits;
    int wait_count;
    CUresult failed; /* set by prepare: the context is broken */
    max_align_t data[];
};
static inline void *fake_op_data(struct fake_op *op)
{
    return op->data;
}

struct CUstream_st {
    struct CUstream_st *next;
    bool live;
    CUcontext ctx;
    unsigned int flags;
    int priority;
    unsigned long long id;
    pthread_t owner; /* of a per-thread default stream */
    bool per_thread;
    uint64_t queued, done;
    struct fake_op *head, **tail;
    bool running, has_worker;
    struct fake_capture *capture;
};

struct CUevent_st {
    struct CUevent_st *next; /* all that ever were */
    struct CUevent_st *next_dead;
    bool live;
    bool recorded;
    CUcontext ctx;
    unsigned int flags;
    CUstream stream;
    uint64_t number;
    uint64_t time_ns;
    uint64_t turn; /* of recordings, so that an old one does not set the time of a new one */
    struct fake_capture *capture;
    CUgraphNode node;
};

/* NULL, 1 and 2 to real streams; `per_thread` says what NULL means. NULL for a dead handle. */
CUstream fake_stream(CUstream stream, bool per_thread);
CUstream fake_stream_new(CUcontext ctx, unsigned int flags, int priority);
void fake_stream_release_all(CUcontext ctx);
struct fake_op *fake_op_new(size_t data_size, fake_op_run *prepare, fake_op_run *run);
void fake_op_wait(struct fake_op *op, CUstream stream, uint64_t number);
void fake_enqueue(CUstream stream, struct fake_op *op);
/* Is it work that asks for bytes? It reaches all that is held, be it freed in an order that comes later. */
extern bool fake_at_work;
void fake_wait_stream(CUstream stream, uint64_t number);
void fake_wait_context(CUcontext ctx);
CUstream fake_streams(void);
CUresult fake_record_now(CUstream stream, CUevent event);
CUresult fake_wait_now(CUstream stream, CUevent event);
/* The program has waited until the stream got to `number`; NULL: for everything. */
void fake_pool_synchronized(CUstream stream, uint64_t number);

/* --- Work: what a stream or a graph can do ----------------------------------------------------- */

enum fake_work_kind {
    FAKE_WORK_EMPTY,
    FAKE_WORK_COPY,
    FAKE_WORK_SET,
    FAKE_WORK_KERNEL,
    FAKE_WORK_HOST,
    FAKE_WORK_ALLOC,
    FAKE_WORK_FREE,
    FAKE_WORK_GRAPH,
    FAKE_WORK_RECORD,
    FAKE_WORK_WAIT,
};

struct fake_work {
    enum fake_work_kind kind;
    union {
        struct {
            CUdeviceptr dst, src;
            size_t width, height, dst_pitch, src_pitch;
            bool dst_is_host, src_is_host; /* any address will do */
        } copy;
        struct {
            CUdeviceptr dst;
            unsigned int value, element;
            size_t width, height, pitch; /* width in elements */
        } set;
        struct {
            CUfunction function;
            int what;             /* enum fake_kernel */
            uint64_t argument[3]; /* spin: ns; fill, add: address, count of u32, value */
        } kernel;
        struct {
            CUhostFn function;
            CUstreamCallback callback;
            CUstream stream;
            void *data;
        } host;
        struct fake_graph_memory *memory; /* of alloc and free nodes */
        CUgraph child;
        CUevent event;
    };
};

/* Puts work on a stream, or into the graph that the stream is capturing. */
CUresult fake_submit(CUstream stream, const struct fake_work *work);
CUresult fake_work_check(const struct fake_work *work);
struct fake_op *fake_work_op(const struct fake_work *work);
CUresult fake_kernel_work(CUfunction function, void **params, void **extra, struct fake_work *work);

/* The kernels that do something; others succeed and do nothing. */
/* From FILL on they work on bytes of the device. */
enum fake_kernel {
    FAKE_KERNEL_NONE,
    FAKE_KERNEL_SPIN,
    FAKE_KERNEL_WAIT,
    FAKE_KERNEL_FILL,
    FAKE_KERNEL_ADD
};

/* --- Capture and graphs ------------------------------------------------------------------------ */

bool fake_capturing(CUstream stream);
CUresult fake_capture_add(CUstream stream, const struct fake_work *work, CUgraphNode *node);
CUresult fake_capture_alloc(CUstream stream, size_t bytes, CUdeviceptr *out);
CUresult fake_capture_free(CUstream stream, CUdeviceptr ptr);
CUresult fake_capture_record(CUstream stream, CUevent event);
CUresult fake_capture_wait(CUstream stream, CUevent event);
bool fake_capture_forbids(void);        /* an unsafe call now breaks a capture, and has */
bool fake_capture_forbids_here(void);   /* the same, of captures that this thread began */
bool fake_capture_break(CUcontext ctx); /* breaks all captures of a context; were there any? */
void fake_capture_break_stream(CUstream stream);
bool fake_graph_free(CUdeviceptr ptr); /* memory that a graph allocated and did not free */

/* --- Sharing ------------------------------------------------------------------------------------ */

int fake_export_block(const struct fake_block *block, int card); /* index, or -1 */
/* The owner lets go of an exported block. True: importers hold it, its charge is theirs now. */
bool fake_export_release(int export_index, const struct fake_block *block);
void fake_export_collect(void); /* blocks whose last importer left become usable again */
/* Maps another process's export here; NULL when it is gone. */
unsigned char *fake_export_map(uint32_t index, uint32_t generation, uint64_t *size, int *card);
void fake_export_unmap(uint32_t index, uint32_t generation, unsigned char *host, uint64_t size);

#endif
