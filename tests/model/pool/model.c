/*
 * model.c: random operations on a pool against a naive model, which shares no code with it.
 *
 *   model_pool [plain] [SEED [OPERATIONS [fronts]]]
 *
 * Between pool and host device stands a device that notes which page is mapped at which address. From
 * that, and from what the pool handed out, the model knows which 256-byte unit of which page belongs to
 * whom: nothing may be handed out twice, through whatever addresses. It also knows which pages are in
 * use, and so when a refusal was right: only if the pages not in use, within the limit, are fewer than the
 * request needs.
 *
 * "plain" is a device that cannot map pages. There a refusal was right if no free run in a region has room,
 * and if the limit, with all regions given back that are free as a whole, leaves no room for a new one. A
 * graph keeps more than what it had, so this is asked only while there is none; with an even seed always.
 *
 * Three streams lag behind at random. All memory is written at its ends when it is handed out and read
 * when it is freed, in its stream's order, so that memory which is reused too early shows other
 * bytes, and memory that is unmapped too early is a misuse that the device counts.
 *
 * Streams end and others take their place. Up to four graphs are captured, with a begin and an end or by a
 * device that says so, on one stream or several, and are released some time; until then nobody else may get
 * what they had. The model orders the streams itself where the pool asks that of a program: a release comes
 * behind the graph's work, and so does what a graph has of a free on another stream.
 *
 * With a third argument streams have fronts from the start, as they get when threads wait for each other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "pool_private.h"

enum { LIVE = 400, CHECKS = 256, END = 64 };

static uint64_t seed;
static uint64_t operation;

void fail(const char *what, uint64_t a, uint64_t b)
{
    printf("model_pool: seed %llu, operation %llu: %s (%llu, %llu)\n", (unsigned long long)seed,
           (unsigned long long)operation, what, (unsigned long long)a, (unsigned long long)b);
    exit(1);
}

static uint64_t state;

uint64_t random_below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % n;
}

/* --- what the model knows --------------------------------------------------------------------------------- */

struct holding {
    uint64_t address, bytes; /* 0: none */
    int stream;
    uint8_t value;
    part owner;         /* 0, or the part of a graph not released yet that asked for it */
    unsigned int users; /* graphs in whose capture somebody said that he uses it, a bit each */
};

struct graph {
    bool open; /* else the place is unused */
    uint64_t name;
    unsigned int members; /* streams that were in it, a bit each */
    unsigned int ended;   /* of those, ended since */
};

/* Bytes that a stream reads some time, and what they must be. */
struct check {
    uint8_t first[END], last[END];
    uint64_t bytes;
    uint8_t value;
};

static struct {
    bool plain, shifts;
    struct ull_pool *pool;
    ull__stream streams[STREAMS];
    uint64_t stream_count; /* of them in use */
    struct holding held[LIVE];
    struct graph graphs[GRAPHS];
    struct capture {
        int graph; /* -1: none */
        bool seen; /* the device says that the stream is captured, and nobody began a graph */
        uint64_t name_before;
    } capture[STREAMS];
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

static part part_now(int s)
{
    int graph = model.capture[s].graph;
    return graph < 0 ? 0 : part_of(graph, s);
}

static bool is_of(part p, int graph)
{
    return p >= part_of(graph, 0) && p < part_of(graph + 1, 0);
}

/* --- streams ------------------------------------------------------------------------------------------------- */

static void verify(int s)
{
    for (int i = 0; i < model.check_count[s]; i++) {
        const struct check *c = &model.checks[s][i];
        for (uint64_t k = 0; k < (c->bytes < END ? c->bytes : END); k++) {
            if (c->first[k] != c->value || c->last[k] != c->value)
                fail("other bytes than were written", c->first[k], c->value);
        }
    }
    model.check_count[s] = 0;
}

static void synchronize(int s)
{
    host()->ops->synchronize(host(), model.streams[s]);
    verify(s);
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

/* Is there a run in the region for so much, all of it whoever's? *idle: anybody could have all of it. */
static bool region_fits(const struct region *r, uint64_t size, uint64_t alignment, part by, bool *idle)
{
    uint64_t start = 0, end = r->address + r->pages * PAGE;
    unsigned int whose = 0;
    bool fits = false;
    *idle = true;
    for (uint64_t at = r->address; at < end; at += UNIT) {
        unsigned int now = unit_for(at, by);
        *idle = *idle && unit_for(at, 0);
        start = now == 0 || now != whose ? 0 : start;
        whose = now;
        if (now && start == 0)
            start = (at + alignment - 1) / alignment * alignment;
        fits |= now && start < end && at + UNIT >= start + size;
    }
    return fits;
}

static bool plain_has_room(uint64_t bytes, uint64_t alignment, part by)
{
    uint64_t size = (bytes + UNIT - 1) / UNIT * UNIT, idle_pages = 0;
    bool fits = false, idle;
    alignment = alignment > UNIT ? alignment : UNIT;
    for (const struct region *r = regions_held(); r; r = r->next) {
        fits |= region_fits(r, size, alignment, by, &idle);
        idle_pages += idle ? r->pages : 0;
    }
    /* A new region may begin at any unit, unless so far all began with a page. */
    uint64_t room = model.shifts || alignment > PAGE ? alignment - UNIT : 0;
    uint64_t needed = (size + room + PAGE - 1) / PAGE;
    uint64_t busy = pages_held() - idle_pages, limit = model.limit / PAGE;
    for (int i = 0; i < GRAPHS; i++) {
        if (model.graphs[i].open)
            return false;
    }
    return busy <= limit && (fits || needed <= limit - busy);
}

static void check_refusal(const struct ull_request *r, const struct ull_refusal *refusal, part by,
                          bool device_refused)
{
    uint64_t needed = (r->bytes + PAGE - 1) / PAGE, limit = model.limit / PAGE;
    uint64_t used = model.plain ? 0 : pages_not_for(by);
    /* Above a limit that was lowered nothing is served, also to a graph that has what it needs. */
    bool room = model.plain ? !device_refused && plain_has_room(r->bytes, r->alignment, by)
                            : used + needed <= limit && pages_not_for(0) <= limit;
    if (room) {
        char text[2048];
        ull_refusal_text(refusal, text, sizeof text);
        puts(text);
        fail("refused though there was room", used + needed, limit);
    }
    if (refusal->wanted != r->bytes || refusal->held != pages_held() * PAGE ||
        refusal->regions != model.plain)
        fail("the report is wrong", refusal->wanted, refusal->held);
}

static void request(int index)
{
    static const uint64_t alignments[] = {0, 0, 0, 0, 1, 512, 2048, PAGE, 4 * PAGE};
    struct holding *h = &model.held[index];
    struct ull_request r = {
        .bytes = random_size(), .alignment = alignments[random_below(9)], .tag = "model"};
    struct ull_refusal refusal;
    int s = (int)random_below(model.stream_count);
    void *address = NULL;
    r.stream = model.streams[s];
    uint64_t refused = regions_refused();
    model.requests++;
    ull_status status = ull_pool_request(model.pool, &r, &refusal, &address);
    if (status == ULL_E_NO_MEMORY) {
        model.refusals++;
        check_refusal(&r, &refusal, part_now(s), regions_refused() != refused);
        return;
    }
    if (status != ULL_OK)
        fail("a request failed", (uint64_t)-status, r.bytes);
    if ((uintptr_t)address % (r.alignment > UNIT ? r.alignment : UNIT) != 0)
        fail("not aligned", (uintptr_t)address, r.alignment);
    if (pages_held() > model.limit / PAGE)
        fail("served while above the limit", pages_held(), model.limit / PAGE);
    *h = (struct holding){.address = (uintptr_t)address,
                          .bytes = r.bytes,
                          .stream = s,
                          .value = (uint8_t)(1 + random_below(255)),
                          .owner = part_now(s)};
    units_take(h->address, h->bytes, index, h->owner);
    write_later(s, h);
}

static void release(int index)
{
    struct holding *h = &model.held[index];
    int s = h->stream;
    uint64_t kind = random_below(16);
    if (kind == 0) { /* freed on another stream, which was made to follow */
        synchronize(s);
        s = (int)random_below(model.stream_count);
    } else if (kind == 1) { /* read by another stream, which lags */
        synchronize(s);
        int other = (int)random_below(model.stream_count);
        if (ull_pool_use_on(model.pool, (void *)(uintptr_t)h->address, model.streams[other]))
            fail("use_on", h->address, 0);
        if (part_now(other))
            h->users |= 1u << model.capture[other].graph;
        read_later(other, h);
    }
    read_later(s, h);
    part keeper = h->owner ? h->owner : part_now(s);
    if (keeper && (keeper - 1) % STREAMS != s)
        synchronize(s); /* the graph's stream follows this one */
    units_give(h->address, h->bytes, index, keeper, h->users);
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
        if (ull_pool_set_reserve(model.pool, bytes) == ULL_OK && pages_held() * PAGE < bytes)
            fail("the reserve is not held", pages_held(), bytes);
        break;
    case 4:
        synchronize((int)random_below(model.stream_count));
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
    if (s.held != pages_held() * PAGE)
        fail("held", s.held, pages_held() * PAGE);
    if (s.fragmentation < 0 || s.fragmentation > 1)
        fail("fragmentation", 0, 0);
    if (ull__device_host_held(host()).misuses)
        fail("the device was misused", ull__device_host_held(host()).misuses, 0);
}

/* --- graphs, and streams that end --------------------------------------------------------------------------- */

/* A place for a new graph, or one that the stream can join; -1: none. */
static int choose_graph(int s, bool fresh)
{
    for (int i = 0; i < GRAPHS; i++) {
        const struct graph *g = &model.graphs[i];
        bool joins = g->open && g->name != 0 && !(g->ended >> s & 1);
        if (fresh ? !g->open : joins)
            return i;
    }
    return -1;
}

static void begin(int s)
{
    bool seen = random_below(2), fresh = seen || random_below(2);
    int i = choose_graph(s, fresh);
    if (i < 0)
        return;
    struct graph *g = &model.graphs[i];
    uint64_t before = ull_pool_graph_of(model.pool, model.streams[s]), name = fresh ? 0 : g->name;
    if (fresh)
        *g = (struct graph){.open = true};
    g->members |= 1u << s;
    model.capture[s] = (struct capture){.graph = i, .seen = seen, .name_before = before};
    if (seen) {
        /* Any call on the stream, for the pool to see that the capture before this one has ended. */
        ull_pool_free(model.pool, &model, model.streams[s]);
        ull__device_host_capture(host(), model.streams[s], true);
        return;
    }
    if (ull_pool_graph_begin(model.pool, model.streams[s], &name) != ULL_OK || name == 0 ||
        (!fresh && name != g->name))
        fail("a graph could not begin", name, g->name);
    g->name = name;
    uint64_t other = 0;
    if (ull_pool_graph_begin(model.pool, model.streams[s], &other) != ULL_E_INVALID)
        fail("a stream began two graphs", name, other);
}

static void end(int s)
{
    struct capture *c = &model.capture[s];
    struct graph *g = &model.graphs[c->graph];
    if (c->seen) {
        ull__device_host_capture(host(), model.streams[s], false);
        g->name = ull_pool_graph_of(model.pool, model.streams[s]);
        g->open = g->name != c->name_before; /* else nothing was asked for or freed */
        if (!g->open && graph_keeps(c->graph))
            fail("a captured graph has no name", (uint64_t)c->graph, 0);
    } else if (ull_pool_graph_end(model.pool, model.streams[s]) != ULL_OK) {
        fail("a graph could not end", g->name, 0);
    }
    c->graph = -1;
    if (g->open && ull_pool_graph_of(model.pool, model.streams[s]) != g->name)
        fail("a stream has forgotten its graph", g->name, 0);
}

static void release_graph(int i, int s)
{
    struct graph *g = &model.graphs[i];
    for (int k = 0; k < STREAMS; k++) {
        if (model.capture[k].graph == i)
            return;
    }
    for (int k = 0; k < STREAMS; k++) {
        if (k != s && g->members >> k & 1)
            synchronize(k);
    }
    if (ull_pool_graph_release(model.pool, g->name, model.streams[s]) != ULL_OK)
        fail("a graph could not be released", g->name, 0);
    if (ull_pool_graph_release(model.pool, g->name, model.streams[s]) != ULL_E_NOT_FOUND)
        fail("a graph was released twice", g->name, 0);
    units_release(i);
    for (int k = 0; k < LIVE; k++) {
        model.held[k].users &= ~(1u << i);
        if (is_of(model.held[k].owner, i))
            model.held[k].owner = 0;
    }
    g->open = false;
}

/* Forgotten with work on it; then it ends, or goes on as one that the pool has never seen. */
static void forget(int s)
{
    ull__stream stream = model.streams[s];
    if (ull_pool_forget_stream(model.pool, stream) != ULL_OK)
        fail("a stream could not be forgotten", (uint64_t)s, 0);
    if (random_below(2))
        return;
    host()->ops->stream_destroy(host(), stream);
    verify(s);
    host()->ops->stream_create(host(), &model.streams[s]);
    for (int i = 0; i < GRAPHS; i++)
        model.graphs[i].ended |= 1u << s;
}

static void change_order(void)
{
    int s = (int)random_below(model.stream_count), i = (int)random_below(GRAPHS);
    bool captured = model.capture[s].graph >= 0;
    switch (random_below(6)) {
    case 0:
        if (!captured && !(model.plain && seed % 2 == 0))
            begin(s);
        break;
    case 1:
    case 2:
        if (captured)
            end(s);
        break;
    case 3:
    case 4:
        if (model.graphs[i].open)
            release_graph(i, s);
        break;
    default:
        if (!captured && seed % 4 != 3) /* else a single stream stays the only one ever */
            forget(s);
        break;
    }
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
            ull__device_host_advance(host(), model.streams[random_below(model.stream_count)],
                                     (unsigned)random_below(12));
        if (random_below(200) == 0)
            change();
        if (random_below(100) == 0)
            change_order();
        if (operation % 1000 == 0)
            check_all();
    }
}

int main(int argc, char **argv)
{
    struct ull_pool_options options;
    struct ull_error error;
    if (argc > 1 && strcmp(argv[1], "plain") == 0) {
        model.plain = true;
        argv++;
        argc--;
    }
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t operations = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    struct ull__device *below;
    if (ull__device_host_create((uint64_t)HOST_PAGES * PAGE, PAGE, &below, &error) != ULL_OK)
        fail(error.message, 0, 0);
    model.shifts = model.plain && seed / 2 % 2 == 1;
    struct ull__device *device =
        model.plain ? place_plain_between(below, model.shifts) : place_between(below);
    ull__device_host_delay(host(), true);
    for (int i = 0; i < STREAMS; i++) {
        host()->ops->stream_create(host(), &model.streams[i]);
        model.capture[i].graph = -1;
    }
    ull_pool_options_init(&options);
    options.small_bytes = 1024;
    options.idle_ns = 1000000;
    options.now_ns = model_now;
    options.mapping_factor = 1 + (unsigned)random_below(4);
    options.address_factor = 8 + (unsigned)random_below(8);
    model.stream_count = 1 + seed % STREAMS;
    model.limit = (uint64_t)PAGES * PAGE;
    if (ull_pool_create(device, &options, &model.pool, &error) != ULL_OK)
        fail(error.message, 0, 0);
    model.pool->fronts_forced = argc > 3;
    run(operations);
    for (int i = 0; i < LIVE; i++) {
        if (model.held[i].bytes)
            release(i);
    }
    for (int i = 0; i < STREAMS; i++) {
        if (model.capture[i].graph >= 0)
            end(i);
        synchronize(i);
    }
    for (int i = 0; i < GRAPHS; i++) {
        if (model.graphs[i].open)
            release_graph(i, 0);
    }
    check_all();
    ull_pool_destroy(model.pool);
    end_between();
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
