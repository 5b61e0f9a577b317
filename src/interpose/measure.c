/*
 * measure.c: the driver's own figure for this process, through NVML.
 *
 * On an H200 the figure follows every allocation at once: it is everything that the device has taken
 * for the process except 5.5625 MiB per context. So it tells what a context took, and afterwards
 * what the books do not know: code, streams, stacks. Managed memory is not in it.
 *
 * That rest of a context is in no process's figure, only in the card's. So it shows as what rises in the card's use
 * less the sum of all processes while a context is made, whatever others allocate meanwhile; a context that another
 * process makes at the same moment would be in it too. The first cuInit on a card that nobody uses takes 3.25 MiB more,
 * which belong to nobody and stay out of the books.
 *
 * It also settles what the books hold in doubt: what destroyed pools have left, which cannot be asked
 * any more, and the pages of small arrays, whose places the driver does not tell. Their charge is an
 * upper bound until the figure lowers it.
 *
 * The process may be listed under another pid than it knows of itself (pid namespaces), or not at all.
 * Then there is no figure: contexts stay charged with the last size known, and class module stays 0.
 */
#include <dlfcn.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "interpose.h"
#include "jump.h"
#include "nvml.h"

enum { MAX_LISTED = 512, REST_TRIES = 200 /* of a tenth of a millisecond */ };

static struct {
    struct ull__nvml nvml;
    _Atomic int state;    /* 0: not loaded yet, 1: ready, -1: there is none */
    _Atomic uint32_t pid; /* of this process, as the driver lists it; 0: unknown */
    pthread_mutex_t lock;
    pthread_mutex_t resting; /* one thread at a time compares the books with the figure */
    int before_count;        /* processes that were listed before the first context was made */
    struct ull__nvml_process before[MAX_LISTED];
} books = {.lock = PTHREAD_MUTEX_INITIALIZER, .resting = PTHREAD_MUTEX_INITIALIZER};

void ull__measure_start(void)
{
    struct ull__linker linker = {.open = ull__real_open, .symbol = dlsym};
    bool loaded = ull__nvml_init(&books.nvml, &linker, NULL, NULL) == ULL_OK;
    atomic_store(&books.state, loaded ? 1 : -1);
}

bool ull__measure_ready(uint64_t wait_ns)
{
    struct timespec step = {.tv_nsec = 200000};
    for (uint64_t waited = 0; atomic_load(&books.state) == 0 && waited < wait_ns; waited += 200000)
        nanosleep(&step, NULL);
    return atomic_load(&books.state) == 1;
}

static int list(const struct ull__gpu *gpu, struct ull__nvml_process *processes)
{
    struct ull__nvml_device device;
    if (ull__nvml_device(&books.nvml, gpu->uuid, &device) != ULL_OK)
        return -1;
    int count = ull__nvml_processes(&books.nvml, device.handle, processes, MAX_LISTED);
    return count > MAX_LISTED ? MAX_LISTED : count;
}

/* --- which pid is ours ---------------------------------------------------------------------------------------- */

void ull__measure_before(const struct ull__gpu *gpu)
{
    enum { NVML_LOADS_NS = 500000000 }; /* it has been loading since cuInit began */
    if (!gpu || gpu->device < 0 || atomic_load(&books.pid) || !ull__measure_ready(NVML_LOADS_NS))
        return;
    pthread_mutex_lock(&books.lock);
    books.before_count = list(gpu, books.before);
    pthread_mutex_unlock(&books.lock);
}

static bool was_listed(uint32_t pid)
{
    for (int i = 0; i < books.before_count; i++)
        if (books.before[i].pid == pid)
            return true;
    return false;
}

/* This process's own pid if it appeared, else the only one that did. */
void ull__measure_find_pid(const struct ull__gpu *gpu)
{
    struct ull__nvml_process now[MAX_LISTED];
    if (!gpu || gpu->device < 0 || atomic_load(&books.pid) || !ull__measure_ready(0))
        return;
    pthread_mutex_lock(&books.lock);
    int count = books.before_count < 0 ? -1 : list(gpu, now);
    uint32_t found = 0, appeared = 0;
    for (int i = 0; i < count; i++) {
        if (was_listed(now[i].pid))
            continue;
        appeared++;
        if (now[i].pid == (uint32_t)getpid() || (appeared == 1 && !found))
            found = now[i].pid;
    }
    if (appeared > 1 && found != (uint32_t)getpid())
        found = 0;
    pthread_mutex_unlock(&books.lock);
    atomic_store(&books.pid, found);
    ull__member_set_driver_pid(atomic_load(&ull__state.member), found);
}

/* --- the figure --------------------------------------------------------------------------------------------------- */

int ull__measure_listed(void *data, const char *uuid, uint32_t driver_pid, uint64_t *used_bytes)
{
    (void)data;
    return atomic_load(&books.state) == 1
               ? ull__nvml_listed(&books.nvml, uuid, driver_pid, used_bytes)
               : -1;
}

bool ull__measure_works(void)
{
    return atomic_load(&books.pid) != 0 && atomic_load(&books.state) == 1;
}

bool ull__measure(const struct ull__gpu *gpu, uint64_t *bytes)
{
    uint32_t pid = atomic_load(&books.pid);
    *bytes = 0;
    if (!gpu || gpu->device < 0 || !ull__measure_ready(0))
        return false;
    if (pid == 0) /* no context yet: nothing is held, if the list can be read at all */
        return books.before_count >= 0 && !was_listed((uint32_t)getpid());
    int listed = ull__measure_listed(NULL, gpu->uuid, pid, bytes);
    if (listed == 0)
        *bytes = 0; /* listed on another device only */
    return listed >= 0 && *bytes != ULL_NVML_UNKNOWN;
}

/* What everybody holds on the card, if no other process than this one can be seen there. */
bool ull__measure_card(const struct ull__gpu *gpu, uint64_t *bytes)
{
    struct ull__nvml_device device;
    struct ull__nvml_process processes[MAX_LISTED];
    if (!gpu || gpu->device < 0 || !ull__measure_ready(0) ||
        ull__nvml_device(&books.nvml, gpu->uuid, &device) != ULL_OK ||
        ull__nvml_memory(&books.nvml, &device) != ULL_OK || device.used_bytes == ULL_NVML_UNKNOWN)
        return false;
    int count = list(gpu, processes);
    for (int i = 0; i < count; i++)
        if (processes[i].pid != atomic_load(&books.pid) && processes[i].pid != (uint32_t)getpid())
            return false;
    *bytes = device.used_bytes;
    return true;
}

bool ull__measure_unnamed(const struct ull__gpu *gpu, struct ull__unnamed *unnamed)
{
    struct ull__nvml_device device;
    struct ull__nvml_process processes[MAX_LISTED];
    if (!gpu || gpu->device < 0 || !ull__measure_ready(0) ||
        ull__nvml_device(&books.nvml, gpu->uuid, &device) != ULL_OK)
        return false;
    uint64_t used = device.used_bytes, sum = 0, others = 0;
    int count = ull__nvml_processes(&books.nvml, device.handle, processes, MAX_LISTED);
    if (used == ULL_NVML_UNKNOWN || count < 0 || count > MAX_LISTED ||
        ull__nvml_memory(&books.nvml, &device) != ULL_OK || device.used_bytes != used)
        return false; /* not known, or something changed between two looks */
    for (int i = 0; i < count; i++) {
        if (processes[i].used_bytes == ULL_NVML_UNKNOWN)
            return false;
        sum += processes[i].used_bytes;
        if (processes[i].pid != atomic_load(&books.pid) && processes[i].pid != (uint32_t)getpid())
            others += processes[i].used_bytes ^ (uint64_t)processes[i].pid << 40;
    }
    if (sum > used)
        return false;
    *unnamed = (struct ull__unnamed){used - sum, others};
    return true;
}

/* What the figure for this process should be at least, by the books. */
static uint64_t known(const struct ull__gpu *gpu)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    int ordinal = (int)(gpu - ull__state.gpus);
    uint64_t sum = 0;
    uint64_t left_out = ull__block_sum(ordinal, BLOCK_MANAGED) + ull__block_hidden_sum(ordinal);
    for (int c = 0; c < ULL_CLASSES; c++)
        if (c != ULL_CLASS_MODULE)
            sum += ull__member_held(member, gpu->device, (enum ull__class)c);
    return sum > left_out ? sum - left_out : 0;
}

/*
 * A context that was made while other threads were busy is charged with what the last one took. Where
 * NVML shows less than the books, that was too much.
 */
static void correct_context(const struct ull__gpu *gpu, uint64_t too_much)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    struct ull__block context;
    int ordinal = (int)(gpu - ull__state.gpus);
    if (atomic_load(&ull__state.context_measured[ordinal]) ||
        !ull__block_only(ordinal, BLOCK_CONTEXT, &context) ||
        too_much >= context.charged - context.hidden || !ull__block_lower(context.address, too_much))
        return;
    ull__lower(gpu, ULL_CLASS_CONTEXT, too_much);
    ull__member_context_measured(member, gpu->device, context.charged - context.hidden - too_much,
                                 ULL_CONTEXT_BY_PROCESS);
    atomic_store(&ull__state.context_measured[ordinal], true);
}

void ull__measure_lower_hidden(const struct ull__gpu *gpu)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    uint64_t now = ull__ledger_hidden_bytes(ull__member_ledger(member), gpu->device);
    uint64_t too_much = now ? ull__block_lower_hidden((int)(gpu - ull__state.gpus), now) : 0;
    if (too_much == 0)
        return;
    ull__lower(gpu, ULL_CLASS_CONTEXT, too_much);
    ull__member_hidden_add(member, gpu->device, -(int64_t)too_much);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The figure shows this much beyond what is certain. Whose it is cannot be seen, but the sum can. */
static void share_out(const struct ull__gpu *gpu, uint64_t excess, uint64_t pools, uint64_t arrays)
{
    struct ull__member *member = atomic_load(&ull__state.member);
    uint64_t module = ull__member_held(member, gpu->device, ULL_CLASS_MODULE);
    uint64_t module_now = smaller(module, excess);
    uint64_t pools_now = smaller(pools, excess - module_now);
    uint64_t arrays_now = smaller(arrays, excess - module_now - pools_now);
    module_now = excess - pools_now - arrays_now;
    if (module_now > module)
        ull__member_charge(member, gpu->device, ULL_CLASS_MODULE, module_now - module);
    if (ull__recording())
        ull__tell_change(gpu, ULL_CLASS_MODULE, (int64_t)(module_now - module));
    if (module_now < module)
        ull__member_release(member, gpu->device, ULL_CLASS_MODULE, module - module_now);
    ull__reserves_lower_destroyed(gpu, pools - pools_now);
    if (pools_now > 0) /* it may go at any synchronization */
        atomic_store(&ull__state.code_changed, true);
    ull__arrays_lower_slack(gpu, arrays - arrays_now);
}

static void measure_rest_of(const struct ull__gpu *gpu)
{
    uint64_t figure = 0;
    ull__measure_lower_hidden(gpu);
    uint64_t turns = atomic_load(&ull__state.turns);
    uint64_t pools = ull__reserves_destroyed(gpu), arrays = ull__arrays_slack(gpu);
    uint64_t books_before = known(gpu);
    if (ull__calls_under_way(turns) != 0 || !ull__measure(gpu, &figure))
        return;
    ull__reserves_refresh(gpu, false); /* a pool may have shrunk meanwhile */
    if (turns != atomic_load(&ull__state.turns) || books_before != known(gpu))
        return; /* something was being allocated: the next look will do */
    uint64_t certain = books_before > pools + arrays ? books_before - pools - arrays : 0;
    if (figure < certain)
        correct_context(gpu, certain - figure);
    share_out(gpu, figure > certain ? figure - certain : 0, pools, arrays);
}

void ull__measure_rest(bool waits)
{
    if (!atomic_load(&books.pid))
        return;
    for (int i = 0; pthread_mutex_trylock(&books.resting) != 0; i++) { /* another thread is at it */
        if (!waits || i == REST_TRIES)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    for (int i = 0; i < ull__state.gpu_count; i++)
        if (ull__state.gpus[i].device >= 0)
            measure_rest_of(&ull__state.gpus[i]);
    pthread_mutex_unlock(&books.resting);
}

void ull__measure_forget(void)
{
    /* The library stays loaded, but what it has open belongs to the parent: begin anew. */
    memset(&books, 0, sizeof books);
    pthread_mutex_init(&books.lock, NULL);
    pthread_mutex_init(&books.resting, NULL);
}
