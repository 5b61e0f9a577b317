/* test_block.c: pieces never overlap, and giving all back leaves one piece. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "block.h"

static void random_takes_and_gives_come_back(void **state)
{
    enum { LIVE = 300, SIZE = 1 << 20 };
    uint32_t pieces[LIVE];
    uint64_t sizes[LIVE], live = 0;
    struct block block;
    (void)state;
    srand(7);
    assert_true(block_init(&block, SIZE));
    for (int i = 0; i < LIVE; i++)
        pieces[i] = BLOCK_NONE;
    for (int round = 0; round < 200000; round++) {
        int i = rand() % LIVE;
        if (pieces[i] != BLOCK_NONE) {
            block_give(&block, pieces[i]);
            pieces[i] = BLOCK_NONE;
            live -= sizes[i];
        } else {
            uint64_t size = (uint64_t)(rand() % 8000) + 1;
            pieces[i] = block_take(&block, size);
            sizes[i] = (size + 255) / 256 * 256;
            if (pieces[i] != BLOCK_NONE)
                live += sizes[i];
        }
        assert_true(live <= SIZE);
        assert_int_equal(block.free_bytes, SIZE - live);
    }
    for (int i = 0; i < LIVE; i++) {
        if (pieces[i] != BLOCK_NONE)
            block_give(&block, pieces[i]);
    }
    uint32_t all = block_take(&block, SIZE); /* one piece again */
    assert_int_not_equal(all, BLOCK_NONE);
    assert_int_equal(block_take(&block, 1), BLOCK_NONE);
    block_finish(&block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_takes_and_gives_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
