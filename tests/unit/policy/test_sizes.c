/* test_sizes.c: the table of addresses against a plain array, with many collisions and removals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "policy_private.h"

enum { PLACES = 700 };

static void as_a_plain_array(void **state)
{
    (void)state;
    struct ull__sizes sizes = {0};
    uint64_t bytes[PLACES] = {0};
    unsigned int random = 20261129;
    size_t count = 0;
    for (int step = 0; step < 200000; step++) {
        random = random * 1103515245u + 12345u;
        size_t place = (random >> 8) % PLACES;
        void *address = (void *)((place + 1) * 256);
        struct ull__size_entry entry = {0};
        if (bytes[place]) {
            assert_true(ull__sizes_take(&sizes, address, &entry));
            assert_int_equal(entry.address, (uintptr_t)address);
            assert_int_equal(entry.bytes, bytes[place]);
            bytes[place] = 0;
            count--;
        } else {
            assert_false(ull__sizes_take(&sizes, address, &entry));
            assert_true(ull__sizes_promise(&sizes));
            bytes[place] = (uint64_t)step + 1;
            entry = (struct ull__size_entry){.address = (uintptr_t)address, .bytes = bytes[place]};
            ull__sizes_add(&sizes, &entry);
            count++;
        }
        assert_int_equal(sizes.count, count);
    }
    ull__sizes_finish(&sizes);
}

static void promises_are_kept(void **state)
{
    (void)state;
    struct ull__sizes sizes = {0};
    struct ull__size_entry entry;
    assert_false(ull__sizes_take(&sizes, &sizes, &entry)); /* empty */
    for (int i = 0; i < 1000; i++)
        assert_true(ull__sizes_promise(&sizes));
    struct ull__size_entry *before = sizes.entries;
    for (uint64_t i = 1; i <= 1000; i++)
        ull__sizes_add(&sizes, &(struct ull__size_entry){.address = i * 256, .bytes = i});
    assert_ptr_equal(sizes.entries, before); /* no memory was needed any more */
    for (uint64_t i = 1; i <= 1000; i++) {
        assert_true(ull__sizes_take(&sizes, (void *)(uintptr_t)(i * 256), &entry));
        assert_int_equal(entry.bytes, i);
    }
    assert_false(ull__sizes_take(&sizes, NULL, &entry));
    ull__sizes_finish(&sizes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_a_plain_array),
        cmocka_unit_test(promises_are_kept),
    };
    return cmocka_run_group_tests_name("policy.sizes", tests, NULL, NULL);
}
