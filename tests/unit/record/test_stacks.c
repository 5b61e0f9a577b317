/* test_stacks.c: a place in the program is one stack, also for threads at once; a full table counts what it drops. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "stacks.h"

static struct ull__stacks *stacks;

/* A stack of its own for each sequence of turns. Frames below the eight that count as the library's. */
__attribute__((noinline)) static uint32_t left(uint32_t turns, int depth);
__attribute__((noinline)) static uint32_t right(uint32_t turns, int depth)
{
    uint32_t got = depth == 0    ? ull__stacks_take(stacks)
                   : (turns & 1) ? right(turns >> 1, depth - 1)
                                 : left(turns >> 1, depth - 1);
    __asm__ volatile("" ::: "memory"); /* no tail call */
    return got;
}

__attribute__((noinline)) static uint32_t left(uint32_t turns, int depth)
{
    uint32_t got = depth == 0    ? ull__stacks_take(stacks)
                   : (turns & 1) ? right(turns >> 1, depth - 1)
                                 : left(turns >> 1, depth - 1);
    __asm__ volatile("" ::: "memory");
    return got;
}

/* Turns that are told apart above the frames that are left out. */
static uint32_t at(uint32_t place)
{
    return left(place, 32);
}

static void one_place_one_stack(void **state)
{
    (void)state;
    uint32_t numbers[64];
    stacks = ull__stacks_create();
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 64; i++) {
            uint32_t number = at(i);
            assert_int_not_equal(number, 0);
            if (round == 0)
                numbers[i] = number;
            assert_int_equal(number, numbers[i]);
            for (uint32_t k = 0; k < i; k++)
                assert_int_not_equal(number, numbers[k]);
        }
    assert_int_equal(ull__stacks_dropped(stacks), 0);
    ull__stacks_destroy(stacks);
    ull__stacks_destroy(NULL);
}

static void *take_all(void *data)
{
    uint32_t *numbers = data;
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 200; i++) {
            uint32_t number = at(i);
            if (round > 0 && number != numbers[i])
                numbers[i] = UINT32_MAX;
            else
                numbers[i] = number;
        }
    return NULL;
}

static void threads_at_once(void **state)
{
    (void)state;
    static uint32_t numbers[4][200];
    pthread_t threads[4];
    stacks = ull__stacks_create();
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, take_all, numbers[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        for (uint32_t k = 0; k < 200; k++)
            assert_int_equal(numbers[i][k], numbers[0][k]);
    ull__stacks_destroy(stacks);
}

static void a_full_table(void **state)
{
    (void)state;
    uint32_t kept = 0, none = 0;
    stacks = ull__stacks_create();
    for (uint32_t i = 0; i <= 40000; i++) {
        uint32_t number = at(i % 40000);
        if (i == 40000)
            assert_int_not_equal(number, 0); /* what is known is found all the same */
        kept += number != 0;
        none += number == 0;
    }
    assert_true(kept > 5000);
    assert_int_equal(ull__stacks_dropped(stacks), none);
    assert_true(none > 0);
    ull__stacks_destroy(stacks);
}

/* Written once; the second time it is the same number. */
static void written(void **state)
{
    (void)state;
    char path[] = "/tmp/ullage-test-stacks-XXXXXX", id[ULL_RECORD_ID];
    struct ull__writer *writer;
    close(mkstemp(path));
    assert_int_equal(ull__record_create(path, id, NULL), ULL_OK);
    assert_int_equal(ull__writer_open(path, id, &writer, NULL), ULL_OK);
    stacks = ull__stacks_create();
    uint32_t one = at(1), two = at(2);
    assert_int_equal(ull__stacks_write(stacks, one, writer), 1);
    assert_int_equal(ull__stacks_write(stacks, two, writer), 2);
    assert_int_equal(ull__stacks_write(stacks, one, writer), 1);
    assert_int_equal(ull__stacks_write(stacks, 0, writer), 0);
    assert_int_equal(ull__stacks_write(stacks, UINT32_MAX, writer), 0);
    ull__stacks_destroy(stacks);
    ull__writer_close(writer);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_place_one_stack),
                                       cmocka_unit_test(threads_at_once),
                                       cmocka_unit_test(a_full_table), cmocka_unit_test(written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
