/* test_random.c: the generator gives the numbers that its authors published, and random operators read it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops.h"
#include "random.h"
#include "step.h"

/* From the known answers of Random123, the authors' library. */
static void known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], draws[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); ++i) {
        uint32_t draws[4];
        ull__philox(known[i].counter, known[i].key, draws);
        assert_memory_equal(draws, known[i].draws, sizeof(draws));
    }
}

/* Dropout and attention with dropout, packed or not, masked or not, read one generator, and so do their gradients. */
static void all_read_the_generator(void **state)
{
    struct ull__graph *g = ull__graph_create();
    ull__dim dims[] = {g->batch, 6, 12};
    struct ull__attention_attrs attrs = {.heads = 2, .kv_heads = 2, .dropout = 0.1};
    int x[4];
    (void)state;
    for (int i = 0; i < 4; ++i) {
        x[i] = ull__graph_parameter(g, "x", 3, dims, ULL_INIT_ZERO, 0);
    }
    int mask = ull__graph_input(g, "m", ULL_TYPE_F32, 2, (ull__dim[]){6, 6});
    int y = ull__attention(g, x[0], x[1], x[2], mask, attrs);
    y = ull__binary(g, ULL_BINARY_ADD, y, ull__attention(g, x[0], x[1], x[2], ULL_NONE, attrs));
    y = ull__linear(g, y, ull__graph_parameter(g, "w", 2, (ull__dim[]){36, 12}, ULL_INIT_ZERO, 0),
                    ULL_NONE);
    y = ull__attention(g, y, ULL_NONE, ULL_NONE, ULL_NONE, attrs);
    y = ull__dropout(g, y, 0.5);
    ull__graph_loss(g, ull__mse(g, y, x[3], ULL_NONE), 1);
    assert_int_equal(
        ull__step_build(g, &(struct ull__step_options){.optimizer = ULL_OPTIMIZER_SGD}, NULL),
        ULL_OK);
    int generator = ull__graph_generator(g), readers = 0;
    uint32_t keys = 0;
    for (int i = 0; i < g->node_count; ++i) {
        const struct ull__node *node = &g->nodes[i];
        if ((node->op->flags & ULL_OP_RANDOM) == 0) {
            continue;
        }
        int last = node->inputs[node->input_count - 1];
        assert_int_equal(last, generator);
        bool forward = node->pass == ULL_PASS_FORWARD;
        uint32_t key =
            node->op == &ull__op_dropout ? node->attrs.dropout.key : node->attrs.attention.key;
        assert_true(key < 32 && ((keys >> key & 1) == 0) == forward);
        keys |= 1u << key;
        readers += 1;
    }
    assert_int_equal(readers, 8);
    assert_int_equal(g->tensors[generator].dims[0], ULL_GENERATOR_SIZE);
    ull__graph_destroy(g);
}

/* A mask that is trained would silently stay as it is. */
static void masks_are_not_trained(void **state)
{
    struct ull__graph *g = ull__graph_create();
    struct ull_error err = {{0}};
    (void)state;
    int x = ull__graph_input(g, "x", ULL_TYPE_F32, 3, (ull__dim[]){g->batch, 6, 36});
    int y = ull__graph_input(g, "y", ULL_TYPE_F32, 3, (ull__dim[]){g->batch, 6, 12});
    int mask = ull__graph_parameter(g, "m", 2, (ull__dim[]){6, 6}, ULL_INIT_ZERO, 0);
    int out = ull__attention(g, x, ULL_NONE, ULL_NONE, mask,
                             (struct ull__attention_attrs){.heads = 2, .kv_heads = 2});
    ull__graph_loss(g, ull__mse(g, out, y, ULL_NONE), 1);
    assert_int_equal(
        ull__step_build(g, &(struct ull__step_options){.optimizer = ULL_OPTIMIZER_SGD}, &err),
        ULL_E_INVALID);
    assert_non_null(strstr(err.message, "mask"));
    ull__graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(all_read_the_generator),
        cmocka_unit_test(masks_are_not_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
