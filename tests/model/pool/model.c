/*
 * model.c: random operations on a pool against a naive model, which shares no code with it.
 *
 *   model_pool [SEED [OPERATIONS]]
 *
 * Between pool and host device stands a device that notes which page is mapped at which address. From
 * that, and from what the pool handed out, the model knows which 256-byte unit of which page belongs to
 * whom: nothing may be handed out twice, through whatever addresses. It also knows which pages are in
 * use, and so when a refusal was right: only if the pages not in use, within the limit, are fewer than the
 * request needs.
 *
 * Three streams lag behind at random. All memory is written at its ends when it is handed out and read
 * when it is freed, in its stream's order, so that memory which is reused too early shows other
 * bytes, and memory that is unmapped too early is a misuse that the device counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "pool_private.h"

enum { PAGE = 4096, UNIT = 256, UNITS = PAGE / UNIT, PAGES = 512, STREAMS = 3, LIVE = 400 };
enum { CHECKS = 256, END = 64, ADDRESSES = 1 << 16, ROUND = 64 * PAGE };

static uint64_t seed;
static uint64_t operation;

__attribute__((noreturn, noinline)) static void fail(const char *what, uint64_t a, uint64_t b)
{
    printf("model_pool: seed %llu, operation %llu: %s (%llu, %llu)\n", (unsigned long long)seed,
           (unsigned long long)operation, what, (unsigned long long)a, (unsigned long long)b);
    exit(1);
}

static uint64_t state;

static uint64_t random_below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % n;
}

/* --- the device in between ------------------------------------------------------------------------------ */

static struct {
    struct ull__device device;
    struct ull__device *host;
    struct ull__device_ops ops;
    uint64_t base, whole, whole_bytes;
    ull__page page_at[ADDRESSES]; /* by page of addresses from base */
    uint64_t held;
} between;

static struct ull__device *host(void)
{
    return between.host;
}

static ull_status b_memory(struct ull__device *d, uint64_t *f, uint64_t *t)
{
    (void)d;
    return host()->ops->memory(host(), f, t);
}

static ull_status b_reserve(struct ull__device *d, uint64_t bytes, uint64_t *address)
{
    (void)d;
    if (bytes / PAGE > ADDRESSES)
        return ULL_E_NO_MEMORY;
    /* At a round address, so that a seed means the same each time. */
    ull_status status = host()->ops->reserve(host(), bytes + ROUND, &between.whole);
    between.whole_bytes = bytes + ROUND;
    between.base = (between.whole + ROUND - 1) / ROUND * ROUND;
    if (status == ULL_OK)
        *address = between.base;
    return status;
}

static void b_release(struct ull__device *d, uint64_t address, uint64_t bytes)
{
    (void)d;
    if (address != between.base || bytes + ROUND != between.whole_bytes)
        fail("other addresses were released than were reserved", address, bytes);
    host()->ops->release(host(), between.whole, between.whole_bytes);
}

static ull_status b_create(struct ull__device *d, size_t count, ull__page *pages)
{
    (void)d;
    ull_status status = host()->ops->create(host(), count, pages);
    between.held += status == ULL_OK ? count : 0;
    return status;
}

static void b_destroy_pages(struct ull__device *d, size_t count, const ull__page *pages)
{
    (void)d;
    between.held -= count;
    host()->ops->destroy_pages(host(), count, pages);
}

static ull_status b_map(struct ull__device *d, uint64_t address, size_t count, const ull__page *pages)
{
    (void)d;
    ull_status status = host()->ops->map(host(), address, count, pages);
    for (size_t i = 0; i < count && status == ULL_OK; i++)
        between.page_at[(address - between.base) / PAGE + i] = pages[i];
    return status;
}

static void b_unmap(struct ull__device *d, uint64_t address, size_t count)
{
    (void)d;
    memset(&between.page_at[(address - between.base) / PAGE], 0, count * sizeof(ull__page));
    host()->ops->unmap(host(), address, count);
}

static ull_status b_record(struct ull__device *d, ull__stream stream, ull__event *event)
{
    (void)d;
    return host()->ops->record(host(), stream, event);
}

static bool b_done(struct ull__device *d, ull__event event)
{
    (void)d;
    return host()->ops->done(host(), event);
}

static bool b_wait(struct ull__device *d, ull__event event, uint64_t ns)
{
    (void)d;
    return host()->ops->wait(host(), event, ns);
}

static void b_forget(struct ull__device *d, ull__event event)
{
    (void)d;
    host()->ops->forget(host(), event);
}

static bool b_capturing(struct ull__device *d, ull__stream stream)
{
    (void)d;
    return host()->ops->capturing(host(), stream);
}

static ull_status b_synchronize(struct ull__device *d, ull__stream stream)
{
    (void)d;
    return host()->ops->synchronize(host(), stream);
}

static void place_between(void)
{
    between.ops = (struct ull__device_ops){.name = "between",
                                           .memory = b_memory,
                                           .reserve = b_reserve,
                                           .release = b_release,
                                           .create = b_create,
                                           .destroy_pages = b_destroy_pages,
                                           .map = b_map,
                                           .unmap = b_unmap,
                                           .record = b_record,
                                           .done = b_done,
                                           .wait = b_wait,
                                           .forget = b_forget,
                                           .capturing = b_capturing,
                                           .synchronize = b_synchronize};
    between.device = (struct ull__device){.ops = &between.ops, .page_bytes = PAGE};
}

/* --- what the model knows --------------------------------------------------------------------------------- */

struct holding {
    uint64_t address, bytes; /* 0: none */
    int stream;
    uint8_t value;
};

/* Bytes that a stream reads some time, and what they must be. */
struct check {
    uint8_t first[END], last[END];
    uint64_t bytes;
    uint8_t value;
};

static struct {
    struct ull_pool *pool;
    ull__stream streams[STREAMS];
    struct holding held[LIVE];
    uint16_t owner[PAGES + 1][UNITS]; /* by page and unit: holding + 1 */
    uint64_t limit;
    uint64_t clock;
    struct check checks[STREAMS][CHECKS];
    int check_count[STREAMS];
    uint64_t requests, refusals;
} model;

static uint64_t model_now(void *context)
{
    (void)context;
    return model.clock;
}

static uint16_t *unit_at(uint64_t address)
{
    ull__page page = between.page_at[(address - between.base) / PAGE];
    if (page == 0 || page > PAGES)
        fail("handed out an address without a page", address, page);
    return &model.owner[page][address % PAGE / UNIT];
}

static void own(int index, bool takes)
{
    const struct holding *h = &model.held[index];
    for (uint64_t at = 0; at < h->bytes; at += UNIT) {
        uint16_t *unit = unit_at(h->address + at);
        if (*unit != (takes ? 0 : index + 1))
            fail("memory was handed out twice", (uint64_t)index, *unit);
        *unit = takes ? (uint16_t)(index + 1) : 0;
    }
}

static uint64_t pages_in_use(void)
{
    uint64_t count = 0;
    for (int page = 1; page <= PAGES; page++) {
        bool used = false;
        for (int unit = 0; unit < UNITS && !used; unit++)
            used = model.owner[page][unit] != 0;
        count += used;
    }
    return count;
}

/* --- streams ------------------------------------------------------------------------------------------------- */

static void synchronize(int s)
{
    host()->ops->synchronize(host(), model.streams[s]);
    for (int i = 0; i < model.check_count[s]; i++) {
        const struct check *c = &model.checks[s][i];
        for (uint64_t k = 0; k < (c->bytes < END ? c->bytes : END); k++) {
            if (c->first[k] != c->value || c->last[k] != c->value)
                fail("other bytes than were written", c->first[k], c->value);
        }
    }
    model.check_count[s] = 0;
}

static void read_later(int s, const struct holding *h)
{
    if (model.check_count[s] == CHECKS)
        synchronize(s);
    struct check *c = &model.checks[s][model.check_count[s]++];
    uint64_t bytes = h->bytes < END ? h->bytes : END;
    c->value = h->value;
    c->bytes = bytes;
    host()->ops->copy_out(host(), c->first, h->address, bytes, model.streams[s]);
    host()->ops->copy_out(host(), c->last, h->address + h->bytes - bytes, bytes, model.streams[s]);
}

static void write_later(int s, const struct holding *h)
{
    uint64_t bytes = h->bytes < END ? h->bytes : END;
    host()->ops->fill(host(), h->address, h->value, bytes, model.streams[s]);
    host()->ops->fill(host(), h->address + h->bytes - bytes, h->value, bytes, model.streams[s]);
}

/* --- operations ------------------------------------------------------------------------------------------------ */

static uint64_t random_size(void)
{
    switch (random_below(4)) {
    case 0:
        return 1 + random_below(1024);
    case 1:
        return 1 + random_below(2 * PAGE);
    case 2:
        return 1 + random_below(16 * PAGE);
    default:
        return PAGE * (1 + random_below(24));
    }
}

static void request(int index)
{
    static const uint64_t alignments[] = {0, 0, 0, 0, 1, 512, 2048, PAGE, 4 * PAGE};
    struct holding *h = &model.held[index];
    struct ull_request r = {
        .bytes = random_size(), .alignment = alignments[random_below(9)], .tag = "model"};
    struct ull_refusal refusal;
    int s = (int)random_below(STREAMS);
    void *address = NULL;
    r.stream = model.streams[s];
    model.requests++;
    ull_status status = ull_pool_request(model.pool, &r, &refusal, &address);
    if (status == ULL_E_NO_MEMORY) {
        uint64_t needed = (r.bytes + PAGE - 1) / PAGE, used = pages_in_use();
        uint64_t limit = model.limit / PAGE;
        model.refusals++;
        if (used + needed <= limit) {
            char text[2048];
            ull_refusal_text(&refusal, text, sizeof text);
            puts(text);
            fail("refused though there was room", used + needed, limit);
        }
        if (refusal.wanted != r.bytes || refusal.held != between.held * PAGE)
            fail("the report is wrong", refusal.wanted, refusal.held);
        return;
    }
    if (status != ULL_OK)
        fail("a request failed", (uint64_t)-status, r.bytes);
    if ((uintptr_t)address % (r.alignment > UNIT ? r.alignment : UNIT) != 0)
        fail("not aligned", (uintptr_t)address, r.alignment);
    if (between.held > model.limit / PAGE)
        fail("served while above the limit", between.held, model.limit / PAGE);
    *h = (struct holding){.address = (uintptr_t)address,
                          .bytes = r.bytes,
                          .stream = s,
                          .value = (uint8_t)(1 + random_below(255))};
    own(index, true);
    write_later(s, h);
}

static void release(int index)
{
    struct holding *h = &model.held[index];
    int s = h->stream;
    uint64_t kind = random_below(16);
    if (kind == 0) { /* freed on another stream, which was made to follow */
        synchronize(s);
        s = (int)random_below(STREAMS);
    } else if (kind == 1) { /* read by another stream, which lags */
        synchronize(s);
        int other = (int)random_below(STREAMS);
        if (ull_pool_use_on(model.pool, (void *)(uintptr_t)h->address, model.streams[other]))
            fail("use_on", h->address, 0);
        read_later(other, h);
    }
    read_later(s, h);
    own(index, false);
    void *address = (void *)(uintptr_t)h->address;
    if (ull_pool_free(model.pool, address, model.streams[s]) != ULL_OK)
        fail("a free was refused", h->address, h->bytes);
    if (kind == 2 && ull_pool_free(model.pool, address, model.streams[s]) != ULL_E_INVALID)
        fail("freed twice", h->address, h->bytes);
    h->bytes = 0;
}

static void change(void)
{
    uint64_t bytes;
    switch (random_below(12)) {
    case 0:
        model.limit = PAGE * (PAGES / 4 + random_below(PAGES * 3 / 4 + 1));
        ull_pool_set_limit(model.pool, model.limit);
        break;
    case 1:
        ull_pool_trim(model.pool, PAGE * random_below(PAGES), &bytes);
        break;
    case 2:
        ull_pool_prewarm(model.pool, PAGE * (1 + random_below(32)));
        break;
    case 3:
        bytes = PAGE * random_below(64);
        if (ull_pool_set_reserve(model.pool, bytes) == ULL_OK && between.held * PAGE < bytes)
            fail("the reserve is not held", between.held, bytes);
        break;
    case 4:
        synchronize((int)random_below(STREAMS));
        break;
    default:
        break;
    }
}

static void check_all(void)
{
    char what[256];
    struct ull_stats s = {.size = sizeof s};
    if (!ull__pool_check(model.pool, what, sizeof what)) {
        printf("%s\n", what);
        fail("an invariant is broken", 0, 0);
    }
    ull_pool_stats(model.pool, &s);
    if (s.held != between.held * PAGE)
        fail("held", s.held, between.held * PAGE);
    if (s.fragmentation < 0 || s.fragmentation > 1)
        fail("fragmentation", 0, 0);
    if (ull__device_host_held(host()).misuses)
        fail("the device was misused", ull__device_host_held(host()).misuses, 0);
}

static void run(uint64_t operations)
{
    for (operation = 0; operation < operations; operation++) {
        int index = (int)random_below(LIVE);
        /* Waves: the pool fills and empties. */
        uint64_t share = operation / 5000 % 2 ? 3 : 6;
        if (model.held[index].bytes) {
            if (random_below(10) >= share || random_below(3) == 0)
                release(index);
        } else if (random_below(10) < share) {
            request(index);
        }
        model.clock += random_below(2000);
        if (random_below(4) == 0)
            ull__device_host_advance(host(), model.streams[random_below(STREAMS)],
                                     (unsigned)random_below(12));
        if (random_below(200) == 0)
            change();
        if (operation % 1000 == 0)
            check_all();
    }
}

int main(int argc, char **argv)
{
    struct ull_pool_options options;
    struct ull_error error;
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t operations = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    if (ull__device_host_create((uint64_t)PAGES * PAGE, PAGE, &between.host, &error) != ULL_OK)
        fail(error.message, 0, 0);
    ull__device_host_delay(host(), true);
    for (int i = 0; i < STREAMS; i++)
        host()->ops->stream_create(host(), &model.streams[i]);
    place_between();
    ull_pool_options_init(&options);
    options.small_bytes = 1024;
    options.idle_ns = 1000000;
    options.now_ns = model_now;
    options.mapping_factor = 1 + (unsigned)random_below(4);
    options.address_factor = 8 + (unsigned)random_below(8);
    model.limit = (uint64_t)PAGES * PAGE;
    if (ull_pool_create(&between.device, &options, &model.pool, &error) != ULL_OK)
        fail(error.message, 0, 0);
    run(operations);
    for (int i = 0; i < LIVE; i++) {
        if (model.held[i].bytes)
            release(i);
    }
    check_all();
    for (int i = 0; i < STREAMS; i++)
        synchronize(i);
    ull_pool_destroy(model.pool);
    struct ull__device_held held = ull__device_host_held(host());
    if (held.pages || held.mappings || held.reserved_bytes || held.events || held.misuses)
        fail("something leaked", held.pages, held.misuses);
    for (int i = 0; i < STREAMS; i++)
        host()->ops->stream_destroy(host(), model.streams[i]);
    printf("model_pool: seed %llu, %llu operations, %llu requests, %llu refused\n",
           (unsigned long long)seed, (unsigned long long)operations,
           (unsigned long long)model.requests, (unsigned long long)model.refusals);
    ull__device_destroy(host());
    return 0;
}
