/* test_names.c: every node and tensor of a graph has a name of its own, by which it is found again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "names.h"
#include "ops.h"

/* All of them are found by their names. */
static struct ull__names *round_trip(const struct ull__graph *graph)
{
    struct ull__names *names = ull__names_create(graph);
    char text[256];
    assert_non_null(names);
    for (int i = 0; i < graph->node_count; ++i) {
        assert_int_equal(ull__names_find_node(names, ull__names_node(names, i)), i);
    }
    for (int i = 0; i < graph->tensor_count; ++i) {
        assert_int_equal(ull__names_find_tensor(names, ull__names_tensor(names, i, text)), i);
    }
    return names;
}

/* Blocks of one name, as a file of ONNX has them where a module is used again much later, and names too long to keep. */
static void blocks_of_one_name(void **state)
{
    struct ull__graph *graph = ull__graph_create();
    char longs[2][300];
    (void)state;
    for (int i = 0; i < 2; ++i) {
        memset(longs[i], 'm', sizeof(longs[i]) - 1);
        longs[i][298] = (char)('0' + i);
        longs[i][299] = '\0';
    }
    const char *const blocks[] = {"layer.0", longs[0], "layer.0", longs[1], "layer.0/tanh"};
    int x = ull__graph_input(graph, "x", ULL_TYPE_F32, 1, (ull__dim[]){8});
    for (int i = 0; i < 5; ++i) {
        ull__graph_block(graph, blocks[i]);
        x = ull__unary(graph, ULL_UNARY_TANH, ull__unary(graph, ULL_UNARY_TANH, x));
        ull__graph_block_end(graph);
        x = ull__unary(graph, ULL_UNARY_TANH, x);
    }
    assert_true(ull__graph_ok(graph));
    struct ull__names *names = round_trip(graph);
    const char *op = graph->nodes[0].op->name;
    char wanted[64];
    assert_int_equal(strncmp(ull__names_node(names, 0), "layer.0/", 8), 0);
    snprintf(wanted, sizeof(wanted), "layer.0/%s.3", op);
    assert_string_equal(ull__names_node(names, 7), wanted);
    snprintf(wanted, sizeof(wanted), "%s.4", op);
    assert_string_equal(ull__names_node(names, 14), wanted);
    ull__names_destroy(names);
    ull__graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_one_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
