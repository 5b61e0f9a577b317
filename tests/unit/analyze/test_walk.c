/* test_walk.c: what is held and live at each moment, against a naive reference and by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "build.h"
#include "walk.h"

static uint64_t seed;

static uint64_t chance(uint64_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (seed >> 33) % below;
}

/* --- by hand -------------------------------------------------------------------------------------------- */

static void allocs_and_frees(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    build_event(history, 1, ULL_EVENT_ALLOC, 0x1000, 100)->charged = 512;
    build_event(history, 2, ULL_EVENT_ALLOC, 0x2000, 1000)->charged = 1024;
    build_event(history, 3, ULL_EVENT_CHARGE, 0, 0)->charged = 5000;
    history->events[2].class = ULL_CLASS_CONTEXT;
    build_event(history, 4, ULL_EVENT_FREE, 0x1000, 0)->charged = 512;
    build_event(history, 5, ULL_EVENT_ALLOC, 0x3000, 7)->result = 2; /* refused */
    build_event(history, 6, ULL_EVENT_FREE, 0x2000, 0)->result = 1;  /* failed: it is still there */
    struct ull__facts *facts = build_facts(history);
    struct ull__walk *walk = ull__walk_create(facts);
    static const struct {
        enum ull__step step;
        uint64_t held, live;
        uint32_t blocks;
    } want[] = {{ULL_STEP_CAME, 512, 100, 1},      {ULL_STEP_CAME, 1536, 1100, 2},
                {ULL_STEP_CHARGED, 6536, 1100, 2}, {ULL_STEP_FREED, 6024, 1000, 1},
                {ULL_STEP_REFUSED, 6024, 1000, 1}, {ULL_STEP_STRAY, 6024, 1000, 1}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_true(ull__walk_next(walk));
        assert_int_equal(walk->step, want[i].step);
        assert_int_equal(walk->all.held, want[i].held);
        assert_int_equal(walk->all.live, want[i].live);
        assert_int_equal(walk->all.blocks, want[i].blocks);
        assert_int_equal(walk->devices[0].held, want[i].held);
        assert_int_equal(walk->processes[0].live, want[i].live);
    }
    assert_int_equal(walk->all.by_class[ULL_CLASS_CONTEXT], 5000);
    assert_false(ull__walk_next(walk));
    assert_int_equal(facts->refusals, 1);
    assert_false(ull__facts_survived(facts, 4));
    ull__walk_destroy(walk);
    build_free(facts);
}

/* Where there are chunks, they are what is live, and only the driver's blocks are held. */
static void two_layers(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    build_event(history, 1, ULL_EVENT_ALLOC, 0x10000, 4096);
    build_event(history, 2, ULL_EVENT_CHUNK_ALLOC, 0x10000, 1000)->charged = 1024;
    build_event(history, 3, ULL_EVENT_CHUNK_ALLOC, 0x10400, 500)->charged = 512;
    build_event(history, 4, ULL_EVENT_CHUNK_FREE, 0x10000, 0)->charged = 1024;
    struct ull__facts *facts = build_facts(history);
    struct ull__walk *walk = ull__walk_create(facts);
    assert_true(ull__walk_through(walk, 2));
    assert_int_equal(walk->all.held, 4096);
    assert_int_equal(walk->all.live, 1500);
    assert_int_equal(walk->all.chunks, 1536);
    assert_int_equal(walk->all.blocks, 2);
    assert_int_equal(walk->block_count, 3);
    assert_true(ull__walk_through(walk, 3));
    assert_int_equal(walk->all.live, 500);
    ull__walk_destroy(walk);
    build_free(facts);
}

/* An allocator whose driver calls nobody recorded holds what its chunks take. */
static void chunks_alone(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    build_event(history, 1, ULL_EVENT_CHUNK_ALLOC, 0x10000, 1000)->charged = 1024;
    struct ull__facts *facts = build_facts(history);
    struct ull__walk *walk = ull__walk_create(facts);
    assert_true(ull__walk_next(walk));
    assert_int_equal(walk->all.held, 1024);
    assert_int_equal(walk->all.live, 1000);
    ull__walk_destroy(walk);
    build_free(facts);
}

/* Two small blocks in one page: the first pays for it, the last gives it back. */
static void shared_page(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    build_event(history, 1, ULL_EVENT_ALLOC, 0x1000, 100)->charged = 2 << 20;
    build_event(history, 2, ULL_EVENT_ALLOC, 0x2000, 100)->charged = 0;
    build_event(history, 3, ULL_EVENT_FREE, 0x1000, 0)->charged = 0;
    build_event(history, 4, ULL_EVENT_FREE, 0x2000, 0)->charged = 2 << 20;
    struct ull__facts *facts = build_facts(history);
    struct ull__walk *walk = ull__walk_create(facts);
    assert_true(ull__walk_through(walk, 2));
    assert_int_equal(walk->all.held, 2 << 20);
    assert_int_equal(walk->all.live, 100);
    assert_true(ull__walk_next(walk));
    assert_int_equal(walk->all.held, 0);
    ull__walk_destroy(walk);
    build_free(facts);
}

static void existed_before(void **state)
{
    (void)state;
    for (uint64_t dropped = 0; dropped < 2; dropped++) {
        struct ull__history *history = build_history();
        build_event(history, 5, ULL_EVENT_FREE, 0x1000, 0)->charged = 4096;
        build_event(history, 6, ULL_EVENT_FREE, 0x1000, 0)->charged = 4096; /* no second time */
        build_event(history, 7, ULL_EVENT_ALLOC, 0x1000, 512);
        history->dropped = dropped;
        struct ull__facts *facts = build_facts(history);
        struct ull__walk *walk = ull__walk_create(facts);
        /* After events were lost, the allocation may be one of them. */
        assert_int_equal(walk->all.held, dropped ? 0 : 4096);
        assert_true(ull__walk_next(walk));
        assert_int_equal(walk->step, dropped ? ULL_STEP_STRAY : ULL_STEP_FREED);
        assert_int_equal(walk->all.held, 0);
        assert_true(ull__walk_next(walk));
        assert_int_equal(walk->step, ULL_STEP_STRAY);
        assert_true(ull__walk_next(walk));
        assert_int_equal(walk->all.held, 512);
        assert_int_equal(facts->stray_frees, 2);
        ull__walk_destroy(walk);
        build_free(facts);
    }
}

/* Its free was lost: the new block takes the place of the old one. */
static void address_in_use(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    build_event(history, 1, ULL_EVENT_ALLOC, 0x1000, 512);
    build_event(history, 2, ULL_EVENT_ALLOC, 0x1000, 1024);
    struct ull__facts *facts = build_facts(history);
    struct ull__walk *walk = ull__walk_create(facts);
    assert_true(ull__walk_next(walk));
    assert_true(ull__walk_next(walk));
    assert_int_equal(walk->step, ULL_STEP_REPLACED);
    assert_int_equal(walk->all.held, 0);
    assert_int_equal(walk->block.size, 512);
    assert_true(ull__walk_next(walk));
    assert_int_equal(walk->step, ULL_STEP_CAME);
    assert_int_equal(walk->all.held, 1024);
    assert_int_equal(walk->at, 1);
    assert_false(ull__walk_next(walk));
    ull__walk_destroy(walk);
    build_free(facts);
}

static void a_process_ends(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    assert_int_equal(ull__history_process(history, &(struct ull__history_process){.pid = 101}), 1);
    build_event(history, 1, ULL_EVENT_ALLOC, 0x1000, 512);
    build_event(history, 2, ULL_EVENT_ALLOC, 0x2000, 512);
    build_event(history, 3, ULL_EVENT_ALLOC, 0x1000, 4096)->process = 1;
    build_event(history, 4, ULL_EVENT_CHARGE, 0, 0)->charged = 99;
    build_event(history, 5, ULL_EVENT_END, 0, 0)->device = ULL_EVENT_NO_DEVICE;
    struct ull__facts *facts = build_facts(history);
    struct ull__walk *walk = ull__walk_create(facts);
    assert_true(ull__walk_through(walk, 3));
    assert_int_equal(walk->all.held, 512 + 512 + 4096 + 99);
    for (int i = 0; i < 2; i++) {
        assert_true(ull__walk_next(walk));
        assert_int_equal(walk->step, ULL_STEP_LEFT);
    }
    assert_int_equal(walk->all.held, 4096 + 99);
    assert_true(ull__walk_next(walk));
    assert_int_equal(walk->step, ULL_STEP_ENDED);
    assert_int_equal(walk->all.held, 4096);
    assert_int_equal(walk->processes[0].held, 0);
    assert_int_equal(walk->processes[1].held, 4096);
    assert_false(ull__walk_next(walk));
    ull__walk_destroy(walk);
    build_free(facts);
}

static void never_below_zero(void **state)
{
    (void)state;
    struct ull__history *history = build_history();
    build_event(history, 1, ULL_EVENT_CHARGE, 0, 0)->charged = 100;
    build_event(history, 2, ULL_EVENT_CHARGE, 0, 0)->charged = -300;
    build_event(history, 3, ULL_EVENT_CHARGE, 0, 0)->charged = 50;
    struct ull__facts *facts = build_facts(history);
    struct ull__walk *walk = ull__walk_create(facts);
    assert_true(ull__walk_through(walk, 1));
    assert_int_equal(walk->all.held, 0);
    assert_true(ull__walk_next(walk));
    assert_int_equal(walk->all.held, 50);
    ull__walk_destroy(walk);
    build_free(facts);
}

/* --- against a reference -------------------------------------------------------------------------------- */

enum { PROCESSES = 3, DEVICES = 2, PLACES = 40, EVENTS = 6000 };

struct naive {
    struct {
        uint64_t size, charged;
        bool there;
        uint8_t class;
    } blocks[PROCESSES][DEVICES][PLACES];
    int64_t charges[PROCESSES][DEVICES][ULL_CLASSES];
};

static void random_event(struct ull__history *history, uint64_t time)
{
    uint64_t what = chance(100), address = 0x1000 * (1 + chance(PLACES));
    struct ull__event *event;
    if (what < 50) {
        uint64_t size = 1 + chance(100000);
        event = build_event(history, time, ULL_EVENT_ALLOC, address, size);
        event->charged = (int64_t)(size + chance(1000));
        event->result = chance(10) == 0 ? 2 : 0;
    } else if (what < 90) {
        event = build_event(history, time, ULL_EVENT_FREE, address, 0);
    } else if (what < 99) {
        event = build_event(history, time, ULL_EVENT_CHARGE, 0, 0);
        event->charged = (int64_t)chance(100000) - 40000;
    } else {
        event = build_event(history, time, ULL_EVENT_END, 0, 0);
    }
    event->process = (uint16_t)chance(PROCESSES);
    event->device = (uint8_t)chance(DEVICES);
    event->class = (uint8_t)chance(ULL_CLASSES);
}

static void naive_step(struct naive *naive, const struct ull__event *event)
{
    size_t place = (size_t)(event->address / 0x1000 - 1);
    int p = event->process, d = event->device;
    if (event->kind == ULL_EVENT_END) {
        memset(naive->blocks[p], 0, sizeof naive->blocks[p]);
        memset(naive->charges[p], 0, sizeof naive->charges[p]);
    } else if (event->kind == ULL_EVENT_CHARGE) {
        naive->charges[p][d][event->class] += event->charged;
    } else if (event->kind == ULL_EVENT_FREE) {
        naive->blocks[p][d][place].there = false;
    } else if (event->result == 0) {
        naive->blocks[p][d][place].there = true;
        naive->blocks[p][d][place].size = event->size;
        naive->blocks[p][d][place].charged = (uint64_t)event->charged;
        naive->blocks[p][d][place].class = event->class;
    }
}

/* Charges may not fall below what there is, so that the reference needs no clamp. */
static bool would_fall_below(const struct naive *naive, const struct ull__event *event)
{
    return event->kind == ULL_EVENT_CHARGE &&
           naive->charges[event->process][event->device][event->class] + event->charged < 0;
}

static void free_as_charged(const struct naive *naive, struct ull__event *event)
{
    size_t place = (size_t)(event->address / 0x1000 - 1);
    bool there = naive->blocks[event->process][event->device][place].there;
    event->charged = there ? (int64_t)naive->blocks[event->process][event->device][place].charged : 0;
    event->class = naive->blocks[event->process][event->device][place].class;
}

static void compare(const struct naive *naive, const struct ull__walk *walk)
{
    uint64_t held = 0, live = 0, blocks = 0;
    for (int p = 0; p < PROCESSES; p++) {
        uint64_t of_process = 0;
        for (int d = 0; d < DEVICES; d++) {
            uint64_t share = 0, by_class[ULL_CLASSES] = {0};
            for (int c = 0; c < ULL_CLASSES; c++)
                by_class[c] += (uint64_t)naive->charges[p][d][c];
            for (int i = 0; i < PLACES; i++) {
                if (!naive->blocks[p][d][i].there)
                    continue;
                by_class[naive->blocks[p][d][i].class] += naive->blocks[p][d][i].charged;
                live += naive->blocks[p][d][i].size;
                blocks++;
            }
            for (int c = 0; c < ULL_CLASSES; c++) {
                share += by_class[c];
                assert_int_equal(ull__walk_share(walk, (uint32_t)p, (uint32_t)d)->by_class[c],
                                 by_class[c]);
            }
            assert_int_equal(ull__walk_share(walk, (uint32_t)p, (uint32_t)d)->held, share);
            of_process += share;
        }
        assert_int_equal(walk->processes[p].held, of_process);
        held += of_process;
    }
    assert_int_equal(walk->all.held, held);
    assert_int_equal(walk->all.live, live);
    assert_int_equal(walk->all.blocks, blocks);
    assert_int_equal(walk->block_count, blocks);
    assert_int_equal(walk->devices[0].held + walk->devices[1].held, held);
}

static void like_the_reference(void **state)
{
    (void)state;
    for (seed = 1; seed <= 5; seed++) {
        uint64_t first = seed;
        struct ull__history *history = build_history();
        struct naive *naive = calloc(1, sizeof *naive);
        for (uint32_t p = 1; p < PROCESSES; p++)
            ull__history_process(history, &(struct ull__history_process){.pid = 100 + p});
        ull__history_device(history, &(struct ull__history_device){.logical = 1});
        history->dropped = 1; /* so that nothing existed before */
        for (uint64_t i = 0; i < EVENTS; i++) {
            random_event(history, i);
            struct ull__event *event = &history->events[history->event_count - 1];
            if (would_fall_below(naive, event))
                event->charged = 1;
            if (event->kind == ULL_EVENT_FREE)
                free_as_charged(naive, event);
            naive_step(naive, event);
        }
        memset(naive, 0, sizeof *naive);
        struct ull__facts *facts = build_facts(history);
        struct ull__walk *walk = ull__walk_create(facts);
        for (size_t i = 0; i < history->event_count; i++) {
            naive_step(naive, &history->events[i]);
            assert_true(ull__walk_through(walk, i));
            compare(naive, walk);
        }
        assert_false(ull__walk_next(walk));
        ull__walk_destroy(walk);
        build_free(facts);
        free(naive);
        seed = first;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocs_and_frees),   cmocka_unit_test(two_layers),
        cmocka_unit_test(chunks_alone),       cmocka_unit_test(shared_page),
        cmocka_unit_test(existed_before),     cmocka_unit_test(address_in_use),
        cmocka_unit_test(a_process_ends),     cmocka_unit_test(never_below_zero),
        cmocka_unit_test(like_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
