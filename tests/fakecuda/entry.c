/*
 * entry.c: what happens at the start of every driver call: failures and delays that a test asked
 * for, the checks that all calls have in common, and the lock.
 *
 *   ULLAGE_FAKE_FAIL="cuMemAlloc_v2:3=2,*:17=999"   the 3rd cuMemAlloc_v2 of the process returns 2;
 *                                                   so does the 17th call that takes memory, with 999
 *   ULLAGE_FAKE_DELAY="cuMemAlloc_v2=5ms"           sleeps before doing anything (us, ms or s);
 *                                                   "=0-5ms": each call another time, at random;
 *                                                   "every=0-1ms": whatever is called, and again
 *                                                   when it is done
 */
#include "fake.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_RULES = 64, ANY_TAKING = -1, EVERY = -2, UNKNOWN = -3 };

struct rule {
    int id; /* ANY_TAKING: any call that takes memory, EVERY: any call */
    unsigned long nth;
    CUresult result;
    uint64_t delay_ns, most_ns;
};

const char *const fake_names[FAKE_ID_COUNT] = {
#define CU_HOOK(symbol, base, since, since_pt, params, args) #symbol,
#define CU_CALL(symbol, base, since, since_pt, exempt, params) #symbol,
#define CU_PASS(symbol, base, since, since_pt, exempt) #symbol,
#include "cuda_api.def"
};

pthread_mutex_t fake_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_moved = PTHREAD_COND_INITIALIZER;

static struct rule fails[MAX_RULES], delays[MAX_RULES];
static int fail_count, delay_count;
static atomic_ulong calls[FAKE_ID_COUNT + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int find_name(const char *text, size_t length)
{
    for (int i = 0; i < FAKE_ID_COUNT; i++)
        if (strlen(fake_names[i]) == length && strncmp(fake_names[i], text, length) == 0)
            return i;
    if (length == 5 && strncmp(text, "every", 5) == 0)
        return EVERY;
    return length == 1 && *text == '*' ? ANY_TAKING : UNKNOWN;
}

static bool read_rule(const char *text, bool delay, struct rule *rule)
{
    char *after = NULL;
    size_t name = strcspn(text, delay ? "=" : ":");
    rule->id = find_name(text, name);
    text += name;
    if (rule->id == UNKNOWN || *text == '\0' || (rule->id == EVERY && !delay))
        return false;
    if (delay) {
        double least = strtod(text + 1, &after);
        double most = *after == '-' ? strtod(after + 1, &after) : least;
        double unit = strncmp(after, "us", 2) == 0 ? 1e3 : strncmp(after, "ms", 2) == 0 ? 1e6 : 1e9;
        rule->delay_ns = (uint64_t)(least * unit);
        rule->most_ns = (uint64_t)(most * unit);
        return after != text + 1 && least >= 0 && most >= least;
    }
    rule->nth = strtoul(text + 1, &after, 10);
    if (*after != '=')
        return false;
    rule->result = atoi(after + 1);
    return true;
}

static int read_rules(const char *name, bool delay, struct rule *rules)
{
    const char *text = getenv(name);
    int count = 0;
    while (text && *text && count < MAX_RULES) {
        if (!read_rule(text, delay, &rules[count])) {
            fprintf(stderr, "fakecuda: cannot read %s=%s\n", name, text);
            break;
        }
        count++;
        text += strcspn(text, ",");
        text += *text == ',';
    }
    return count;
}

static void read_all_rules(void)
{
    fail_count = read_rules("ULLAGE_FAKE_FAIL", false, fails);
    delay_count = read_rules("ULLAGE_FAKE_DELAY", true, delays);
}

static void delay(const struct rule *rule)
{
    static _Atomic uint64_t count;
    uint64_t drawn = (atomic_fetch_add(&count, 1) + 1) * 0x9e3779b97f4a7c15ull >> 33;
    uint64_t ns = rule->delay_ns + drawn % (rule->most_ns - rule->delay_ns + 1);
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

static CUresult injected(enum fake_id id, unsigned needs)
{
    for (int i = 0; i < delay_count; i++)
        if (delays[i].id == (int)id || delays[i].id == EVERY ||
            (delays[i].id == ANY_TAKING && needs & FAKE_ALLOC))
            delay(&delays[i]);
    if (fail_count == 0)
        return CUDA_SUCCESS;
    unsigned long nth = atomic_fetch_add(&calls[id], 1) + 1;
    unsigned long taking = needs & FAKE_ALLOC ? atomic_fetch_add(&calls[FAKE_ID_COUNT], 1) + 1 : 0;
    for (int i = 0; i < fail_count; i++)
        if (fails[i].nth == (fails[i].id == ANY_TAKING ? taking
                             : fails[i].id == (int)id  ? nth
                                                       : 0) &&
            fails[i].nth != 0)
            return fails[i].result;
    return CUDA_SUCCESS;
}

CUresult fake_enter(struct fake_call *call, enum fake_id id, unsigned needs)
{
    pthread_once(&once, read_all_rules);
    if (fail_count + delay_count > 0) {
        CUresult r = injected(id, needs);
        if (r != CUDA_SUCCESS)
            return r;
    }
    if (needs & FAKE_INIT && !fake_alive())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (fake_alive() && !(needs & FAKE_OTHERS)) {
        fake_freeze_wait();
        call->inside = true;
    }
    pthread_mutex_lock(&fake_mutex);
    call->locked = true;
    if ((needs & FAKE_CONTEXT) == FAKE_CONTEXT) {
        CUcontext ctx = fake_current();
        if (!ctx)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (!ctx->live)
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        if (ctx->sticky != CUDA_SUCCESS)
            return ctx->sticky;
    }
    if (needs & FAKE_UNSAFE && fake_capture_forbids())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return CUDA_SUCCESS;
}

void fake_leave(struct fake_call *call)
{
    if (call->locked)
        pthread_mutex_unlock(&fake_mutex);
    if (call->inside)
        fake_freeze_leave();
    for (int i = 0; i < delay_count; i++)
        if (delays[i].id == EVERY)
            delay(&delays[i]);
}
