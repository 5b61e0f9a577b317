/* test_places.c: the tables of addresses (map.h, extents.h) against plain arrays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "extents.h"
#include "map.h"

static uint64_t seed = 1;

static uint32_t any(uint32_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % below;
}

/* Few keys, many of which meet in the same slots, so that removing must move others. */
static void map_like_an_array(void **state)
{
    (void)state;
    enum { KEYS = 3000 };
    static uint32_t wanted[KEYS];
    memset(wanted, 0xff, sizeof wanted);
    struct ull__map map = {0};
    assert_int_equal(ull__map_get(&map, 0), ULL_MAP_NONE);
    assert_int_equal(ull__map_take(&map, 0), ULL_MAP_NONE);
    for (int step = 0; step < 300000; step++) {
        uint32_t key = any(KEYS);
        uint64_t wide = (uint64_t)key << 21;
        if (any(2)) {
            wanted[key] = any(1000);
            assert_true(ull__map_put(&map, wide, wanted[key]));
        } else {
            assert_int_equal(ull__map_take(&map, wide), wanted[key]);
            wanted[key] = ULL_MAP_NONE;
        }
        key = any(KEYS);
        assert_int_equal(ull__map_get(&map, (uint64_t)key << 21), wanted[key]);
    }
    ull__map_finish(&map);
}

static void extents_like_an_array(void **state)
{
    (void)state;
    enum { PLACES = 200 };
    uint64_t owner[PLACES] = {0}; /* 0: free, else the extent's value */
    struct ull__extents extents = {0};
    struct ull__extent taken;
    for (uint64_t step = 1; step < 100000; step++) {
        uint32_t begin = any(PLACES), end = begin + 1 + any(PLACES - begin);
        end = end > PLACES ? PLACES : end;
        bool overlaps = false;
        for (uint32_t i = begin; i < end; i++)
            overlaps = overlaps || owner[i];
        assert_int_equal(ull__extents_find(&extents, begin, end) != NULL, overlaps);
        if (!overlaps) {
            assert_true(ull__extents_add(
                &extents, &(struct ull__extent){.begin = begin, .end = end, .value = step}));
            for (uint32_t i = begin; i < end; i++)
                owner[i] = step;
        } else if (any(2)) {
            assert_true(ull__extents_take(&extents, begin, end, &taken));
            assert_true(taken.begin < end && taken.end > begin);
            for (uint64_t i = taken.begin; i < taken.end; i++) {
                assert_true(owner[i] == taken.value);
                owner[i] = 0;
            }
        }
    }
    while (ull__extents_pop(&extents, &taken))
        for (uint64_t i = taken.begin; i < taken.end; i++)
            owner[i] = 0;
    for (uint32_t i = 0; i < PLACES; i++)
        assert_true(owner[i] == 0);
    assert_true(ull__extents_add(&extents, &(struct ull__extent){.begin = 5, .end = UINT64_MAX}));
    ull__extents_finish(&extents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_like_an_array),
        cmocka_unit_test(extents_like_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
